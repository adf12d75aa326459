//! What people said, by item and candidate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use probity_data::{Preference, Sample, TIE, read_scores};
use probity_report::text::visible_line;

use crate::error::MetaError;
use crate::scores::{named, row_text};

/// An item with its candidates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GoldItem {
    pub(crate) id: String,
    pub(crate) candidates: Vec<GoldCandidate>,
    pub(crate) preference: Option<Preference>,
}

/// A candidate with its gold scores by attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GoldCandidate {
    /// Absent in a table without that column.
    pub(crate) id: Option<String>,
    pub(crate) scores: BTreeMap<String, f64>,
}

/// All gold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GoldScores {
    pub(crate) file: String,
    pub(crate) items: Vec<GoldItem>,
    pub(crate) attributes: Vec<String>,
    places: BTreeMap<String, usize>,
}

impl GoldScores {
    fn new(file: String, items: Vec<GoldItem>) -> Self {
        let names: BTreeSet<&String> =
            items.iter().flat_map(|item| &item.candidates).flat_map(|c| c.scores.keys()).collect();
        let attributes = names.into_iter().cloned().collect();
        let places = items.iter().enumerate().map(|(place, item)| (item.id.clone(), place)).collect();
        Self { file, items, attributes, places }
    }

    pub(crate) fn of_samples(samples: Vec<Sample>, path: &Path) -> Self {
        let candidate = |c: probity_data::Candidate| GoldCandidate { id: Some(c.id), scores: c.scores };
        let item = |s: Sample| GoldItem {
            id: s.id,
            candidates: s.candidates.into_iter().map(candidate).collect(),
            preference: s.preference,
        };
        Self::new(path.display().to_string(), samples.into_iter().map(item).collect())
    }

    /// Of a table of scores: its attributes are the rows' attributes or metrics, or its columns.
    pub(crate) fn of_table(path: &Path) -> Result<Self, MetaError> {
        let table = read_scores(path).map_err(MetaError::Gold)?;
        let mut items: Vec<GoldItem> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut lines: BTreeMap<(usize, usize, String), usize> = BTreeMap::new();
        for row in table.rows {
            let place = *places.entry(row.item.clone()).or_insert_with(|| {
                let preference = table.preferences.get(&row.item);
                let preference =
                    preference.map(|id| if id == TIE { Preference::Tie } else { Preference::Candidate(id.clone()) });
                items.push(GoldItem { id: row.item.clone(), candidates: Vec::new(), preference });
                items.len() - 1
            });
            let candidates = &mut items[place].candidates;
            let known = candidates.iter().position(|candidate| candidate.id == row.candidate);
            let known = known.unwrap_or_else(|| {
                candidates.push(GoldCandidate { id: row.candidate, scores: BTreeMap::new() });
                candidates.len() - 1
            });
            if let Some(score) = row.score {
                let attribute = row.attribute.or(row.metric).unwrap_or_else(|| "score".to_owned());
                // By two metrics, of which gold does not know.
                if let Some(first) = lines.insert((place, known, attribute.clone()), row.line) {
                    let (unit, candidate) = (table.unit.to_string(), candidates[known].id.as_deref());
                    return Err(MetaError::Twice {
                        option: "gold",
                        place: row_text(&unit, row.line, &table.file, &row.item, candidate),
                        what: format!("`{}`", visible_line(&attribute)),
                        first: format!("{unit} {first}"),
                    });
                }
                candidates[known].scores.insert(attribute, score);
            }
        }
        Ok(Self::new(table.file, items))
    }

    /// Only the named attributes; all where none is named. Gold without scores may have preferences.
    pub(crate) fn chosen(mut self, names: &[String]) -> Result<Self, MetaError> {
        let names = named(names, &self.attributes, "gold attribute", "attribute")?;
        if self.attributes.is_empty() && self.items.iter().all(|item| item.preference.is_none()) {
            return Err(MetaError::NothingInGold { file: self.file });
        }
        self.attributes.retain(|name| names.is_empty() || names.contains(name));
        Ok(self)
    }

    /// The item and the candidate of that name; a nameless one only where the item has no other.
    pub(crate) fn find(&self, item: &str, candidate: Option<&str>) -> Option<(usize, usize)> {
        let place = *self.places.get(item)?;
        let candidates = &self.items[place].candidates;
        let named = candidates.iter().position(|known| known.id.as_deref() == candidate);
        // Where there are several, which of them a row without a name means would be a guess.
        let only = candidates.len() == 1 && (candidate.is_none() || candidates[0].id.is_none());
        named.or(only.then_some(0)).map(|candidate| (place, candidate))
    }
}
