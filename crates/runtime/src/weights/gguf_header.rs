//! Parses the header of a GGUF file from untrusted bytes.
//!
//! Format: the GGUF specification of the ggml project, versions 2 and 3, little-endian. Each count and length is
//! checked against the remaining bytes before allocating, so memory is bounded by a small multiple of the file size.

use std::collections::BTreeMap;
use std::ops::Range;

use probity_kernels::WeightType;

/// Maximum nesting of arrays; real files have depth 1.
const MAX_ARRAY_DEPTH: usize = 4;
/// Maximum number of dimensions in ggml.
const MAX_DIMS: u32 = 4;
/// Maximum alignment. Page-sized alignment occurs; larger values are invalid.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Maximum length of keys and tensor names. The specification allows 65535 bytes for keys and 64 for tensors.
const MAX_NAME: u64 = 65_535;

/// An invalid header: where, and what was expected and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderError {
    /// The field or tensor.
    pub what: String,
    /// Expected and found.
    pub why: String,
    /// Whether a truncated file explains it.
    pub truncated: bool,
}

/// A metadata value. Integers and floats are converted to 64 bits.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// u8, u16, u32, u64.
    Uint(u64),
    /// i8, i16, i32, i64.
    Int(i64),
    /// f32, f64.
    Float(f64),
    /// A byte with value 0 or 1.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(MetadataArray),
}

impl MetadataValue {
    /// The type's name, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Uint(_) => "an unsigned integer",
            Self::Int(_) => "a signed integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a boolean",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
        }
    }

    /// The value as a non-negative integer, if it is one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Uint(value) => Some(*value),
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The value of all elements of a list of equal non-negative integers. Converters write such lists for values that
    /// may differ between layers.
    pub fn as_equal_u64s(&self) -> Option<u64> {
        let (first, is_equal) = match self {
            Self::Array(MetadataArray::Uints(list)) => (*list.first()?, list.windows(2).all(|two| two[0] == two[1])),
            Self::Array(MetadataArray::Ints(list)) => {
                (u64::try_from(*list.first()?).ok()?, list.windows(2).all(|two| two[0] == two[1]))
            }
            _ => return None,
        };
        is_equal.then_some(first)
    }

    /// The value as a float; integers are converted.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Uint(value) => Some(*value as f64),
            Self::Int(value) => Some(*value as f64),
            _ => None,
        }
    }
}

/// An array of metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataArray {
    /// Unsigned integers.
    Uints(Vec<u64>),
    /// Signed integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Texts.
    Strings(StringTable),
    /// Arrays.
    Arrays(Vec<MetadataArray>),
}

impl MetadataArray {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Uints(v) => v.len(),
            Self::Ints(v) => v.len(),
            Self::Floats(v) => v.len(),
            Self::Bools(v) => v.len(),
            Self::Strings(v) => v.len(),
            Self::Arrays(v) => v.len(),
        }
    }

    /// Whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Many strings in one buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringTable {
    text: String,
    ends: Vec<usize>,
}

impl StringTable {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// A storage type of ggml, including unsupported ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgmlType {
    /// Name in ggml.
    pub name: &'static str,
    /// Weights per block.
    pub block_len: u64,
    /// Bytes per block.
    pub block_bytes: u64,
    /// The corresponding type of our kernels, if supported.
    pub weight_type: Option<WeightType>,
}

impl GgmlType {
    /// The type with this id. `None` for ids that ggml does not use (any longer).
    pub fn from_id(id: u32) -> Option<Self> {
        let known = |weight: WeightType| Self {
            name: weight.name(),
            block_len: weight.block_len() as u64,
            block_bytes: weight.block_bytes() as u64,
            weight_type: Some(weight),
        };
        let other = |name, block_len, block_bytes| Self { name, block_len, block_bytes, weight_type: None };
        Some(match id {
            0 => known(WeightType::F32),
            1 => known(WeightType::F16),
            2 => known(WeightType::Q4_0),
            3 => known(WeightType::Q4_1),
            6 => known(WeightType::Q5_0),
            7 => known(WeightType::Q5_1),
            8 => known(WeightType::Q8_0),
            9 => other("Q8_1", 32, 36),
            10 => other("Q2_K", 256, 84),
            11 => other("Q3_K", 256, 110),
            12 => known(WeightType::Q4_K),
            13 => known(WeightType::Q5_K),
            14 => known(WeightType::Q6_K),
            15 => other("Q8_K", 256, 292),
            16 => other("IQ2_XXS", 256, 66),
            17 => other("IQ2_XS", 256, 74),
            18 => other("IQ3_XXS", 256, 98),
            19 => other("IQ1_S", 256, 50),
            20 => other("IQ4_NL", 32, 18),
            21 => other("IQ3_S", 256, 110),
            22 => other("IQ2_S", 256, 82),
            23 => other("IQ4_XS", 256, 136),
            24 => other("I8", 1, 1),
            25 => other("I16", 1, 2),
            26 => other("I32", 1, 4),
            27 => other("I64", 1, 8),
            28 => other("F64", 1, 8),
            29 => other("IQ1_M", 256, 56),
            30 => known(WeightType::BF16),
            34 => other("TQ1_0", 256, 54),
            35 => other("TQ2_0", 256, 66),
            39 => known(WeightType::MXFP4),
            _ => return None,
        })
    }
}

/// A tensor's description, checked to be within the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in GGUF (`blk.0.attn_q.weight`).
    pub name: String,
    /// Outermost dimension first (reversed in the file).
    pub shape: Vec<usize>,
    /// Storage type.
    pub ggml_type: GgmlType,
    /// Byte range in the file.
    pub bytes: Range<usize>,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufHeader {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, MetadataValue>,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
}

impl GgufHeader {
    /// Parses the header of `file`, the bytes of the whole file, and checks the range of every tensor.
    pub fn parse(file: &[u8]) -> Result<Self, HeaderError> {
        let mut cursor = HeaderCursor { file, at: 0 };
        let version = read_magic_and_version(&mut cursor)?;
        let tensor_count = cursor.u64("the number of tensors")?;
        let metadata_count = cursor.u64("the number of metadata entries")?;
        // Minimum entry size: two lengths and a type. For a tensor: length, number of dimensions, one dimension, type
        // and offset.
        cursor.check_count("the number of metadata entries", metadata_count, 13)?;
        // A larger count has exhausted another reader's memory (llama.cpp #15711).
        cursor.check_count("the number of tensors", tensor_count, 32)?;
        let metadata = read_metadata(&mut cursor, metadata_count)?;
        // Ranges are checked last, because the data start after the last description.
        let described = (0..tensor_count)
            .map(|index| read_tensor(&mut cursor, index))
            .collect::<Result<Vec<DescribedTensor>, HeaderError>>()?;
        let alignment = alignment(&metadata)?;
        let data_start = (cursor.at as u64).next_multiple_of(alignment);
        let tensors = described
            .into_iter()
            .map(|t| t.place(data_start, alignment, file.len() as u64))
            .collect::<Result<Vec<_>, _>>()?;
        check_disjoint(&tensors)?;
        check_end(&tensors, file, alignment)?;
        Ok(Self { version, metadata, tensors })
    }
}

fn error<T>(what: impl Into<String>, why: impl Into<String>) -> Result<T, HeaderError> {
    Err(HeaderError { what: what.into(), why: why.into(), truncated: false })
}

fn read_magic_and_version(cursor: &mut HeaderCursor<'_>) -> Result<u32, HeaderError> {
    let magic = cursor.take(4, "the magic number")?;
    if magic != b"GGUF" {
        return error("the magic number", format!("expected `GGUF`, found {:?}", String::from_utf8_lossy(magic)));
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => Ok(version),
        // A specific error: read as little-endian, its version would be a huge number.
        _ if matches!(version.swap_bytes(), 2 | 3) => {
            error("the version", "the file is big-endian; only little-endian files are read")
        }
        _ => error("the version", format!("expected 2 or 3, found {version}")),
    }
}

fn read_metadata(cursor: &mut HeaderCursor<'_>, count: u64) -> Result<BTreeMap<String, MetadataValue>, HeaderError> {
    let mut metadata = BTreeMap::new();
    for index in 0..count {
        let key = cursor.name(|| format!("the key of metadata entry {index}"))?;
        let what = format!("metadata `{key}`");
        let type_id = cursor.u32(&what)?;
        let value = cursor.value(&what, type_id)?;
        if metadata.insert(key, value).is_some() {
            return error(what, "the key occurs twice");
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &BTreeMap<String, MetadataValue>) -> Result<u64, HeaderError> {
    let key = "general.alignment";
    // The default of the specification.
    let Some(value) = metadata.get(key) else { return Ok(32) };
    match value.as_u64() {
        // Offsets are divided by it. A value that is not positive has crashed another reader (llama.cpp #26318).
        Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(alignment),
        _ => error(
            format!("metadata `{key}`"),
            format!("expected a power of two up to {MAX_ALIGNMENT}, found {value:?}"),
        ),
    }
}

/// A tensor's description before its byte range is known.
struct DescribedTensor {
    name: String,
    shape: Vec<usize>,
    ggml_type: GgmlType,
    size: u64,
    offset: u64,
}

fn read_tensor(cursor: &mut HeaderCursor<'_>, index: u64) -> Result<DescribedTensor, HeaderError> {
    let name = cursor.name(|| format!("the name of tensor {index}"))?;
    let what = format!("tensor `{name}`");
    let dims = cursor.u32(&what)?;
    if dims == 0 || dims > MAX_DIMS {
        return error(what, format!("expected 1 to {MAX_DIMS} dimensions, found {dims}"));
    }
    let mut sizes = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        sizes.push(cursor.u64(&what)?);
    }
    let type_id = cursor.u32(&what)?;
    let offset = cursor.u64(&what)?;
    let Some(ggml_type) = GgmlType::from_id(type_id) else {
        return error(what, format!("unknown tensor type {type_id}"));
    };
    // A product that wraps around would look like a small tensor, as in published attacks on other readers.
    let Some(elements) = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size)).filter(|&n| n > 0)
    else {
        return error(what, format!("dimensions {sizes:?} are zero or their product overflows"));
    };
    // The file's first dimension is the innermost, the length of a row.
    if sizes[0] % ggml_type.block_len != 0 {
        return error(
            what,
            format!("a row of {} weights is not a whole number of {} blocks", sizes[0], ggml_type.name),
        );
    }
    let Some(size) = (elements / ggml_type.block_len).checked_mul(ggml_type.block_bytes) else {
        return error(what, format!("dimensions {sizes:?} overflow the size in bytes"));
    };
    let shape = sizes.iter().rev().map(|&size| size as usize).collect();
    Ok(DescribedTensor { name, shape, ggml_type, size, offset })
}

impl DescribedTensor {
    fn place(self, data_start: u64, alignment: u64, file_len: u64) -> Result<TensorInfo, HeaderError> {
        let Self { name, shape, ggml_type, size, offset } = self;
        let what = format!("tensor `{name}`");
        if offset % alignment != 0 {
            return error(what, format!("its offset {offset} is not a multiple of the alignment {alignment}"));
        }
        // Sums that wrapped around made another reader allocate too little (CVE-2025-53630).
        let range = data_start.checked_add(offset).and_then(|start| Some((start, start.checked_add(size)?)));
        match range {
            Some((start, end)) if end <= file_len => {
                Ok(TensorInfo { name, shape, ggml_type, bytes: start as usize..end as usize })
            }
            _ => {
                let why = format!(
                    "{} {shape:?} needs {size} bytes at offset {offset} after the header of {data_start} bytes; the \
                     file has {file_len} bytes",
                    ggml_type.name
                );
                // A range beyond the end indicates an interrupted download.
                Err(HeaderError { what, why, truncated: true })
            }
        }
    }
}

fn check_disjoint(tensors: &[TensorInfo]) -> Result<(), HeaderError> {
    let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return error(format!("tensor `{name}`"), "the name occurs twice");
    }
    let mut by_place: Vec<&TensorInfo> = tensors.iter().collect();
    by_place.sort_unstable_by_key(|t| t.bytes.start);
    match by_place.windows(2).find(|pair| pair[0].bytes.end > pair[1].bytes.start) {
        Some(pair) => {
            error(format!("tensor `{}`", pair[1].name), format!("its bytes overlap those of tensor `{}`", pair[0].name))
        }
        None => Ok(()),
    }
}

/// Checks that the file ends with its last tensor and padding. Extra bytes indicate that tensors were shifted.
fn check_end(tensors: &[TensorInfo], file: &[u8], alignment: u64) -> Result<(), HeaderError> {
    let Some(last) = tensors.iter().max_by_key(|tensor| tensor.bytes.end) else { return Ok(()) };
    let end = last.bytes.end;
    let rest = &file[end..];
    if file.len() as u64 <= (end as u64).next_multiple_of(alignment) && rest.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    error(
        format!("tensor `{}`", last.name),
        format!("it is the last and ends at {end}, but {} more bytes follow", rest.len()),
    )
}

/// Reads forward through the file, never past its end.
struct HeaderCursor<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> HeaderCursor<'a> {
    fn left(&self) -> u64 {
        (self.file.len() - self.at) as u64
    }

    fn cut_short<T>(&self, what: &str, needed: u64) -> Result<T, HeaderError> {
        let why = format!("needs {needed} bytes at {}, but the file has {} left", self.at, self.left());
        Err(HeaderError { what: what.to_owned(), why, truncated: true })
    }

    /// Fails if `count` entries of at least `least` bytes exceed the remaining bytes.
    fn check_count(&self, what: &str, count: u64, least: u64) -> Result<(), HeaderError> {
        if count > self.left() / least {
            let why = format!(
                "{count} entries of at least {least} bytes each do not fit into the remaining {} bytes",
                self.left()
            );
            return Err(HeaderError { what: what.to_owned(), why, truncated: true });
        }
        Ok(())
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8], HeaderError> {
        if len > self.left() {
            return self.cut_short(what, len);
        }
        let bytes = &self.file[self.at..self.at + len as usize];
        self.at += len as usize;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], HeaderError> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("take returns the length asked for"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, HeaderError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, HeaderError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn text(&mut self, what: &str) -> Result<&'a str, HeaderError> {
        let len = self.u64(what)?;
        // Bounded by the rest of the file.
        let bytes = self.take(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(source) => error(what, format!("is not UTF-8: {source}")),
        }
    }

    fn name(&mut self, what: impl Fn() -> String) -> Result<String, HeaderError> {
        let len = self.u64(&what())?;
        if len == 0 || len > MAX_NAME {
            return error(what(), format!("expected 1 to {MAX_NAME} bytes, found a length of {len}"));
        }
        // Checks the length first; otherwise a corrupt length would be reported as a truncated file.
        self.at -= 8;
        let name = self.text(&what())?;
        if name.contains(char::is_control) {
            return error(what(), format!("contains control characters: {name:?}"));
        }
        Ok(name.to_owned())
    }

    fn bool(&mut self, what: &str) -> Result<bool, HeaderError> {
        match self.array::<1>(what)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => error(what, format!("expected a boolean (0 or 1), found {other}")),
        }
    }

    fn value(&mut self, what: &str, type_id: u32) -> Result<MetadataValue, HeaderError> {
        Ok(match type_id {
            0 => MetadataValue::Uint(u64::from(self.array::<1>(what)?[0])),
            1 => MetadataValue::Int(i64::from(i8::from_le_bytes(self.array(what)?))),
            2 => MetadataValue::Uint(u64::from(u16::from_le_bytes(self.array(what)?))),
            3 => MetadataValue::Int(i64::from(i16::from_le_bytes(self.array(what)?))),
            4 => MetadataValue::Uint(u64::from(self.u32(what)?)),
            5 => MetadataValue::Int(i64::from(i32::from_le_bytes(self.array(what)?))),
            6 => MetadataValue::Float(f64::from(f32::from_le_bytes(self.array(what)?))),
            7 => MetadataValue::Bool(self.bool(what)?),
            8 => MetadataValue::String(self.text(what)?.to_owned()),
            9 => MetadataValue::Array(self.array_value(what, 1)?),
            10 => MetadataValue::Uint(self.u64(what)?),
            11 => MetadataValue::Int(i64::from_le_bytes(self.array(what)?)),
            12 => MetadataValue::Float(f64::from_le_bytes(self.array(what)?)),
            _ => return error(what, format!("unknown value type {type_id}")),
        })
    }

    /// `count` numbers of `N` bytes; checked against the remaining bytes before allocating.
    fn numbers<const N: usize, T>(
        &mut self,
        what: &str,
        count: u64,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, HeaderError> {
        self.check_count(what, count, N as u64)?;
        let bytes = self.take(count * N as u64, what)?;
        Ok(bytes.chunks_exact(N).map(|chunk| read(chunk.try_into().expect("chunks of N bytes"))).collect())
    }

    fn array_value(&mut self, what: &str, depth: usize) -> Result<MetadataArray, HeaderError> {
        if depth > MAX_ARRAY_DEPTH {
            return error(what, format!("arrays are nested more than {MAX_ARRAY_DEPTH} deep"));
        }
        let type_id = self.u32(what)?;
        let count = self.u64(what)?;
        Ok(match type_id {
            0 => MetadataArray::Uints(self.numbers(what, count, |[byte]: [u8; 1]| u64::from(byte))?),
            1 => MetadataArray::Ints(self.numbers(what, count, |b| i64::from(i8::from_le_bytes(b)))?),
            2 => MetadataArray::Uints(self.numbers(what, count, |b| u64::from(u16::from_le_bytes(b)))?),
            3 => MetadataArray::Ints(self.numbers(what, count, |b| i64::from(i16::from_le_bytes(b)))?),
            4 => MetadataArray::Uints(self.numbers(what, count, |b| u64::from(u32::from_le_bytes(b)))?),
            5 => MetadataArray::Ints(self.numbers(what, count, |b| i64::from(i32::from_le_bytes(b)))?),
            6 => MetadataArray::Floats(self.numbers(what, count, |b| f64::from(f32::from_le_bytes(b)))?),
            7 => {
                self.check_count(what, count, 1)?;
                MetadataArray::Bools((0..count).map(|_| self.bool(what)).collect::<Result<_, _>>()?)
            }
            8 => MetadataArray::Strings(self.strings(what, count)?),
            9 => {
                // Minimum size of an array: a type and a count.
                self.check_count(what, count, 12)?;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.array_value(what, depth + 1)?);
                }
                MetadataArray::Arrays(arrays)
            }
            10 => MetadataArray::Uints(self.numbers(what, count, u64::from_le_bytes)?),
            11 => MetadataArray::Ints(self.numbers(what, count, i64::from_le_bytes)?),
            12 => MetadataArray::Floats(self.numbers(what, count, f64::from_le_bytes)?),
            _ => return error(what, format!("unknown array element type {type_id}")),
        })
    }

    fn strings(&mut self, what: &str, count: u64) -> Result<StringTable, HeaderError> {
        // Minimum size of a string: its length.
        self.check_count(what, count, 8)?;
        let mut strings = StringTable { text: String::new(), ends: Vec::with_capacity(count as usize) };
        for _ in 0..count {
            strings.text.push_str(self.text(what)?);
            strings.ends.push(strings.text.len());
        }
        Ok(strings)
    }
}
