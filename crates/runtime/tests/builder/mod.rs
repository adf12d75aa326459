//! Writes small GGUF files, right or wrong, for tests.

/// A metadata value with its type number.
#[derive(Clone)]
pub(crate) enum Meta {
    /// u32.
    U32(u32),
    /// f32.
    F32(f32),
    /// bool, any byte.
    Bool(u8),
    /// string.
    Str(String),
    /// array of strings.
    Strs(Vec<String>),
    /// array of f32.
    F32s(Vec<f32>),
    /// array of i32.
    I32s(Vec<i32>),
    /// Bytes after the key, unchanged and including the type number.
    Raw(Vec<u8>),
}

/// A file under construction.
#[derive(Clone)]
pub(crate) struct Gguf {
    /// Magic bytes.
    pub(crate) magic: [u8; 4],
    /// Format version.
    pub(crate) version: u32,
    /// False number of tensors, if set.
    pub(crate) tensor_count: Option<u64>,
    /// False number of metadata entries, if set.
    pub(crate) metadata_count: Option<u64>,
    /// Metadata entries in order.
    pub(crate) metadata: Vec<(Vec<u8>, Meta)>,
    /// Name, dimensions innermost first, type, offset, in order.
    pub(crate) tensors: Vec<(String, Vec<u64>, u32, u64)>,
    /// Bytes after the padded header.
    pub(crate) data: Vec<u8>,
}

impl Default for Gguf {
    fn default() -> Self {
        let empty = (None, None, Vec::new(), Vec::new(), Vec::new());
        let (tensor_count, metadata_count, metadata, tensors, data) = empty;
        Self { magic: *b"GGUF", version: 3, tensor_count, metadata_count, metadata, tensors, data }
    }
}

impl Gguf {
    /// Adds a metadata entry.
    pub(crate) fn meta(mut self, key: &str, value: Meta) -> Self {
        self.metadata.push((key.as_bytes().to_vec(), value));
        self
    }

    /// Adds a string.
    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.meta(key, Meta::Str(value.into()))
    }

    /// Adds a u32.
    pub(crate) fn number(self, key: &str, value: u32) -> Self {
        self.meta(key, Meta::U32(value))
    }

    /// Adds a tensor with its bytes, at the next multiple of 32.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, bytes: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensors.push((name.into(), dims.to_vec(), type_id, self.data.len() as u64));
        self.data.extend_from_slice(bytes);
        self
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.magic);
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.metadata_count.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            write(&mut out, value);
        }
        for (name, dims, type_id, offset) in &self.tensors {
            string(&mut out, name.as_bytes());
            out.extend((dims.len() as u32).to_le_bytes());
            for dim in dims {
                out.extend(dim.to_le_bytes());
            }
            out.extend(type_id.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn array(out: &mut Vec<u8>, element: u32, count: usize) {
    out.extend(9u32.to_le_bytes());
    out.extend(element.to_le_bytes());
    out.extend((count as u64).to_le_bytes());
}

fn write(out: &mut Vec<u8>, value: &Meta) {
    match value {
        Meta::U32(v) => {
            out.extend(4u32.to_le_bytes());
            out.extend(v.to_le_bytes());
        }
        Meta::F32(v) => {
            out.extend(6u32.to_le_bytes());
            out.extend(v.to_le_bytes());
        }
        Meta::Bool(v) => {
            out.extend(7u32.to_le_bytes());
            out.push(*v);
        }
        Meta::Str(v) => {
            out.extend(8u32.to_le_bytes());
            string(out, v.as_bytes());
        }
        Meta::Strs(v) => {
            array(out, 8, v.len());
            for text in v {
                string(out, text.as_bytes());
            }
        }
        Meta::F32s(v) => {
            array(out, 6, v.len());
            for x in v {
                out.extend(x.to_le_bytes());
            }
        }
        Meta::I32s(v) => {
            array(out, 5, v.len());
            for x in v {
                out.extend(x.to_le_bytes());
            }
        }
        Meta::Raw(bytes) => out.extend(bytes),
    }
}
