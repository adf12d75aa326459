//! Linear heads on features, fitted to human labels with cross-validation by group.
//!
//! A row of features belongs to a candidate, or to the difference of two compared candidates. Columns are grouped in
//! [`ColumnBlock`]s. Each column is standardised over the training rows, and each block is scaled by its weight/√(its
//! columns), so that large blocks do not dominate small ones. Scores use ridge regression, decisions logistic
//! regression with the same penalty. An inner cross-validation chooses the penalty.
//!
//! All sums run in the order of rows and columns in 64 bits, so results are bit-identical for any number of threads and
//! on any processor. This is why the crate has its own solver: linear algebra libraries choose instructions, and
//! thereby the order of summation, by machine.

mod cholesky;
mod cross_validation;
mod fit;
mod folds;
mod head;
mod table;

pub use cross_validation::{FittedHead, Lesson, Prediction, Split};
pub use fit::{ALPHAS, Objective};
pub use folds::{Folds, shuffled};
pub use head::LinearHead;
pub use table::{ColumnBlock, FeatureTable, MOST, TableError};
