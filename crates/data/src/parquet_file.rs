//! Reads the rows of Parquet files.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::record::{Field, Row as Record};
use parquet::schema::types::{SchemaDescriptor, Type};
use probity_lm::quietly;
use serde_json::{Map, Number, Value};

use crate::column::{TableRow, names, repeated};
use crate::line_error::{LineError, excerpt};
use crate::parquet_footer;

/// Rows decoded at a time per column. Kept small because texts may be long.
const BATCH: usize = 64;

/// The rows of a Parquet file, numbered from 1, without nulls.
///
/// A decoding error ends the iteration: the rest of a row group depends on earlier data. The library may panic on
/// damaged files; panics are caught and reported as damage.
pub(crate) struct ParquetRows {
    file: Box<dyn FileReader>,
    columns: Vec<String>,
    wanted: Vec<String>,
    group: usize,
    rows: Option<ReaderIter>,
    number: usize,
    finished: bool,
}

impl ParquetRows {
    /// The rows of a file on disk.
    pub(crate) fn from_file(file: File) -> Result<Self, LineError> {
        Self::new(file)
    }

    /// The rows of a file in memory.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<Self, LineError> {
        Self::new(bytes::Bytes::from(bytes))
    }

    fn new(source: impl ChunkReader + 'static) -> Result<Self, LineError> {
        let file = guarded(|| {
            // Check before the library parses the file: deeply nested columns overflow its stack, which cannot be
            // caught.
            parquet_footer::check(&source)?;
            SerializedFileReader::new(source)
        })?;
        let schema = file.metadata().file_metadata().schema();
        let columns: Vec<String> = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
        // A row is a map: the second of two columns with one name would replace the first.
        if let Some(name) = repeated(&columns) {
            return Err(LineError::content("", format!("two columns are named `{}`", excerpt(name))));
        }
        let wanted = columns.clone();
        Ok(Self { file: Box::new(file), columns, wanted, group: 0, rows: None, number: 0, finished: false })
    }

    /// The column names.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Restricts decoding to these columns.
    pub(crate) fn want(&mut self, columns: &[String]) {
        let wanted = names(columns);
        self.wanted.retain(|name| wanted.contains(name.as_str()));
    }

    fn next_record(&mut self) -> Result<Option<Record>, LineError> {
        loop {
            if let Some(rows) = &mut self.rows
                && let Some(record) = guarded(|| rows.next().transpose())?
            {
                return Ok(Some(record));
            }
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            self.rows = Some(self.next_group()?);
            self.group += 1;
        }
    }

    fn next_group(&self) -> Result<ReaderIter, LineError> {
        guarded(|| {
            let group = self.file.get_row_group(self.group)?;
            check_counts(group.as_ref())?;
            let schema = self.file.metadata().file_metadata().schema();
            let fields = schema.get_fields().iter().filter(|field| self.wanted.iter().any(|name| name == field.name()));
            let wanted = Type::group_type_builder(schema.name()).with_fields(fields.cloned().collect()).build()?;
            let schema = Arc::new(SchemaDescriptor::new(Arc::new(wanted)));
            TreeBuilder::new().with_batch_size(BATCH).as_iter(schema, group.as_ref())
        })
    }
}

/// The library would read past the end of a column with fewer values than the group has rows.
fn check_counts(group: &dyn RowGroupReader) -> Result<(), parquet::errors::ParquetError> {
    let rows = group.metadata().num_rows();
    for column in group.metadata().columns() {
        let flat = column.column_descr().max_rep_level() == 0;
        let values = column.num_values();
        if rows < 0 || values < rows || (flat && values != rows) {
            let name = excerpt(&column.column_path().string());
            let why = format!("column `{name}` has {values} values in a group of {rows} rows");
            return Err(parquet::errors::ParquetError::General(why));
        }
    }
    Ok(())
}

impl Iterator for ParquetRows {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let record = match self.next_record() {
            Ok(record) => record?,
            Err(error) => {
                self.finished = true;
                return Some((self.number + 1, Err(error)));
            }
        };
        self.number += 1;
        Some((self.number, row(record).map(TableRow::new)))
    }
}

fn row(record: Record) -> Result<Map<String, Value>, LineError> {
    let mut row = Map::new();
    for (name, field) in record.into_columns() {
        let value = value(field).map_err(|why| LineError::cell(&name, "", why.to_string()))?;
        if !value.is_null() {
            row.insert(name, value);
        }
    }
    Ok(row)
}

/// Why a value has no JSON form.
#[derive(Debug, thiserror::Error)]
enum UnreadColumn {
    #[error("decimals are not supported; write a double")]
    Decimal,
    #[error("invalid UTF-8 at byte {byte}")]
    Bytes { byte: usize },
    /// An error in a nested record.
    #[error(transparent)]
    Inner(Box<LineError>),
}

/// Converts a value to JSON. A non-finite float becomes a text, which is not a valid score.
fn value(field: Field) -> Result<Value, UnreadColumn> {
    let float = |x: f64| Number::from_f64(x).map_or_else(|| Value::String(x.to_string()), Value::Number);
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(x) => x.into(),
        Field::Byte(x) => x.into(),
        Field::Short(x) => x.into(),
        Field::Int(x) | Field::Date(x) | Field::TimeMillis(x) => x.into(),
        Field::Long(x) | Field::TimeMicros(x) | Field::TimestampMillis(x) | Field::TimestampMicros(x) => x.into(),
        Field::UByte(x) => x.into(),
        Field::UShort(x) => x.into(),
        Field::UInt(x) => x.into(),
        Field::ULong(x) => x.into(),
        Field::Float16(x) => float(x.into()),
        // The shortest decimal form of the f32: 0.1 stays 0.1.
        Field::Float(x) => float(x.to_string().parse().expect("a float is printed so that it can be read")),
        Field::Double(x) => float(x),
        Field::Decimal(_) => return Err(UnreadColumn::Decimal),
        Field::Str(text) => text.into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(e) => return Err(UnreadColumn::Bytes { byte: e.valid_up_to() + 1 }),
        },
        Field::Group(record) => Value::Object(row(record).map_err(|error| UnreadColumn::Inner(Box::new(error)))?),
        Field::ListInternal(list) => {
            list.elements().iter().map(|item| value(item.clone())).collect::<Result<_, _>>()?
        }
        Field::MapInternal(map) => {
            let entry = |(key, item): &(Field, Field)| match value(key.clone())? {
                Value::String(key) => Ok((key, value(item.clone())?)),
                other => Ok((other.to_string(), value(item.clone())?)),
            };
            Value::Object(map.entries().iter().map(entry).collect::<Result<Map<_, _>, UnreadColumn>>()?)
        }
    })
}

/// Calls the library and converts its panics to errors.
fn guarded<T>(read: impl FnOnce() -> Result<T, parquet::errors::ParquetError>) -> Result<T, LineError> {
    let damaged = |why: String| LineError::Read(io::Error::new(io::ErrorKind::InvalidData, why));
    match quietly(read) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(damaged(shown_message(&error.to_string()))),
        None => Err(damaged("the Parquet file is damaged".into())),
    }
}

fn shown_message(why: &str) -> String {
    let why = why.strip_prefix("Parquet error: ").unwrap_or(why);
    format!(
        "the Parquet file is damaged or not supported: {}",
        why.chars().take(300).flat_map(crate::line_error::escape).collect::<String>()
    )
}
