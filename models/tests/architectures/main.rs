//! Tests of architectures against independent implementations and for self-consistency.

mod checkpoints;
mod configurations;
#[path = "../../../tests/device/mod.rs"]
mod device;
mod devices;
mod encoder_decoders;
mod encoders;
#[path = "../../../tests/roster/mod.rs"]
mod roster;
mod second_opinion;
