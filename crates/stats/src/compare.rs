//! Comparison of two metrics: differences of their agreement with the same gold scores, with significance tests.

use serde::Serialize;

use crate::agreement::{SystemScore, Systems, system_coverage};
use crate::correlation::{Correlation, Undefined};
use crate::equal::order;
use crate::figures::POOLED_LIMIT;
use crate::interval::Range;
use crate::pairwise::pairwise_accuracy;
use crate::resample::{PairedDifference, Resampling};
use crate::significance::{Williams, williams};
use crate::ties::{pair_accuracy, tie_calibration};

/// A candidate scored by both metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rivals<'a> {
    /// Id of the candidate, the same in each context.
    pub system: &'a str,
    /// The first metric's score; finite.
    pub first: f64,
    /// The second metric's score; finite.
    pub second: f64,
    /// The gold score; finite.
    pub gold: f64,
}

/// Measure by which two metrics are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// Mean correlation over contexts.
    PerContext(Correlation),
    /// Correlation between the systems' means.
    System(Correlation),
    /// Correlation over all scores.
    Pooled(Correlation),
    /// [`pairwise_accuracy`].
    Pairwise,
    /// [`tie_calibration`] per context, with a separate ε per metric over all data.
    PairwiseWithTies,
}

impl Measured {
    fn range(self) -> Range {
        match self {
            Self::PerContext(_) | Self::System(_) | Self::Pooled(_) => Range::Correlation,
            Self::Pairwise | Self::PairwiseWithTies => Range::SHARE,
        }
    }
}

/// A difference between two metrics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricDifference {
    /// The measure.
    pub measure: Measured,
    /// The first metric's figure; absent if undefined.
    pub first: Option<f64>,
    /// The second metric's figure.
    pub second: Option<f64>,
    /// First minus second, with its interval and t test over contexts.
    pub paired: Option<PairedDifference>,
    /// Two-sided randomisation test, swapping the metrics' results in whole contexts. Scores are standardised before
    /// they are swapped, because metrics may have different scales.
    pub randomisation_p: Option<f64>,
    /// Williams' test; only for Pearson's r over systems and over all scores, for which it is defined.
    pub williams: Option<Williams>,
}

/// All differences, over candidates with both scores.
pub fn compare_metrics(contexts: &[Vec<Rivals<'_>>], resampling: &Resampling) -> Vec<MetricDifference> {
    // A context without scores is not a unit: omitting or swapping it would change nothing.
    let contexts: Vec<Vec<Rivals<'_>>> = contexts.iter().filter(|context| !context.is_empty()).cloned().collect();
    let duel = Duel { contexts: &contexts, resampling };
    let correlations = |measured: fn(Correlation) -> Measured| Correlation::ALL.map(measured);
    let lists = [Measured::PerContext, Measured::System, Measured::Pooled].map(correlations);
    lists
        .into_iter()
        .flatten()
        .chain([Measured::Pairwise, Measured::PairwiseWithTies])
        .map(|measure| duel.difference(measure))
        .collect()
}

struct Duel<'a> {
    contexts: &'a [Vec<Rivals<'a>>],
    resampling: &'a Resampling,
}

/// One of two metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparedSide {
    First,
    Second,
}

const SIDES: [ComparedSide; 2] = [ComparedSide::First, ComparedSide::Second];

impl ComparedSide {
    fn value_in(self, rivals: &Rivals<'_>) -> f64 {
        if self == Self::First { rivals.first } else { rivals.second }
    }
}

/// Scores and gold of one context.
type Lists = (Vec<f64>, Vec<f64>);

/// A context's part in a ratio of sums: the numerators of both metrics and the common denominator.
type Part = ([f64; 2], f64);

impl<'a> Duel<'a> {
    fn difference(&self, measure: Measured) -> MetricDifference {
        match measure {
            Measured::PerContext(of) => self.weighted_difference(measure, &self.correlation_parts(of)),
            Measured::Pairwise => self.weighted_difference(measure, &self.pairwise_parts()),
            Measured::PairwiseWithTies => self.weighted_difference(measure, &self.tie_parts()),
            Measured::Pooled(of) => self.pooled(of),
            Measured::System(of) => self.systems(of),
        }
    }

    /// `(scores, gold)` of one metric in each context.
    fn lists(&self, side: ComparedSide) -> Vec<Lists> {
        self.contexts
            .iter()
            .map(|context| context.iter().map(|rivals| (side.value_in(rivals), rivals.gold)).unzip())
            .collect()
    }

    fn parts(&self, part: impl Fn(ComparedSide, &[f64], &[f64]) -> Option<(f64, f64)>) -> Vec<Part> {
        let [first, second] = SIDES.map(|side| self.lists(side));
        let of_context = |((a, gold), (b, _)): (&Lists, &Lists)| {
            let ((a, weight), (b, _)) = part(ComparedSide::First, a, gold).zip(part(ComparedSide::Second, b, gold))?;
            Some(([a, b], weight))
        };
        first.iter().zip(&second).filter_map(of_context).filter(|(_, weight)| *weight > 0.0).collect()
    }

    fn correlation_parts(&self, of: Correlation) -> Vec<Part> {
        self.parts(|_, scores, gold| match of.coefficient(scores, gold) {
            Some(coefficient) => Some((coefficient, 1.0)),
            // As in the mean over contexts, so that the difference matches the reported figures.
            None => (Undefined::why(scores, gold) == Undefined::ConstantPredictions).then_some((0.0, 1.0)),
        })
    }

    fn pairwise_parts(&self) -> Vec<Part> {
        self.parts(|_, scores, gold| {
            let pairs = pairwise_accuracy([(scores, gold)]);
            Some((pairs.correct as f64 + pairs.tied as f64 / 2.0, (pairs.correct + pairs.wrong + pairs.tied) as f64))
        })
    }

    fn tie_parts(&self) -> Vec<Part> {
        let epsilons = SIDES.map(|side| {
            let lists = self.lists(side);
            tie_calibration(lists.iter().map(|(scores, gold)| (scores.as_slice(), gold.as_slice())))
                .map(|found| found.epsilon)
        });
        self.parts(|side, scores, gold| Some((pair_accuracy(scores, gold, epsilons[side as usize]?)?, 1.0)))
    }

    fn weighted_difference(&self, measure: Measured, parts: &[Part]) -> MetricDifference {
        let ratio = |side: ComparedSide| {
            let weight: f64 = parts.iter().map(|part| part.1).sum();
            (weight > 0.0).then(|| parts.iter().map(|part| part.0[side as usize]).sum::<f64>() / weight)
        };
        let difference = |parts: &mut dyn Iterator<Item = Part>| {
            let (sum, weight) =
                parts.fold((0.0, 0.0), |(sum, total), ([a, b], weight)| (sum + gap(a, b), total + weight));
            (weight > 0.0).then(|| sum / weight)
        };
        let turned = |([a, b], weight): Part, swap: bool| (if swap { [b, a] } else { [a, b] }, weight);
        MetricDifference {
            measure,
            first: ratio(ComparedSide::First),
            second: ratio(ComparedSide::Second),
            paired: self.resampling.paired_difference(parts.len(), measure.range(), |kept| {
                difference(&mut kept.iter().map(|unit| parts[*unit]))
            }),
            randomisation_p: self.resampling.randomisation(parts.len(), |swapped| {
                difference(&mut parts.iter().zip(swapped).map(|(part, swap)| turned(*part, *swap)))
            }),
            williams: None,
        }
    }

    fn pooled(&self, of: Correlation) -> MetricDifference {
        let all = |kept: &[usize], side: ComparedSide| -> (Vec<f64>, Vec<f64>) {
            kept.iter()
                .flat_map(|context| &self.contexts[*context])
                .map(|rivals| (side.value_in(rivals), rivals.gold))
                .unzip()
        };
        let of_side = |kept: &[usize], side: ComparedSide| {
            let (scores, gold) = all(kept, side);
            of.coefficient(&scores, &gold)
        };
        let everything: Vec<usize> = (0..self.contexts.len()).collect();
        let [first, second] = SIDES.map(|side| of_side(&everything, side));
        let [a, b] = SIDES.map(|side| all(&everything, side).0);
        // Both tests recompute the coefficient for every resample, which takes minutes for very many scores.
        let few = a.len() <= POOLED_LIMIT;
        let scaled = Scaled::new(self.contexts);
        let difference =
            |kept: &[usize]| Some(of_side(kept, ComparedSide::First)? - of_side(kept, ComparedSide::Second)?);
        let swapped = |swapped: &[bool]| {
            let scores = |side: ComparedSide| {
                scaled.swapped(side, swapped).flatten().map(|score| (score.predicted, score.gold)).unzip()
            };
            let of_side = |(scores, gold): (Vec<f64>, Vec<f64>)| of.coefficient(&scores, &gold);
            Some(of_side(scores(ComparedSide::First))? - of_side(scores(ComparedSide::Second))?)
        };
        MetricDifference {
            measure: Measured::Pooled(of),
            first,
            second,
            paired: few
                .then(|| self.resampling.paired_difference(self.contexts.len(), Range::Correlation, difference))
                .flatten(),
            randomisation_p: few.then(|| self.resampling.randomisation(self.contexts.len(), swapped)).flatten(),
            williams: tested_by_williams(of, first, second, &a, &b),
        }
    }

    fn systems(&self, of: Correlation) -> MetricDifference {
        let scored = |contexts: Vec<Vec<SystemScore<'a>>>| {
            let coverage = system_coverage(&contexts);
            Systems::new(&contexts, coverage)
        };
        let of_side = |side: ComparedSide| {
            let score = |r: &Rivals<'a>| SystemScore { system: r.system, predicted: side.value_in(r), gold: r.gold };
            scored(self.contexts.iter().map(|context| context.iter().map(score).collect()).collect())
        };
        let [first, second] = SIDES.map(of_side);
        let everything: Vec<usize> = (0..self.contexts.len()).collect();
        let means = |systems: &Systems, kept: &[usize]| systems.means(kept.iter().copied());
        let coefficient = |systems: &Systems, kept: &[usize]| {
            let (scores, gold) = means(systems, kept)?;
            of.coefficient(&scores, &gold)
        };
        let difference = |kept: &[usize]| Some(coefficient(&first, kept)? - coefficient(&second, kept)?);
        let scaled = Scaled::new(self.contexts);
        let swapped = |swapped: &[bool]| {
            let of_side = |side: ComparedSide| scored(scaled.swapped(side, swapped).map(Iterator::collect).collect());
            let [first, second] = SIDES.map(of_side);
            Some(coefficient(&first, &everything)? - coefficient(&second, &everything)?)
        };
        let figures = [&first, &second].map(|systems| coefficient(systems, &everything));
        let test = means(&first, &everything).zip(means(&second, &everything));
        // If a coefficient has no interval, neither has the difference.
        let paired = match [&first, &second].into_iter().find_map(|systems| systems.no_interval(of)) {
            Some(why) => difference(&everything).map(|difference| PairedDifference::without_interval(difference, why)),
            None => self.resampling.paired_difference(self.contexts.len(), Range::Correlation, difference),
        };
        MetricDifference {
            measure: Measured::System(of),
            first: figures[0],
            second: figures[1],
            paired,
            randomisation_p: self.resampling.randomisation(self.contexts.len(), swapped),
            williams: test.and_then(|(a, b)| tested_by_williams(of, figures[0], figures[1], &a.0, &b.0)),
        }
    }
}

/// First minus second; 0 if they differ only by rounding, or a rescaled metric would differ from itself.
fn gap(first: f64, second: f64) -> f64 {
    if order(first, second).is_eq() { 0.0 } else { first - second }
}

fn tested_by_williams(
    of: Correlation,
    first: Option<f64>,
    second: Option<f64>,
    a: &[f64],
    b: &[f64],
) -> Option<Williams> {
    if of != Correlation::Pearson {
        return None;
    }
    williams(first?, second?, of.coefficient(a, b)?, a.len())
}

/// Both metrics' standardised scores, which can be swapped.
struct Scaled<'a> {
    contexts: Vec<Vec<Rivals<'a>>>,
}

impl<'a> Scaled<'a> {
    fn new(contexts: &[Vec<Rivals<'a>>]) -> Self {
        let [first, second] =
            SIDES.map(|side| StandardScale::from_values(contexts.iter().flatten().map(|rivals| side.value_in(rivals))));
        let scaled = |r: &Rivals<'a>| Rivals { first: first.apply(r.first), second: second.apply(r.second), ..*r };
        Self { contexts: contexts.iter().map(|context| context.iter().map(scaled).collect()).collect() }
    }

    /// One metric's scores by context, with the other metric's in swapped contexts.
    fn swapped<'s>(
        &'s self,
        side: ComparedSide,
        swapped: &'s [bool],
    ) -> impl Iterator<Item = impl Iterator<Item = SystemScore<'a>> + 's> + 's {
        self.contexts.iter().zip(swapped).map(move |(context, swap)| {
            let side = if *swap == (side == ComparedSide::First) { ComparedSide::Second } else { ComparedSide::First };
            context.iter().map(move |r| SystemScore { system: r.system, predicted: side.value_in(r), gold: r.gold })
        })
    }
}

struct StandardScale {
    mean: f64,
    deviation: f64,
}

impl StandardScale {
    fn from_values(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count().max(1) as f64;
        let mean = values.clone().sum::<f64>() / n;
        let deviation = (values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt();
        // A constant metric stays constant instead of dividing by 0.
        Self { mean, deviation: if deviation > 0.0 { deviation } else { 1.0 } }
    }

    fn apply(&self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{GOLDEN, GoldenComparison};

    const RESAMPLING: Resampling = Resampling { rounds: 1000, confidence: 0.95, seed: 0 };

    /// Contexts of four systems from the goldens' lists.
    fn contexts(case: &GoldenComparison) -> Vec<Vec<Rivals<'static>>> {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let rivals = |i: usize| Rivals {
            system: NAMES[i % 4],
            first: case.first[i],
            second: case.second[i],
            gold: case.gold[i],
        };
        (0..case.gold.len())
            .collect::<Vec<_>>()
            .chunks(4)
            .map(|chunk| chunk.iter().map(|i| rivals(*i)).collect())
            .collect()
    }

    fn find(measure: Measured, all: &[MetricDifference]) -> MetricDifference {
        *all.iter().find(|one| one.measure == measure).expect("listed")
    }

    #[test]
    fn differences_and_their_p_values_are_scipys() {
        let case = &GOLDEN.compared;
        let all = compare_metrics(&contexts(case), &RESAMPLING);
        let measures = [
            Measured::Pooled(Correlation::Pearson),
            Measured::PerContext(Correlation::Pearson),
            Measured::System(Correlation::Pearson),
            Measured::Pairwise,
        ];
        for (measure, &(difference, low, high, t, randomisation)) in measures.into_iter().zip(&case.differences) {
            let found = find(measure, &all);
            let paired = found.paired.expect("defined");
            let interval = paired.interval.expect("contexts differ");
            assert!((found.first.expect("defined") - found.second.expect("defined") - difference).abs() < 1e-12);
            for (ours, theirs) in [
                (paired.difference, difference),
                (interval.low, low),
                (interval.high, high),
                (paired.p.expect("defined"), t),
                (found.randomisation_p.expect("defined"), randomisation),
            ] {
                assert!((ours - theirs).abs() < 1e-9, "{measure:?} {ours} {theirs}");
            }
        }
        let williams = find(Measured::Pooled(Correlation::Pearson), &all).williams.expect("defined");
        assert!((williams.p - case.williams_p).abs() < 1e-10, "{williams:?} {}", case.williams_p);
        assert_eq!(find(Measured::Pooled(Correlation::Kendall), &all).williams, None);
    }

    #[test]
    fn a_metric_does_not_differ_from_itself_on_another_scale() {
        let mut contexts = contexts(&GOLDEN.compared);
        contexts.iter_mut().flatten().for_each(|r| r.second = 100.0 * r.first + 7.0);
        for one in compare_metrics(&contexts, &Resampling { rounds: 100, ..Resampling::default() }) {
            let paired = one.paired.expect("defined");
            assert!(paired.difference.abs() < 1e-9 && paired.p.is_none_or(|p| p > 0.2), "{one:?}");
            assert_eq!(one.randomisation_p, Some(1.0), "{one:?}");
            assert_eq!(one.williams, None);
        }
    }

    #[test]
    fn what_is_constant_or_absent_is_undefined() {
        let none = compare_metrics(&[], &RESAMPLING);
        assert!(none.iter().all(|one| one.first.is_none() && one.paired.is_none() && one.randomisation_p.is_none()));
        let mut contexts = contexts(&GOLDEN.compared);
        contexts.iter_mut().flatten().for_each(|r| r.second = 1.0);
        let all = compare_metrics(&contexts, &Resampling { rounds: 50, ..Resampling::default() });
        let pooled = find(Measured::Pooled(Correlation::Spearman), &all);
        assert_eq!((pooled.second, pooled.paired, pooled.randomisation_p), (None, None, None));
        // Within contexts constant scores count as 0, as elsewhere.
        assert_eq!(find(Measured::PerContext(Correlation::Spearman), &all).second, Some(0.0));
    }
}
