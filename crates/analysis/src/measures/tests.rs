use std::collections::BTreeMap;

use probity_data::{Preference, Sample};
use probity_metrics::Direction;
use probity_stats::{CONFIDENCE, ChoiceAccuracy, Range, Resampling};

use super::*;
use crate::gold;
use crate::testing::sample;

/// Samples in reverse order of their ids, with gold, scores of which some are equal or missing, and a preference.
fn data() -> (Vec<Sample>, Vec<Vec<Option<f64>>>) {
    let one = |k: usize| {
        let gold: Vec<f64> = (0..4).map(|c| ((c * 7 + k * 3) % 5) as f64).collect();
        let mut one = sample(&format!("s{:03}", 400 - k), &gold);
        one.preference = Some(Preference::Candidate(one.candidates[k % 4].id.clone()));
        let score = |c: usize| {
            let score = if k.is_multiple_of(3) && c < 3 { 0.7 } else { ((c * 5 + k * k) % 7) as f64 / 3.0 };
            (k % 11 != 10 || c != 2).then_some(score)
        };
        (one, (0..4).map(score).collect())
    };
    (0..240).map(one).unzip()
}

fn scored<'a>(samples: &'a [Sample], scores: &[Vec<Option<f64>>]) -> Vec<ScoredSample<'a>> {
    let one = |(number, (sample, scores)): (usize, (&'a Sample, &Vec<Option<f64>>))| {
        let texts: Vec<ScoredText<'a>> = sample
            .candidates
            .iter()
            .zip(scores)
            .filter_map(|(one, score)| {
                let gold = one.scores.get("coherence").copied();
                Some(ScoredText { candidate: &one.id, score: (*score)?, gold })
            })
            .collect();
        let Some(Preference::Candidate(id)) = &sample.preference else { panic!("a preference") };
        let preferred = texts.iter().position(|text| text.candidate == id);
        let unscored = sample.candidates.len() - texts.len();
        ScoredSample { number: number as u32, id: &sample.id, texts, preferred, unscored }
    };
    samples.iter().zip(scores).enumerate().map(one).collect()
}

fn measured(samples: &[ScoredSample<'_>], direction: Direction) -> ScoreMeasures {
    ScoreMeasures::compute(&MeasureKind::ALL, samples, direction, Range::Unbounded, CONFIDENCE)
}

#[test]
fn figures_are_those_of_the_terminal_bit_for_bit() {
    let (samples, scores) = data();
    let found = measured(&scored(&samples, &scores), Direction::HigherIsBetter);
    let expected = gold::against(&samples, "coherence", &scores);
    let spearman = &found.by_kind[&MeasureKind::Spearman];
    assert_eq!(Some(spearman.value()), expected.spearman.per_context.figure.mean);
    assert_eq!(spearman.n(), expected.spearman.per_context.figure.contexts);
    assert_eq!(spearman.interval(CONFIDENCE).ok(), expected.spearman.per_context.interval);
    let pairwise = &found.by_kind[&MeasureKind::Pairwise];
    assert_eq!(Some(pairwise.value()), expected.pairwise.accuracy);
    assert_eq!(pairwise.n(), expected.pairwise.correct + expected.pairwise.wrong + expected.pairwise.tied);
    assert_eq!(found.pooled, expected.spearman.pooled);
    let system = expected.spearman.system.expect("systems recur");
    assert_eq!((found.system.figure, found.system.no_interval), (system.figure, system.no_interval));
    let choices: Vec<_> = samples.iter().zip(&scores).filter_map(|(one, scores)| gold::choice(one, scores)).collect();
    assert!(choices.iter().any(|choice| choice.point == 1.0 / 3.0), "three share the best score somewhere");
    let preferred = ChoiceAccuracy::from_choices(&choices, CONFIDENCE).expect("preferences");
    let preference = &found.by_kind[&MeasureKind::Preference];
    assert_eq!((preference.value(), preference.n()), (preferred.accuracy, preferred.samples));
    assert_eq!(preference.interval(CONFIDENCE), Ok(preferred.interval));
}

#[test]
fn lower_scores_may_be_better() {
    let (samples, scores) = data();
    let turned: Vec<Vec<Option<f64>>> =
        scores.iter().map(|scores| scores.iter().map(|score| score.map(|score| -score)).collect()).collect();
    let upwards = measured(&scored(&samples, &scores), Direction::HigherIsBetter);
    let downwards = measured(&scored(&samples, &turned), Direction::LowerIsBetter);
    for kind in [MeasureKind::Spearman, MeasureKind::Pairwise, MeasureKind::Preference] {
        assert_eq!(upwards.by_kind[&kind].value(), downwards.by_kind[&kind].value(), "{kind:?}");
    }
    assert_eq!((upwards.pooled, upwards.system), (downwards.pooled, downwards.system));
    let mean = |found: &ScoreMeasures| found.by_kind[&MeasureKind::Score].value();
    assert_eq!(mean(&upwards), -mean(&downwards));
}

#[test]
fn two_runs_are_compared_over_their_common_samples() {
    let (samples, scores) = data();
    let all = scored(&samples, &scores);
    let other: Vec<ScoredSample<'_>> = all
        .iter()
        .skip(5)
        .take(10)
        .map(|one| {
            let texts = one.texts.iter().map(|text| ScoredText { score: text.score + 1.0, ..*text }).collect();
            ScoredSample { number: one.number - 5, texts, ..one.clone() }
        })
        .collect();
    let (one, two) = (measured(&all, Direction::HigherIsBetter), measured(&other, Direction::HigherIsBetter));
    let shared: BTreeMap<u32, u32> = (0..10).map(|number| (number, number + 5)).collect();
    let paired = |kind: MeasureKind| PairedMeasure::new(&one.by_kind[&kind], &two.by_kind[&kind], &shared);
    let mean = paired(MeasureKind::Score);
    assert_eq!((mean.samples(), mean.by_sample().next().map(|(sample, _)| sample)), (10, Some(5)));
    let [a, b] = mean.values().expect("both have scores");
    let resampling = Resampling::default();
    let difference = mean.difference(&resampling).expect("defined").difference;
    assert!((b - a - 1.0).abs() < 1e-12 && (difference + 1.0).abs() < 1e-12);
    // Two of 2¹⁰ swaps are as far: none and all.
    assert_eq!(mean.randomisation(&resampling), Some(2.0 / 1024.0));
    let same = paired(MeasureKind::Spearman);
    assert_eq!(same.difference(&resampling).map(|found| (found.difference, found.p)), Some((0.0, None)));
}

#[test]
fn a_line_is_fitted_by_least_squares_with_a_band_over_samples() {
    // Scores 1 + 2 · gold with errors +e, −e at the same gold, so that the fit is exact.
    let sample =
        |k: u32| vec![(1.0 + 2.0 * f64::from(k) + 0.5, f64::from(k)), (0.5 + 2.0 * f64::from(k), f64::from(k))];
    let samples: Vec<_> = (0..5).map(sample).collect();
    let line = FittedLine::fit(&samples, (0.0, 4.0), CONFIDENCE).expect("gold varies");
    assert!((line.intercept - 1.0).abs() < 1e-12 && (line.slope - 2.0).abs() < 1e-12, "{line:?}");
    assert_eq!(FittedLine::fit(&samples[..1], (0.0, 0.0), CONFIDENCE), None, "constant gold");
    let bent: Vec<_> = (0..5).map(|k| vec![(f64::from(k * k), f64::from(k))]).collect();
    let line = FittedLine::fit(&bent, (0.0, 4.0), CONFIDENCE).expect("gold varies");
    assert!(
        line.band.len() == 41
            && line.band.iter().all(|(gold, low, high)| {
                let at = line.intercept + line.slope * gold;
                *low < at && at < *high
            })
    );
}
