//! Where samples come from: a file of any kind, and which of its columns is which.

use std::borrow::Cow;
use std::io::{BufRead, Cursor, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::array::items_as_lines;
use crate::column::{ColumnPath, Names, TableRow, names};
use crate::delimited::Delimited;
use crate::error::{KEPT, RecordUnit};
use crate::format::{DataFormat, foreign};
use crate::line_error::LineError;
use crate::lines::from_value;
use crate::open::{file_name, open_file, open_packed, read_all, unpacked};
use crate::parquet_file::ParquetRows;
use crate::preferences;
use crate::read::{ReadReport, RecordItems};
use crate::rows::{GivenTable, SeenColumns, TableRows};
use crate::samples::MappedSamples;
use crate::{DataError, JsonLines, LineProblems, Mapping, Record as _, Records, Sample};

/// The longest Parquet file that is read through a pipe, which has to be held in memory: 2 GiB.
const LONGEST_PIPED: u64 = 2 << 30;

/// A file of samples and how to read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSource {
    /// The file, `-` for standard input.
    pub path: PathBuf,
    /// What it is, where its content and name should not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DataFormat>,
    /// Which column is which. Empty for JSON lines in our own form, and for tables whose columns have our fields'
    /// names.
    #[serde(default, skip_serializing_if = "Mapping::is_empty")]
    pub map: Mapping,
    /// Only the first so many samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// An open file of samples.
pub struct SampleFile {
    /// The samples.
    pub records: Records<'static, Sample>,
    /// What the file is.
    pub format: DataFormat,
    /// The columns so far, and those that are used; none for JSON lines in our own form.
    columns: Option<(SeenColumns, Vec<ColumnPath>)>,
}

impl SampleFile {
    /// The columns that were passed over so far, by name.
    pub fn unmapped(&self) -> Vec<String> {
        let Some((seen, used)) = &self.columns else { return Vec::new() };
        let seen = seen.all();
        let known = names(&seen);
        let roots: Names<'_> = used.iter().filter_map(|column| column.root(&known)).collect();
        seen.iter().filter(|name| !roots.contains(name.as_str())).cloned().collect()
    }
}

/// An open file as rows.
pub(crate) struct OpenRows {
    pub(crate) rows: TableRows<Box<dyn BufRead + Send>>,
    pub(crate) unit: RecordUnit,
}

impl SampleSource {
    /// A file by itself.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None, map: Mapping::default(), limit: None }
    }

    /// All its samples; a file with anything wrong in it (as far as it is read) is refused with all that is wrong.
    pub fn samples(&self) -> Result<Vec<Sample>, DataError> {
        self.samples_for(|_| Vec::new())
    }

    /// As [`SampleSource::samples`]; what `wrong` finds about a sample is wrong with the file too.
    pub fn samples_for(&self, wrong: impl Fn(&Sample) -> Vec<LineError>) -> Result<Vec<Sample>, DataError> {
        Self::all(self.open()?.records, wrong)
    }

    /// All samples of a table in memory, by the same rules.
    pub fn samples_of_table(
        &self,
        table: Box<dyn GivenTable>,
        wrong: impl Fn(&Sample) -> Vec<LineError>,
    ) -> Result<Vec<Sample>, DataError> {
        Self::all(self.records_of_table(table)?, wrong)
    }

    fn all(
        mut good: Records<'static, Sample>,
        wrong: impl Fn(&Sample) -> Vec<LineError>,
    ) -> Result<Vec<Sample>, DataError> {
        let records: Vec<(usize, Sample)> = good.by_ref().collect();
        let mut problems = good.into_problems();
        for (place, sample) in &records {
            for error in wrong(sample) {
                problems.push(*place, error);
            }
        }
        ReadReport { records, problems }.strict()
    }

    /// Opens it: samples come one at a time.
    pub fn open(&self) -> Result<SampleFile, DataError> {
        self.open_keeping(KEPT)
    }

    /// As [`SampleSource::open`]; of the problems so many are kept, the rest is counted.
    pub fn open_keeping(&self, problems: usize) -> Result<SampleFile, DataError> {
        self.open_either(open_packed(&self.path)?, true, problems)
    }

    /// As [`SampleSource::open`], with the bytes of `reader` in place of the file's, which still gives the name.
    pub fn open_from(&self, reader: impl BufRead + Send + 'static) -> Result<SampleFile, DataError> {
        self.open_either(reader, false, KEPT)
    }

    fn open_either(
        &self,
        reader: impl BufRead + Send + 'static,
        on_disk: bool,
        keep: usize,
    ) -> Result<SampleFile, DataError> {
        let file = file_name(&self.path);
        // A pipe may give a few bytes at a time. What the file is, is told by its first row, so that is gathered first.
        let mut reader = with_first_row(unpacked(reader, &file)?);
        // A reader that fails says so where its first line is read.
        let start = reader.fill_buf().unwrap_or_default();
        refuse_foreign(start, &file)?;
        let format = self.format.unwrap_or_else(|| DataFormat::told_by(start, &self.path));
        let problems = |unit| LineProblems { keep, unit, ..LineProblems::new(file.clone()) };
        let mut map = Cow::Borrowed(&self.map);
        // A mapping says what the columns are, so nothing is guessed beside one.
        if format == DataFormat::Jsonl && self.map.is_empty() {
            let pairs =
                preferences::mapping_of(start).map_err(|source| DataError::Mapping { file: file.clone(), source })?;
            let Some(pairs) = pairs else {
                return Ok(SampleFile {
                    records: Records::lines(reader, problems(RecordUnit::Line), self.limit)?,
                    format,
                    columns: None,
                });
            };
            map = Cow::Owned(pairs);
        }
        let seen = SeenColumns::default();
        let rows = self.rows_of(reader, format, on_disk, &seen, <Sample as crate::Record>::EXAMPLE)?;
        let unit = rows.unit;
        let samples = MappedSamples::new(rows.rows, &map, seen.clone(), &file)?;
        let used = samples.used();
        let records = Records::of(Box::new(samples) as RecordItems<'static, Sample>, problems(unit), self.limit)?;
        Ok(SampleFile { records, format, columns: Some((seen, used)) })
    }

    /// The samples of a table in memory, whose columns these options map; `path` is what messages call it.
    fn records_of_table(&self, table: Box<dyn GivenTable>) -> Result<Records<'static, Sample>, DataError> {
        let file = file_name(&self.path);
        let problems = LineProblems { unit: RecordUnit::Index, ..LineProblems::new(file.clone()) };
        let mut table = Peeked::new(table);
        // Without a mapping the first row shows what the columns are: where it cannot be read, that is what is wrong.
        if self.map.is_empty()
            && let Some((place, error)) = table.broken_first()
        {
            let mut problems = problems;
            problems.push(place, error);
            return Err(DataError::Problems(problems));
        }
        let has = |name: &str| table.has(name);
        if self.map.is_empty() && has("candidates") {
            let nulls_say_nothing = table.columns().is_some();
            let whole = move |row: TableRow| if nulls_say_nothing { row.without_nulls() } else { row };
            let sample = move |row: Result<TableRow, LineError>| {
                row.map_err(|error| vec![error]).and_then(|row| own_form(whole(row)))
            };
            let samples = table.map(move |(place, row)| (place, sample(row)));
            return Records::of(Box::new(samples) as RecordItems<'static, Sample>, problems, self.limit);
        }
        let pairs = self.map.is_empty().then(|| preferences::mapping(has, table.chosen_is_a_conversation())).flatten();
        // Of rows that name their own columns, the first shows what they are.
        let named = || table.first().map(|row| row.keys().map(str::to_owned).collect::<Vec<_>>());
        let own = self.map.is_empty().then(named).flatten().map(|columns| Mapping::of_columns(&columns));
        let map = pairs.as_ref().or(own.as_ref()).unwrap_or(&self.map);
        let seen = SeenColumns::default();
        let rows = TableRows::<Cursor<Vec<u8>>>::Given(Box::new(table), seen.clone());
        let samples = MappedSamples::new(rows, map, seen, &file)?;
        Records::of(Box::new(samples) as RecordItems<'static, Sample>, problems, self.limit)
    }

    /// The rows of the file as they are, whatever they are rows of; `example` is a good line for messages.
    pub(crate) fn rows(&self, seen: &SeenColumns, example: &'static str) -> Result<OpenRows, DataError> {
        let mut reader = unpacked(open_packed(&self.path)?, &file_name(&self.path))?;
        let start = reader.fill_buf().unwrap_or_default();
        refuse_foreign(start, &file_name(&self.path))?;
        let format = self.format.unwrap_or_else(|| DataFormat::told_by(start, &self.path));
        self.rows_of(reader, format, true, seen, example)
    }

    fn rows_of(
        &self,
        mut reader: Box<dyn BufRead + Send>,
        format: DataFormat,
        on_disk: bool,
        seen: &SeenColumns,
        example: &'static str,
    ) -> Result<OpenRows, DataError> {
        let file = file_name(&self.path);
        let wrong = |unit, place, error| {
            let mut wrong = LineProblems { unit, ..LineProblems::new(file.clone()) };
            wrong.push(place, error);
            DataError::Problems(wrong)
        };
        let rows = match format {
            DataFormat::Jsonl => {
                let (reader, unit) = items_as_lines(reader);
                return Ok(OpenRows { rows: TableRows::Lines(JsonLines::new(reader), seen.clone()), unit });
            }
            DataFormat::Csv | DataFormat::Tsv => {
                let delimiter = delimiter(format, reader.fill_buf().unwrap_or_default());
                let cells = Delimited::new(reader, delimiter).map_err(|(line, e)| wrong(RecordUnit::Line, line, e))?;
                if cells.columns().is_empty() {
                    return Err(DataError::Empty { file: file.clone(), example });
                }
                TableRows::Cells(Box::new(cells))
            }
            DataFormat::Parquet => TableRows::Parquet(Box::new(
                parquet(on_disk.then_some(&self.path), reader).map_err(|why| match why {
                    LineError::Read(source) => DataError::open(file.clone())(source),
                    other => wrong(RecordUnit::Row, 0, other),
                })?,
            )),
        };
        let unit = if format == DataFormat::Parquet { RecordUnit::Row } else { RecordUnit::Line };
        Ok(OpenRows { rows, unit })
    }
}

/// A row that is a sample in our own form.
fn own_form(row: TableRow) -> Result<Sample, Vec<LineError>> {
    let mut row = row.into_object();
    names_as_texts(&mut row);
    from_value(&row).map_err(|first| {
        let told = first.to_string();
        let more = Sample::wrong_shape(&row).into_iter().filter(|error| error.to_string() != told);
        std::iter::once(first).chain(more).collect()
    })
}

/// Frames count what they hold: names that are whole numbers are told as texts.
fn names_as_texts(row: &mut Value) {
    let of = |name: Option<&mut Value>| {
        if let Some(name) = name.filter(|name| name.is_i64() || name.is_u64()) {
            *name = Value::String(name.to_string());
        }
    };
    of(row.get_mut("id"));
    of(row.get_mut("preference"));
    for candidate in row.get_mut("candidates").and_then(Value::as_array_mut).into_iter().flatten() {
        of(candidate.get_mut("id"));
    }
}

/// A table whose first row was looked at.
struct Peeked {
    first: Option<(usize, Result<TableRow, LineError>)>,
    rest: Box<dyn GivenTable>,
}

impl Peeked {
    fn new(mut rest: Box<dyn GivenTable>) -> Self {
        // Where columns are known, values are looked at once it is known which of them are wanted; but whether answers
        // are conversations, only a value tells.
        let looks = rest.columns().is_none_or(|columns| columns.iter().any(|column| column == "chosen"));
        Self { first: if looks { rest.next() } else { None }, rest }
    }

    /// What is wrong with the first row.
    fn broken_first(&mut self) -> Option<(usize, LineError)> {
        match self.first.take() {
            Some((place, Err(error))) => Some((place, error)),
            first => {
                self.first = first;
                None
            }
        }
    }

    fn first(&self) -> Option<&TableRow> {
        self.first.as_ref().and_then(|(_, row)| row.as_ref().ok())
    }

    fn has(&self, name: &str) -> bool {
        match self.rest.columns() {
            Some(columns) => columns.iter().any(|column| column == name),
            None => self.first().is_some_and(|row| row.keys().any(|key| key == name)),
        }
    }

    fn chosen_is_a_conversation(&self) -> bool {
        self.first().is_some_and(|row| row.values().get("chosen").is_some_and(Value::is_array))
    }
}

impl Iterator for Peeked {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.next())
    }
}

impl GivenTable for Peeked {
    fn columns(&self) -> Option<&[String]> {
        self.rest.columns()
    }

    fn want(&mut self, columns: &[String]) {
        self.rest.want(columns);
    }
}

/// Bytes of the first row that are looked at to tell what the rows are.
const FIRST_ROW: u64 = 16 << 20;

/// The same, with its first line (of a list, its beginning) in one piece however little the system gives at a time.
fn with_first_row(mut reader: Box<dyn BufRead + Send>) -> Box<dyn BufRead + Send> {
    let mut start = Vec::new();
    loop {
        let before = start.len();
        // Who reads on meets what failed here.
        let read = reader.by_ref().take(FIRST_ROW - before as u64).read_until(b'\n', &mut start).unwrap_or(0);
        // Blank lines before the first row, as far as anyone would leave some.
        if read == 0 || !start[before..].trim_ascii().is_empty() || start.len() as u64 >= FIRST_ROW {
            break;
        }
    }
    if start.trim_ascii_start().starts_with(b"[") {
        let _ = reader.by_ref().take(FIRST_ROW).read_to_end(&mut start);
    }
    Box::new(Cursor::new(start).chain(reader))
}

/// What is no table at all is told as what it is.
fn refuse_foreign(start: &[u8], file: &str) -> Result<(), DataError> {
    foreign(start).map_or(Ok(()), |(what, hint)| Err(DataError::Foreign { file: file.to_owned(), what, hint }))
}

fn delimiter(format: DataFormat, start: &[u8]) -> u8 {
    let head = start.split(|&b| b == b'\n').next().unwrap_or_default();
    match format {
        DataFormat::Tsv => b'\t',
        // Spreadsheets in countries with a decimal comma write semicolons into files called CSV.
        _ if !head.contains(&b',') && head.contains(&b';') => b';',
        _ => b',',
    }
}

/// A Parquet file's end says what it holds: on disk it is read where it lies, from elsewhere it is held in memory.
fn parquet(path: Option<&PathBuf>, reader: impl BufRead) -> Result<ParquetRows, LineError> {
    // What is packed begins otherwise, and a pipe cannot be read from its end: both are held in memory.
    let file = path.filter(|path| path.is_file()).and_then(|path| open_file(path).ok());
    match file.filter(starts_as_parquet) {
        Some(file) => ParquetRows::of_file(file),
        None => ParquetRows::of_bytes(read_all(reader, LONGEST_PIPED).map_err(LineError::Read)?),
    }
}

fn starts_as_parquet(mut file: &std::fs::File) -> bool {
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut file, &mut magic).is_ok() && magic == *b"PAR1"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SharedText;
    use crate::line_error::LineError;

    /// Rows in memory; of a table with columns these are known before its first row.
    struct Rows {
        left: std::vec::IntoIter<Result<TableRow, LineError>>,
        columns: Option<Vec<String>>,
        place: usize,
    }

    impl Iterator for Rows {
        type Item = (usize, Result<TableRow, LineError>);

        fn next(&mut self) -> Option<Self::Item> {
            let row = self.left.next()?;
            self.place += 1;
            Some((self.place - 1, row))
        }
    }

    impl GivenTable for Rows {
        fn columns(&self) -> Option<&[String]> {
            self.columns.as_deref()
        }
    }

    fn read(map: &[&str], rows: Vec<Result<TableRow, LineError>>, columns: &[&str]) -> Result<Vec<Sample>, DataError> {
        let map = Mapping::new(map.iter().map(|entry| entry.parse().expect("an entry"))).expect("a mapping");
        let columns = (!columns.is_empty()).then(|| columns.iter().map(|name| (*name).to_owned()).collect());
        let table = Rows { left: rows.into_iter(), columns, place: 0 };
        SampleSource { map, ..SampleSource::new("the frame") }.samples_of_table(Box::new(table), |_| Vec::new())
    }

    fn row(value: &Value) -> TableRow {
        TableRow::new(value.as_object().expect("an object").clone())
    }

    #[test]
    fn texts_in_memory_of_others_become_samples_without_a_copy() {
        let texts = ["the context", "one", "two", "gold"].map(SharedText::from);
        let mut row = TableRow::default();
        for (name, text) in ["doc", "a", "b", "r"].into_iter().zip(&texts) {
            row.insert_text(name.into(), text.clone());
        }
        let map = ["context=doc", "candidate=a", "candidate=b", "reference=r", "preference:=a"];
        let samples = read(&map, vec![Ok(row)], &["doc", "a", "b", "r"]).expect("readable");
        let [sample] = &samples[..] else { panic!("one row is one sample") };
        let found = [&sample.context, &sample.candidates[0].text, &sample.candidates[1].text, &sample.references[0]];
        assert_eq!(found.map(|text| text.as_ptr()), texts.each_ref().map(|text| text.as_ptr()));
        assert_eq!(found, texts.each_ref());
    }

    #[test]
    fn rows_of_any_known_form_need_no_mapping() {
        let own = json!({"id": "x", "context": "c", "candidates": [{"id": "a", "text": "t"}]});
        let named = json!({"context": "c", "candidate": ["t", "u"]});
        let pair = json!({"prompt": "q", "chosen": "t", "rejected": "u"});
        let count =
            |value, columns: &[&str]| read(&[], vec![Ok(row(value))], columns).expect("read")[0].candidates.len();
        assert_eq!([count(&own, &[]), count(&named, &[]), count(&pair, &[])], [1, 2, 2]);
        let of_columns = [
            count(&own, &["id", "context", "candidates"]),
            count(&named, &["context", "candidate"]),
            count(&pair, &["prompt", "chosen", "rejected"]),
        ];
        assert_eq!(of_columns, [1, 2, 2]);
    }

    #[test]
    fn what_is_wrong_is_told_by_places_from_0() {
        let good = json!({"doc": "c", "a": "t"});
        let told = |rows, columns: &[&str]| {
            read(&["context=doc", "candidate=a"], rows, columns).expect_err("refused").to_string()
        };
        let rows = || {
            [good.clone(), json!({"doc": 3, "a": "t"}), json!({"doc": null, "a": "t"})]
                .iter()
                .map(row)
                .map(Ok)
                .collect()
        };
        let text = told(rows(), &[]);
        assert!(text.starts_with("2 problems in the frame\n  index 1: column `doc` (context): a number"), "{text}");
        assert!(text.contains("index 2: column `doc` (context): there is no value"), "{text}");
        assert_eq!(told(Vec::new(), &[]), "the frame has no rows");
        assert!(told(rows(), &["dok", "a"]).contains("no column `doc`"));
        let broken = vec![Err(LineError::content("a", "NaN is no value"))];
        let text = read(&[], broken, &[]).expect_err("refused").to_string();
        assert_eq!(text, "broken index 0 of the frame: field `a`: NaN is no value");
    }
}
