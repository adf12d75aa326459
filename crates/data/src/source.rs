//! Where samples come from: a file of any kind, and which of its columns is which.

use std::io::{BufRead, Cursor};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::array::items_as_lines;
use crate::column::TableRow;
use crate::delimited::Delimited;
use crate::error::{KEPT, RecordUnit};
use crate::format::{DataFormat, foreign};
use crate::line_error::LineError;
use crate::lines::from_value;
use crate::open::{file_name, open_file, open_packed, read_all, unpacked, with_first_row};
use crate::parquet_file::ParquetRows;
use crate::peeked::Peeked;
use crate::preferences::FirstRow;
use crate::read::{ReadReport, RecordItems};
use crate::rows::{GivenTable, SeenColumns, TableRows};
use crate::samples::MappedSamples;
use crate::{DataError, Field, JsonLines, LineProblems, MapEntry, Mapping, Record as _, Records, Sample};

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
    /// Which column is which, beside those that have our fields' names. Empty for JSON lines in our own form.
    #[serde(default, skip_serializing_if = "Mapping::is_empty")]
    pub map: Mapping,
    /// Only the first so many samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Whether samples may come without any context, instruction or other text: then their context is empty.
    #[serde(skip)]
    pub context_optional: bool,
}

/// An open file of samples.
pub struct SampleFile {
    /// The samples.
    pub records: Records<'static, Sample>,
    /// What the file is.
    pub format: DataFormat,
    /// The columns so far, and those that are used; none for JSON lines in our own form.
    columns: Option<SeenColumns>,
}

impl SampleFile {
    /// The columns that were passed over so far, by name.
    pub fn unmapped(&self) -> Vec<String> {
        self.columns.as_ref().map(SeenColumns::unused).unwrap_or_default()
    }
}

/// An open file as rows.
pub(crate) struct OpenRows {
    pub(crate) rows: TableRows<Box<dyn BufRead + Send>>,
    pub(crate) unit: RecordUnit,
    pub(crate) format: DataFormat,
}

impl SampleSource {
    /// A file by itself.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None, map: Mapping::default(), limit: None, context_optional: false }
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
        let first = if format == DataFormat::Jsonl { FirstRow::read(start) } else { FirstRow::default() };
        if format == DataFormat::Jsonl && self.is_own_form(&first) {
            let records = self.own_lines(reader, &first, problems(RecordUnit::Line))?;
            return Ok(SampleFile { records, format, columns: None });
        }
        let seen = SeenColumns::default();
        let rows = self.rows_of(reader, format, on_disk, &seen, SAMPLES)?;
        let unit = rows.unit;
        let samples = MappedSamples::new(rows.rows, self, first, seen.clone(), &file)?;
        let records = Records::of(Box::new(samples) as RecordItems<'static, Sample>, problems(unit), self.limit);
        let records = records.map_err(|error| match error {
            DataError::Empty { file, .. } => SAMPLES.missing(file, format),
            other => other,
        })?;
        Ok(SampleFile { records, format, columns: Some(seen) })
    }

    /// Whether JSON lines that begin so are in our own form.
    fn is_own_form(&self, first: &FirstRow) -> bool {
        let is_pair = first.has("chosen") && first.has("rejected");
        if first.has("candidates") { self.map.names_no_column() } else { self.map.is_empty() && !is_pair }
    }

    /// The samples of a table in memory, whose columns these options map; `path` is what messages call it.
    fn records_of_table(&self, table: Box<dyn GivenTable>) -> Result<Records<'static, Sample>, DataError> {
        let file = file_name(&self.path);
        let problems = LineProblems { unit: RecordUnit::Index, ..LineProblems::new(file.clone()) };
        let mut table = Peeked::new(table);
        // Without a mapping the first row shows what the columns are: where it cannot be read, that is what is wrong.
        if self.map.names_no_column()
            && let Some((place, error)) = table.broken_first()
        {
            let mut problems = problems;
            problems.push(place, error);
            return Err(DataError::Problems(problems));
        }
        if self.map.names_no_column() && table.has("candidates") {
            let nulls_say_nothing = table.columns().is_some();
            let whole = move |row: TableRow| if nulls_say_nothing { row.without_nulls() } else { row };
            let rows = table.map(move |(place, row)| (place, row.map(whole)));
            return Records::of(self.own_form(rows), problems, self.limit);
        }
        let first = table.shown();
        let seen = SeenColumns::default();
        let rows = TableRows::<Cursor<Vec<u8>>>::Given(Box::new(table), seen.clone());
        let samples = MappedSamples::new(rows, self, first, seen, &file)?;
        Records::of(Box::new(samples) as RecordItems<'static, Sample>, problems, self.limit)
    }

    /// JSON lines in our own form, with the values of the mapping in each.
    fn own_lines(
        &self,
        reader: Box<dyn BufRead + Send>,
        first: &FirstRow,
        problems: LineProblems,
    ) -> Result<Records<'static, Sample>, DataError> {
        if self.map.is_empty() && (first.has("context") || !self.context_optional) {
            return Records::lines(reader, problems, self.limit);
        }
        let (reader, unit) = items_as_lines(reader);
        let rows = JsonLines::<TableRow, _>::new(reader);
        Records::of(self.own_form(rows), LineProblems { unit, ..problems }, self.limit)
    }

    /// Rows in our own form as samples, with the values of the mapping in each.
    fn own_form(
        &self,
        rows: impl Iterator<Item = (usize, Result<TableRow, LineError>)> + Send + 'static,
    ) -> RecordItems<'static, Sample> {
        let value = |entry: &MapEntry| {
            let is_text = !entry.is_left_out() || matches!(entry.field, Field::Context | Field::Instruction);
            let key = if entry.field == Field::Reference { "references".to_owned() } else { entry.field.to_string() };
            (key, is_text.then(|| Value::from(entry.column.as_str())))
        };
        let values: Vec<(String, Option<Value>)> = self.map.entries().iter().map(value).collect();
        let context_optional = self.context_optional;
        let sample = move |row: TableRow| {
            let mut row = row.into_object();
            names_as_texts(&mut row);
            for (field, value) in &values {
                match (value, row.as_object_mut()) {
                    (Some(value), _) => row[field] = value.clone(),
                    (None, Some(fields)) => drop(fields.shift_remove(field)),
                    (None, None) => {}
                }
            }
            if context_optional && row.get("context").is_none() {
                row["context"] = "".into();
            }
            sample_of(&row)
        };
        Box::new(rows.map(move |(place, row)| (place, row.map_err(|error| vec![error]).and_then(&sample))))
    }

    /// The rows of the file as they are, whatever they are rows of; `good` are such rows for messages.
    pub(crate) fn rows(&self, seen: &SeenColumns, good: GoodRows) -> Result<OpenRows, DataError> {
        let mut reader = unpacked(open_packed(&self.path)?, &file_name(&self.path))?;
        let start = reader.fill_buf().unwrap_or_default();
        refuse_foreign(start, &file_name(&self.path))?;
        let format = self.format.unwrap_or_else(|| DataFormat::told_by(start, &self.path));
        self.rows_of(reader, format, true, seen, good)
    }

    fn rows_of(
        &self,
        mut reader: Box<dyn BufRead + Send>,
        format: DataFormat,
        on_disk: bool,
        seen: &SeenColumns,
        good: GoodRows,
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
                return Ok(OpenRows { rows: TableRows::Lines(JsonLines::new(reader), seen.clone()), unit, format });
            }
            DataFormat::Csv | DataFormat::Tsv => {
                let delimiter = delimiter(format, reader.fill_buf().unwrap_or_default());
                let cells = Delimited::new(reader, delimiter).map_err(|(line, e)| wrong(RecordUnit::Line, line, e))?;
                if cells.columns().is_empty() {
                    return Err(good.missing(file, format));
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
        Ok(OpenRows { rows, unit, format })
    }
}

/// Rows as they should be, for messages about empty files.
#[derive(Clone, Copy)]
pub(crate) struct GoodRows {
    /// A line of JSON.
    pub(crate) json: &'static str,
    /// The first line of a table.
    pub(crate) columns: &'static str,
}

const SAMPLES: GoodRows = GoodRows { json: <Sample as crate::Record>::EXAMPLE, columns: "id,context,candidate" };

impl GoodRows {
    /// That a file of this format has none.
    pub(crate) fn missing(self, file: String, format: DataFormat) -> DataError {
        match format {
            DataFormat::Jsonl => DataError::Empty { file, example: self.json },
            DataFormat::Csv | DataFormat::Tsv => DataError::EmptyTable { file, columns: self.columns },
            DataFormat::Parquet => DataError::NoRows { table: file },
        }
    }
}

/// A row that is a sample in our own form.
fn sample_of(row: &Value) -> Result<Sample, Vec<LineError>> {
    from_value(row).map_err(|first| {
        let told = first.to_string();
        let more = Sample::wrong_shape(row).into_iter().filter(|error| error.to_string() != told);
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
    fn a_null_that_a_table_leaves_out_is_a_missing_value_and_not_a_missing_column() {
        let columns = ["id", "context", "candidate", "candidate_id"];
        for lacking in columns {
            let mut one = json!({"id": "1", "context": "c", "candidate": "t", "candidate_id": "x"});
            one.as_object_mut().expect("an object").remove(lacking);
            let told = read(&[], vec![Ok(row(&one))], &columns).expect_err("refused").to_string();
            assert!(told.contains(&format!("column `{lacking}`")) && told.ends_with("there is no value"), "{told}");
        }
        // Where rows name their own columns, a key that is in no row is a missing column.
        let told = read(&["context=c", "candidate=a"], vec![Ok(row(&json!({"c": "c"})))], &[]).expect_err("refused");
        assert!(told.to_string().contains("there is no such column"), "{told}");
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
