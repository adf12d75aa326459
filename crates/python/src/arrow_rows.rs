//! Rows of Arrow tables, without copying texts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, GenericStringArray, OffsetSizeTrait, RecordBatch, RecordBatchReader};
use arrow_buffer::Buffer;
use arrow_data::ByteView;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use probity_data::{GivenTable, LineError, SharedText, TableRow};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use serde_json::{Map, Number, Value};

use crate::error::with_hint;

/// Name of the capsule in the interface.
pub(crate) const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// Rows of a stream of record batches.
pub(crate) struct ArrowRows {
    batches: RecordBatchStreamReader,
    columns: Vec<String>,
    /// Positions of the selected columns.
    wanted: Vec<usize>,
    batch: Option<OpenBatch>,
    place: usize,
    failed: bool,
}

/// A batch and the current row.
struct OpenBatch {
    columns: Vec<OpenColumn>,
    rows: usize,
    next: usize,
}

/// A column of a batch: texts in place, or other values.
enum OpenColumn {
    Texts(Arc<str>, Texts),
    Values(String, ArrayRef),
}

/// Texts in memory of the producer; each is a slice of a buffer.
struct Texts {
    array: ArrayRef,
    buffers: Vec<Bytes>,
}

impl ArrowRows {
    /// From an object with `__arrow_c_stream__`.
    pub(crate) fn from_stream(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: by the Arrow PyCapsule interface, a capsule of this name holds such a stream. `from_raw` moves it out
        // and leaves an empty one, which the capsule may drop.
        let batches = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr()) };
        let batches = batches.map_err(|error| with_hint(&format!("the table's stream cannot be read: {error}")))?;
        Self::new(batches).map_err(|why| with_hint(&why))
    }

    fn new(batches: RecordBatchStreamReader) -> Result<Self, String> {
        let schema: SchemaRef = batches.schema();
        let columns: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let repeated = columns.iter().enumerate().find(|(place, name)| columns[..*place].contains(name));
        if let Some((_, name)) = repeated {
            return Err(format!("two columns are named `{}`\n\nhint: rename one of them", name.escape_debug()));
        }
        let wanted = (0..columns.len()).collect();
        Ok(Self { batches, columns, wanted, batch: None, place: 0, failed: false })
    }

    /// The batch of the next row; `None` at the end.
    fn open(&mut self) -> Result<Option<&mut OpenBatch>, String> {
        while self.batch.as_ref().is_none_or(|batch| batch.next == batch.rows) {
            let Some(batch) = self.batches.next() else { return Ok(None) };
            let batch = batch.map_err(|error| error.to_string())?;
            self.batch = Some(self.opened(&batch));
        }
        Ok(self.batch.as_mut())
    }

    fn opened(&self, batch: &RecordBatch) -> OpenBatch {
        let column = |place: &usize| {
            let (name, array) = (&self.columns[*place], batch.column(*place).clone());
            match Texts::from_array(&array) {
                Some(texts) => OpenColumn::Texts(name.as_str().into(), texts),
                None => OpenColumn::Values(name.clone(), array),
            }
        };
        OpenBatch { columns: self.wanted.iter().map(column).collect(), rows: batch.num_rows(), next: 0 }
    }
}

impl GivenTable for ArrowRows {
    fn columns(&self) -> Option<&[String]> {
        Some(&self.columns)
    }

    fn want(&mut self, columns: &[String]) {
        self.wanted.retain(|place| columns.contains(&self.columns[*place]));
        if let Some(batch) = &mut self.batch {
            let is_wanted = |column: &OpenColumn| match column {
                OpenColumn::Texts(name, _) => columns.iter().any(|wanted| **wanted == **name),
                OpenColumn::Values(name, _) => columns.contains(name),
            };
            batch.columns.retain(is_wanted);
        }
    }
}

impl Iterator for ArrowRows {
    type Item = (usize, Result<TableRow, LineError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let place = self.place;
        match self.open() {
            Ok(None) => None,
            Ok(Some(batch)) => {
                let row = batch.row();
                self.place += 1;
                Some((place, row))
            }
            Err(why) => {
                self.failed = true;
                Some((place, Err(LineError::content("", format!("the table's stream ended early: {why}")))))
            }
        }
    }
}

impl OpenBatch {
    fn row(&mut self) -> Result<TableRow, LineError> {
        let place = self.next;
        self.next += 1;
        let mut values = Map::new();
        let mut texts = Vec::new();
        for column in &self.columns {
            let wrong = |name: &str, why: String| LineError::content(name, why);
            match column {
                OpenColumn::Texts(name, column) => {
                    let text = column.get(place).map_err(|why| wrong(name, why.to_owned()))?;
                    match text {
                        Some(text) => texts.push((name.clone(), text)),
                        None => drop(values.insert(name.to_string(), Value::Null)),
                    }
                }
                OpenColumn::Values(name, array) => {
                    values.insert(name.clone(), value(array, place).map_err(|why| wrong(name, why))?);
                }
            }
        }
        let mut row = TableRow::new(values);
        for (name, text) in texts {
            row.insert_text(name, text);
        }
        Ok(row)
    }
}

impl Texts {
    /// From a column of texts; `None` for other types.
    fn from_array(array: &ArrayRef) -> Option<Self> {
        let buffers = match array.data_type() {
            DataType::Utf8 => vec![shared(array.as_string::<i32>().values())],
            DataType::LargeUtf8 => vec![shared(array.as_string::<i64>().values())],
            DataType::Utf8View => array.as_string_view().data_buffers().iter().map(shared).collect(),
            // Rows with equal texts share the text in the dictionary.
            DataType::Dictionary(_, values) if matches!(**values, DataType::Utf8 | DataType::LargeUtf8) => {
                Self::from_array(array.as_any_dictionary().values())?.buffers
            }
            _ => return None,
        };
        Some(Self { array: array.clone(), buffers })
    }

    /// Text of a row; `None` if null.
    fn get(&self, row: usize) -> Result<Option<SharedText>, &'static str> {
        match self.array.data_type() {
            DataType::Dictionary(..) => {
                let dictionary = self.array.as_any_dictionary();
                key(dictionary.keys(), row).map_or(Ok(None), |key| self.text_at(dictionary.values(), key))
            }
            _ => self.text_at(&self.array, row),
        }
    }

    fn text_at(&self, array: &ArrayRef, row: usize) -> Result<Option<SharedText>, &'static str> {
        if array.is_null(row) {
            return Ok(None);
        }
        let bytes = match array.data_type() {
            DataType::Utf8 => self.slice(array.as_string::<i32>(), row),
            DataType::LargeUtf8 => self.slice(array.as_string::<i64>(), row),
            _ => self.view(array, row),
        };
        // The producer declares it as UTF-8, but this is unchecked.
        SharedText::try_from(bytes).map(Some).map_err(|_| "bytes that are not UTF-8")
    }

    fn slice<O: OffsetSizeTrait>(&self, array: &GenericStringArray<O>, row: usize) -> Bytes {
        let offsets = array.value_offsets();
        self.buffers[0].slice(offsets[row].as_usize()..offsets[row + 1].as_usize())
    }

    fn view(&self, array: &ArrayRef, row: usize) -> Bytes {
        let views = array.as_string_view();
        let view = ByteView::from(views.views()[row]);
        let length = view.length as usize;
        // A short text is inlined in its view.
        match self.buffers.get(view.buffer_index as usize).filter(|_| length > INLINE) {
            Some(buffer) => buffer.slice(view.offset as usize..view.offset as usize + length),
            None => Bytes::copy_from_slice(views.value(row).as_bytes()),
        }
    }
}

/// Maximum length of a text that is inlined in its view.
const INLINE: usize = 12;

/// A buffer as shared memory.
fn shared(buffer: &Buffer) -> Bytes {
    struct Owner(Buffer);

    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Owner(buffer.clone()))
}

/// A value as JSON; texts are copied.
fn value(array: &ArrayRef, row: usize) -> Result<Value, String> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    macro_rules! whole {
        ($kind:ty) => {
            Value::from(array.as_primitive::<$kind>().value(row))
        };
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => whole!(Int8Type),
        DataType::Int16 => whole!(Int16Type),
        DataType::Int32 => whole!(Int32Type),
        DataType::Int64 => whole!(Int64Type),
        DataType::UInt8 => whole!(UInt8Type),
        DataType::UInt16 => whole!(UInt16Type),
        DataType::UInt32 => whole!(UInt32Type),
        DataType::UInt64 => whole!(UInt64Type),
        // The shortest decimal that parses to this number: 0.1 stays 0.1.
        DataType::Float16 => shortest(&array.as_primitive::<Float16Type>().value(row).to_string())?,
        DataType::Float32 => shortest(&array.as_primitive::<Float32Type>().value(row).to_string())?,
        DataType::Float64 => finite(array.as_primitive::<Float64Type>().value(row))?,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = Texts::from_array(array).map(|texts| texts.get(row)).transpose()?.flatten();
            text.map_or(Value::Null, |text| text.to_string().into())
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            key(dictionary.keys(), row).map_or(Ok(Value::Null), |key| value(dictionary.values(), key))?
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let mut object = Map::new();
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                let value = value(column, row).map_err(|why| format!("`{}`: {why}", field.name().escape_debug()))?;
                // Fields that a row lacks are null in a table where others have them.
                if !value.is_null() {
                    object.insert(field.name().clone(), value);
                }
            }
            Value::Object(object)
        }
        other => return Err(format!("values of type {other} are not supported; convert them to strings or numbers")),
    })
}

/// Position of a row's value in its dictionary; `None` if null.
fn key(keys: &dyn Array, row: usize) -> Option<usize> {
    macro_rules! key {
        ($kind:ty) => {
            usize::try_from(keys.as_primitive::<$kind>().value(row)).ok()
        };
    }
    if keys.is_null(row) {
        return None;
    }
    match keys.data_type() {
        DataType::Int8 => key!(Int8Type),
        DataType::Int16 => key!(Int16Type),
        DataType::Int32 => key!(Int32Type),
        DataType::Int64 => key!(Int64Type),
        DataType::UInt8 => key!(UInt8Type),
        DataType::UInt16 => key!(UInt16Type),
        DataType::UInt32 => key!(UInt32Type),
        _ => key!(UInt64Type),
    }
}

fn list(items: &ArrayRef) -> Result<Value, String> {
    (0..items.len()).map(|place| value(items, place)).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn shortest(text: &str) -> Result<Value, String> {
    finite(text.parse().map_err(|_| format!("{text} is not a number"))?)
}

fn finite(number: f64) -> Result<Value, String> {
    let none = || format!("{number} is not a valid value; use null for a missing value");
    Number::from_f64(number).map(Value::Number).ok_or_else(none)
}
