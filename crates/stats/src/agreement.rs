//! Agreement of predicted scores with gold, per context and between systems.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::correlation::{Correlation, Tested, Undefined};
use crate::equal::are_exact;
use crate::interval::{FigureEstimate, Interval, Jackknifed, NoInterval, Range, mean_interval};
use crate::significance::mean_p;
use crate::sum::ordered_mean;

/// Mean correlation per context.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PerContext {
    /// The mean over the counted contexts; absent without any.
    pub mean: Option<f64>,
    /// Two-sided p of the mean being 0: Student's t over the counted contexts. Absent below two contexts or if all are
    /// equal.
    pub p: Option<f64>,
    /// Contexts in the mean, including those with constant predictions.
    pub contexts: usize,
    /// Contexts omitted because their gold scores are all equal.
    pub skipped_constant_gold: usize,
    /// Contexts omitted because they have fewer than two scored candidates.
    pub skipped_too_few: usize,
    /// Contexts omitted because a value is not finite.
    pub skipped_not_finite: usize,
    /// Contexts with constant predictions but varying gold: each counts as a correlation of 0.
    pub constant_predictions: usize,
}

impl PerContext {
    /// Contexts that are not in the mean.
    pub fn skipped(&self) -> usize {
        self.skipped_constant_gold + self.skipped_too_few + self.skipped_not_finite
    }
}

/// The mean over contexts of the correlation between `(predicted, gold)` scores of the candidates.
///
/// # Panics
/// The lists of a context differ in length.
pub fn per_context<'a>(of: Correlation, contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> PerContext {
    per_context_values(of, contexts).0
}

/// The figure, and the coefficients of the counted contexts.
pub(crate) fn per_context_values<'a>(
    of: Correlation,
    contexts: impl IntoIterator<Item = (&'a [f64], &'a [f64])>,
) -> (PerContext, Vec<f64>) {
    let mut result = PerContext::default();
    let mut values = Vec::new();
    for (predicted, gold) in contexts {
        match of.coefficient(predicted, gold).ok_or_else(|| Undefined::why(predicted, gold)) {
            Ok(coefficient) => values.push(coefficient),
            Err(Undefined::ConstantPredictions) => {
                // Omitting them would judge a metric with mostly constant scores by the few contexts where its scores
                // vary.
                result.constant_predictions += 1;
                values.push(0.0);
            }
            Err(Undefined::TooFew) => result.skipped_too_few += 1,
            Err(Undefined::NotFinite) => result.skipped_not_finite += 1,
            Err(Undefined::ConstantGold) => result.skipped_constant_gold += 1,
        }
    }
    result.contexts = values.len();
    result.mean = ordered_mean(values.iter().copied());
    result.p = mean_p(&values);
    (result, values)
}

/// With more systems than this, only single systems are omitted: pairs would be slow, and none has much weight.
const MOST_IN_PAIRS: usize = 40;
/// A correlation of fewer systems is close to ±1.
const LEAST_LEFT: usize = 3;

/// Agreement without one or two systems.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WithoutSystems {
    /// The omitted systems.
    pub systems: Vec<String>,
    /// Mean over contexts of Spearman's ρ for the others.
    #[serde(flatten)]
    pub spearman: FigureEstimate<PerContext>,
}

/// The lowest agreement without one system and without two, which shows whether a few systems carry it. Empty if fewer
/// than three would be left or systems do not recur.
pub fn lowest_without_systems(contexts: &[Vec<SystemScore<'_>>], confidence: f64) -> Vec<WithoutSystems> {
    let coverage = system_coverage(contexts) * contexts.iter().filter(|context| !context.is_empty()).count() as f64;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for context in contexts {
        let ids: BTreeSet<&str> = context.iter().map(|score| score.system).collect();
        for id in ids {
            *seen.entry(id).or_default() += 1;
        }
    }
    let ids: Vec<&str> = seen.into_iter().filter(|(_, count)| *count as f64 >= coverage).map(|(id, _)| id).collect();
    let without = |left_out: &[&str]| {
        let kept = |context: &Vec<SystemScore<'_>>| -> (Vec<f64>, Vec<f64>) {
            let others = context.iter().filter(|score| !left_out.contains(&score.system));
            others.map(|score| (score.predicted, score.gold)).unzip()
        };
        let lists: Vec<(Vec<f64>, Vec<f64>)> = contexts.iter().map(kept).collect();
        let slices = lists.iter().map(|(predicted, gold)| (predicted.as_slice(), gold.as_slice()));
        per_context_values(Correlation::Spearman, slices)
    };
    let lowest = |sets: Vec<Vec<&str>>| {
        let found = sets.into_iter().map(|set| (without(&set), set)).filter(|((figure, _), _)| figure.mean.is_some());
        let ((figure, values), set) = found
            .min_by(|((a, _), _), ((b, _), _)| a.mean.unwrap_or_default().total_cmp(&b.mean.unwrap_or_default()))?;
        let interval = mean_interval(&values, confidence, Range::Correlation);
        let systems = set.into_iter().map(str::to_owned).collect();
        Some(WithoutSystems { systems, spearman: FigureEstimate::new(figure, interval) })
    };
    let single = (ids.len() > LEAST_LEFT).then(|| ids.iter().map(|id| vec![*id]).collect());
    let pairs = (LEAST_LEFT + 2..=MOST_IN_PAIRS).contains(&ids.len()).then(|| {
        ids.iter()
            .enumerate()
            .flat_map(|(place, one)| ids[..place].iter().map(move |other| vec![*other, *one]))
            .collect()
    });
    single.into_iter().chain(pairs).filter_map(lowest).collect()
}

/// Scores of one candidate, with the system that wrote it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SystemScore<'a> {
    /// Id of the candidate, the same in each context.
    pub system: &'a str,
    /// The predicted score; finite.
    pub predicted: f64,
    /// The gold score; finite.
    pub gold: f64,
}

/// The predicted and the gold scores of each context.
pub fn score_lists(contexts: &[Vec<SystemScore<'_>>]) -> Vec<(Vec<f64>, Vec<f64>)> {
    contexts.iter().map(|context| context.iter().map(|score| (score.predicted, score.gold)).unzip()).collect()
}

/// Correlation between the systems' mean predicted and mean gold scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SystemLevel {
    /// The correlation; absent if undefined.
    pub coefficient: Option<f64>,
    /// Two-sided p-value over systems, from [`Correlation::test`].
    pub p: Option<f64>,
    /// Why the coefficient is undefined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
    /// Number of systems included.
    pub systems: usize,
    /// Systems excluded because they have scores in too few contexts.
    pub excluded: usize,
    /// Contexts with any score.
    pub contexts: usize,
}

/// System-level correlation over the scores of each context.
///
/// Includes systems with scores in at least the share `coverage` (0 to 1) of the contexts with scores. With 1 all means
/// are over the same contexts, with less over the contexts of each system.
///
/// A system that occurs twice in a context counts once for coverage and with both scores in the means.
pub fn system_level(of: Correlation, contexts: &[Vec<SystemScore<'_>>], coverage: f64) -> SystemLevel {
    Systems::new(contexts, coverage).level(of)
}

/// [`system_level`] with its interval over contexts.
pub fn system_estimate(
    of: Correlation,
    contexts: &[Vec<SystemScore<'_>>],
    coverage: f64,
    confidence: f64,
) -> FigureEstimate<SystemLevel> {
    let systems = Systems::new(contexts, coverage);
    FigureEstimate::new(systems.level(of), systems.interval(of, confidence))
}

/// Minimum share of contexts in which a system has scores, at system level; in addition at least two.
const SYSTEM_COVERAGE: f64 = 0.5;

/// Minimum number of contexts for an interval of a correlation of system means.
// No tested method reaches its coverage below: docs/intervals.md has the simulation.
const LEAST_CONTEXTS: usize = 10;

/// The coverage used by [`AgreementFigures`](crate::AgreementFigures): half of the contexts, at least two.
pub fn system_coverage(contexts: &[Vec<SystemScore<'_>>]) -> f64 {
    let with_scores = contexts.iter().filter(|context| !context.is_empty()).count();
    // At least two: an id in only one context names a text, not a system.
    SYSTEM_COVERAGE.max(2.0 / with_scores.max(1) as f64)
}

/// The included systems, and each context's contribution to their means.
pub(crate) struct Systems {
    /// `(system, sum of predicted, sum of gold, scores)` of each context, by system index.
    contexts: Vec<Vec<(usize, f64, f64, usize)>>,
    taking_part: usize,
    excluded: usize,
    with_scores: usize,
}

impl Systems {
    pub(crate) fn new(contexts: &[Vec<SystemScore<'_>>], coverage: f64) -> Self {
        let with_scores = contexts.iter().filter(|c| !c.is_empty()).count();
        // Integers are counted from the first one, which changes no correlation: small differences between large means
        // would otherwise be treated as rounding errors.
        let scores = || contexts.iter().flatten();
        let origin = |of: fn(&SystemScore<'_>) -> f64| {
            let first = scores().next().map_or(0.0, of);
            if scores().all(|score| are_exact(&[of(score)])) { first } else { 0.0 }
        };
        let origins = (origin(|score| score.predicted), origin(|score| score.gold));
        let sums: Vec<BTreeMap<&str, (f64, f64, usize)>> =
            contexts.iter().map(|context| sums(context, origins)).collect();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        sums.iter().flat_map(BTreeMap::keys).for_each(|system| *seen.entry(system).or_default() += 1);
        let all = seen.len();
        seen.retain(|_, contexts| *contexts as f64 >= coverage * with_scores as f64);
        // Numbered by name, so that sums over systems do not depend on the order of contexts.
        let numbers: BTreeMap<&str, usize> =
            seen.into_keys().enumerate().map(|(number, system)| (system, number)).collect();
        let numbered = |context: BTreeMap<&str, (f64, f64, usize)>| {
            context.into_iter().filter_map(|(system, (p, g, n))| Some((*numbers.get(system)?, p, g, n))).collect()
        };
        // A context without scores is not a unit of the interval and changes no mean.
        let contexts = sums.into_iter().filter(|context| !context.is_empty()).map(numbered).collect();
        Self { contexts, taking_part: numbers.len(), excluded: all - numbers.len(), with_scores }
    }

    pub(crate) fn level(&self, of: Correlation) -> SystemLevel {
        let means = self.means(0..self.contexts.len()).expect("each system takes part somewhere");
        let (tested, undefined) = match of.test(&means.0, &means.1) {
            Ok(tested) => (Some(tested), None),
            Err(why) => (None, Some(why)),
        };
        SystemLevel {
            coefficient: tested.map(|t: Tested| t.coefficient),
            p: tested.and_then(|t| t.p),
            undefined,
            systems: self.taking_part,
            excluded: self.excluded,
            contexts: self.with_scores,
        }
    }

    /// Why a correlation of these system means has no interval, if so.
    pub(crate) fn no_interval(&self, of: Correlation) -> Option<NoInterval> {
        match of {
            Correlation::Pearson if self.with_scores < LEAST_CONTEXTS => Some(NoInterval::FewContexts),
            Correlation::Pearson => None,
            Correlation::Spearman | Correlation::Kendall => Some(NoInterval::Ranks),
        }
    }

    /// The interval over contexts, with fixed systems.
    pub(crate) fn interval(&self, of: Correlation, confidence: f64) -> Result<Interval, NoInterval> {
        self.jackknifed(of).map(|found| found.interval(confidence))
    }

    /// The jackknife estimate for the interval.
    pub(crate) fn jackknifed(&self, of: Correlation) -> Result<Jackknifed, NoInterval> {
        if self.level(of).coefficient.is_none() {
            return Err(NoInterval::Undefined);
        }
        if let Some(why) = self.no_interval(of) {
            return Err(why);
        }
        Jackknifed::new(self.contexts.len(), Range::Correlation, |kept| {
            let means = self.means(kept.iter().copied())?;
            of.coefficient(&means.0, &means.1)
        })
    }

    /// Mean predicted and gold score of each system; `None` if a system has no score in these contexts.
    pub(crate) fn means(&self, contexts: impl Iterator<Item = usize>) -> Option<(Vec<f64>, Vec<f64>)> {
        let mut sums = vec![(0.0, 0.0, 0usize); self.taking_part];
        for &(system, predicted, gold, count) in contexts.flat_map(|context| &self.contexts[context]) {
            let sum = &mut sums[system];
            *sum = (sum.0 + predicted, sum.1 + gold, sum.2 + count);
        }
        sums.into_iter().map(|(p, g, n)| (n > 0).then(|| (p / n as f64, g / n as f64))).collect()
    }
}

/// Sums by system, with scores relative to an origin.
fn sums<'a>(context: &[SystemScore<'a>], (predicted, gold): (f64, f64)) -> BTreeMap<&'a str, (f64, f64, usize)> {
    let mut sums: BTreeMap<&'a str, (f64, f64, usize)> = BTreeMap::new();
    for score in context {
        let sum = sums.entry(score.system).or_default();
        *sum = (sum.0 + (score.predicted - predicted), sum.1 + (score.gold - gold), sum.2 + 1);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgreementFigures;
    use crate::golden::GOLDEN;

    const SPEARMAN: Correlation = Correlation::Spearman;

    #[test]
    fn a_system_that_carries_the_agreement_is_found() {
        // Five systems with equal scores, and one much worse in both.
        let ids = ["a", "b", "c", "d", "e", "bad"];
        let context = |k: usize| -> Vec<SystemScore<'static>> {
            let place = |at: usize| {
                let (predicted, gold) =
                    if at < 5 { ((at * (k + 2) + k * k) % 5, (at * (3 * k + 1) + k) % 5) } else { (0, 0) };
                let far = if at < 5 { 10 } else { 0 };
                SystemScore { system: ids[at], predicted: (predicted + far) as f64, gold: (gold + far) as f64 }
            };
            (0..6).map(place).collect()
        };
        let contexts: Vec<_> = (0..20).map(context).collect();
        let all = AgreementFigures::from_scores(&contexts, &crate::Resampling::default()).spearman.per_context;
        let found = lowest_without_systems(&contexts, 0.95);
        assert_eq!(found[0].systems, ["bad"]);
        assert!(found[0].spearman.figure.mean < all.figure.mean, "{found:?} {all:?}");
        assert!(
            lowest_without_systems(&contexts.iter().map(|one| one[..3].to_vec()).collect::<Vec<_>>(), 0.95).is_empty()
        );
    }

    #[test]
    fn constant_gold_is_skipped_and_constant_predictions_count_as_zero() {
        let contexts: [(&[f64], &[f64]); 5] = [
            (&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]),
            (&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]),
            (&[1.0, 2.0, 3.0], &[4.0, 4.0, 4.0]),
            (&[1.0], &[4.0]),
            (&[1.0, f64::NAN], &[4.0, 5.0]),
        ];
        for of in Correlation::ALL {
            let result = per_context(of, contexts);
            assert!((result.mean.expect("two contexts") - 0.5).abs() < 1e-15);
            assert_eq!((result.contexts, result.constant_predictions, result.skipped()), (2, 1, 3));
            assert_eq!((result.skipped_constant_gold, result.skipped_too_few, result.skipped_not_finite), (1, 1, 1));
            assert_eq!(
                per_context(of, [(&[1.0, 2.0][..], &[4.0, 4.0][..])]),
                PerContext { skipped_constant_gold: 1, ..Default::default() }
            );
        }
    }

    #[test]
    fn per_context_means_and_their_p_values_equal_scipys() {
        for (of, mean, p) in &GOLDEN.per_context {
            let of = Correlation::ALL[*of];
            let result = per_context(of, GOLDEN.correlations.iter().map(|c| (c.x.as_slice(), c.y.as_slice())));
            assert!((result.mean.expect("defined") - mean).abs() < 1e-12, "{of}");
            assert!((result.p.expect("defined") - p).abs() < 1e-10, "{of} {:?} {p}", result.p);
        }
    }

    fn score(system: &str, predicted: f64, gold: f64) -> SystemScore<'_> {
        SystemScore { system, predicted, gold }
    }

    #[test]
    fn systems_are_correlated_by_their_means() {
        let contexts = [
            vec![score("a", 1.0, 9.0), score("b", 2.0, 1.0), score("c", 5.0, 5.0)],
            vec![score("a", 3.0, 1.0), score("b", 8.0, 3.0), score("c", 9.0, 6.0)],
            vec![],
        ];
        // Means: predicted 2, 5, 7; gold 5, 2, 5.5: ranks 1 2 3 against 2 1 3.
        let result = system_level(SPEARMAN, &contexts, 1.0);
        assert_eq!((result.systems, result.excluded, result.contexts), (3, 0, 2));
        assert!((result.coefficient.expect("defined") - 0.5).abs() < 1e-12);
        assert!(
            (system_level(Correlation::Kendall, &contexts, 1.0).coefficient.expect("defined") - 1.0 / 3.0).abs()
                < 1e-12
        );
    }

    #[test]
    fn a_system_with_too_few_contexts_is_left_out_and_counted() {
        let contexts = [
            vec![score("a", 1.0, 1.0), score("b", 2.0, 2.0), score("c", 0.0, 9.0)],
            vec![score("a", 1.0, 1.0), score("b", 2.0, 2.0)],
        ];
        let strict = system_level(SPEARMAN, &contexts, 1.0);
        assert_eq!((strict.systems, strict.excluded, strict.coefficient), (2, 1, Some(1.0)));
        let lenient = system_level(SPEARMAN, &contexts, 0.5);
        assert_eq!((lenient.systems, lenient.excluded), (3, 0));
        assert_eq!(system_level(SPEARMAN, &[], 1.0).undefined, Some(Undefined::TooFew));
    }

    #[test]
    fn a_system_twice_in_a_context_counts_with_both_scores() {
        let contexts = [vec![score("a", 1.0, 1.0), score("a", 5.0, 1.0), score("b", 2.0, 2.0)]];
        // Means 3 and 2 against 1 and 2.
        assert_eq!(system_level(SPEARMAN, &contexts, 1.0).coefficient, Some(-1.0));
    }
}
