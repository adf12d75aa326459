//! All figures of one metric against the gold scores of one attribute, in the form used by summaries.

use serde::Serialize;

use crate::agreement::{
    PerContext, SystemLevel, SystemScore, Systems, per_context_values, score_lists, system_coverage,
};
use crate::correlation::{Correlation, Undefined};
use crate::interval::{FigureEstimate, Jackknifed, NoInterval, Range, Ratio};
use crate::pairwise::{PairwiseAccuracy, pairwise_accuracy};
use crate::resample::Resampling;
use crate::ties::{TieCalibration, tie_calibration};

/// Maximum number of scores for an interval of pooled correlations, which would otherwise take minutes.
pub const POOLED_LIMIT: usize = 20_000;

/// A correlation over all scores, ignoring contexts. Its p-value assumes independent scores, which scores of one
/// context are not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PooledCorrelation {
    /// The coefficient; absent if undefined.
    pub coefficient: Option<f64>,
    /// Two-sided p-value, from [`Correlation::test`].
    pub p: Option<f64>,
    /// Why the coefficient is undefined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
    /// Number of scores.
    pub n: usize,
}

/// One correlation at three levels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CorrelationFigures {
    /// The mean over contexts.
    #[serde(flatten)]
    pub per_context: FigureEstimate<PerContext>,
    /// Whether each context's coefficient is ±1 or 0, as with two candidates, or all but a few are at the same end. The
    /// mean then has the interval of verdicts.
    #[serde(skip)]
    pub of_verdicts: bool,
    /// Between systems; absent unless two systems have scores in enough contexts.
    pub system: Option<FigureEstimate<SystemLevel>>,
    /// Over all scores.
    pub pooled: FigureEstimate<PooledCorrelation>,
}

/// All agreement figures of scores with gold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AgreementFigures {
    /// Pearson's r.
    pub pearson: CorrelationFigures,
    /// Spearman's ρ.
    pub spearman: CorrelationFigures,
    /// Kendall's τ-b.
    pub kendall: CorrelationFigures,
    /// Over pairs within contexts with different gold; a tied prediction counts as half.
    pub pairwise: PairwiseAccuracy,
    /// Over pairs within contexts including ties, averaged over contexts; absent if no context has a pair.
    pub pairwise_with_ties: Option<TieCalibration>,
    /// Over all pairs including ties; absent without a pair, and above [`PAIR_LIMIT`](crate::PAIR_LIMIT) pairs.
    pub pairwise_with_ties_pooled: Option<TieCalibration>,
    /// Settings of intervals and tests.
    pub resampling: Resampling,
}

impl AgreementFigures {
    /// Computes the figures over each context's scores, whose values are finite.
    ///
    /// System level includes systems with scores in half of the contexts, at least two.
    pub fn from_scores(contexts: &[Vec<SystemScore<'_>>], resampling: &Resampling) -> Self {
        let lists = score_lists(contexts);
        let all =
            CorrelatedContext { lists: &lists, systems: Systems::new(contexts, system_coverage(contexts)), resampling };
        let slices = || lists.iter().map(|(predicted, gold)| (predicted.as_slice(), gold.as_slice()));
        let (predicted, gold) = joined(lists.iter());
        Self {
            pearson: all.figures(Correlation::Pearson),
            spearman: all.figures(Correlation::Spearman),
            kendall: all.figures(Correlation::Kendall),
            pairwise: pairwise_accuracy(slices()),
            pairwise_with_ties: tie_calibration(slices()),
            pairwise_with_ties_pooled: tie_calibration([(predicted.as_slice(), gold.as_slice())]),
            resampling: *resampling,
        }
    }

    /// The figures of one correlation.
    pub fn correlation(&self, of: Correlation) -> &CorrelationFigures {
        match of {
            Correlation::Pearson => &self.pearson,
            Correlation::Spearman => &self.spearman,
            Correlation::Kendall => &self.kendall,
        }
    }
}

/// Concatenates all lists.
fn joined<'a>(lists: impl Iterator<Item = &'a (Vec<f64>, Vec<f64>)>) -> (Vec<f64>, Vec<f64>) {
    let (mut predicted, mut gold) = (Vec::new(), Vec::new());
    for (p, g) in lists {
        predicted.extend_from_slice(p);
        gold.extend_from_slice(g);
    }
    (predicted, gold)
}

struct CorrelatedContext<'a> {
    lists: &'a [(Vec<f64>, Vec<f64>)],
    systems: Systems,
    resampling: &'a Resampling,
}

impl CorrelatedContext<'_> {
    fn figures(&self, of: Correlation) -> CorrelationFigures {
        let (figure, values) = per_context_values(of, self.lists.iter().map(|(p, g)| (p.as_slice(), g.as_slice())));
        let mean = Ratio::mean(&values, Range::Correlation);
        let of_verdicts = mean.as_ref().is_ok_and(Ratio::is_of_verdicts);
        // The same method as the interval, so that both agree on whether 0 is excluded.
        let p = mean.as_ref().ok().map(|mean| mean.p(0.0));
        let interval = mean.map(|mean| mean.interval(self.resampling.confidence));
        CorrelationFigures {
            per_context: FigureEstimate::new(figure, interval).with_p(p),
            of_verdicts,
            system: self.system(of),
            pooled: pooled_correlation(of, self.lists, self.resampling.confidence),
        }
    }

    fn system(&self, of: Correlation) -> Option<FigureEstimate<SystemLevel>> {
        let figure = self.systems.level(of);
        let found = self.systems.jackknifed(of);
        let p = found.as_ref().ok().map(|found| found.p(0.0));
        let interval = found.map(|found| found.interval(self.resampling.confidence));
        (figure.systems >= 2).then(|| FigureEstimate::new(figure, interval).with_p(p))
    }
}

/// A correlation over all scores, with its interval over contexts. Each list has the predicted and the gold scores of a
/// context.
pub fn pooled_correlation(
    of: Correlation,
    contexts: &[(Vec<f64>, Vec<f64>)],
    confidence: f64,
) -> FigureEstimate<PooledCorrelation> {
    // A context without scores is not a unit: omitting it would change nothing.
    let lists: Vec<&(Vec<f64>, Vec<f64>)> = contexts.iter().filter(|(scores, _)| !scores.is_empty()).collect();
    let (predicted, gold) = joined(lists.iter().copied());
    let n = gold.len();
    let figure = match of.test(&predicted, &gold) {
        Ok(tested) => PooledCorrelation { coefficient: Some(tested.coefficient), p: tested.p, undefined: None, n },
        Err(why) => PooledCorrelation { coefficient: None, p: None, undefined: Some(why), n },
    };
    let coefficient = |kept: &[usize]| {
        let (predicted, gold) = joined(kept.iter().map(|context| lists[*context]));
        of.coefficient(&predicted, &gold)
    };
    let found = match figure.coefficient {
        None => Err(NoInterval::Undefined),
        Some(_) if n > POOLED_LIMIT => Err(NoInterval::TooMany),
        Some(_) => Jackknifed::new(lists.len(), Range::Correlation, coefficient),
    };
    let p = found.as_ref().ok().map(|found| found.p(0.0));
    FigureEstimate::new(figure, found.map(|found| found.interval(confidence))).with_p(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(rows: &[&[(f64, f64)]]) -> Vec<Vec<SystemScore<'static>>> {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let score = |(system, (predicted, gold)): (&'static str, &(f64, f64))| SystemScore {
            system,
            predicted: *predicted,
            gold: *gold,
        };
        rows.iter().map(|row| NAMES.into_iter().zip(*row).map(score).collect()).collect()
    }

    const RESAMPLING: Resampling = Resampling { rounds: 200, confidence: 0.95, seed: 0 };

    #[test]
    fn a_perfect_metric_has_one_everywhere() {
        let row: &[(f64, f64)] = &[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)];
        let figures = AgreementFigures::from_scores(&contexts(&[row, row, row]), &RESAMPLING);
        for of in Correlation::ALL {
            let one = figures.correlation(of);
            let system = one.system.expect("three systems");
            for value in [one.per_context.figure.mean, system.figure.coefficient, one.pooled.figure.coefficient] {
                assert!((value.expect("defined") - 1.0).abs() < 1e-12);
            }
            // Three perfect contexts are three hits of three, which is not many.
            let interval = one.per_context.interval.expect("at an end");
            assert!((interval.low + 0.415).abs() < 1e-3 && interval.high == 1.0, "{interval:?}");
            let why = if of == Correlation::Pearson { NoInterval::FewContexts } else { NoInterval::Ranks };
            assert_eq!((system.interval, system.no_interval), (None, Some(why)));
            assert_eq!((one.pooled.interval, one.pooled.no_interval), (None, Some(NoInterval::AllAlike)));
        }
        assert_eq!(figures.pairwise.accuracy, Some(1.0));
        assert_eq!(figures.pairwise_with_ties.expect("pairs").accuracy, 1.0);
        assert_eq!(figures.pairwise_with_ties_pooled.expect("pairs").accuracy, 1.0);
    }

    #[test]
    fn a_context_without_scores_is_no_unit_of_an_interval() {
        let scored: Vec<Vec<(f64, f64)>> =
            (0..12).map(|k| (0..3).map(|c| (f64::from(c * k % 5), f64::from(c + k % 2))).collect()).collect();
        let mut rows: Vec<&[(f64, f64)]> = scored.iter().map(Vec::as_slice).collect();
        let alone = AgreementFigures::from_scores(&contexts(&rows), &RESAMPLING);
        rows.extend([&[][..]; 30]);
        let among_empty = AgreementFigures::from_scores(&contexts(&rows), &RESAMPLING);
        for of in Correlation::ALL {
            let [alone, among_empty] = [alone, among_empty].map(|figures| *figures.correlation(of));
            assert!(alone.pooled.interval.is_some());
            assert_eq!((alone.pooled, alone.system), (among_empty.pooled, among_empty.system));
        }
    }

    #[test]
    fn scores_that_stand_alone_are_compared_pooled_and_nowhere_else() {
        let figures =
            AgreementFigures::from_scores(&contexts(&[&[(1.0, 1.0)], &[(2.0, 3.0)], &[(3.0, 2.0)]]), &RESAMPLING);
        let spearman = figures.spearman;
        assert_eq!((spearman.per_context.figure.skipped_too_few, spearman.system), (3, None));
        assert!((spearman.pooled.figure.coefficient.expect("defined") - 0.5).abs() < 1e-12);
        assert_eq!(figures.pairwise_with_ties, None);
        assert!((figures.pairwise_with_ties_pooled.expect("three pairs").accuracy - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn constant_scores_are_undefined_with_the_reason_and_without_an_interval() {
        let row: &[(f64, f64)] = &[(1.0, 1.0), (1.0, 2.0), (1.0, 4.0)];
        let figures = AgreementFigures::from_scores(&contexts(&[row, row]), &RESAMPLING);
        let pooled = figures.kendall.pooled;
        assert_eq!((pooled.figure.coefficient, pooled.figure.undefined), (None, Some(Undefined::ConstantPredictions)));
        assert_eq!((pooled.interval, figures.kendall.system.expect("three").interval), (None, None));
        assert_eq!(figures.kendall.per_context.figure.constant_predictions, 2);
    }

    #[test]
    fn large_whole_numbers_have_every_figure() {
        let row = |k: u32| -> Vec<(f64, f64)> {
            (0..3).map(|c| (1e15 + f64::from(c + k % 2), 1e15 + f64::from(3 - c))).collect()
        };
        let rows: Vec<Vec<(f64, f64)>> = (0..12).map(row).collect();
        let rows: Vec<&[(f64, f64)]> = rows.iter().map(Vec::as_slice).collect();
        let figures = AgreementFigures::from_scores(&contexts(&rows), &RESAMPLING);
        for of in Correlation::ALL {
            let one = figures.correlation(of);
            let system = one.system.expect("three systems").figure.coefficient;
            for value in [one.per_context.figure.mean, system] {
                assert!((value.expect("defined") + 1.0).abs() < 1e-12, "{of}: {one:?}");
            }
        }
        assert_eq!((figures.pairwise.accuracy, figures.pairwise.wrong), (Some(0.0), 36));
    }

    #[test]
    fn a_p_never_contradicts_its_interval() {
        let mut state = 7_u32;
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 20)
        };
        for n in [4, 6, 11, 25] {
            let rows: Vec<Vec<(f64, f64)>> = (0..n)
                .map(|_| {
                    (0..4)
                        .map(|c| {
                            let gold = draw();
                            (0.4 * gold + draw(), gold + f64::from(c))
                        })
                        .collect()
                })
                .collect();
            let rows: Vec<&[(f64, f64)]> = rows.iter().map(Vec::as_slice).collect();
            let figures = AgreementFigures::from_scores(&contexts(&rows), &RESAMPLING);
            for of in Correlation::ALL {
                let one = figures.correlation(of);
                let per_context = (one.per_context.p, one.per_context.interval);
                let pooled = (one.pooled.p, one.pooled.interval);
                let system = one.system.map(|system| (system.p, system.interval));
                for (p, interval) in [Some(per_context), Some(pooled), system].into_iter().flatten() {
                    if let (Some(p), Some(interval)) = (p, interval) {
                        assert_eq!(p > 0.05, interval.low <= 0.0 && interval.high >= 0.0, "{of} {p} {interval:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_at_all_is_undefined() {
        let figures = AgreementFigures::from_scores(&[], &RESAMPLING);
        assert_eq!((figures.pearson.pooled.figure.undefined, figures.pearson.system), (Some(Undefined::TooFew), None));
        assert_eq!(
            (figures.pairwise.accuracy, figures.pairwise_with_ties, figures.pairwise_with_ties_pooled),
            (None, None, None)
        );
    }
}
