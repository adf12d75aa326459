//! Options of every run.

mod data;
mod model;
mod run;

pub use data::DataOptions;
pub(crate) use model::TemplateVariable;
pub use model::{ByteSize, ByteSizeError, ComputeOptions, ComputingOptions, ModelOptions, computing_in_force};
pub use run::{AskOptions, KeepOptions, OutputOptions, RunOptions, StageTable, StageTableError};
