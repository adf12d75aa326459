//! The hybrid: a sequence of evaluators in which each decides the pairs left open by the previous ones.

use serde::Serialize;

use super::agreement::{DecidedPair, JudgedPairs, RevisionEvaluator, side};

/// The number of quantiles of a step's margins tried as thresholds, besides one above all margins.
const TRIED: usize = 10;

/// Evaluators in sequence. The first whose margin exceeds its threshold decides; if none does, the verdict is a tie.
pub(super) struct Cascade<'a> {
    pub(super) steps: Vec<&'a RevisionEvaluator>,
}

/// The cross-validated results of a cascade.
#[derive(Debug, Clone)]
pub(super) struct CascadeResults {
    pub(super) decided: Vec<DecidedPair>,
    pub(super) steps: Vec<CascadeStep>,
}

/// A step of a cascade.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CascadeStep {
    pub(super) by: String,
    /// The share of pairs that reach it.
    pub(super) asked: f64,
    /// The share of pairs that it decided.
    pub(super) decided: f64,
    /// The threshold of each fold; null if it decides nothing.
    pub(super) thresholds: Vec<Option<f64>>,
    /// Requests and tokens per pair, averaged over all pairs.
    pub(super) requests: f64,
    pub(super) tokens_in: f64,
    pub(super) tokens_out: f64,
}

impl Cascade<'_> {
    /// Decides each pair with thresholds that maximise the number of correct pairs outside its fold.
    pub(super) fn cross_validated(&self, judged: &JudgedPairs<'_>) -> CascadeResults {
        let fitted: Vec<Vec<f64>> =
            (0..judged.folds()).map(|fold| self.fit(judged, |pair| judged.fold(pair) != fold)).collect();
        let mut decided = Vec::new();
        let mut counts = vec![(0usize, 0usize); self.steps.len()];
        for (pair, one) in judged.pairs.iter().enumerate() {
            let Some(human) = one.human else { continue };
            // A pair without any verdict is not a tie.
            if self.steps.iter().all(|step| step.margins[pair].is_none()) {
                continue;
            }
            let (says, by) = self.decide(pair, &fitted[judged.fold(pair)]);
            let last = by.unwrap_or(self.steps.len().saturating_sub(1));
            counts.iter_mut().take(last + 1).for_each(|count| count.0 += 1);
            if let Some(by) = by {
                counts[by].1 += 1;
            }
            decided.push(DecidedPair { pair, says, human });
        }
        let share = |count: usize| count as f64 / decided.len().max(1) as f64;
        let steps = self.steps.iter().enumerate().map(|(place, step)| {
            let asked = share(counts[place].0);
            let all = step.margins.len().max(1) as f64;
            let each = |count: usize| asked * count as f64 / all;
            CascadeStep {
                by: step.name.clone(),
                asked,
                decided: share(counts[place].1),
                thresholds: fitted.iter().map(|fold| Some(fold[place]).filter(|t| t.is_finite())).collect(),
                requests: each(step.cost.requests),
                tokens_in: each(step.cost.tokens_in),
                tokens_out: each(step.cost.tokens_out),
            }
        });
        CascadeResults { steps: steps.collect(), decided }
    }

    /// The verdict on a pair, and the step that decided it, if any.
    fn decide(&self, pair: usize, thresholds: &[f64]) -> (i8, Option<usize>) {
        let says = |(place, (step, threshold)): (usize, (&&RevisionEvaluator, &f64))| {
            let says = side(step.margins[pair]?, *threshold);
            (says != 0).then_some((says, Some(place)))
        };
        self.steps.iter().zip(thresholds).enumerate().find_map(says).unwrap_or((0, None))
    }

    /// The thresholds that maximise the number of correct pairs. Ties go to the lowest ones, so that the first step,
    /// which is always queried, decides as much as possible.
    fn fit(&self, judged: &JudgedPairs<'_>, is_training: impl Fn(usize) -> bool) -> Vec<f64> {
        let training: Vec<usize> =
            (0..judged.pairs.len()).filter(|pair| is_training(*pair) && judged.pairs[*pair].human.is_some()).collect();
        let grids: Vec<Vec<f64>> = self.steps.iter().map(|step| grid(step, &training)).collect();
        let mut places = vec![0; self.steps.len()];
        let (mut best, mut most) = (Vec::new(), None);
        loop {
            let thresholds: Vec<f64> = grids.iter().zip(&places).map(|(grid, place)| grid[*place]).collect();
            let is_right = |pair: &&usize| Some(self.decide(**pair, &thresholds).0) == judged.pairs[**pair].human;
            let right = training.iter().filter(is_right).count();
            if most.is_none_or(|most| right > most) {
                (best, most) = (thresholds, Some(right));
            }
            // The next combination, with the last step's threshold changing fastest.
            let Some(place) = (0..places.len()).rev().find(|place| places[*place] + 1 < grids[*place].len()) else {
                return best;
            };
            places[place] += 1;
            places[place + 1..].fill(0);
        }
    }
}

/// Thresholds to try: 0, quantiles of these pairs' margins, and infinity.
fn grid(step: &RevisionEvaluator, pairs: &[usize]) -> Vec<f64> {
    let mut margins: Vec<f64> = pairs.iter().filter_map(|pair| step.margins[*pair]).map(f64::abs).collect();
    margins.sort_by(f64::total_cmp);
    let among = (1..TRIED).filter_map(|place| margins.get(place * margins.len() / TRIED)).copied();
    let mut all: Vec<f64> = std::iter::once(0.0).chain(among).chain([f64::INFINITY]).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use probity_data::Preference;

    use super::super::pairs::Revisions;
    use super::*;
    use crate::figures::TokenTally;
    use crate::testing::sample;

    #[test]
    fn who_sees_no_difference_leaves_a_pair_to_the_next() {
        // The first step is correct for large margins and wrong for small ones; the second is correct for those.
        let samples: Vec<_> = (0..40)
            .map(|number| {
                let mut one = sample(&format!("s{number}"), &[0.0, 0.0]);
                one.preference = Some(Preference::Candidate(one.candidates[number % 2].id.clone()));
                one
            })
            .collect();
        let pairs = Revisions::from_samples(&samples).pairs;
        let sign = |number: usize| if number.is_multiple_of(2) { 1.0 } else { -1.0 };
        let is_clear = |number: usize| (number / 2).is_multiple_of(2);
        let evaluator = |name: &str, margin: &dyn Fn(usize) -> f64| RevisionEvaluator {
            name: name.to_owned(),
            margins: (0..40).map(|number| Some(margin(number))).collect(),
            scores: None,
            cost: TokenTally { requests: 40, tokens_in: 400, tokens_out: 0 },
        };
        let first = evaluator("first", &|n| if is_clear(n) { 2.0 * sign(n) } else { -0.5 * sign(n) });
        let second = evaluator("second", &|n| if is_clear(n) { -sign(n) } else { sign(n) });
        let judged = JudgedPairs::new(&pairs, 10);
        let found = Cascade { steps: vec![&first, &second] }.cross_validated(&judged);
        assert!(found.decided.iter().all(|one| one.says == one.human) && found.decided.len() == 40);
        assert_eq!((found.steps[0].asked, found.steps[0].decided, found.steps[1].asked), (1.0, 0.5, 0.5));
        assert_eq!((found.steps[1].decided, found.steps[1].tokens_in), (0.5, 5.0));
        assert!(found.steps[0].thresholds.iter().all(|t| t.is_some_and(|t| (0.5..2.0).contains(&t))));
        assert_eq!(judged.alignment(&found.decided).accuracy.figure.value, Some(1.0));
        assert_eq!(judged.alignment(&judged.as_is(&first)).accuracy.figure.value, Some(0.5));
    }
}
