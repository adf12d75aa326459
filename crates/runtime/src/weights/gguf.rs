//! GGUF files as a source of weights and metadata.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probity_models::{
    GgufError, GgufMetadata, GgufNames, RawTensor, SourceError, TensorBytes, TensorMemory, WeightSource, gguf_names,
};

use super::gguf_header::{GgufHeader, HeaderError, MetadataArray, MetadataValue, StringTable, TensorInfo};
use super::gguf_parts::{self, GgufPart};
use probity_lm::nearest;

use super::{WeightsError, map_file};

/// An open GGUF file, or all files of a model in several, with checked headers. Tensors are views of the mapped files.
#[derive(Clone)]
pub struct GgufFile {
    /// The first has the metadata.
    parts: Arc<Vec<GgufPart>>,
    /// GGUF name → part, and index in its header.
    by_name: Arc<BTreeMap<String, (usize, usize)>>,
    names: Arc<GgufNames>,
}

/// A tensor's properties, for `inspect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorListing {
    /// Name in the file.
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// Name of the storage type, which may be unsupported.
    pub type_name: &'static str,
    /// Size in bytes.
    pub bytes: usize,
}

impl GgufFile {
    /// Maps the file and checks its header. If it is the first of several, the others are read from its folder.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = GgufPart::read(path, Arc::new(map_file(path)?))?;
        Ok(Self::of_parts(if gguf_parts::count(&file)? > 1 { gguf_parts::with_others(file)? } else { vec![file] }))
    }

    /// Reads one file from bytes in memory; `path` is only for messages.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, WeightsError> {
        Ok(Self::of_parts(vec![GgufPart::read(path, Arc::new(bytes))?]))
    }

    fn of_parts(parts: Vec<GgufPart>) -> Self {
        let tensors = parts.iter().enumerate().flat_map(|(part, file)| {
            let tensors = file.header.tensors.iter().enumerate();
            tensors.map(move |(index, tensor)| (tensor.name.clone(), (part, index)))
        });
        let by_name: BTreeMap<String, (usize, usize)> = tensors.collect();
        let architecture = parts[0].header.metadata.get("general.architecture");
        let architecture = architecture
            .and_then(|value| if let MetadataValue::String(name) = value { Some(name.as_str()) } else { None });
        let names = Arc::new(gguf_names(architecture, |name| by_name.contains_key(name)));
        Self { parts: Arc::new(parts), by_name: Arc::new(by_name), names }
    }

    /// The files, the first of several first.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|part| part.path.clone()).collect()
    }

    fn first(&self) -> &GgufPart {
        &self.parts[0]
    }

    fn info(&self, (part, index): (usize, usize)) -> &TensorInfo {
        &self.parts[part].header.tensors[index]
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.first().header.version
    }

    /// All tensors in file order.
    pub fn tensors(&self) -> Vec<TensorListing> {
        let listing = |tensor: &TensorInfo| TensorListing {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            type_name: tensor.ggml_type.name,
            bytes: tensor.bytes.len(),
        };
        self.parts.iter().flat_map(|part| &part.header.tensors).map(listing).collect()
    }

    /// All metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, MetadataValue> {
        &self.first().header.metadata
    }

    /// The value of `key`, if present.
    pub fn value(&self, key: &str) -> Option<&MetadataValue> {
        self.metadata().get(key)
    }

    /// The string of `key`; an error for another type.
    pub fn string(&self, key: &str) -> Result<Option<&str>, WeightsError> {
        self.named(GgufMetadata::string(self, key))
    }

    /// The non-negative integer of `key`; an error for another type.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, WeightsError> {
        self.named(GgufMetadata::u64(self, key))
    }

    /// The token id of `key`; an error for another type.
    pub fn token_id(&self, key: &str) -> Result<Option<u32>, WeightsError> {
        self.named(GgufMetadata::token_id(self, key))
    }

    /// The boolean of `key`; an error for another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        self.named(GgufMetadata::bool(self, key))
    }

    /// The strings of `key`; an error for another type.
    pub fn strings(&self, key: &str) -> Result<Option<&StringTable>, WeightsError> {
        self.named(self.texts_of(key))
    }

    /// The floats of `key`; an error for another type.
    pub fn floats(&self, key: &str) -> Result<Option<&[f64]>, WeightsError> {
        self.named(self.typed(key, "an array of floats", |value| {
            if let MetadataValue::Array(MetadataArray::Floats(floats)) = value { Some(floats.as_slice()) } else { None }
        }))
    }

    /// The integers of `key`, signed or unsigned; an error for another type.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, WeightsError> {
        self.named(self.typed(key, "an array of integers", |value| match value {
            MetadataValue::Array(MetadataArray::Ints(values)) => Some(values.clone()),
            MetadataValue::Array(MetadataArray::Uints(values)) => {
                values.iter().map(|&v| i64::try_from(v).ok()).collect()
            }
            _ => None,
        }))
    }

    /// An error about the metadata of this file.
    pub(crate) fn metadata_error(&self, key: &str, why: impl Into<String>) -> WeightsError {
        let hint = "convert the model again, or use its safetensors files; the converter may be unknown to this \
                    version";
        self.metadata_error_with(key, why, hint)
    }

    /// Like [`metadata_error`](Self::metadata_error) with a different hint.
    pub(crate) fn metadata_error_with(&self, key: &str, why: impl Into<String>, hint: &str) -> WeightsError {
        WeightsError::Malformed {
            path: self.first().path.clone(),
            what: format!("metadata `{key}`"),
            why: why.into(),
            hint: hint.into(),
        }
    }

    /// Adds the file's name to an error.
    fn named<T>(&self, result: Result<T, GgufError>) -> Result<T, WeightsError> {
        result.map_err(|error| self.metadata_error(&error.key, error.why))
    }

    fn texts_of(&self, key: &str) -> Result<Option<&StringTable>, GgufError> {
        self.typed(key, "an array of strings", |value| {
            if let MetadataValue::Array(MetadataArray::Strings(strings)) = value { Some(strings) } else { None }
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a MetadataValue) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match read(value) {
            Some(typed) => Ok(Some(typed)),
            None => Err(GgufError::new(key, format!("expected {expected}, found {}", value.kind()))),
        }
    }
}

impl GgufMetadata for GgufFile {
    fn keys(&self) -> Vec<&str> {
        self.metadata().keys().map(String::as_str).collect()
    }

    fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a non-negative integer", |value| value.as_u64().or_else(|| value.as_equal_u64s()))
    }

    fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "a number", MetadataValue::as_f64)
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a boolean", |value| if let MetadataValue::Bool(flag) = value { Some(*flag) } else { None })
    }

    fn integers(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.typed(key, "non-negative integers or booleans", |value| match value {
            MetadataValue::Array(MetadataArray::Uints(values)) => Some(values.clone()),
            MetadataValue::Array(MetadataArray::Ints(values)) => {
                values.iter().map(|&v| u64::try_from(v).ok()).collect()
            }
            MetadataValue::Array(MetadataArray::Bools(values)) => Some(values.iter().map(|&v| v.into()).collect()),
            MetadataValue::Bool(value) => Some(vec![u64::from(*value)]),
            value => value.as_u64().map(|value| vec![value]),
        })
    }

    fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(
            key,
            "a string",
            |value| if let MetadataValue::String(text) = value { Some(text.as_str()) } else { None },
        )
    }

    fn token_id(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, "a token id", |value| value.as_u64().and_then(|id| u32::try_from(id).ok()))
    }

    fn texts(&self, key: &str) -> Result<Option<usize>, GgufError> {
        Ok(self.texts_of(key)?.map(StringTable::len))
    }

    fn shape(&self, tensor: &str) -> Option<&[usize]> {
        self.by_name.get(tensor).map(|&at| self.info(at).shape.as_slice())
    }
}

impl WeightSource for GgufFile {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let gguf_name = self.names.to_gguf(name);
        let Some(&at) = self.by_name.get(&gguf_name) else {
            return Err(SourceError::Missing {
                name: gguf_name.clone(),
                path: self.path(),
                held: self.by_name.len(),
                nearest: nearest(&gguf_name, self.by_name.keys().map(String::as_str)).map(str::to_owned),
            });
        };
        let (info, part) = (self.info(at), &self.parts[at.0]);
        // Reported only when the tensor is read, so that a file with unsupported types can still be inspected.
        let Some(weight_type) = info.ggml_type.weight_type else {
            return Err(SourceError::Unsupported {
                name: gguf_name,
                path: part.path.clone(),
                found: info.ggml_type.name.to_owned(),
                supported: None,
                hint: SUPPORTED_TYPES,
            });
        };
        let bytes = TensorBytes::slice(Arc::clone(&part.owner), info.bytes.clone())
            .expect("the header check placed each tensor inside the file");
        Ok(RawTensor { shape: info.shape.clone(), weight_type, bytes })
    }

    fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(&self.names.to_gguf(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().map(|name| self.names.to_huggingface(name)).collect();
        names.sort_unstable();
        names
    }

    fn path(&self) -> PathBuf {
        self.first().path.clone()
    }
}

const SUPPORTED_TYPES: &str = "use a file with types F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, \
                               MXFP4 (such as a Q4_K_M or Q8_0 file)";

impl GgufPart {
    /// Checks the header of a file in memory.
    pub(super) fn read(path: &Path, owner: Arc<dyn TensorMemory>) -> Result<Self, WeightsError> {
        let header = GgufHeader::parse(owner.bytes()).map_err(|error| malformed(path, error))?;
        Ok(Self { path: path.to_owned(), owner, header })
    }
}

fn malformed(path: &Path, error: HeaderError) -> WeightsError {
    let hint = if error.truncated {
        format!(
            "download it again: it may be truncated; compare its hash with the publisher's: probity model verify {}",
            path.display()
        )
    } else {
        format!(
            "compare its hash with the publisher's: probity model verify {}; the file is damaged or not a GGUF file",
            path.display()
        )
    };
    WeightsError::Malformed { path: path.to_owned(), what: error.what, why: error.why, hint }
}
