//! NEON, with its byte dot products and byte matrix products.

pub(crate) mod neon;
pub(crate) mod neon_dot;
pub(crate) mod neon_i8mm;

pub(crate) use neon::Neon;
pub(crate) use neon_dot::NeonDot;
pub(crate) use neon_i8mm::NeonI8mm;
