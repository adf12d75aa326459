//! Limits from which figures count as weak, few, many or significant.

// docs/trust.md states these numbers.

/// A difference with a larger p may be chance.
pub const SIGNIFICANT: f64 = 0.05;

/// A lower correlation with gold is weak. The whole interval must be above, so that the standard does not depend on the
/// number of contexts: with ten contexts, a point estimate is often far above the true value.
pub const WEAK_CORRELATION: f64 = 0.3;
/// The same limit for accuracy, as a share of the way from chance to 1: 60% for two candidates.
pub const WEAK_ABOVE_CHANCE: f64 = 0.2;

/// Figures over fewer independent units (contexts, samples, groups, checked answers) are preliminary.
pub const FEW_UNITS: usize = 10;

/// Default of `--alpha`: the share of disagreement with people that a guarantee allows.
pub const ALPHA: f64 = 0.2;
/// Default of `--delta`: the probability with which a guarantee may fail.
pub const DELTA: f64 = 0.1;

/// If more than this share of the verdicts change with presentation order, they only measure position bias.
pub const MOST_TURN: f64 = 0.5;
/// Above this share, presentation order strongly affects the verdicts.
pub const MANY_TURN: f64 = 0.2;
/// Like [`MOST_TURN`], for answers with low label mass.
pub const MOST_LOW: f64 = 0.5;
/// Like [`MANY_TURN`], for answers with low label mass.
pub const MANY_LOW: f64 = 0.1;
/// Above this share of unscored results, the scored ones are no random sample: long texts and unparsable answers are
/// missing.
pub const MANY_UNSCORED: f64 = 0.1;
