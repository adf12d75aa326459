//! Linear heads on features: what is fitted to people's labels, cross-validated in groups, and kept.
//!
//! A row of features is a candidate, or the difference of two that were compared. Columns come in [`Block`]s; each
//! column is standardised over the rows that are learnt from, and each block is scaled by its weight/√(its columns), so
//! that a block of many columns weighs no more than one of few. Then ridge regression is fitted to scores, and logistic
//! regression with the same penalty to decisions. How strong the penalty is, an inner cross-validation decides.
//!
//! All sums run in the order of rows and columns, in 64 bits: the same table gives the same bits with any number of
//! threads and on any processor. That is why the solver is our own: the linear algebra libraries choose instructions,
//! and with them the order of sums, by machine.

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
pub use table::{Block, FeatureTable, MOST, TableError};
