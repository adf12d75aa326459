//! Model architectures on the packed contract.

mod source;

pub use source::{Bytes, RawTensor, SourceError, WeightSource};
