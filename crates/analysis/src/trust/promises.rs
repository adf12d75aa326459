//! Guarantees for the scores of a run from the labels in its samples.

use std::collections::BTreeSet;
use std::slice;

use probity_data::{Preference, Sample};
use probity_stats::{CONFIDENCE, SelectionRule};
use serde_json::{Value, json};

use super::{JudgedItems, JudgedText, Promise, ToLabel, Trusted, trust_tables};
use crate::scores::{AttributeScores, RunScores};
use crate::table::Table;
use crate::thresholds::{ALPHA, DELTA};

/// Default parameters; `probity meta` has options for others.
fn promise() -> Promise {
    let rule = SelectionRule::new(ALPHA, DELTA).expect("both are shares");
    Promise { rule, confidence: CONFIDENCE, seed: 0 }
}

impl ToLabel {
    /// Adds what to label for another metric or attribute.
    pub(crate) fn extend(&mut self, more: Self) {
        self.pairs.extend(more.pairs);
        self.scores.extend(more.scores);
    }

    /// Rows of both tables: pairs and candidates.
    pub fn tables(&self) -> [(&'static str, Vec<Value>); 2] {
        let pairs = self.pairs.iter().map(|pair| json!(pair)).collect();
        [("to_label", pairs), ("scores_to_label", self.scores.iter().map(|one| json!(one)).collect())]
    }
}

/// Guarantees for the scores of a run.
pub struct Promises {
    /// By attribute; the attribute is absent for preferences.
    pub trusted: Vec<Trusted>,
    /// What to label next.
    pub to_label: ToLabel,
}

impl Promises {
    /// Computes the guarantees for each attribute with gold scores, and for preferences. Scores without an attribute
    /// are compared with the gold of the `asked` attributes. `None` without labels of scored candidates.
    pub fn new(method: &str, samples: &[Sample], asked: &[&str], scores: &RunScores) -> Option<Self> {
        let mut attributes: Vec<&AttributeScores> = scores.attributes.iter().filter(|one| one.is_scored()).collect();
        // Requested attributes in their order, then the others by name.
        let place = |name: &str| asked.iter().position(|asked| *asked == name).unwrap_or(usize::MAX);
        attributes.sort_by_key(|one| one.attribute.as_deref().map(|name| (place(name), name)));
        let mut found = Self { trusted: Vec::new(), to_label: ToLabel::default() };
        for of in &attributes {
            let own = of.attribute.as_deref();
            for gold in own.as_ref().map_or(asked, slice::from_ref) {
                let mut candidates = samples.iter().flat_map(|sample| &sample.candidates);
                if candidates.any(|one| one.scores.contains_key(*gold)) {
                    found.add(method, Some(gold), &judged_items(&of.scores, samples, Some(gold)));
                }
            }
        }
        // Preferences name no attribute, so they are ambiguous with several.
        if let ([of], true) = (&attributes[..], samples.iter().any(|sample| sample.preference.is_some())) {
            found.add(method, None, &judged_items(&of.scores, samples, None));
        }
        (!found.trusted.is_empty()).then_some(found)
    }

    fn add(&mut self, method: &str, attribute: Option<&str>, items: &JudgedItems<'_>) {
        let (trusted, more) = Trusted::compute(method, attribute, items, promise());
        self.trusted.push(trusted);
        self.to_label.extend(more);
    }

    /// The tables. `keeps_rows`: whether the rows of [`Self::to_label`] are written to files that the tables may name.
    pub fn tables(&self, keeps_rows: bool) -> Vec<Table> {
        let mut tables = trust_tables(&self.trusted, keeps_rows);
        if let Some(first) = tables.first_mut().filter(|first| !first.rows.is_empty()) {
            first.note(format!("α is {ALPHA} and δ {DELTA}; others, and labels that come later, are probity meta's"));
        }
        tables
    }
}

/// Whether a sample has a preference or gold scores.
pub fn has_gold(sample: &Sample) -> bool {
    sample.preference.is_some() || sample.candidates.iter().any(|one| !one.scores.is_empty())
}

/// Scores joined with gold: scores of an attribute, or for preferences 1 for the preferred candidate and 0 for the
/// others.
fn judged_items<'s>(scores: &[Vec<Option<f64>>], samples: &'s [Sample], gold: Option<&str>) -> JudgedItems<'s> {
    let mut items = JudgedItems::default();
    for (sample, scores) in samples.iter().zip(scores) {
        for (candidate, score) in sample.candidates.iter().zip(scores) {
            let people = match (gold, &sample.preference) {
                (Some(gold), _) => candidate.scores.get(gold).copied(),
                (None, Some(Preference::Candidate(id))) => Some(f64::from(u8::from(*id == candidate.id))),
                (None, _) => None,
            };
            if let Some(score) = *score {
                items.add(&sample.id, JudgedText { candidate: &candidate.id, score, people });
            }
        }
    }
    if gold.is_none() {
        let ties: BTreeSet<&str> = samples
            .iter()
            .filter(|sample| sample.preference == Some(Preference::Tie))
            .map(|sample| sample.id.as_str())
            .collect();
        items.level_where(|item| ties.contains(item));
    }
    items
}
