//! Sources of samples: a file of any format and its column mapping.

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

/// Maximum size of a piped Parquet file, which is held in memory: 2 GiB.
const LONGEST_PIPED: u64 = 2 << 30;

/// A file of samples and how to read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSource {
    /// The file, `-` for standard input.
    pub path: PathBuf,
    /// File format; detected from content and name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DataFormat>,
    /// Column mapping, in addition to columns named after fields. Empty for JSON lines in the native form.
    #[serde(default, skip_serializing_if = "Mapping::is_empty")]
    pub map: Mapping,
    /// Read only the first N samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Whether samples may have no context, instruction or other text. Their context is then empty.
    #[serde(skip)]
    pub context_optional: bool,
}

/// An open file of samples.
pub struct SampleFile {
    /// The samples.
    pub records: Records<'static, Sample>,
    /// The file format.
    pub format: DataFormat,
    /// The columns seen so far and the columns in use; `None` for JSON lines in the native form.
    columns: Option<SeenColumns>,
}

impl SampleFile {
    /// The columns skipped so far, sorted by name.
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
    /// A file with default options.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None, map: Mapping::default(), limit: None, context_optional: false }
    }

    /// Reads all samples; a file with any error (as far as it is read) is rejected with all of its errors.
    pub fn samples(&self) -> Result<Vec<Sample>, DataError> {
        self.samples_for(|_| Vec::new())
    }

    /// Same as [`SampleSource::samples`]; errors found by `wrong` count as errors of the file.
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

    /// Opens the file and streams its samples.
    pub fn open(&self) -> Result<SampleFile, DataError> {
        self.open_keeping(KEPT)
    }

    /// Same as [`SampleSource::open`], keeping at most `problems` problems; the rest is counted.
    pub fn open_keeping(&self, problems: usize) -> Result<SampleFile, DataError> {
        self.open_either(open_packed(&self.path)?, true, problems)
    }

    /// Same as [`SampleSource::open`], reading from `reader`; the path is only used as the name.
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
        // A pipe may return a few bytes at a time, but the file type depends on the first row, so buffer that first.
        let mut reader = with_first_row(unpacked(reader, &file)?);
        // A failing reader reports its error when the first line is read.
        let start = reader.fill_buf().unwrap_or_default();
        refuse_foreign(start, &file)?;
        let format = self.format.unwrap_or_else(|| DataFormat::detect(start, &self.path));
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
        let records =
            Records::from_items(Box::new(samples) as RecordItems<'static, Sample>, problems(unit), self.limit);
        let records = records.map_err(|error| match error {
            DataError::Empty { file, .. } => SAMPLES.missing(file, format),
            other => other,
        })?;
        Ok(SampleFile { records, format, columns: Some(seen) })
    }

    /// Whether JSON lines with this first row are in the native form.
    fn is_own_form(&self, first: &FirstRow) -> bool {
        let is_pair = first.has("chosen") && first.has("rejected");
        if first.has("candidates") { self.map.names_no_column() } else { self.map.is_empty() && !is_pair }
    }

    /// The samples of a table in memory, mapped by these options; `path` is its name in messages.
    fn records_of_table(&self, table: Box<dyn GivenTable>) -> Result<Records<'static, Sample>, DataError> {
        let file = file_name(&self.path);
        let problems = LineProblems { unit: RecordUnit::Index, ..LineProblems::new(file.clone()) };
        let mut table = Peeked::new(table);
        // Without a mapping, the first row defines the columns, so its error is reported.
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
            return Records::from_items(self.own_form(rows), problems, self.limit);
        }
        let first = table.first_row();
        let seen = SeenColumns::default();
        let rows = TableRows::<Cursor<Vec<u8>>>::Given(Box::new(table), seen.clone());
        let samples = MappedSamples::new(rows, self, first, seen, &file)?;
        Records::from_items(Box::new(samples) as RecordItems<'static, Sample>, problems, self.limit)
    }

    /// JSON lines in the native form, plus the constants of the mapping.
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
        Records::from_items(self.own_form(rows), LineProblems { unit, ..problems }, self.limit)
    }

    /// Rows in the native form as samples, plus the constants of the mapping.
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

    /// The raw rows of the file; `good` are example rows for messages.
    pub(crate) fn rows(&self, seen: &SeenColumns, good: GoodRows) -> Result<OpenRows, DataError> {
        let mut reader = unpacked(open_packed(&self.path)?, &file_name(&self.path))?;
        let start = reader.fill_buf().unwrap_or_default();
        refuse_foreign(start, &file_name(&self.path))?;
        let format = self.format.unwrap_or_else(|| DataFormat::detect(start, &self.path));
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

/// Example rows, for messages about empty files.
#[derive(Clone, Copy)]
pub(crate) struct GoodRows {
    /// A line of JSON.
    pub(crate) json: &'static str,
    /// The header of a table.
    pub(crate) columns: &'static str,
}

const SAMPLES: GoodRows = GoodRows { json: <Sample as crate::Record>::EXAMPLE, columns: "id,context,candidate" };

impl GoodRows {
    /// The error of an empty file in this format.
    pub(crate) fn missing(self, file: String, format: DataFormat) -> DataError {
        match format {
            DataFormat::Jsonl => DataError::Empty { file, example: self.json },
            DataFormat::Csv | DataFormat::Tsv => DataError::EmptyTable { file, columns: self.columns },
            DataFormat::Parquet => DataError::NoRows { table: file },
        }
    }
}

/// Parses a row in the native form.
fn sample_of(row: &Value) -> Result<Sample, Vec<LineError>> {
    from_value(row).map_err(|first| {
        let told = first.to_string();
        let more = Sample::wrong_shape(row).into_iter().filter(|error| error.to_string() != told);
        std::iter::once(first).chain(more).collect()
    })
}

/// Data frames have integer row labels: converts ids that are integers to texts.
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

/// Rejects unsupported file types by name.
fn refuse_foreign(start: &[u8], file: &str) -> Result<(), DataError> {
    foreign(start).map_or(Ok(()), |(what, hint)| Err(DataError::Foreign { file: file.to_owned(), what, hint }))
}

fn delimiter(format: DataFormat, start: &[u8]) -> u8 {
    let head = start.split(|&b| b == b'\n').next().unwrap_or_default();
    match format {
        DataFormat::Tsv => b'\t',
        // Spreadsheets in locales with a decimal comma write semicolons into CSV files.
        _ if !head.contains(&b',') && head.contains(&b';') => b';',
        _ => b',',
    }
}

/// Opens a Parquet file. The reader needs the end of the file, so input that is not a plain file is held in memory.
fn parquet(path: Option<&PathBuf>, reader: impl BufRead) -> Result<ParquetRows, LineError> {
    // Compressed files begin differently, and a pipe cannot be read from its end: both are held in memory.
    let file = path.filter(|path| path.is_file()).and_then(|path| open_file(path).ok());
    match file.filter(starts_as_parquet) {
        Some(file) => ParquetRows::from_file(file),
        None => ParquetRows::from_bytes(read_all(reader, LONGEST_PIPED).map_err(LineError::Read)?),
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

    /// Rows in memory; a table with columns lists them in advance.
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
            assert!(told.contains(&format!("column `{lacking}`")) && told.ends_with("missing value"), "{told}");
        }
        // If rows name their own columns, a key that no row has is a missing column.
        let told = read(&["context=c", "candidate=a"], vec![Ok(row(&json!({"c": "c"})))], &[]).expect_err("refused");
        assert!(told.to_string().contains("no such column"), "{told}");
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
        assert!(
            text.starts_with(
                "2 problems in the frame\n  index 1: column `doc` (context): expected a string, found a number"
            ),
            "{text}"
        );
        assert!(text.contains("index 2: column `doc` (context): missing value"), "{text}");
        assert_eq!(told(Vec::new(), &[]), "the frame has no rows");
        assert!(told(rows(), &["dok", "a"]).contains("no column `doc`"));
        let broken = vec![Err(LineError::content("a", "NaN is no value"))];
        let text = read(&[], broken, &[]).expect_err("refused").to_string();
        assert_eq!(text, "broken index 0 of the frame: field `a`: NaN is no value");
    }
}
