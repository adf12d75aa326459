//! Measures with intervals. Each is a ratio of sums over samples, so intervals and paired tests are over whole samples.

use std::collections::{BTreeMap, BTreeSet};

use probity_metrics::{Direction, whole};
use probity_stats::{
    Correlation, FigureEstimate, Interval, NoInterval, PooledCorrelation, Range, Resampling, SystemLevel, SystemScore,
    choice_point, jackknife, pairwise_accuracy, per_context, pooled_correlation, ratio_interval, system_coverage,
    system_estimate,
};
use serde::Serialize;

use crate::facts::{RunFacts, ScoredCandidate};

/// Contribution of a sample to a measure, which is Σ `sum` / Σ `weight` over samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SamplePart {
    pub(crate) sample: u32,
    pub(crate) sum: f64,
    pub(crate) weight: f64,
}

/// A measure over samples.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    pub(crate) units: Vec<SamplePart>,
}

impl Measure {
    /// Keeps the samples with a positive weight.
    fn new(units: impl Iterator<Item = SamplePart>) -> Self {
        Self { units: units.filter(|unit| unit.weight > 0.0).collect() }
    }

    pub(crate) fn value(&self) -> Option<f64> {
        ratio(self.units.iter())
    }

    /// Interval of the measure; `range` limits its values.
    pub(crate) fn interval(&self, range: Range, resampling: &Resampling) -> Result<Interval, NoInterval> {
        let units: Vec<(f64, f64)> = self.units.iter().map(|unit| (unit.sum, unit.weight)).collect();
        ratio_interval(&units, resampling.confidence, range)
    }
}

pub(crate) fn ratio<'a>(units: impl Iterator<Item = &'a SamplePart>) -> Option<f64> {
    let (sum, weight) = units.fold((0.0, 0.0), |(sum, weight), unit| (sum + unit.sum, weight + unit.weight));
    (weight > 0.0).then(|| sum / weight)
}

/// Kind of measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum MeasureKind {
    /// Spearman correlation of score and gold over a sample's candidates.
    Spearman,
    /// Share of pairs with different gold scores that are ordered as in gold.
    Pairwise,
    /// Share of preferred candidates with the best score.
    Preference,
    /// Mean score.
    Score,
}

impl MeasureKind {
    pub(crate) const ALL: [Self; 4] = [Self::Spearman, Self::Pairwise, Self::Preference, Self::Score];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Spearman => "Spearman per context",
            Self::Pairwise => "pairwise accuracy",
            Self::Preference => "preference accuracy",
            Self::Score => "mean score",
        }
    }

    /// The title with a capital letter.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Spearman => "Spearman per context",
            Self::Pairwise => "Pairwise accuracy",
            Self::Preference => "Preference accuracy",
            Self::Score => "Mean score",
        }
    }

    /// Whether it needs gold scores.
    fn is_agreement_with_scores(self) -> bool {
        matches!(self, Self::Spearman | Self::Pairwise)
    }

    /// Unit of `n`.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Spearman => "contexts",
            Self::Pairwise => "pairs",
            Self::Preference => "samples",
            Self::Score => "scores",
        }
    }
}

/// Scores of one attribute of a run, by one metric if there are several.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// Name of the attribute, the metric, or both.
    pub(crate) name: String,
    /// Name of the metric; empty for scores of a method.
    pub(crate) metric: String,
    pub(crate) direction: Direction,
    /// Range of the scores.
    within: Range,
    /// Whether these scores of a metric are listed only for their agreement with this attribute. The scores themselves
    /// are listed under the metric.
    pub(crate) is_agreement: bool,
    /// Scores as in the run.
    pub(crate) scores: Vec<ScoredCandidate>,
    pub(crate) measures: BTreeMap<MeasureKind, Measure>,
    /// Spearman correlation over all scores with gold.
    pub(crate) pooled: FigureEstimate<PooledCorrelation>,
    /// Spearman correlation of system means.
    pub(crate) system: FigureEstimate<SystemLevel>,
}

/// Attributes with scores in the order of the data. Metrics precede their secondary values, and each metric precedes
/// its agreement with the attributes that have gold, as in `meta`.
pub(crate) fn attributes(facts: &RunFacts, resampling: &Resampling) -> Vec<Attribute> {
    let is_part: Vec<bool> = facts.metrics.texts().map(|metric| whole(metric).is_some()).collect();
    let mut groups: BTreeMap<(bool, u32, u32), Vec<ScoredCandidate>> = BTreeMap::new();
    for score in &facts.scores {
        let group = (is_part[score.metric as usize], score.attribute, score.metric);
        groups.entry(group).or_default().push(*score);
    }
    let gold = if facts.tells_agreement { BTreeSet::new() } else { facts.gold_attributes() };
    let mut attributes = Vec::new();
    for scores in groups.into_values() {
        let own = Attribute::new(facts, scores, resampling);
        let agreements: Vec<Attribute> = if own.is_metric_alone() && !own.is_part() {
            gold.iter().filter_map(|gold| own.agreement(facts, *gold, resampling)).collect()
        } else {
            Vec::new()
        };
        attributes.push(own);
        attributes.extend(agreements);
    }
    attributes
}

impl Attribute {
    fn new(facts: &RunFacts, mut scores: Vec<ScoredCandidate>, resampling: &Resampling) -> Self {
        // An interrupted run may have scores out of order, and groups need consecutive samples.
        scores.sort_by_key(|score| score.sample);
        let attribute = facts.attributes.text(scores[0].attribute);
        let metric = facts.metrics.text(scores[0].metric);
        let direction = Direction::of_label(metric);
        // The measures need scores with higher values better.
        let upwards = |score: &ScoredCandidate| ScoredCandidate { score: direction.upwards(score.score), ..*score };
        let upwards: Vec<ScoredCandidate> = scores.iter().map(upwards).collect();
        let groups: Vec<&[ScoredCandidate]> = upwards.chunk_by(|a, b| a.sample == b.sample).collect();
        let measure = |unit: &dyn Fn(&[ScoredCandidate]) -> (f64, f64)| {
            Measure::new(groups.iter().map(|group| {
                let (sum, weight) = unit(group);
                SamplePart { sample: group[0].sample, sum, weight }
            }))
        };
        let mut measures = BTreeMap::new();
        measures.insert(MeasureKind::Spearman, measure(&spearman_unit));
        measures.insert(MeasureKind::Pairwise, measure(&pairwise_unit));
        if !facts.tells_agreement {
            measures.insert(MeasureKind::Preference, measure(&|group| preference_unit(facts, group)));
        }
        // The mean of scores from comparisons is fixed by construction.
        if facts.pairs.is_empty() {
            let sum = |group: &[ScoredCandidate]| group.iter().map(|s| direction.upwards(s.score)).sum();
            measures.insert(MeasureKind::Score, measure(&|group| (sum(group), group.len() as f64)));
        }
        measures.retain(|_, measure| !measure.units.is_empty());
        let with_gold: Vec<(Vec<f64>, Vec<f64>)> = groups.iter().map(|group| both(group).into_iter().unzip()).collect();
        Self {
            name: [attribute, metric].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", "),
            metric: metric.to_owned(),
            direction,
            // Each metric has its own scale.
            within: if metric.is_empty() { facts.scores_within } else { Range::Unbounded },
            is_agreement: false,
            measures,
            pooled: pooled_correlation(Correlation::Spearman, &with_gold, resampling.confidence),
            system: system_level(facts, &groups, resampling),
            scores,
        }
    }

    /// Agreement of a metric's scores with an attribute; `None` without gold for them.
    fn agreement(&self, facts: &RunFacts, attribute: u32, resampling: &Resampling) -> Option<Self> {
        let with_gold = |score: &ScoredCandidate| {
            let gold = facts.gold(score.sample, score.candidate, attribute)?;
            Some(ScoredCandidate { attribute, gold: Some(gold), ..*score })
        };
        let scores: Vec<ScoredCandidate> = self.scores.iter().filter_map(with_gold).collect();
        let mut found = (!scores.is_empty()).then(|| Self::new(facts, scores, resampling))?;
        found.measures.retain(|of, _| of.is_agreement_with_scores());
        Some(Self { is_agreement: true, ..found })
    }

    /// Range of a measure.
    pub(crate) fn range(&self, of: MeasureKind) -> Range {
        match of {
            MeasureKind::Spearman => Range::Correlation,
            MeasureKind::Pairwise | MeasureKind::Preference => Range::SHARE,
            MeasureKind::Score => self.within,
        }
    }

    /// Whether these are scores of a metric without an attribute.
    pub(crate) fn is_metric_alone(&self) -> bool {
        !self.metric.is_empty() && self.metric == self.name
    }

    /// Whether the metric is a secondary value of another, such as its recall.
    pub(crate) fn is_part(&self) -> bool {
        whole(&self.metric).is_some()
    }

    /// `(score, gold)` by sample, without empty samples.
    pub(crate) fn with_gold(&self) -> Vec<Vec<(f64, f64)>> {
        self.scores.chunk_by(|a, b| a.sample == b.sample).map(both).filter(|both| !both.is_empty()).collect()
    }
}

fn both(group: &[ScoredCandidate]) -> Vec<(f64, f64)> {
    group
        .iter()
        .filter_map(|s| Some((s.score, s.gold?)))
        .filter(|(score, gold)| score.is_finite() && gold.is_finite())
        .collect()
}

/// As defined in METHODS: contexts with constant gold are skipped, and those with constant scores count as 0.
fn spearman_unit(group: &[ScoredCandidate]) -> (f64, f64) {
    let (scores, golds): (Vec<f64>, Vec<f64>) = both(group).into_iter().unzip();
    let result = per_context(Correlation::Spearman, [(scores.as_slice(), golds.as_slice())]);
    result.mean.map_or((0.0, 0.0), |rho| (rho, 1.0))
}

fn pairwise_unit(group: &[ScoredCandidate]) -> (f64, f64) {
    let (scores, golds): (Vec<f64>, Vec<f64>) = both(group).into_iter().unzip();
    let result = pairwise_accuracy([(scores.as_slice(), golds.as_slice())]);
    (result.correct as f64 + result.tied as f64 / 2.0, (result.correct + result.wrong + result.tied) as f64)
}

/// Accuracy on a preference. All candidates of the sample need a score: see [`choice_point`].
fn preference_unit(facts: &RunFacts, group: &[ScoredCandidate]) -> (f64, f64) {
    let sample = &facts.samples[group[0].sample as usize];
    let Some(own) = sample.preferred.and_then(|id| group.iter().position(|s| s.candidate == id)) else {
        return (0.0, 0.0);
    };
    let mut scores: Vec<Option<f64>> = group.iter().map(|s| Some(s.score)).collect();
    // Candidates without a score have no row here.
    scores.resize(scores.len().max(sample.candidates), None);
    choice_point(&scores, own).map_or((0.0, 0.0), |choice| (choice.point, 1.0))
}

fn system_level(
    facts: &RunFacts,
    groups: &[&[ScoredCandidate]],
    resampling: &Resampling,
) -> FigureEstimate<SystemLevel> {
    let context = |group: &&[ScoredCandidate]| {
        let scores = group.iter().filter_map(|s| Some((facts.candidates.text(s.candidate), s.score, s.gold?)));
        scores.map(|(system, predicted, gold)| SystemScore { system, predicted, gold }).collect()
    };
    let contexts: Vec<Vec<SystemScore<'_>>> = groups.iter().map(context).collect();
    system_estimate(Correlation::Spearman, &contexts, system_coverage(&contexts), resampling.confidence)
}

/// Regression line of score on gold, with a band.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FittedLine {
    pub(crate) intercept: f64,
    pub(crate) slope: f64,
    /// `(gold, low, high)` from left to right; empty if there are too few samples or all are equal.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

/// Number of steps along the band.
const BAND_STEPS: usize = 40;

/// Least squares fit of score on gold, with a pointwise jackknife band over samples. `None` if gold is constant.
pub(crate) fn line(groups: &[Vec<(f64, f64)>], low: f64, high: f64, resampling: &Resampling) -> Option<FittedLine> {
    let sums: Vec<[f64; 5]> = groups.iter().map(|group| sums(group, low)).collect();
    let fit = |kept: &mut dyn Iterator<Item = &[f64; 5]>| {
        let total = kept.fold([0.0; 5], |total, one| std::array::from_fn(|k| total[k] + one[k]));
        let [n, x, y, xx, xy] = total;
        let spread = n * xx - x * x;
        // Gold values that differ by rounding alone give no line.
        (spread > 1e-9 * n * xx).then(|| {
            let slope = (n * xy - x * y) / spread;
            ((y - slope * x) / n, slope)
        })
    };
    let (at_low, slope) = fit(&mut sums.iter())?;
    let at_step = |step: usize| {
        let along = (high - low) * step as f64 / BAND_STEPS as f64;
        let at = |kept: &[usize]| {
            fit(&mut kept.iter().map(|group| &sums[*group])).map(|(start, slope)| start + slope * along)
        };
        jackknife(groups.len(), resampling.confidence, Range::Unbounded, at)
            .map(|found| (low + along, found.low, found.high))
            .ok()
    };
    // All of the band or none: a band with gaps would look too certain.
    let band: Option<Vec<_>> = if groups.len() > 2 { (0..=BAND_STEPS).map(at_step).collect() } else { None };
    let band = band.unwrap_or_default();
    Some(FittedLine { intercept: at_low - slope * low, slope, band })
}

/// n, Σx, Σy, Σx², Σxy, where x is relative to `low` to keep the sums small.
fn sums(group: &[(f64, f64)], low: f64) -> [f64; 5] {
    group.iter().fold([0.0; 5], |[n, sx, sy, sxx, sxy], (y, gold)| {
        let x = gold - low;
        [n + 1.0, sx + x, sy + y, sxx + x * x, sxy + x * y]
    })
}
