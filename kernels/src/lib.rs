//! CPU kernels with a fixed order of summation.
//!
//! Every output element is computed by one chain of exactly rounded operations that depends only on its own inputs, not
//! on the number of rows, threads or segments or on the instruction set. Scores therefore have the same bits however
//! work is batched.
//!
//! Dependencies between modules are layered: formats and data (`weight_type`, `form`, `decode`, `pack`) and the lanes
//! (`simd`); then, generic over the lanes, groups of integers (`groups`), expansion (`unpack`) and register tiles
//! (`tiles`); then the instruction sets (`isa`); then the drivers (`inputs`, `worker`, `matmul`, `attention`, `head`,
//! `delta`, `elementwise`), which name no instruction set.

#![expect(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "a generic body must be compiled inside the function that enables its instruction set, or its intrinsics \
              stay calls; so must \
              what stands in a loop, and the closures of an iterator need not be"
)]

mod activation;
mod attention;
mod buffer;
mod decode;
mod delta;
mod elementwise;
mod form;
mod groups;
mod head;
mod inputs;
mod isa;
mod matmul;
mod matrix;
mod output;
mod pack;
mod simd;
mod tiles;
mod unpack;
mod weight_type;
mod worker;

pub use activation::{Activation, activate};
pub use attention::{
    AttentionSegment, AttentionShape, DistanceColumns, DistanceProducts, PackedSpan, QueryRows, RelativeBias,
    ScoreBias, attention, attention_with_sinks, join_spans, pack_span,
};
pub use buffer::{Buffer, NoMemory, prefer_large_pages};
pub use decode::dequantise;
pub use delta::{DeltaInputs, DeltaRoom, DeltaShape, DeltaText, DeltaWeights, gated_delta};
pub use elementwise::{Norm, RopeLayout, RopeTable, add_scaled, normalise, soft_cap};
pub use form::{Arithmetic, ProductForm};
pub use head::{HeadMatrix, HeadRow, greedy_among, head, likeliest_among, log_sum_exp};
pub use inputs::Inputs;
pub use isa::Isa;
pub use matmul::{Activated, MatrixProduct, activated_matmul, matmul};
pub use matrix::Matrix;
pub use pack::PackedMatrix;
pub use weight_type::WeightType;
