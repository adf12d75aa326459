//! CPU kernels with a fixed order of summation.
//!
//! Every output element is computed by one chain of exactly rounded operations that depends on its own inputs alone: not on how many
//! rows, threads or segments there are, nor on the instruction set. So scores carry the same bits however work is packed.

#![expect(
    clippy::inline_always,
    reason = "a generic body must be compiled inside the function that enables its instruction set, or its intrinsics stay calls"
)]

mod attention;
mod decode;
mod elementwise;
mod isa;
mod matmul;
mod simd;
mod weight_type;

pub use attention::{AttentionShape, Segment, Span, attention, join_spans, pack_keys, pack_values};
pub use decode::dequantise;
pub use elementwise::{RopeLayout, RopeTable, add_assign, log_sum_exp, rms_norm, silu_mul};
pub use isa::Isa;
pub use matmul::{Matrix, matmul, matmul_fast};
pub use weight_type::WeightType;
