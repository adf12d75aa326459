//! Data for figures, tables and the list of samples, read in one pass over a run's tables. Memory grows with the number
//! of scores, not of prompts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use probity_data::{Preference, Sample};
use probity_metrics::Direction;
use probity_stats::Range;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ReportError;
use crate::histogram::Histogram;
use crate::names::Names;
use crate::rows::{CandidateScoreRow, OtherRow, ReportedComparison, TextStretch, each_line};
use crate::run::{ReportedRun, TableKind};

/// A gold score of a candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoldScore {
    candidate: u32,
    attribute: u32,
    score: f64,
}

/// A candidate's score.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoredCandidate {
    pub(crate) sample: u32,
    pub(crate) attribute: u32,
    pub(crate) metric: u32,
    pub(crate) candidate: u32,
    pub(crate) score: f64,
    pub(crate) gold: Option<f64>,
}

/// Facts about a sample other than its texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampleFacts {
    /// Byte range in the samples file.
    pub(crate) text: Option<(u64, u64)>,
    /// SHA-256 of the sample without gold, truncated.
    pub(crate) digest: Option<[u8; 16]>,
    /// Byte ranges of its rows.
    pub(crate) rows: Vec<TextStretch>,
    pub(crate) gold: Vec<GoldScore>,
    /// Number of candidates.
    pub(crate) candidates: usize,
    /// Preferred candidate; `None` for a tie or without a preference.
    pub(crate) preferred: Option<u32>,
    /// Outcomes as bits, numbered as in [`RunFacts::outcomes`].
    pub(crate) outcomes: u32,
    /// Attributes as bits; the last bit stands for all higher numbers.
    pub(crate) attributes: u32,
    pub(crate) judgements: u32,
    pub(crate) least_mass: Option<f64>,
    pub(crate) gap_sum: f64,
    pub(crate) gaps: u32,
    /// Best score by the first metric and attribute, as scores of several are not comparable.
    pub(crate) best: Option<f64>,
}

/// Statistics of the comparisons for one attribute.
#[derive(Debug, Clone)]
pub(crate) struct FactPairs {
    /// Histogram of p, the probability of the first position.
    pub(crate) p: Histogram,
    /// Histogram of `|p_ij − (1 − p_ji)|`.
    pub(crate) gaps: Histogram,
    pub(crate) first_wins: f64,
    /// Sum and number of P(row beats column) over both orders.
    pub(crate) cells: BTreeMap<(u32, u32), (f64, u32)>,
}

/// Number of bins for p and the order gap, which are in [0, 1].
const BINS: usize = 20;

impl FactPairs {
    fn new() -> Self {
        Self {
            p: Histogram::new(0.0, 1.0, BINS),
            gaps: Histogram::new(0.0, 1.0, BINS),
            first_wins: 0.0,
            cells: BTreeMap::new(),
        }
    }
}

/// Data of a run for its figures.
#[derive(Debug)]
pub(crate) struct RunFacts {
    pub(crate) ids: Names,
    pub(crate) candidates: Names,
    pub(crate) attributes: Names,
    /// Metric names; the name is empty for scores of a method.
    pub(crate) metrics: Names,
    pub(crate) templates: Names,
    pub(crate) outcomes: Names,
    pub(crate) samples: Vec<SampleFacts>,
    pub(crate) scores: Vec<ScoredCandidate>,
    pub(crate) pairs: BTreeMap<u32, FactPairs>,
    pub(crate) outcome_counts: BTreeMap<String, u64>,
    pub(crate) mass: Histogram,
    /// Number of samples in the run's samples file.
    pub(crate) with_texts: usize,
    /// Whether the method's own tables compare its scores with gold.
    pub(crate) tells_agreement: bool,
    /// Range of the method's scores.
    pub(crate) scores_within: Range,
}

/// Parses the range in a summary.
fn scores_within(ends: &Value) -> Range {
    let end = |place: usize| ends.get(place).and_then(Value::as_f64);
    // The summary may have been modified: an infinite range is no scale.
    let is_scale = |(low, high): &(f64, f64)| low <= high && (high - low).is_finite();
    end(0).zip(end(1)).filter(is_scale).map_or(Range::Unbounded, |(low, high)| Range::Within(low, high))
}

/// Comparisons of one sample, attribute and template whose reverse order has not been read yet.
#[derive(Default)]
struct PendingRows {
    at: Option<(u32, u32, u32)>,
    p: HashMap<(u32, u32), f64>,
}

impl RunFacts {
    /// Reads the samples and then all tables, line by line.
    pub(crate) fn read(run: &ReportedRun) -> Result<Self, ReportError> {
        let mut facts = Self {
            ids: Names::default(),
            candidates: Names::default(),
            attributes: Names::default(),
            metrics: Names::default(),
            templates: Names::default(),
            outcomes: Names::default(),
            samples: Vec::new(),
            scores: Vec::new(),
            pairs: BTreeMap::new(),
            outcome_counts: BTreeMap::new(),
            mass: Histogram::new(0.0, 1.0, BINS),
            with_texts: 0,
            tells_agreement: run.summary["tells_agreement"] == true,
            scores_within: scores_within(&run.summary["scores_within"]),
        };
        if let Some(path) = run.samples() {
            each_line(&path, |line, start, end| facts.sample(line, start, end))?;
            facts.with_texts = facts.samples.len();
        }
        let compared = run.tables.iter().any(|table| table.kind == TableKind::Comparisons);
        for (number, table) in run.tables.iter().enumerate() {
            let mut waiting = PendingRows::default();
            each_line(&table.path, |line, start, end| {
                let stretch = TextStretch { table: number as u16, start, end };
                match table.kind {
                    TableKind::Comparisons => facts.comparison(line, stretch, &mut waiting),
                    TableKind::Scores => facts.score(line, stretch, compared),
                    TableKind::Other => facts.other(line, stretch),
                }
            })?;
        }
        Ok(facts)
    }

    /// Attributes with gold scores.
    pub(crate) fn gold_attributes(&self) -> BTreeSet<u32> {
        self.samples.iter().flat_map(|sample| &sample.gold).map(|gold| gold.attribute).collect()
    }

    /// Gold score of a candidate.
    pub(crate) fn gold(&self, sample: u32, candidate: u32, attribute: u32) -> Option<f64> {
        let mut known = self.samples[sample as usize].gold.iter();
        known.find(|gold| gold.candidate == candidate && gold.attribute == attribute).map(|gold| gold.score)
    }

    /// Numbers of all samples, in the order of the data, or of the tables without samples.
    pub(crate) fn sample_numbers(&self) -> std::ops::Range<u32> {
        0..self.samples.len() as u32
    }

    fn sample(&mut self, line: &str, start: u64, end: u64) -> serde_json::Result<()> {
        let sample: Sample = serde_json::from_str(line)?;
        let number = self.at(&sample.id);
        let candidates = sample.candidates.len();
        let mut facts = SampleFacts { text: Some((start, end)), candidates, ..SampleFacts::default() };
        facts.digest = Some(digest(&sample)?);
        for candidate in &sample.candidates {
            let named = self.candidates.number(&candidate.id);
            for (attribute, score) in &candidate.scores {
                facts.gold.push(GoldScore {
                    candidate: named,
                    attribute: self.attributes.number(attribute),
                    score: *score,
                });
            }
        }
        facts.preferred = match &sample.preference {
            Some(Preference::Candidate(id)) => self.candidates.find(id),
            Some(Preference::Tie) | None => None,
        };
        self.samples[number as usize] = facts;
        Ok(())
    }

    fn at(&mut self, id: &str) -> u32 {
        let number = self.ids.number(id);
        if number as usize == self.samples.len() {
            self.samples.push(SampleFacts::default());
        }
        number
    }

    /// Records the byte range of a row and returns its sample.
    fn note(&mut self, item: &str, stretch: TextStretch) -> u32 {
        let number = self.at(item);
        let rows = &mut self.samples[number as usize].rows;
        match rows.last_mut() {
            Some(last) if last.table == stretch.table && last.end == stretch.start => last.end = stretch.end,
            _ => rows.push(stretch),
        }
        number
    }

    fn judged(&mut self, sample: u32, outcome: &str, mass: Option<f64>) {
        // The last bit stands for all higher numbers, so that unusual tables with many outcomes do not overflow.
        let bit = self.outcomes.number(outcome).min(31);
        if let Some(count) = self.outcome_counts.get_mut(outcome) {
            *count += 1;
        } else {
            self.outcome_counts.insert(outcome.to_owned(), 1);
        }
        let facts = &mut self.samples[sample as usize];
        facts.outcomes |= 1 << bit;
        facts.judgements += 1;
        if let Some(mass) = mass {
            self.mass.add(mass);
            facts.least_mass = Some(facts.least_mass.map_or(mass, |least| least.min(mass)));
        }
    }

    fn attribute(&mut self, sample: u32, attribute: &str) -> u32 {
        let number = self.attributes.number(attribute);
        self.samples[sample as usize].attributes |= 1 << number.min(31);
        number
    }

    fn comparison(&mut self, line: &str, stretch: TextStretch, waiting: &mut PendingRows) -> serde_json::Result<()> {
        let row: ReportedComparison<'_> = serde_json::from_str(line)?;
        let sample = self.note(&row.item, stretch);
        self.judged(sample, &row.outcome, row.mass);
        let attribute = self.attribute(sample, &row.attribute);
        let template = self.templates.number(&row.template);
        let (i, j) = (self.candidates.number(&row.candidate_i), self.candidates.number(&row.candidate_j));
        let Some(p) = row.p else { return Ok(()) };
        let pairs = self.pairs.entry(attribute).or_insert_with(FactPairs::new);
        pairs.p.add(p);
        pairs.first_wins += if p == 0.5 { 0.5 } else { f64::from(u8::from(p > 0.5)) };
        for (cell, value) in [((i, j), p), ((j, i), 1.0 - p)] {
            let cell = pairs.cells.entry(cell).or_default();
            *cell = (cell.0 + value, cell.1 + 1);
        }
        // Comparisons of a sample are consecutive, so unmatched ones are dropped with the sample to bound memory.
        if waiting.at != Some((sample, attribute, template)) {
            *waiting = PendingRows { at: Some((sample, attribute, template)), p: HashMap::new() };
        }
        if let Some(other) = waiting.p.remove(&(j, i)) {
            let gap = (p - (1.0 - other)).abs();
            pairs.gaps.add(gap);
            let facts = &mut self.samples[sample as usize];
            facts.gap_sum += gap;
            facts.gaps += 1;
        } else {
            waiting.p.insert((i, j), p);
        }
        Ok(())
    }

    /// Reads a score. If there are comparisons, these are the judgements, and scores only follow from them.
    fn score(&mut self, line: &str, stretch: TextStretch, compared: bool) -> serde_json::Result<()> {
        let row: CandidateScoreRow<'_> = serde_json::from_str(line)?;
        let sample = self.note(&row.item, stretch);
        let attribute = self.attribute(sample, &row.attribute);
        let metric = self.metrics.number(&row.metric);
        let candidate = self.candidates.number(&row.candidate);
        // Avoid counting judgements twice if scores are made from comparisons.
        if !compared && row.answers.is_empty() {
            self.judged(sample, &row.outcome, row.mass);
        } else if !compared {
            row.answers.iter().for_each(|answer| self.judged(sample, &answer.outcome, answer.mass));
        }
        let gold = self.gold(sample, candidate, attribute);
        let facts = &mut self.samples[sample as usize];
        if let Some(score) = row.score {
            if metric == 0 && self.scores.first().is_none_or(|first| first.attribute == attribute) {
                let direction = Direction::for_metric(&row.metric);
                let better = |best: f64| direction.upwards(score) > direction.upwards(best);
                facts.best = facts.best.filter(|best| !better(*best)).or(Some(score));
            }
            self.scores.push(ScoredCandidate { sample, attribute, metric, candidate, score, gold });
        }
        Ok(())
    }

    fn other(&mut self, line: &str, stretch: TextStretch) -> serde_json::Result<()> {
        let row: OtherRow<'_> = serde_json::from_str(line)?;
        let Some(belongs_to) = row.belongs_to() else { return Ok(()) };
        let sample = self.note(belongs_to, stretch);
        // Outcomes of other tables count only if the run has no samples.
        if let Some(outcome) = row.outcome.as_deref().filter(|_| self.with_texts == 0) {
            self.samples[sample as usize].outcomes |= 1 << self.outcomes.number(outcome).min(31);
        }
        Ok(())
    }
}

/// Hash of a sample without its gold scores and preference.
fn digest(sample: &Sample) -> serde_json::Result<[u8; 16]> {
    let mut judged = sample.clone();
    judged.preference = None;
    judged.candidates.iter_mut().for_each(|candidate| candidate.scores.clear());
    let hash = Sha256::digest(serde_json::to_vec(&judged)?);
    Ok(hash[..16].try_into().expect("a hash has 32 bytes"))
}
