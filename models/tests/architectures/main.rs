//! Architectures against independent implementations, and against themselves.

mod checkpoints;
mod configurations;
mod devices;
mod encoder_decoders;
mod encoders;
mod second_opinion;
