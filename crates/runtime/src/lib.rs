//! Runs local models: loading, tokenisation, scoring and generation behind the language model interface.

mod bit_probe;
pub mod chat;
mod checkpoint;
mod constraint;
mod contained;
mod continue_text;
mod dry_model;
pub mod encoder;
mod engine;
mod gguf_config;
pub mod hub;
mod memory;
mod model;
mod options;
mod plan;
mod progress;
mod replica;
mod request_encoder;
mod score;
mod several;
mod side_file;
#[cfg(test)]
#[path = "../../../tests/device/mod.rs"]
mod test_device;
#[cfg(test)]
#[path = "../../../tests/roster/mod.rs"]
mod test_roster;
mod text_model;
mod threads;
pub mod tokenizer;
mod verdict;
pub mod weights;
mod window;

pub use gguf_config::gguf_config;

pub use chat::is_reserved_variable;

pub use bit_probe::{BitProbe, Bits, ProbeOrder, bit_digest};
pub use checkpoint::{Checkpoint, LoadError};
pub use contained::CountingAllocator;
pub use dry_model::DryModel;
pub use memory::{DeviceShare, ModelMemory, device_room, free_for_copy, machine_memory};
pub use model::Model;
pub use options::{Drafting, KeptPrefixBytes, LoadOptions};
pub use plan::{PlannedCost, PlannedMemory, TimeEstimate};
pub use probity_kernels::Isa;
pub use probity_models::{
    ArchitectureKind, BRIDGE, BatchSize, DeviceChoice, DeviceError, DeviceList, DeviceListError, DeviceRoom,
    KnownArchitecture, known_architectures, text_part, text_tensor,
};
pub use progress::TokenProgress;
pub use text_model::{TextFiles, TextModel};

/// The error's own hint; empty if it has none.
#[cfg(test)]
pub(crate) fn hint_of(error: &dyn miette::Diagnostic) -> String {
    error.help().map(|hint| hint.to_string()).unwrap_or_default()
}

/// The error's message followed by its hint.
#[cfg(all(test, feature = "hub"))]
pub(crate) fn error_with_hint(error: &dyn miette::Diagnostic) -> String {
    format!("{error}\n{}", hint_of(error))
}
