//! Where a model's tensors come from: the one view of safetensors and GGUF files that architectures load from.

use std::path::PathBuf;
use std::sync::Arc;

use probity_kernels::WeightType;

/// What tensors lie in: a mapped file, or memory of a test.
pub trait TensorMemory: Send + Sync {
    /// All of it.
    fn bytes(&self) -> &[u8];

    /// A hint that these bytes will hardly be read again; they stay readable.
    fn release(&self, _: std::ops::Range<usize>) {}
}

impl TensorMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Bytes of one tensor, shared with the file they are mapped from.
#[derive(Clone)]
pub struct TensorBytes {
    owner: Arc<dyn TensorMemory>,
    range: std::ops::Range<usize>,
}

impl TensorBytes {
    /// A checked view into `owner`; `None` where the range does not lie inside.
    pub fn slice(owner: Arc<dyn TensorMemory>, range: std::ops::Range<usize>) -> Option<Self> {
        // Looked at once, here: reading indexes without asking again.
        owner.bytes().get(range.clone())?;
        Some(Self { owner, range })
    }

    /// Some of them.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        assert!(range.end <= self.range.len(), "a part lies inside");
        Self { owner: self.owner.clone(), range: self.range.start + range.start..self.range.start + range.end }
    }

    /// A hint that the tensor will hardly be read again: its memory may go back to the system.
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

/// A tensor as it lies in its file: row-major, the last dimension contiguous.
#[derive(Clone)]
pub struct RawTensor {
    /// Outermost dimension first: a linear layer is `(out_features, in_features)`.
    pub shape: Vec<usize>,
    /// How the elements are stored.
    pub weight_type: WeightType,
    /// Exactly as many bytes as shape and type need.
    pub bytes: TensorBytes,
}

/// Why a tensor could not be had.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SourceError {
    /// The files hold no tensor of that name.
    #[error(
        "tensor `{name}` not found in {}\n  the files hold {held} tensors{}",
        path.display(), hint(nearest.as_deref())
    )]
    #[diagnostic(help(
        "the checkpoint is incomplete, or its configuration names another architecture or number of layers"
    ))]
    Missing {
        /// The name asked for.
        name: String,
        /// The file or folder.
        path: PathBuf,
        /// How many tensors there are.
        held: usize,
        /// The name most like it, where one is near.
        nearest: Option<String>,
    },
    /// The system gives no memory for it.
    #[error("there is no memory for tensor `{name}`, which needs {} MiB: {why}", bytes >> 20)]
    #[diagnostic(help("free some memory, or take a smaller or more quantised model"))]
    NoMemory {
        /// The tensor.
        name: String,
        /// Its bytes in the file.
        bytes: usize,
        /// The system's reason.
        why: String,
    },
    /// The tensor is there but not as described.
    #[error("tensor `{name}` in {}: {why}", path.display())]
    #[diagnostic(help("weights and configuration do not belong together; download both again"))]
    Invalid {
        /// The tensor.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Expected and found.
        why: String,
    },
    /// The tensor's numbers are written in a type that is not read.
    #[error("tensor `{name}` in {}: its type {found} is not supported{}", path.display(), supported_in_full(*supported))]
    #[diagnostic(help("{hint}"))]
    Unsupported {
        /// The tensor.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Its type.
        found: String,
        /// The types that are read from such a file, where the message names them.
        supported: Option<&'static str>,
        /// What to do.
        hint: &'static str,
    },
}

fn supported_in_full(supported: Option<&str>) -> String {
    supported.map(|types| format!("; {types} are")).unwrap_or_default()
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; the nearest name is `{name}`")).unwrap_or_default()
}

/// A checkpoint's tensors, by the names that Hugging Face checkpoints use (`model.layers.0.self_attn.q_proj.weight`).
pub trait WeightSource {
    /// The tensor of that name.
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError>;

    /// The type and bytes of that tensor, without more work than that takes.
    fn stored(&self, name: &str) -> Result<(WeightType, usize), SourceError> {
        self.tensor(name).map(|tensor| (tensor.weight_type, tensor.bytes.len()))
    }

    /// Whether there is one.
    fn contains(&self, name: &str) -> bool;

    /// All names, sorted, in Hugging Face terms.
    fn names(&self) -> Vec<String>;

    /// The file or folder, for messages.
    fn path(&self) -> PathBuf;
}
