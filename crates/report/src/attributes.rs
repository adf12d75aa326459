//! The scores of a run by attribute and metric, with their measures.

use std::collections::{BTreeMap, BTreeSet};

use probity_analysis::measures::{MeasureKind, ScoreMeasures, ScoredSample, ScoredText};
use probity_metrics::{Direction, whole};
use probity_stats::Range;

use crate::facts::{RunFacts, ScoredCandidate};

/// Scores of one attribute of a run, by one metric if there are several.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// Name of the attribute, the metric, or both.
    pub(crate) name: String,
    /// Name of the metric; empty for scores of a method.
    pub(crate) metric: String,
    pub(crate) direction: Direction,
    /// Whether these scores of a metric are listed only for their agreement with this attribute. The scores themselves
    /// are listed under the metric.
    pub(crate) is_agreement: bool,
    /// Scores as in the run.
    pub(crate) scores: Vec<ScoredCandidate>,
    pub(crate) found: ScoreMeasures,
}

/// Attributes with scores in the order of the data. Metrics precede their secondary values, and each metric precedes
/// its agreement with the attributes that have gold, as in `meta`.
pub(crate) fn attributes(facts: &RunFacts, confidence: f64) -> Vec<Attribute> {
    let is_part: Vec<bool> = facts.metrics.texts().map(|metric| whole(metric).is_some()).collect();
    let mut groups: BTreeMap<(bool, u32, u32), Vec<ScoredCandidate>> = BTreeMap::new();
    for score in &facts.scores {
        let group = (is_part[score.metric as usize], score.attribute, score.metric);
        groups.entry(group).or_default().push(*score);
    }
    let gold = if facts.tells_agreement { BTreeSet::new() } else { facts.gold_attributes() };
    let mut kinds = MeasureKind::ALL.to_vec();
    // The mean of scores from comparisons is fixed by construction.
    kinds.retain(|kind| *kind != MeasureKind::Score || facts.pairs.is_empty());
    kinds.retain(|kind| *kind != MeasureKind::Preference || !facts.tells_agreement);
    let mut attributes = Vec::new();
    for scores in groups.into_values() {
        let own = Attribute::new(facts, scores, &kinds, confidence);
        let agreements: Vec<Attribute> = if own.is_metric_alone() && !own.is_part() {
            gold.iter().filter_map(|gold| own.agreement(facts, *gold, confidence)).collect()
        } else {
            Vec::new()
        };
        attributes.push(own);
        attributes.extend(agreements);
    }
    attributes
}

impl Attribute {
    fn new(facts: &RunFacts, mut scores: Vec<ScoredCandidate>, kinds: &[MeasureKind], confidence: f64) -> Self {
        // An interrupted run may have scores out of order, and groups need consecutive samples.
        scores.sort_by_key(|score| score.sample);
        let attribute = facts.attributes.text(scores[0].attribute);
        let metric = facts.metrics.text(scores[0].metric);
        let direction = Direction::for_metric(metric);
        // Each metric has its own scale.
        let within = if metric.is_empty() { facts.scores_within } else { Range::Unbounded };
        let samples: Vec<ScoredSample<'_>> =
            scores.chunk_by(|a, b| a.sample == b.sample).map(|group| scored_sample(facts, group)).collect();
        Self {
            name: [attribute, metric].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", "),
            metric: metric.to_owned(),
            direction,
            is_agreement: false,
            found: ScoreMeasures::compute(kinds, &samples, direction, within, confidence),
            scores,
        }
    }

    /// Agreement of a metric's scores with an attribute; `None` without gold for them.
    fn agreement(&self, facts: &RunFacts, attribute: u32, confidence: f64) -> Option<Self> {
        let with_gold = |score: &ScoredCandidate| {
            let gold = facts.gold(score.sample, score.candidate, attribute)?;
            Some(ScoredCandidate { attribute, gold: Some(gold), ..*score })
        };
        let scores: Vec<ScoredCandidate> = self.scores.iter().filter_map(with_gold).collect();
        let found = (!scores.is_empty()).then(|| Self::new(facts, scores, &MeasureKind::AGAINST_GOLD, confidence))?;
        Some(Self { is_agreement: true, ..found })
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
        let both = |group: &[ScoredCandidate]| -> Vec<(f64, f64)> {
            let both = group.iter().filter_map(|score| Some((score.score, score.gold?)));
            both.filter(|(score, gold)| score.is_finite() && gold.is_finite()).collect()
        };
        self.scores.chunk_by(|a, b| a.sample == b.sample).map(both).filter(|both| !both.is_empty()).collect()
    }
}

/// The scores of one sample.
fn scored_sample<'f>(facts: &'f RunFacts, group: &[ScoredCandidate]) -> ScoredSample<'f> {
    let number = group[0].sample;
    let sample = &facts.samples[number as usize];
    let text = |score: &ScoredCandidate| {
        let candidate = facts.candidates.text(score.candidate);
        ScoredText { candidate, score: score.score, gold: score.gold }
    };
    ScoredSample {
        number,
        id: facts.ids.text(number),
        texts: group.iter().map(text).collect(),
        preferred: sample.preferred.and_then(|id| group.iter().position(|score| score.candidate == id)),
        unscored: sample.candidates.saturating_sub(group.len()),
    }
}
