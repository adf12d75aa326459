//! The task to learn: labels with their features, and the agreement of predictions.

use std::collections::{BTreeMap, BTreeSet};

use probity_data::{Preference, Sample};
use probity_learn::{FeatureTable, MOST, Objective};
use probity_lm::text::counted;
use probity_stats::{
    CONFIDENCE, Correlation, Interval, NoInterval, POOLED_LIMIT, Range, jackknife, mean_interval, per_context,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table::FeaturedCandidates;
use crate::figures::mean;
use crate::{MethodError, row};

/// The name for preferences among attributes.
pub(super) const PREFERENCE: &str = "preference";

/// The measure of agreement between predictions and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubjectMeasure {
    /// The mean over contexts of Spearman's ρ.
    SpearmanPerContext,
    /// With one candidate per context: Spearman's ρ within each part of the cross-validation, averaged by number of
    /// candidates. Pooling over parts would be misleading: each part's head has its own level, and a head fitted to low
    /// labels predicts low ones for a part with high labels.
    Spearman,
    /// The share of correct decisions, averaged over contexts; a tie counts as half.
    Accuracy,
}

impl SubjectMeasure {
    /// The name in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::SpearmanPerContext => "Spearman per context",
            Self::Spearman => "Spearman",
            Self::Accuracy => "accuracy",
        }
    }

    /// The value of a random prediction.
    pub(super) fn chance(self) -> f64 {
        if self == Self::Accuracy { 0.5 } else { 0.0 }
    }

    pub(super) fn range(self) -> Range {
        if self == Self::Accuracy { Range::SHARE } else { Range::Correlation }
    }
}

/// A figure with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Agreement {
    pub(super) value: Option<f64>,
    pub(super) interval: Option<Interval>,
    /// Whether omitting any context changes nothing; there is then no interval.
    #[serde(skip)]
    is_same: bool,
}

impl Agreement {
    fn new(value: Option<f64>, interval: Result<Interval, NoInterval>) -> Self {
        Self { value, is_same: interval == Err(NoInterval::AllAlike), interval: interval.ok() }
    }

    /// The mean over contexts.
    fn from_contexts(units: &[f64], range: Range) -> Self {
        Self::new(mean(units.iter().copied()), mean_interval(units, CONFIDENCE, range))
    }

    /// Whether its interval is above `least`.
    pub(super) fn is_above(&self, least: f64) -> bool {
        match self.interval {
            Some(interval) => interval.low > least,
            None => self.is_same && self.value.is_some_and(|value| value > least),
        }
    }
}

/// The training data of an attribute or of preferences: feature rows with labels.
pub(super) struct Subject<'a> {
    /// Absent for preferences.
    pub(super) attribute: Option<&'a str>,
    pub(super) objective: Objective,
    /// Whether features are centred within their context.
    pub(super) centred: bool,
    pub(super) measure: SubjectMeasure,
    /// The training rows: one for each labelled candidate, or for each pair the preferred candidate minus the other.
    pub(super) table: FeatureTable,
    /// The mean log-probability of the same rows, unchanged.
    pub(super) log_probability: Option<FeatureTable>,
    /// The clipping range of each column.
    pub(super) ends: Vec<[f64; 2]>,
    /// The context of each row, numbered from 0 among contexts with labels.
    pub(super) groups: Vec<usize>,
    pub(super) contexts: usize,
    /// By row.
    pub(super) target: Vec<f64>,
    /// The system of each row's candidate; empty for pairs.
    pub(super) systems: Vec<&'a str>,
    /// The texts of each row as fields: item, candidate, and the less preferred one of a pair.
    pub(super) places: Vec<Value>,
    /// The rows of labelled candidates in the table of all candidates.
    pub(super) candidates: Vec<usize>,
    /// Notes about the labels.
    pub(super) notes: Vec<String>,
    /// Labels of texts without features.
    pub(super) without_features: usize,
}

impl<'a> Subject<'a> {
    /// The data of gold scores with this name.
    pub(super) fn scores(
        attribute: &'a str,
        samples: &'a [Sample],
        featured: &FeaturedCandidates,
    ) -> Result<Self, MethodError> {
        let mut labelled: Vec<(usize, usize, f64, &str)> = Vec::new();
        let mut without_features = 0;
        for (item, (sample, rows)) in samples.iter().zip(&featured.rows).enumerate() {
            for (candidate, row) in sample.candidates.iter().zip(rows) {
                match (candidate.scores.get(attribute), row) {
                    (Some(score), Some(row)) => labelled.push((item, *row, *score, &candidate.id)),
                    (Some(_), None) => without_features += 1,
                    (None, _) => {}
                }
            }
        }
        let what = format!("--attribute {attribute}");
        if let Some((.., score, id)) = labelled.iter().find(|(_, _, score, _)| score.abs() > MOST) {
            let why = format!("candidate `{}` has the label {score:e}, beyond ±{MOST:e}", id.escape_debug());
            return MethodError::refuse(what, why, "pass labels on their original scale");
        }
        let context = |item: usize| featured.contexts[item];
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for (item, ..) in &labelled {
            *sizes.entry(context(*item)).or_default() += 1;
        }
        let in_several = labelled.iter().filter(|(item, ..)| sizes[&context(*item)] > 1).count();
        let centred = 2 * in_several >= labelled.len();
        let mut notes = featured.notes.clone();
        if without_features > 0 {
            notes.push(format!("omitted labels of candidates without features: {without_features}"));
        }
        if centred && in_several < labelled.len() {
            let alone = labelled.len() - in_several;
            notes.push(format!("omitted labels of candidates that are alone in their context: {alone}"));
            labelled.retain(|(item, ..)| sizes[&context(*item)] > 1);
        }
        let values: BTreeSet<u64> = labelled.iter().map(|(_, _, score, _)| score.to_bits()).collect();
        refuse_few(&what, labelled.len(), without_features, labelled.iter().map(|(item, ..)| context(*item)))?;
        if values.len() < 2 {
            let hint = "nothing can be learnt from equal labels; pass labels that differ";
            return MethodError::refuse(what, format!("all {} labels are equal", labelled.len()), hint);
        }
        let mut first: BTreeMap<usize, f64> = BTreeMap::new();
        let differs =
            |(item, _, score, _): &(usize, usize, f64, &str)| *first.entry(context(*item)).or_insert(*score) != *score;
        if centred && !labelled.iter().any(differs) {
            let hint = "a head compares candidates of one context; pass labels that differ within contexts";
            return MethodError::refuse(what, "the labels of each context are all equal", hint);
        }
        let decided = !centred && values.len() == 2;
        let highest = labelled.iter().map(|(_, _, score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
        let target =
            labelled.iter().map(|(_, _, score, _)| if decided { f64::from(*score == highest) } else { *score });
        let (objective, measure) = match (decided, centred) {
            (true, _) => (Objective::Decision, SubjectMeasure::Accuracy),
            (false, true) => (Objective::Score, SubjectMeasure::SpearmanPerContext),
            (false, false) => (Objective::Score, SubjectMeasure::Spearman),
        };
        let (groups, contexts) = dense(labelled.iter().map(|(item, ..)| context(*item)));
        let candidates: Vec<usize> = labelled.iter().map(|(_, row, ..)| *row).collect();
        let (prepared, ends) = featured.prepared(centred);
        Ok(Self {
            attribute: Some(attribute),
            objective,
            centred,
            measure,
            table: prepared.select_rows(&candidates),
            log_probability: featured.log_probability().map(|table| table.select_rows(&candidates)),
            ends,
            groups,
            contexts,
            target: target.collect(),
            systems: labelled.iter().map(|(_, _, _, system)| *system).collect(),
            places: labelled
                .iter()
                .map(|(item, _, _, candidate)| row! { "item": samples[*item].id, "candidate": candidate })
                .collect(),
            candidates,
            notes,
            without_features,
        })
    }

    /// The data of preferences.
    pub(super) fn preferences(samples: &'a [Sample], featured: &FeaturedCandidates) -> Result<Self, MethodError> {
        let (mut pairs, mut items, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ties, mut without_features) = (0, 0);
        for (item, (sample, rows)) in samples.iter().zip(&featured.rows).enumerate() {
            let preferred = match &sample.preference {
                None => continue,
                Some(Preference::Tie) => {
                    ties += 1;
                    continue;
                }
                Some(Preference::Candidate(id)) => sample.candidates.iter().position(|one| one.id == *id),
            };
            let Some(preferred) = preferred else { continue };
            for other in (0..sample.candidates.len()).filter(|other| *other != preferred) {
                match (rows[preferred], rows[other]) {
                    (Some(better), Some(worse)) => {
                        pairs.push((better, worse));
                        let id = |place: usize| sample.candidates[place].id.as_str();
                        places.push(row! { "item": sample.id, "candidate": id(preferred), "other": id(other) });
                        items.push(featured.contexts[item]);
                    }
                    _ => without_features += 1,
                }
            }
        }
        if pairs.is_empty() {
            let hint = "name scores in the data with --attribute, or add a \"preference\" to the samples";
            return MethodError::refuse("--attribute", "missing, and no sample has a preference", hint);
        }
        refuse_few("preferences", pairs.len(), without_features, items.iter().copied())?;
        let mut notes = featured.notes.clone();
        if ties > 0 {
            notes.push(format!("omitted samples without a preferred candidate: {ties}"));
        }
        if without_features > 0 {
            notes.push(format!("omitted pairs without features: {without_features}"));
        }
        let (groups, contexts) = dense(items.into_iter());
        let (prepared, ends) = featured.prepared(false);
        let candidates: BTreeSet<usize> = pairs.iter().flat_map(|(better, worse)| [*better, *worse]).collect();
        Ok(Self {
            attribute: None,
            objective: Objective::Preference,
            centred: false,
            measure: SubjectMeasure::Accuracy,
            table: prepared.differences(&pairs),
            log_probability: featured.log_probability().map(|table| table.differences(&pairs)),
            ends,
            groups,
            contexts,
            target: vec![1.0; pairs.len()],
            systems: Vec::new(),
            places,
            candidates: candidates.into_iter().collect(),
            notes,
            without_features,
        })
    }

    /// The attribute, or the name for preferences.
    pub(super) fn name(&self) -> &'a str {
        self.attribute.unwrap_or(PREFERENCE)
    }

    pub(super) fn labels(&self) -> usize {
        self.target.len()
    }

    /// Agreement of predictions with labels, over the predicted rows; `parts` has the part of the cross-validation of
    /// each.
    pub(super) fn agreement(&self, predicted: &[Option<f64>], parts: &[usize]) -> Agreement {
        if self.measure == SubjectMeasure::Spearman {
            let groups = self.predicted_groups(predicted);
            let value = |kept: &[usize]| self.within_parts(predicted, parts, kept.iter().map(|place| groups[*place]));
            return self.jackknifed(groups.len(), Range::Correlation, value);
        }
        let units: Vec<f64> = self.units(predicted).into_iter().flatten().collect();
        Agreement::from_contexts(&units, self.measure.range())
    }

    /// The difference in agreement between two predictions, over the rows that both predict.
    pub(super) fn difference(&self, one: &[Option<f64>], other: &[Option<f64>], parts: &[usize]) -> Agreement {
        let range = self.measure.range().for_difference();
        if self.measure == SubjectMeasure::Spearman {
            let groups = self.predicted_groups(one);
            let of = |predicted: &[Option<f64>], kept: &[usize]| {
                self.within_parts(predicted, parts, kept.iter().map(|place| groups[*place]))
            };
            let value = |kept: &[usize]| Some(of(one, kept)? - of(other, kept)?);
            return self.jackknifed(groups.len(), range, value);
        }
        let both = self.units(one).into_iter().zip(self.units(other));
        let units: Vec<f64> = both.filter_map(|(one, other)| Some(one? - other?)).collect();
        // Not a bounded interval for verdicts, which would treat values in [−1, 1] as extreme: most differences are
        // zero.
        let value = |kept: &[usize]| mean(kept.iter().map(|unit| units[*unit]));
        self.jackknifed(units.len(), range, value)
    }

    fn jackknifed(&self, groups: usize, range: Range, value: impl Fn(&[usize]) -> Option<f64>) -> Agreement {
        let all: Vec<usize> = (0..groups).collect();
        // Larger data would take minutes.
        let interval = if self.labels() <= POOLED_LIMIT {
            jackknife(groups, CONFIDENCE, range, &value)
        } else {
            Err(NoInterval::TooMany)
        };
        Agreement::new(value(&all), interval)
    }

    /// Each context's coefficient or share of correct decisions; `None` if undefined.
    fn units(&self, predicted: &[Option<f64>]) -> Vec<Option<f64>> {
        let mut of_groups: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); self.contexts];
        for (row, group) in self.groups.iter().enumerate() {
            if let Some(predicted) = predicted[row] {
                of_groups[*group].0.push(predicted);
                of_groups[*group].1.push(self.target[row]);
            }
        }
        let unit = |(predicted, gold): &(Vec<f64>, Vec<f64>)| {
            if self.measure == SubjectMeasure::Accuracy {
                return mean(predicted.iter().zip(gold).map(|(predicted, gold)| point(*predicted, *gold)));
            }
            per_context(Correlation::Spearman, [(predicted.as_slice(), gold.as_slice())]).mean
        };
        of_groups.iter().map(unit).collect()
    }

    fn predicted_groups(&self, predicted: &[Option<f64>]) -> Vec<usize> {
        let groups = self.groups.iter().zip(predicted).filter(|(_, predicted)| predicted.is_some());
        groups.map(|(group, _)| *group).collect::<BTreeSet<usize>>().into_iter().collect()
    }

    fn within_parts(
        &self,
        predicted: &[Option<f64>],
        parts: &[usize],
        groups: impl Iterator<Item = usize>,
    ) -> Option<f64> {
        let groups: BTreeSet<usize> = groups.collect();
        let mut of_parts: BTreeMap<usize, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for row in (0..self.labels()).filter(|row| groups.contains(&self.groups[*row])) {
            if let Some(predicted) = predicted[row] {
                let (predictions, labels) = of_parts.entry(parts[row]).or_default();
                predictions.push(predicted);
                labels.push(self.target[row]);
            }
        }
        let told = of_parts.values().filter_map(|(predictions, labels)| {
            Some((Correlation::Spearman.coefficient(predictions, labels)?, labels.len() as f64))
        });
        let (sum, rows) = told.fold((0.0, 0.0), |(sum, rows), (value, own)| (sum + value * own, rows + own));
        (rows > 0.0).then(|| sum / rows)
    }
}

/// Whether the log-odds agree with the human decision; 0.5 for a tie.
fn point(predicted: f64, gold: f64) -> f64 {
    match predicted.total_cmp(&0.0) {
        _ if predicted == 0.0 => 0.5,
        std::cmp::Ordering::Greater => f64::from(gold > 0.5),
        _ => f64::from(gold < 0.5),
    }
}

/// Refuses labels of which none can be held out.
fn refuse_few(
    what: &str,
    labels: usize,
    without_features: usize,
    items: impl Iterator<Item = usize>,
) -> Result<(), MethodError> {
    let contexts = items.collect::<BTreeSet<usize>>().len();
    let hint = "a head is tested on held-out labels: label candidates of ten contexts or more";
    if labels < 2 && without_features > 0 {
        let why = format!(
            "of {}, {without_features} belong to texts without all features, and the rest is too few to learn from",
            counted(labels + without_features, "label")
        );
        let hint = "empty texts have no features, and every --scores FILE needs a row for each text";
        return MethodError::refuse(what, why, hint);
    }
    match (labels, contexts) {
        (0, _) => MethodError::refuse(what, "no candidate has this label", hint),
        (1, _) => MethodError::refuse(what, "nothing can be learnt from a single label", hint),
        (_, 1) => MethodError::refuse(what, "all labels belong to one context, so none can be held out", hint),
        _ => Ok(()),
    }
}

/// An error if these labels cannot be learned whatever the features; reported before the model is queried.
pub(super) fn check_labels(attributes: &[String], samples: &[Sample]) -> Result<(), MethodError> {
    let featured = FeaturedCandidates::without_values(samples);
    match attributes {
        [] => Subject::preferences(samples, &featured).map(drop),
        all => all.iter().try_for_each(|name| Subject::scores(name, samples, &featured).map(drop)),
    }
}

/// Renumbers values from 0 in their order; also returns their number.
fn dense(items: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let items: Vec<usize> = items.collect();
    let numbers: Vec<usize> = items.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect();
    let place = |item: &usize| numbers.binary_search(item).expect("one of them");
    (items.iter().map(place).collect(), numbers.len())
}
