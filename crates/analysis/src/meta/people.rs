//! Gold and human labels by item and candidate.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::path::Path;

use probity_data::{Label, LabelFile, LabelSubject, LabelTask, Preference, Sample, TIE, read_scores};
use probity_lm::text::counted;
use probity_lm::text::visible_line;

use super::scores::{named, row_text};
use crate::error::AnalysisError;

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
    /// Absent in a table without a column for it.
    pub(crate) id: Option<String>,
    pub(crate) scores: BTreeMap<String, f64>,
}

/// All gold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GoldScores {
    pub(crate) file: String,
    pub(crate) items: Vec<GoldItem>,
    pub(crate) attributes: Vec<String>,
    /// Pairs with human labels.
    pub(crate) labelled: Vec<LabelledPair>,
    /// Notes about labels that are not used.
    pub(crate) notes: Vec<String>,
    places: BTreeMap<String, usize>,
}

/// Human label of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelledPair {
    /// Absent if the texts were compared as a whole.
    pub(crate) attribute: Option<String>,
    pub(crate) item: String,
    pub(crate) i: String,
    pub(crate) j: String,
    pub(crate) verdict: HumanPair,
}

/// Verdict on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HumanPair {
    First,
    Second,
    Level,
}

impl HumanPair {
    /// The most frequent verdict; a tie if several are.
    fn most_frequent(said: &BTreeMap<Self, usize>) -> Self {
        let most = said.values().copied().max().unwrap_or(0);
        let mut those = said.iter().filter(|(_, count)| **count == most);
        match (those.next(), those.next()) {
            (Some((verdict, _)), None) => *verdict,
            _ => Self::Level,
        }
    }
}

impl GoldItem {
    /// Whether gold compares two of its candidates.
    fn says(&self, places: [usize; 2], attribute: Option<&str>) -> bool {
        let candidates = places.map(|place| &self.candidates[place]);
        match (attribute, &self.preference) {
            (Some(attribute), _) => candidates.iter().all(|one| one.scores.contains_key(attribute)),
            (None, Some(Preference::Candidate(id))) => candidates.iter().any(|one| one.id.as_ref() == Some(id)),
            (None, Some(Preference::Tie)) => true,
            (None, None) => false,
        }
    }
}

impl GoldScores {
    fn new(file: String, items: Vec<GoldItem>) -> Self {
        let names: BTreeSet<&String> =
            items.iter().flat_map(|item| &item.candidates).flat_map(|c| c.scores.keys()).collect();
        let attributes = names.into_iter().cloned().collect();
        let places = items.iter().enumerate().map(|(place, item)| (item.id.clone(), place)).collect();
        Self { file, items, attributes, places, ..Self::default() }
    }

    pub(crate) fn from_samples(samples: Vec<Sample>, path: &Path) -> Self {
        let candidate = |c: probity_data::Candidate| GoldCandidate { id: Some(c.id), scores: c.scores };
        let item = |s: Sample| GoldItem {
            id: s.id,
            candidates: s.candidates.into_iter().map(candidate).collect(),
            preference: s.preference,
        };
        Self::new(path.display().to_string(), samples.into_iter().map(item).collect())
    }

    /// Reads gold from a table of scores. Attributes are the rows' attributes or metrics, or the columns.
    pub(crate) fn from_table(path: &Path) -> Result<Self, AnalysisError> {
        let table = read_scores(path).map_err(AnalysisError::Gold)?;
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
                // Happens with several metrics, which gold does not distinguish.
                if let Some(first) = lines.insert((place, known, attribute.clone()), row.line) {
                    let (unit, candidate) = (table.unit.to_string(), candidates[known].id.as_deref());
                    return Err(AnalysisError::Twice {
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

    /// Adds human labels where gold has no value: the mean score over annotators, and the majority verdict on a pair.
    ///
    /// # Errors
    /// If a label's item or candidate is in neither gold nor `scored`.
    pub(crate) fn with_labels(
        mut self,
        labels: &[LabelFile],
        scored: &BTreeSet<(&str, &str)>,
    ) -> Result<Self, AnalysisError> {
        for labels in labels {
            let cut = labels.half_line.map(|line| {
                format!(
                    "line {line} of {}, the last, was cut while it was written, and says nothing",
                    visible_line(&labels.file)
                )
            });
            self.notes.extend(cut);
        }
        let of_gold = self.ranges();
        if self.file.is_empty() {
            self.file = labels.iter().map(|labels| labels.file.as_str()).collect::<Vec<_>>().join(", ");
        }
        // Labels of candidates and pairs that gold covers.
        let mut passed_over = 0;
        let mut scores: BTreeMap<(usize, usize, String), Vec<f64>> = BTreeMap::new();
        let mut pairs: BTreeMap<LabelTask, BTreeMap<HumanPair, usize>> = BTreeMap::new();
        for (file, line, row) in
            labels.iter().flat_map(|labels| labels.rows.iter().map(|(n, row)| (&labels.file, *n, row)))
        {
            let LabelTask { item, attribute, subject } = &row.task;
            let mut place = |candidate: &String| {
                self.find(item, Some(candidate))
                    .or_else(|| {
                        scored.contains(&(item.as_str(), candidate.as_str())).then(|| self.admit(item, candidate))
                    })
                    .ok_or_else(|| AnalysisError::UnknownLabel {
                        place: format!("{}:{line}", visible_line(file)),
                        item: visible_line(item),
                        candidate: visible_line(candidate),
                        gold: self.file.clone(),
                    })
            };
            match subject {
                LabelSubject::Candidate(candidate) => {
                    let (item, candidate) = place(candidate)?;
                    if let Label::Score(score) = row.label {
                        let attribute = attribute.clone().unwrap_or_else(|| "score".to_owned());
                        if let Some((low, high)) = of_gold.get(&attribute)
                            && !(2.0 * low - high..=2.0 * high - low).contains(&score)
                        {
                            return Err(AnalysisError::OtherScale {
                                place: format!("{}:{line}", visible_line(file)),
                                score,
                                attribute: visible_line(&attribute),
                                gold: self.file.clone(),
                                low: *low,
                                high: *high,
                            });
                        }
                        scores.entry((item, candidate, attribute)).or_default().push(score);
                    }
                }
                LabelSubject::Pair { i, j } => {
                    let (item, places) = (place(i)?.0, [place(i)?.1, place(j)?.1]);
                    let Label::Preferred(preference) = &row.label else { continue };
                    if self.items[item].says(places, attribute.as_deref()) {
                        passed_over += 1;
                        continue;
                    }
                    let task = row.task.key();
                    let says = match preference {
                        Preference::Tie => HumanPair::Level,
                        Preference::Candidate(id) if task.subject.is_first(id) => HumanPair::First,
                        Preference::Candidate(_) => HumanPair::Second,
                    };
                    *pairs.entry(task).or_default().entry(says).or_default() += 1;
                }
            }
        }
        let apart = pairs.keys().filter(|task| task.attribute.is_some()).count();
        let prefers = self.items.iter().any(|item| item.preference.is_some());
        self.notes.extend((apart > 0 && prefers && self.attributes.is_empty()).then(|| {
            format!(
                "{} labelled under an attribute, and gold has preferences between texts as a whole: they are counted \
                 apart (labels given without --attribute count with these)",
                counted(apart, "pair")
            )
        }));
        for (LabelTask { item, attribute, subject }, said) in pairs {
            if let LabelSubject::Pair { i, j } = subject {
                self.labelled.push(LabelledPair { attribute, item, i, j, verdict: HumanPair::most_frequent(&said) });
            }
        }
        for ((item, candidate, attribute), mut said) in scores {
            // Sorted, so that the mean does not depend on the order of the labels.
            said.sort_by(f64::total_cmp);
            match self.items[item].candidates[candidate].scores.entry(attribute.clone()) {
                Entry::Occupied(_) => passed_over += said.len(),
                Entry::Vacant(entry) => {
                    entry.insert(said.iter().sum::<f64>() / said.len() as f64);
                }
            }
            if !self.attributes.contains(&attribute) {
                self.attributes.push(attribute);
            }
        }
        self.attributes.sort_unstable();
        let labels = counted(passed_over, "label");
        self.notes
            .extend((passed_over > 0).then(|| format!("{labels} of what gold says something of: gold's is used")));
        Ok(self)
    }

    /// Sorts items and candidates by id, so that sums, groups and draws do not depend on the order of rows.
    fn by_ids(mut self) -> Self {
        self.items.sort_by(|a, b| a.id.cmp(&b.id));
        self.items.iter_mut().for_each(|item| item.candidates.sort_by(|a, b| a.id.cmp(&b.id)));
        self.places = self.items.iter().enumerate().map(|(place, item)| (item.id.clone(), place)).collect();
        self
    }

    /// Selects the named attributes, or all if none is named. Gold without scores may have preferences.
    pub(crate) fn chosen(self, names: &[String]) -> Result<Self, AnalysisError> {
        let mut chosen = self.by_ids();
        let of_pairs = chosen.labelled.iter().filter_map(|pair| pair.attribute.clone());
        let mut known: Vec<String> = chosen.attributes.iter().cloned().chain(of_pairs).collect();
        known.sort_unstable();
        known.dedup();
        let names = named(names, &known, "gold attribute", "attribute")?;
        let prefers = chosen.items.iter().any(|item| item.preference.is_some());
        if chosen.attributes.is_empty() && chosen.labelled.is_empty() && !prefers {
            return Err(AnalysisError::NothingInGold { file: chosen.file });
        }
        chosen.attributes.retain(|name| names.is_empty() || names.contains(name));
        chosen
            .labelled
            .retain(|pair| pair.attribute.as_ref().is_none_or(|name| names.is_empty() || names.contains(name)));
        Ok(chosen)
    }

    /// Adds a candidate that is not in gold, and returns its position.
    fn admit(&mut self, item: &str, candidate: &str) -> (usize, usize) {
        let place = *self.places.entry(item.to_owned()).or_insert(self.items.len());
        if place == self.items.len() {
            self.items.push(GoldItem { id: item.to_owned(), candidates: Vec::new(), preference: None });
        }
        let candidates = &mut self.items[place].candidates;
        candidates.push(GoldCandidate { id: Some(candidate.to_owned()), scores: BTreeMap::new() });
        (place, candidates.len() - 1)
    }

    /// Range of the scores of each attribute, if they differ.
    fn ranges(&self) -> BTreeMap<String, (f64, f64)> {
        let mut ranges: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (attribute, score) in self.items.iter().flat_map(|item| &item.candidates).flat_map(|one| &one.scores) {
            let range = ranges.entry(attribute.clone()).or_insert((*score, *score));
            *range = (range.0.min(*score), range.1.max(*score));
        }
        ranges.retain(|_, (low, high)| low < high);
        ranges
    }

    /// The item with this id.
    pub(crate) fn item(&self, id: &str) -> Option<&GoldItem> {
        self.places.get(id).map(|place| &self.items[*place])
    }

    /// Position of the candidate with this name. A missing name matches only a single candidate.
    pub(crate) fn find(&self, item: &str, candidate: Option<&str>) -> Option<(usize, usize)> {
        let place = *self.places.get(item)?;
        let candidates = &self.items[place].candidates;
        let named = candidates.iter().position(|known| known.id.as_deref() == candidate);
        // With several candidates, a row without a name is ambiguous.
        let only = candidates.len() == 1 && (candidate.is_none() || candidates[0].id.is_none());
        named.or(only.then_some(0)).map(|candidate| (place, candidate))
    }
}
