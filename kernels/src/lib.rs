//! CPU kernels with a fixed order of summation.

mod weight_type;

pub use weight_type::WeightType;
