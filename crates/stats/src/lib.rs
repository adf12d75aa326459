//! Correlation, ranking and agreement statistics: pure functions over `f64`.
//!
//! Undefined results (the correlation of a constant, the score of an unjudged candidate) are `None` or counted with
//! their reason; no function returns NaN.

mod agreement;
mod alpha;
mod compare;
mod correlation;
mod debias;
mod equal;
mod figures;
#[cfg(test)]
mod golden;
mod interval;
mod kappa;
mod kendall;
mod pairwise;
mod preference;
mod ranking;
mod resample;
mod significance;
mod sum;
mod ties;
mod trust;

pub use agreement::{
    PerContext, SystemLevel, SystemScore, WithoutSystems, lowest_without_systems, per_context, score_lists,
    system_coverage, system_estimate, system_level,
};
pub use alpha::{MeasurementLevel, krippendorff_alpha};
pub use compare::{Measured, MetricDifference, Rivals, compare_metrics};
pub use correlation::{Correlation, Tested, Undefined, average_ranks, kendall_tau_b, pearson, spearman};
pub use debias::{PositionBias, PositionDebias, order_gap, reweighted};
pub use equal::{TIE_TOLERANCE, are_level, equalised, equalised_within, order};
pub use figures::{AgreementFigures, CorrelationFigures, POOLED_LIMIT, PooledCorrelation, pooled_correlation};
pub use interval::{
    FigureEstimate, Interval, NoInterval, Range, jackknife, mean_interval, ratio_interval, units_to_reach,
    verdict_interval,
};
pub use kappa::{Association, KappaWeights, association, cohen_kappa};
pub use pairwise::{PairwiseAccuracy, comparison_accuracy, pairwise_accuracy};
pub use preference::{ChoiceAccuracy, ChoicePoint, choice_point};
pub use ranking::{
    BRADLEY_TERRY_PRIOR, Comparisons, Conditionals, EXACT_SEARCH, LikelihoodRanking, PROBABILITY_FLOOR, PairComparison,
    ProductOfExperts, RankMethod, RankingError, Settled, UnknownRankMethod, log_odds,
};
pub use resample::{ALL_SWAPS, CONFIDENCE, PairedDifference, Resampling, quantile};
pub use significance::{Williams, mean_p, sign_test, williams};
pub use sum::{ordered_mean, ordered_sum};
pub use ties::{PAIR_LIMIT, TieCalibration, TiedPairs, tie_calibration};
pub use trust::{
    CheckedVerdict, ConformalScores, CorrectedShare, NoConformal, NoSelection, PredictionPowered, Selection,
    SelectionRule, SelectionRuleError, conformal_items, corrected_share, drawn, prediction_powered, thresholds,
};
