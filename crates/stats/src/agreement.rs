//! How well predicted scores agree with gold: in each context, and between systems.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::correlation::{Correlation, Tested, Undefined};
use crate::interval::{FigureEstimate, Interval, NoInterval, Range, jackknife};
use crate::significance::mean_p;

/// A correlation in each context, then the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PerContext {
    /// The mean over the counted contexts; absent where there is none.
    pub mean: Option<f64>,
    /// Two-sided, of the mean being 0: Student's t over the counted contexts. Absent below two, or where all are equal.
    pub p: Option<f64>,
    /// Contexts in the mean, those with constant predictions among them.
    pub contexts: usize,
    /// Contexts left out because their gold scores are all equal: nothing could be right or wrong about them.
    pub skipped_constant_gold: usize,
    /// Contexts left out because they have fewer than two scored candidates.
    pub skipped_too_few: usize,
    /// Contexts left out because a value is not finite.
    pub skipped_not_finite: usize,
    /// Contexts whose predictions are all equal though gold is not: each counts as a correlation of 0.
    pub constant_predictions: usize,
}

impl PerContext {
    /// Contexts that are not in the mean.
    pub fn skipped(&self) -> usize {
        self.skipped_constant_gold + self.skipped_too_few + self.skipped_not_finite
    }
}

/// The mean of each context's correlation between `(predicted, gold)` scores of its candidates.
///
/// # Panics
/// Where a context's lists differ in length.
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
                // Left out, a judge that gives all texts one score would be measured by the few contexts in which it
                // does not.
                result.constant_predictions += 1;
                values.push(0.0);
            }
            Err(Undefined::TooFew) => result.skipped_too_few += 1,
            Err(Undefined::NotFinite) => result.skipped_not_finite += 1,
            Err(Undefined::ConstantGold) => result.skipped_constant_gold += 1,
        }
    }
    result.contexts = values.len();
    result.mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    result.p = mean_p(&values);
    (result, values)
}

/// One candidate's scores, with the system that wrote it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SystemScore<'a> {
    /// The candidate's id, the same in each context.
    pub system: &'a str,
    /// The predicted score; finite.
    pub predicted: f64,
    /// The gold score; finite.
    pub gold: f64,
}

/// A correlation between the systems' mean predicted and mean gold scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SystemLevel {
    /// The correlation; absent where it is not defined.
    pub coefficient: Option<f64>,
    /// Its two-sided p-value over systems, as [`Correlation::test`] has it.
    pub p: Option<f64>,
    /// Why there is no coefficient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
    /// Systems that took part.
    pub systems: usize,
    /// Systems left out because too few contexts have a score of theirs.
    pub excluded: usize,
    /// Contexts with any score.
    pub contexts: usize,
}

/// System-level correlation over the scores of each context.
///
/// A system takes part where it has scores in at least the share `coverage` (0 to 1) of the contexts that have any.
/// With 1 all means are over the same contexts; with less they are over those that the system has.
///
/// A system twice in one context counts once in coverage and with each score in the means.
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

/// A system counts at system level where it has scores in this share of the contexts, and in two at least.
const SYSTEM_COVERAGE: f64 = 0.5;

/// Over fewer contexts a correlation of systems' means has no interval.
// Nothing that was tried covers below: docs/intervals.md has the simulation.
const LEAST_CONTEXTS: usize = 10;

/// The coverage of these contexts that [`AgreementFigures`](crate::AgreementFigures) uses: half of them, and two at least.
pub fn system_coverage(contexts: &[Vec<SystemScore<'_>>]) -> f64 {
    let with_scores = contexts.iter().filter(|context| !context.is_empty()).count();
    // Two at least: an id that stands in one context alone names a text and no system.
    SYSTEM_COVERAGE.max(2.0 / with_scores.max(1) as f64)
}

/// The systems that take part, and each context's part in their means.
pub(crate) struct Systems {
    /// `(system, sum of predicted, sum of gold, scores)` of each context, by the system's number.
    contexts: Vec<Vec<(usize, f64, f64, usize)>>,
    taking_part: usize,
    excluded: usize,
    with_scores: usize,
}

impl Systems {
    pub(crate) fn new(contexts: &[Vec<SystemScore<'_>>], coverage: f64) -> Self {
        let with_scores = contexts.iter().filter(|c| !c.is_empty()).count();
        let sums: Vec<BTreeMap<&str, (f64, f64, usize)>> = contexts.iter().map(|context| sums(context)).collect();
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        sums.iter().flat_map(BTreeMap::keys).for_each(|system| *seen.entry(system).or_default() += 1);
        let all = seen.len();
        seen.retain(|_, contexts| *contexts as f64 >= coverage * with_scores as f64);
        // Numbered by name, so that sums over systems have one order whatever order the contexts come in.
        let numbers: BTreeMap<&str, usize> =
            seen.into_keys().enumerate().map(|(number, system)| (system, number)).collect();
        let numbered = |context: BTreeMap<&str, (f64, f64, usize)>| {
            context.into_iter().filter_map(|(system, (p, g, n))| Some((*numbers.get(system)?, p, g, n))).collect()
        };
        // A context without scores is no unit of an interval, and changes no mean.
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

    /// Why nothing is known to cover a correlation of these systems' means, where that is so.
    pub(crate) fn no_interval(&self, of: Correlation) -> Option<NoInterval> {
        match of {
            Correlation::Pearson if self.with_scores < LEAST_CONTEXTS => Some(NoInterval::FewContexts),
            Correlation::Pearson => None,
            Correlation::Spearman | Correlation::Kendall => Some(NoInterval::Ranks),
        }
    }

    /// The interval over contexts; the systems stay the same.
    pub(crate) fn interval(&self, of: Correlation, confidence: f64) -> Result<Interval, NoInterval> {
        if self.level(of).coefficient.is_none() {
            return Err(NoInterval::Undefined);
        }
        if let Some(why) = self.no_interval(of) {
            return Err(why);
        }
        jackknife(self.contexts.len(), confidence, Range::Correlation, |kept| {
            let means = self.means(kept.iter().copied())?;
            of.coefficient(&means.0, &means.1)
        })
    }

    /// Each system's mean predicted and gold score; `None` where a system has no score in these contexts.
    pub(crate) fn means(&self, contexts: impl Iterator<Item = usize>) -> Option<(Vec<f64>, Vec<f64>)> {
        let mut sums = vec![(0.0, 0.0, 0usize); self.taking_part];
        for &(system, predicted, gold, count) in contexts.flat_map(|context| &self.contexts[context]) {
            let sum = &mut sums[system];
            *sum = (sum.0 + predicted, sum.1 + gold, sum.2 + count);
        }
        sums.into_iter().map(|(p, g, n)| (n > 0).then(|| (p / n as f64, g / n as f64))).collect()
    }
}

fn sums<'a>(context: &[SystemScore<'a>]) -> BTreeMap<&'a str, (f64, f64, usize)> {
    let mut sums: BTreeMap<&'a str, (f64, f64, usize)> = BTreeMap::new();
    for score in context {
        let sum = sums.entry(score.system).or_default();
        *sum = (sum.0 + score.predicted, sum.1 + score.gold, sum.2 + 1);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;

    const SPEARMAN: Correlation = Correlation::Spearman;

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
        for (of, mean, p) in golden::PER_CONTEXT {
            let of = Correlation::ALL[*of];
            let result = per_context(of, golden::CORRELATIONS.iter().map(|c| (c.x, c.y)));
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
