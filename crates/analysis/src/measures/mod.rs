//! Measures of a run's scores with the contribution of each sample: agreement with gold and preferences, and the mean.
//!
//! A measure is a ratio of sums over samples, so intervals, and tests between two runs, are over whole samples. Values
//! and intervals are those of [`gold::against`](crate::gold::against) and of conclusions, bit for bit.

mod line;
mod paired;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use probity_metrics::Direction;
use probity_stats::{
    ChoicePoint, Correlation, FigureEstimate, Interval, NoInterval, PooledCorrelation, Range, SystemLevel, SystemScore,
    choice_point, ordered_sum, pairwise_accuracy, per_context, pooled_correlation, ratio_interval, score_lists,
    system_coverage, system_estimate, verdict_interval,
};

pub use line::FittedLine;
pub use paired::PairedMeasure;

/// Kind of measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MeasureKind {
    /// Spearman correlation of score and gold over a sample's candidates. Samples with constant gold are omitted, and
    /// those with constant scores count as 0.
    Spearman,
    /// Share of pairs with different gold scores that are ordered as in gold.
    Pairwise,
    /// Share of preferred candidates with the best score. Samples with an unscored candidate are omitted.
    Preference,
    /// Mean score.
    Score,
}

impl MeasureKind {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Spearman, Self::Pairwise, Self::Preference, Self::Score];
    /// The kinds that compare scores with gold scores.
    pub const AGAINST_GOLD: [Self; 2] = [Self::Spearman, Self::Pairwise];

    /// Name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Spearman => "Spearman per context",
            Self::Pairwise => "pairwise accuracy",
            Self::Preference => "preference accuracy",
            Self::Score => "mean score",
        }
    }

    /// Unit of [`Measure::n`].
    pub fn unit(self) -> &'static str {
        match self {
            Self::Spearman => "contexts",
            Self::Pairwise => "pairs",
            Self::Preference => "samples",
            Self::Score => "scores",
        }
    }

    /// Sum and weight of a sample; a weight of 0 omits it.
    fn part(self, sample: &ScoredSample<'_>, direction: Direction) -> (f64, f64) {
        let lists = || -> (Vec<f64>, Vec<f64>) {
            sample.with_gold(direction).into_iter().map(|one| (one.predicted, one.gold)).unzip()
        };
        match self {
            Self::Spearman => {
                let (scores, gold) = lists();
                let found = per_context(Correlation::Spearman, [(scores.as_slice(), gold.as_slice())]);
                found.mean.map_or((0.0, 0.0), |rho| (rho, 1.0))
            }
            Self::Pairwise => {
                let (scores, gold) = lists();
                let found = pairwise_accuracy([(scores.as_slice(), gold.as_slice())]);
                let pairs = found.correct + found.tied + found.wrong;
                (found.correct as f64 + found.tied as f64 / 2.0, pairs as f64)
            }
            Self::Preference => sample.choice(direction).map_or((0.0, 0.0), |choice| (choice.point, 1.0)),
            Self::Score => (sample.texts.iter().map(|text| text.score).sum(), sample.texts.len() as f64),
        }
    }
}

/// Score of a candidate.
#[derive(Debug, Clone, Copy)]
pub struct ScoredText<'a> {
    /// Id of the candidate.
    pub candidate: &'a str,
    /// The score.
    pub score: f64,
    /// Its gold score.
    pub gold: Option<f64>,
}

/// Scores of a sample's candidates.
#[derive(Debug, Clone)]
pub struct ScoredSample<'a> {
    /// Number of the sample in its run; see [`PairedMeasure`].
    pub number: u32,
    /// Id of the sample.
    pub id: &'a str,
    /// The candidates with a score.
    pub texts: Vec<ScoredText<'a>>,
    /// Position of the preferred candidate in `texts`.
    pub preferred: Option<usize>,
    /// Number of candidates without a score.
    pub unscored: usize,
}

impl<'a> ScoredSample<'a> {
    /// The candidates with score and gold, with a sign such that higher scores are better.
    fn with_gold(&self, direction: Direction) -> Vec<SystemScore<'a>> {
        let scored = |text: &ScoredText<'a>| {
            let (predicted, gold) = (direction.upwards(text.score), text.gold?);
            let score = SystemScore { system: text.candidate, predicted, gold };
            (predicted.is_finite() && gold.is_finite()).then_some(score)
        };
        self.texts.iter().filter_map(scored).collect()
    }

    /// Whether the preferred candidate has the best score.
    fn choice(&self, direction: Direction) -> Option<ChoicePoint> {
        let scores = self.texts.iter().map(|text| Some(direction.upwards(text.score)));
        let scores: Vec<Option<f64>> = scores.chain((0..self.unscored).map(|_| None)).collect();
        choice_point(&scores, self.preferred?)
    }
}

/// Contribution of a sample to a measure, which is Σ `sum` / Σ `weight` over samples.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SamplePart {
    sample: u32,
    sum: f64,
    weight: f64,
}

/// A measure over samples.
#[derive(Debug, Clone)]
pub struct Measure {
    kind: MeasureKind,
    range: Range,
    parts: Vec<SamplePart>,
}

impl Measure {
    /// `None` if no sample contributes.
    fn new(kind: MeasureKind, samples: &[ScoredSample<'_>], direction: Direction, within: Range) -> Option<Self> {
        let part = |sample: &ScoredSample<'_>| {
            let (sum, weight) = kind.part(sample, direction);
            SamplePart { sample: sample.number, sum, weight }
        };
        let parts: Vec<SamplePart> = samples.iter().map(part).filter(|part| part.weight > 0.0).collect();
        let range = match kind {
            MeasureKind::Spearman => Range::Correlation,
            MeasureKind::Pairwise | MeasureKind::Preference => Range::SHARE,
            MeasureKind::Score => within,
        };
        (!parts.is_empty()).then_some(Self { kind, range, parts })
    }

    /// The value over all samples that contribute.
    pub fn value(&self) -> f64 {
        let of = |part: fn(&SamplePart) -> f64| ordered_sum(self.parts.iter().map(part));
        of(|part| part.sum) / of(|part| part.weight)
    }

    /// Its interval over samples.
    ///
    /// # Errors
    /// The reason if no interval is known to reach its coverage.
    pub fn interval(&self, confidence: f64) -> Result<Interval, NoInterval> {
        if self.kind == MeasureKind::Preference {
            let points: Vec<f64> = self.parts.iter().map(|part| part.sum).collect();
            return verdict_interval(&points, confidence);
        }
        let units: Vec<(f64, f64)> = self.parts.iter().map(|part| (part.sum, part.weight)).collect();
        ratio_interval(&units, confidence, self.range)
    }

    /// Each sample that contributes, by number, with its own value.
    pub fn by_sample(&self) -> impl Iterator<Item = (u32, f64)> {
        self.parts.iter().map(|part| (part.sample, part.sum / part.weight))
    }

    /// Number of samples that contribute.
    pub fn samples(&self) -> usize {
        self.parts.len()
    }

    /// Number of contexts, pairs, samples or scores; see [`MeasureKind::unit`].
    pub fn n(&self) -> usize {
        self.parts.iter().map(|part| part.weight).sum::<f64>() as usize
    }
}

/// Measures of the scores of one attribute.
#[derive(Debug)]
pub struct ScoreMeasures {
    /// The measures to which a sample contributes.
    pub by_kind: BTreeMap<MeasureKind, Measure>,
    /// Spearman correlation over all scores with gold.
    pub pooled: FigureEstimate<PooledCorrelation>,
    /// Spearman correlation of system means.
    pub system: FigureEstimate<SystemLevel>,
}

impl ScoreMeasures {
    /// Computes measures of these kinds. `within` is the range of the scores.
    pub fn compute<'a>(
        kinds: &[MeasureKind],
        samples: &[ScoredSample<'a>],
        direction: Direction,
        within: Range,
        confidence: f64,
    ) -> Self {
        let measure = |kind: &MeasureKind| Some((*kind, Measure::new(*kind, samples, direction, within)?));
        // Sorted by id as in `gold::contexts`, whose figures these are.
        let mut by_id: Vec<&ScoredSample<'a>> = samples.iter().collect();
        by_id.sort_by(|a, b| a.id.cmp(b.id));
        let context = |sample: &ScoredSample<'a>| {
            let mut context = sample.with_gold(direction);
            context.sort_by(|a, b| a.system.cmp(b.system));
            context
        };
        let contexts: Vec<Vec<SystemScore<'a>>> = by_id.into_iter().map(context).collect();
        let coverage = system_coverage(&contexts);
        Self {
            by_kind: kinds.iter().filter_map(measure).collect(),
            pooled: pooled_correlation(Correlation::Spearman, &score_lists(&contexts), confidence),
            system: system_estimate(Correlation::Spearman, &contexts, coverage, confidence),
        }
    }
}
