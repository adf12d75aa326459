//! From which values on a figure is called weak, few, many or clear, once for everything that a run concludes.

// docs/trust.md states these numbers.

/// A difference with a greater p may be chance.
pub const SIGNIFICANT: f64 = 0.05;

/// A lower correlation with gold is weak. The whole interval must be above, so that the word excludes the same at any
/// number of contexts: a point estimate of ten contexts is above where the truth is far below as often as not.
pub const WEAK_CORRELATION: f64 = 0.3;
/// The same of accuracy, as a share of the way from chance to all right: 60% between two.
pub const WEAK_ABOVE_CHANCE: f64 = 0.2;

/// Figures over fewer independent units (contexts, samples, groups, checked answers) are a beginning.
pub const FEW_UNITS: usize = 10;

/// Verdicts that change with presentation order in more than this share of pairs say only which position the model likes.
pub const MOST_TURN: f64 = 0.5;
/// Above this, the order has a large part in the verdict.
pub const MANY_TURN: f64 = 0.2;
/// The same as [`MOST_TURN`] for answers with low label mass.
pub const MOST_LOW: f64 = 0.5;
/// The same as [`MANY_TURN`] for answers with low label mass.
pub const MANY_LOW: f64 = 0.1;
/// What was left unscored in more than this share was not compared with people, and is no random part: texts that are too
/// long, answers that cannot be read.
pub const MANY_UNSCORED: f64 = 0.1;
