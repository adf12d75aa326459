//! Agreement of a metric's choices with human preferences.

use probity_data::Preference;
use probity_stats::{
    Association, ChoiceAccuracy, ChoicePoint, Interval, KappaWeights, Resampling, association, choice_point,
    cohen_kappa, order,
};
use serde::Serialize;

use super::align::AlignedScores;
use super::people::{GoldItem, GoldScores};
use crate::conclusion::{AgreementCase, Conclusion, agreement_with_preferences};

/// Agreement of a metric's best candidates with preferences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PreferenceFigures {
    pub(crate) metric: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    /// Share of items, without ties of people, in which the preferred candidate has the best score. A best score shared
    /// by k candidates counts 1/k.
    pub(crate) accuracy: Option<f64>,
    /// Accuracy of guessing on the same items.
    pub(crate) chance: Option<f64>,
    /// Interval over items; absent without items.
    pub(crate) interval: Option<Interval>,
    /// Cohen's κ between the choices by position, including ties.
    pub(crate) kappa: Option<f64>,
    /// Cramér's V between the choices.
    pub(crate) association: Option<Association>,
    /// Items with a preference and scores of all their candidates.
    pub(crate) items: usize,
    /// Items that people judged as ties; they are not part of the accuracy.
    pub(crate) gold_ties: usize,
    /// Items whose best score several candidates share.
    pub(crate) score_ties: usize,
    /// Items with a preference and an unscored candidate.
    pub(crate) without_scores: usize,
    /// Conclusion from the accuracy; `None` if undefined.
    #[serde(skip)]
    pub(crate) agreement: Option<Conclusion>,
}

impl PreferenceFigures {
    /// Items with a preferred candidate.
    pub(crate) fn preferred(&self) -> usize {
        self.items - self.gold_ties
    }
}

/// Position of the chosen candidate; `None` for a tie.
type CandidateChoice = Option<usize>;

/// Choices of people and metric for an item.
#[derive(Debug, Clone, Copy)]
struct ItemChoices {
    preferred: CandidateChoice,
    best: CandidateChoice,
    /// Agreement of the two; absent if people saw a tie.
    choice: Option<ChoicePoint>,
}

pub(crate) fn preference(
    aligned: &AlignedScores<'_>,
    gold: &GoldScores,
    resampling: &Resampling,
) -> Option<PreferenceFigures> {
    let with_preference =
        gold.items.iter().enumerate().filter(|(_, item)| item.preference.is_some() && item.candidates.len() > 1);
    let all: Vec<Option<ItemChoices>> =
        with_preference.map(|(place, item)| ItemChoices::new(aligned, place, item)).collect();
    let chosen: Vec<ItemChoices> = all.iter().flatten().copied().collect();
    let choices: Vec<ChoicePoint> = chosen.iter().filter_map(|one| one.choice).collect();
    let accuracy = ChoiceAccuracy::from_choices(&choices, resampling.confidence).ok();
    let (preferred, best): (Vec<CandidateChoice>, Vec<CandidateChoice>) =
        chosen.iter().map(|one| (one.preferred, one.best)).unzip();
    let unscored = (all.len() - chosen.len()) as f64 / all.len() as f64;
    (!all.is_empty()).then(|| PreferenceFigures {
        metric: aligned.metric.name.clone(),
        attribute: aligned.metric.attribute.clone(),
        accuracy: accuracy.map(|found| found.accuracy),
        chance: accuracy.map(|found| found.chance),
        interval: accuracy.map(|found| found.interval),
        kappa: cohen_kappa(&preferred, &best, KappaWeights::Plain),
        association: association(&preferred, &best),
        items: chosen.len(),
        gold_ties: preferred.iter().filter(|choice| choice.is_none()).count(),
        score_ties: best.iter().filter(|choice| choice.is_none()).count(),
        without_scores: all.len() - chosen.len(),
        agreement: agreement_with_preferences(
            &choices,
            AgreementCase {
                unscored: Some(unscored),
                answers: aligned.metric.answers,
                confidence: resampling.confidence,
            },
        ),
    })
}

impl ItemChoices {
    /// `None` if a candidate has no score.
    fn new(aligned: &AlignedScores<'_>, place: usize, item: &GoldItem) -> Option<Self> {
        let given: Vec<Option<f64>> =
            (0..item.candidates.len()).map(|candidate| aligned.score(place, candidate)).collect();
        let scores: Vec<f64> = given.iter().copied().collect::<Option<_>>()?;
        let preferred = match item.preference.as_ref()? {
            Preference::Tie => None,
            Preference::Candidate(id) => {
                Some(item.candidates.iter().position(|candidate| candidate.id.as_ref() == Some(id))?)
            }
        };
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at_best: Vec<usize> =
            // Values that differ by rounding alone are equal: 0.1 + 0.2 and 0.3 share a best score.
            (0..scores.len()).filter(|candidate| order(scores[*candidate], highest).is_eq()).collect();
        let best = if let [only] = at_best[..] { Some(only) } else { None };
        let choice = preferred.and_then(|own| choice_point(&given, own));
        Some(Self { preferred, best, choice })
    }
}
