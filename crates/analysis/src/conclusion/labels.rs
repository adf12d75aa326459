//! Human labels of samples: the preference if there is one, else the order of the gold scores.

use std::collections::BTreeMap;

use probity_data::{Preference, Sample};
use probity_lm::text::counted;
use probity_stats::order;
use serde_json::json;

use super::{ConclusionCase, Doubt, Finding, point};
use crate::thresholds::MANY_UNSCORED;

/// The candidates of a sample that people find best; all of them for a tie.
struct HumanLabel<'s> {
    best: Vec<&'s str>,
    is_tie: bool,
}

/// Counts of a run's labels, and why some cannot be compared with the judge.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HumanLabels {
    all: usize,
    ties: usize,
    /// Labels of samples that lack the scores to compare with.
    pub(super) unscored: usize,
    /// Samples whose preference contradicts their gold scores.
    contradict: usize,
    /// Preferences of samples without gold scores.
    only_preferred: usize,
}

impl HumanLabels {
    /// Whether preferences add information to the gold scores.
    pub(super) fn has_more_than_gold(self) -> bool {
        self.contradict > 0 || self.only_preferred > 0
    }

    fn unscored_text(self) -> Option<String> {
        let lack =
            if self.unscored == 1 { "is of a sample that lacks a score" } else { "are of samples that lack a score" };
        (self.unscored > 0).then(|| format!("{} of your {} {lack}", self.unscored, counted(self.all, "label")))
    }

    /// The finding if there are labels and none can be compared with the judge.
    pub(super) fn none_tells(self, judge: &str) -> Option<Finding> {
        let Self { all, ties, unscored, .. } = self;
        if all == 0 || ties + unscored < all {
            return None;
        }
        let (says, why) = if unscored == all {
            (self.unscored_text()?, "the labels are of samples that lack a score".to_owned())
        } else {
            (
                format!("{ties} of your {} are ties", counted(all, "label")),
                format!("ties alone say nothing of the {judge}"),
            )
        };
        let figures = json!({ "labels": all, "label_ties": ties, "interval": null });
        Some(Finding::new(format!("No label shows whether the {judge} is right: {says}"), figures, Doubt::Mute(why)))
    }

    /// Adds notes about unscored and contradictory labels to a finding.
    pub(super) fn noted(self, mut found: Finding) -> Finding {
        if let Some(text) = self.unscored_text() {
            if !found.says.contains(&text) {
                found.says = format!("{}; {text}", found.says);
            }
            found.figures["labels"] = json!(self.all);
            found.figures["labels_unscored"] = json!(self.unscored);
            let is_many = self.unscored as f64 > MANY_UNSCORED * self.all as f64;
            found.doubt = match found.doubt {
                Doubt::None if is_many => Doubt::Caution(text),
                Doubt::Caution(why) if is_many => Doubt::Caution(format!("{text}; {why}")),
                doubt => doubt,
            };
        }
        if self.contradict > 0 {
            let samples = counted(self.contradict, "sample");
            found.says =
                format!("{}; scores and preference contradict in {samples}, the preference counts there", found.says);
            found.figures["labels_contradict"] = json!(self.contradict);
        }
        found
    }
}

impl ConclusionCase<'_> {
    fn preferred<'s>(&self, sample: &'s Sample) -> Option<HumanLabel<'s>> {
        match sample.preference.as_ref().filter(|_| self.preferences)? {
            Preference::Tie => {
                let best = sample.candidates.iter().map(|candidate| candidate.id.as_str()).collect();
                Some(HumanLabel { best, is_tie: true })
            }
            Preference::Candidate(id) => Some(HumanLabel { best: vec![id], is_tie: false }),
        }
    }

    /// Position, id and gold score of the candidates used for agreement.
    fn gold_scores<'s>(&self, sample: &'s Sample) -> Vec<(usize, &'s str, f64)> {
        let Some(attribute) = self.attribute.filter(|_| self.gold.is_some()) else { return Vec::new() };
        let of_candidate = |(place, candidate): (usize, &'s probity_data::Candidate)| {
            Some((place, candidate.id.as_str(), *candidate.scores.get(attribute)?))
        };
        sample.candidates.iter().enumerate().filter_map(of_candidate).collect()
    }

    fn best_by_gold<'s>(&self, sample: &'s Sample) -> Option<HumanLabel<'s>> {
        let all = self.gold_scores(sample);
        let most = all.iter().map(|(_, _, score)| *score).max_by(f64::total_cmp).filter(|_| all.len() > 1)?;
        let is_best = |found: &&(usize, &str, f64)| order(found.2, most).is_eq();
        let best: Vec<&str> = all.iter().filter(is_best).map(|(_, id, _)| *id).collect();
        Some(HumanLabel { is_tie: best.len() == all.len(), best })
    }

    fn label<'s>(&self, sample: &'s Sample) -> Option<HumanLabel<'s>> {
        self.preferred(sample).or_else(|| self.best_by_gold(sample))
    }

    /// Whether a labelled sample has the scores to compare its label with.
    fn is_scored(&self, sample: &Sample, scores: &[Option<f64>]) -> bool {
        match self.preferred(sample) {
            Some(HumanLabel { is_tie: false, .. }) => scores.iter().all(Option::is_some),
            Some(_) => scores.iter().flatten().count() > 1,
            None => self.gold_scores(sample).iter().filter(|(place, _, _)| scores[*place].is_some()).count() > 1,
        }
    }

    pub(super) fn labels(&self) -> HumanLabels {
        let mut found = HumanLabels::default();
        for (sample, scores) in self.samples.iter().zip(self.scores) {
            let Some(label) = self.label(sample) else { continue };
            found.all += 1;
            if !self.is_scored(sample, scores) {
                found.unscored += 1;
            } else if label.is_tie {
                found.ties += 1;
            }
            if let Some(preferred) = self.preferred(sample) {
                match self.best_by_gold(sample) {
                    None => found.only_preferred += 1,
                    Some(gold) if gold.is_tie && preferred.is_tie => {}
                    Some(gold) if preferred.is_tie || !gold.best.contains(&preferred.best[0]) => found.contradict += 1,
                    Some(_) => {}
                }
            }
        }
        found
    }

    /// Human judgement of two candidates of a sample: 1 if the first is better, 0.5 for a tie, `None` if not judged.
    pub(super) fn by_people(&self, sample: &Sample, first: usize, second: usize) -> Option<f64> {
        let [one, other] = [first, second].map(|place| &sample.candidates[place]);
        match sample.preference.as_ref().filter(|_| self.preferences) {
            Some(Preference::Tie) => return Some(0.5),
            Some(Preference::Candidate(id)) if *id == one.id => return Some(1.0),
            Some(Preference::Candidate(id)) if *id == other.id => return Some(0.0),
            // A preference for a third candidate does not compare these two; gold scores may.
            Some(Preference::Candidate(_)) | None => {}
        }
        let attribute = self.attribute.filter(|_| self.gold.is_some())?;
        Some(point(*one.scores.get(attribute)?, *other.scores.get(attribute)?))
    }

    /// `the labels find x best in 12 of 20 samples`; `None` if no label has a single best candidate.
    pub(super) fn best_by_labels(&self) -> Option<String> {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        let labels: Vec<HumanLabel<'_>> = self.samples.iter().filter_map(|sample| self.label(sample)).collect();
        for label in &labels {
            if let [best] = label.best[..] {
                *times.entry(best).or_default() += 1;
            }
        }
        let most = *times.values().max()?;
        let best: Vec<&str> = times.iter().filter(|(_, count)| **count == most).map(|(id, _)| *id).collect();
        let each = if best.len() == 1 { "" } else { " each" };
        let samples = counted(labels.len(), "sample");
        Some(format!("the labels find {} best in {most} of {samples}{each}", best.join(" and ")))
    }
}
