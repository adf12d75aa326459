//! What the labels in its samples promise of the scores of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use probity_data::{Preference, Sample};
use probity_stats::{Resampling, SelectionRule};
use serde_json::json;

use super::{JudgedItems, JudgedText, Promise, ToLabel, Trusted, trust_sections};
use crate::run::WrittenScore;
use crate::{MethodError, MethodReport, Run};

/// The table of pairs that people should look at, and that of candidates.
const TO_LABEL: &str = "to_label";
const SCORES_TO_LABEL: &str = "scores_to_label";

/// What is promised of a run unless `probity meta` is asked for something else.
fn promise() -> Promise {
    let rule = SelectionRule::new(0.2, 0.1).expect("both are shares");
    Promise { rule, confidence: Resampling::default().confidence, seed: 0 }
}

impl ToLabel {
    /// Adds what is to be looked at of another metric or attribute.
    pub fn extend(&mut self, more: Self) {
        self.pairs.extend(more.pairs);
        self.scores.extend(more.scores);
    }

    /// Writes the tables that have rows.
    pub fn write(&self, run: &mut Run<'_>) -> Result<(), MethodError> {
        if !self.pairs.is_empty() {
            run.table(TO_LABEL, self.pairs.len())?;
            self.pairs.iter().enumerate().try_for_each(|(index, pair)| run.row(TO_LABEL, index, pair))?;
        }
        if !self.scores.is_empty() {
            run.table(SCORES_TO_LABEL, self.scores.len())?;
            self.scores.iter().enumerate().try_for_each(|(index, one)| run.row(SCORES_TO_LABEL, index, one))?;
        }
        Ok(())
    }
}

/// Puts into a report which pairs can be left to the method, how far its scores are from people's, and what it adds to the
/// means of systems, by each attribute that candidates have gold scores of, and by preferences. Scores that are of no
/// attribute are held against the gold of those that were `asked` for.
pub(crate) fn tell(
    method: &str,
    samples: &[Sample],
    asked: &[&str],
    report: &mut MethodReport,
    run: &mut Run<'_>,
) -> Result<(), MethodError> {
    let Some(scores) = run.take_scores() else { return Ok(()) };
    let attributes = attributes(&scores, asked);
    let mut found = Vec::new();
    let mut back = ToLabel::default();
    for attribute in &attributes {
        for gold in if attribute.is_empty() { asked } else { slice::from_ref(attribute) } {
            let mut candidates = samples.iter().flat_map(|sample| &sample.candidates);
            if candidates.any(|one| one.scores.contains_key(*gold)) {
                let items = judged_items(&scores, samples, attribute, Some(gold));
                let (trusted, more) = Trusted::of(method, Some(gold), &items, promise());
                found.push(trusted);
                back.extend(more);
            }
        }
    }
    // Preferences are about one thing: it is not said which of several attributes that is.
    if let ([attribute], true) = (&attributes[..], samples.iter().any(|sample| sample.preference.is_some())) {
        let items = judged_items(&scores, samples, attribute, None);
        let (trusted, more) = Trusted::of(method, None, &items, promise());
        found.push(trusted);
        back.extend(more);
    }
    if found.is_empty() {
        return Ok(());
    }
    let mut sections = trust_sections(&found, run.keeps_rows());
    if let Some(first) = sections.first_mut().filter(|first| !first.rows.is_empty()) {
        first.note("α is 0.2 and δ 0.1; others, and labels that come later, are probity meta's");
    }
    report.sections.extend(sections);
    report.values["trust"] = json!(found);
    back.write(run)
}

/// Whether people have said something of a sample.
pub(crate) fn has_gold(sample: &Sample) -> bool {
    sample.preference.is_some() || sample.candidates.iter().any(|one| !one.scores.is_empty())
}

/// The attributes that scores are of, each once: those that were `asked` for in their order, then the others by name.
fn attributes<'s>(scores: &'s [WrittenScore], asked: &[&str]) -> Vec<&'s str> {
    let found: BTreeSet<&str> = scores.iter().map(|one| one.attribute.as_str()).collect();
    let mut found: Vec<&str> = found.into_iter().collect();
    found.sort_by_key(|name| asked.iter().position(|asked| asked == name).unwrap_or(usize::MAX));
    found
}

/// The scores of an attribute with people's beside them: gold scores of that name, or of preferences 1 of what they
/// preferred and 0 of the others.
fn judged_items<'r>(
    scores: &'r [WrittenScore],
    samples: &'r [Sample],
    attribute: &str,
    gold: Option<&str>,
) -> JudgedItems<'r> {
    let places: BTreeMap<&str, &Sample> = samples.iter().map(|sample| (sample.id.as_str(), sample)).collect();
    let mut items = JudgedItems::default();
    for one in scores.iter().filter(|one| one.attribute == attribute) {
        let Some(sample) = places.get(one.item.as_str()) else { continue };
        let people = match (gold, &sample.preference) {
            (Some(gold), _) => {
                let found = sample.candidates.iter().find(|known| known.id == one.candidate);
                found.and_then(|known| known.scores.get(gold).copied())
            }
            (None, Some(Preference::Candidate(id))) => Some(f64::from(u8::from(*id == one.candidate))),
            (None, _) => None,
        };
        items.add(&one.item, JudgedText { candidate: &one.candidate, score: one.score, people });
    }
    if gold.is_none() {
        items.level_where(|item| places.get(item).is_some_and(|sample| sample.preference == Some(Preference::Tie)));
    }
    items
}
