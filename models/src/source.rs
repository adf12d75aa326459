//! Tensor sources: the common interface to safetensors and GGUF files.

use std::path::PathBuf;
use std::sync::Arc;

use probity_kernels::WeightType;

/// The memory that holds tensors: a mapped file, or a buffer in tests.
pub trait TensorMemory: Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];

    /// Hints that this range is unlikely to be read again. It stays readable.
    fn release(&self, _: std::ops::Range<usize>) {}
}

impl TensorMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The bytes of one tensor, sharing the memory of its file.
#[derive(Clone)]
pub struct TensorBytes {
    owner: Arc<dyn TensorMemory>,
    range: std::ops::Range<usize>,
}

impl TensorBytes {
    /// A view into `owner`, or `None` if the range is out of bounds.
    pub fn slice(owner: Arc<dyn TensorMemory>, range: std::ops::Range<usize>) -> Option<Self> {
        // Checked once, so that reads can index directly.
        owner.bytes().get(range.clone())?;
        Some(Self { owner, range })
    }

    /// A subrange.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        assert!(range.end <= self.range.len(), "a part lies inside");
        Self { owner: self.owner.clone(), range: self.range.start + range.start..self.range.start + range.end }
    }

    /// Hints that the tensor is unlikely to be read again, so that its memory can be released.
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }
}

impl std::ops::Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.owner.bytes()[self.range.clone()]
    }
}

/// A tensor in its file's layout: row-major, the last dimension contiguous.
#[derive(Clone)]
pub struct RawTensor {
    /// Outermost dimension first: a linear layer is `(out_features, in_features)`.
    pub shape: Vec<usize>,
    /// The element type.
    pub weight_type: WeightType,
    /// The data, with exactly the size that shape and type require.
    pub bytes: TensorBytes,
}

/// A tensor of bytes, in its file's layout.
#[derive(Clone)]
pub struct ByteTensor {
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// The data, a byte for each element.
    pub bytes: TensorBytes,
}

/// Why a tensor cannot be read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SourceError {
    /// The tensor does not exist.
    #[error(
        "tensor `{name}` not found in {}\n  the files hold {held} tensors{}",
        path.display(), hint(nearest.as_deref())
    )]
    #[diagnostic(help(
        "download the checkpoint again, or correct the architecture or number of layers in its configuration"
    ))]
    Missing {
        /// The requested name.
        name: String,
        /// The file or folder.
        path: PathBuf,
        /// The number of tensors in the files.
        held: usize,
        /// The most similar name, if there is one.
        nearest: Option<String>,
    },
    /// Memory allocation failed.
    #[error("not enough memory for tensor `{name}`, which needs {bytes} bytes: {why}")]
    #[diagnostic(help("free some memory, or use a smaller or more quantised model"))]
    NoMemory {
        /// The tensor.
        name: String,
        /// Its size in the file.
        bytes: usize,
        /// The system's error.
        why: String,
    },
    /// The tensor is not as described.
    #[error("tensor `{name}` in {}: {why}", path.display())]
    #[diagnostic(help("download weights and configuration again; they do not match"))]
    Invalid {
        /// The tensor.
        name: String,
        /// Its file.
        path: PathBuf,
        /// The expected and the actual property.
        why: String,
    },
    /// The element type is not supported.
    #[error("tensor `{name}` in {}: its type {found} is not \
             supported{}", path.display(), supported_in_full(*supported))]
    #[diagnostic(help("{hint}"))]
    Unsupported {
        /// The tensor.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Its type.
        found: String,
        /// The supported types, if the message lists them.
        supported: Option<&'static str>,
        /// A suggested fix.
        hint: &'static str,
    },
}

fn supported_in_full(supported: Option<&str>) -> String {
    supported.map(|types| format!("; supported are {types}")).unwrap_or_default()
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The tensors of a checkpoint, with Hugging Face names (`model.layers.0.self_attn.q_proj.weight`).
pub trait WeightSource {
    /// Returns the tensor with this name.
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError>;

    /// Returns the tensor of unsigned bytes with this name.
    fn bytes(&self, name: &str) -> Result<ByteTensor, SourceError> {
        Err(SourceError::Invalid { name: name.to_owned(), path: self.path(), why: "expected a tensor of bytes".into() })
    }

    /// The type and size in bytes of a tensor, at the lowest cost.
    fn stored(&self, name: &str) -> Result<(WeightType, usize), SourceError> {
        self.tensor(name).map(|tensor| (tensor.weight_type, tensor.bytes.len()))
    }

    /// Whether the tensor exists.
    fn contains(&self, name: &str) -> bool;

    /// All Hugging Face names, sorted.
    fn names(&self) -> Vec<String>;

    /// The file or folder, for error messages.
    fn path(&self) -> PathBuf;
}
