//! Correlation, ranking and agreement statistics: pure functions over `f64`.
//!
//! What is not defined (the correlation of a constant, the score of a candidate that nobody judged) is `None` or counted with its reason; no
//! function returns NaN.

mod agreement;
mod correlation;
mod debias;
#[cfg(test)]
mod golden;
mod ranking;
mod resample;

pub use agreement::{
    PairwiseAccuracy, PerContext, SystemLevel, SystemScore, comparison_accuracy, pairwise_accuracy, per_context_spearman,
    system_level_spearman,
};
pub use correlation::{average_ranks, kendall_tau_b, pearson, spearman};
pub use debias::{Debias, PositionBias, order_gap};
pub use ranking::{
    BRADLEY_TERRY_PRIOR, Comparison, Comparisons, EXACT_SEARCH, LikelihoodRanking, PROBABILITY_FLOOR, RankMethod, RankingError,
    UnknownRankMethod,
};
pub use resample::{Interval, PairedBootstrap, Resampling, quantile};
