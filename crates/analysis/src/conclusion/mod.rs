//! The conclusion of a run: its main result, how far to trust it, and why.

use std::fmt;

use probity_data::Sample;
use probity_lm::text::{counted, fixed, thousands};
use probity_metrics::Direction;
use probity_options::name;
use probity_stats::{AgreementFigures, CONFIDENCE, ChoicePoint, Interval, SystemScore, order};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smart_default::SmartDefault;

pub use best::best_agreement;
pub use doubts::AnswerDoubts;
pub use winner::is_position;

use crate::figures::mean;
use agreement::{AccuracyWording, accuracy};

/// Main result for one attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// Attribute or other subject; absent if there is only one.
    pub about: Option<String>,
    /// Result in one sentence: the winner if systems are compared, else what was found.
    pub says: String,
    /// How the scores agree with labels, if `says` names a winner. Absent without labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// How far to trust it.
    pub trust: Trust,
    /// Reason for the level of trust.
    pub because: String,
    /// Figures on which the sentence is based.
    pub figures: Value,
}

/// How far to trust a conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Compared with gold scores or preferences; the interval excludes chance and weak agreement.
    Reliable,
    /// It may hold; see the reason.
    Caution,
    /// It says nothing about the texts.
    Unreliable,
}

impl Conclusion {
    /// The conclusion if no score can be compared with gold.
    pub fn without_agreement() -> Self {
        Self {
            about: None,
            says: "No verdict: no agreement with people is defined".to_owned(),
            agreement: None,
            trust: Trust::Unreliable,
            because: "there are no figures; see the tables".to_owned(),
            figures: json!({}),
        }
    }

    fn winner_text(&self) -> Option<&str> {
        self.agreement.as_ref().map(|_| self.says.as_str())
    }

    fn agreement_text(&self) -> &str {
        self.agreement.as_ref().unwrap_or(&self.says)
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(self))
    }
}

/// Context in which scores are compared with gold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgreementCase {
    /// Share of the gold items without a score, if known.
    pub(crate) unscored: Option<f64>,
    /// Other signs of unreliable scores.
    pub(crate) answers: AnswerDoubts,
    /// Confidence level of the intervals.
    pub(crate) confidence: f64,
}

/// Inputs of a conclusion.
#[derive(SmartDefault)]
pub struct ConclusionCase<'a> {
    /// Attribute or other subject; absent if there is only one.
    pub about: Option<String>,
    /// Judged samples.
    pub samples: &'a [Sample],
    /// Scores by sample and candidate. Higher is better, whatever the original direction.
    pub scores: &'a [Vec<Option<f64>>],
    /// Noun for what gave the scores, such as `judge`.
    #[default("judge")]
    pub judge: &'static str,
    /// Original direction of the scores, in which means are reported.
    pub direction: Direction,
    /// Agreement with gold scores.
    pub gold: Option<&'a AgreementFigures>,
    /// Attribute of these gold scores.
    pub attribute: Option<&'a str>,
    /// Candidates with gold by context, if they are not in `samples`.
    pub contexts: Option<&'a [Vec<SystemScore<'a>>]>,
    /// Agreement before debiasing, if `gold` is for debiased scores.
    pub as_judged: Option<&'a AgreementFigures>,
    /// Whether the scores are debiased.
    pub debiased: bool,
    /// Whether to use preferences in the samples.
    pub preferences: bool,
    /// Other signs of unreliable scores.
    pub answers: AnswerDoubts,
    /// Share of the gold items without a score; if unknown, the share of the candidates.
    pub unscored: Option<f64>,
    /// Confidence level of the intervals.
    #[default(CONFIDENCE)]
    pub confidence: f64,
}

/// Conclusion from agreement with gold scores; `None` if no correlation is defined.
pub(crate) fn agreement_with_gold(
    figures: &AgreementFigures,
    contexts: &[Vec<SystemScore<'_>>],
    case: AgreementCase,
) -> Option<Conclusion> {
    ConclusionCase { gold: Some(figures), contexts: Some(contexts), ..ConclusionCase::from(case) }.labelled()
}

impl From<AgreementCase> for ConclusionCase<'_> {
    fn from(case: AgreementCase) -> Self {
        let AgreementCase { unscored, answers, confidence } = case;
        Self { answers, unscored, confidence, ..Self::default() }
    }
}

/// Conclusion from agreement with preferences, one choice per sample.
pub(crate) fn agreement_with_preferences(choices: &[ChoicePoint], case: AgreementCase) -> Option<Conclusion> {
    Some(ConclusionCase::from(case).concluded(accuracy(choices, case.confidence, &AccuracyWording::default())?))
}

/// A sentence, its figures, and the doubt about it.
struct Finding {
    says: String,
    figures: Value,
    doubt: Doubt,
}

impl Finding {
    fn new(says: impl Into<String>, figures: Value, doubt: Doubt) -> Self {
        Self { says: says.into(), figures, doubt }
    }

    /// Merges agreement with gold scores and agreement with preferences. Preferences that contradict the scores make
    /// them unreliable; too few preferences change nothing.
    fn and(self, preferred: Self) -> Self {
        let is_against = preferred.figures["interval"]["high"].as_f64() < preferred.figures["chance"].as_f64();
        let doubt = match (self.doubt, preferred.doubt) {
            (_, Doubt::Unreliable(why)) if is_against => Doubt::Unreliable(why),
            (own, Doubt::Mute(_))
            | (own @ Doubt::Unreliable(_), Doubt::Unreliable(_))
            | (own @ (Doubt::None | Doubt::Caution(_) | Doubt::Mute(_)), Doubt::None) => own,
            (Doubt::Unreliable(gold), _) => {
                Doubt::Caution(format!("by gold scores {gold}; by preferences it is better than chance"))
            }
            (Doubt::Caution(gold) | Doubt::Mute(gold), Doubt::Caution(why) | Doubt::Unreliable(why)) => {
                Doubt::Caution(format!("{gold}; by preferences {why}"))
            }
            (Doubt::None, Doubt::Caution(why) | Doubt::Unreliable(why)) => {
                Doubt::Caution(format!("by preferences {why}"))
            }
        };
        let mut figures = self.figures;
        figures["preferences"] = preferred.figures;
        Self { says: format!("{}. {}", self.says, preferred.says), figures, doubt }
    }
}

enum Doubt {
    /// Compared with gold scores or preferences; the interval excludes chance.
    None,
    Caution(String),
    /// The labels are inconclusive, so the scores count as without labels.
    Mute(String),
    Unreliable(String),
}

/// Doubt about scores without labels.
const NO_GOLD: &str = "not compared with gold";

impl ConclusionCase<'_> {
    /// The main result: the winner, and how the scores agree with labels.
    pub fn conclusion(&self) -> Conclusion {
        let winner = || self.winner(!self.answers.outweigh_scores());
        self.labelled().unwrap_or_else(|| self.concluded(winner().unwrap_or_else(|| self.nothing_compared())))
    }

    /// The same, or `None` without labels.
    pub fn labelled(&self) -> Option<Conclusion> {
        let said = self.agreement()?;
        let is_mute = matches!(said.doubt, Doubt::Mute(_));
        let mut found = self.concluded(said);
        let Some(winner) = self.winner(found.trust != Trust::Unreliable) else { return Some(found) };
        match &winner.doubt {
            Doubt::Caution(why) if is_mute && !why.ends_with(NO_GOLD) => {
                found.because = format!("{}; {why}", found.because);
            }
            _ => {}
        }
        if let (Some(all), Value::Object(more)) = (found.figures.as_object_mut(), &winner.figures) {
            all.extend(more.clone());
        }
        found.agreement = Some(std::mem::replace(&mut found.says, winner.says));
        Some(found)
    }

    /// Agreement of the scores with gold scores and preferences.
    fn agreement(&self) -> Option<Finding> {
        let labels = self.labels();
        let is_scored = self.scores.iter().flatten().any(Option::is_some);
        let found = match (self.correlation(), self.preference(labels)) {
            (Some(gold), Some(preferred)) if labels.has_more_than_gold() => gold.and(preferred),
            // Gold scores take precedence: they carry more information.
            (gold, preferred) => gold.or(preferred).or_else(|| labels.none_tells(self.judge).filter(|_| is_scored))?,
        };
        Some(labels.noted(found))
    }

    fn concluded(&self, said: Finding) -> Conclusion {
        let (trust, because) = self.trust(&said);
        let Finding { says, mut figures, .. } = said;
        if self.answers != AnswerDoubts::default() {
            figures[AnswerDoubts::FIELD] = json!(self.answers);
        }
        Conclusion { about: self.about.clone(), says, agreement: None, trust, because, figures }
    }

    /// The share of candidates without a score.
    fn without_score(&self) -> Option<f64> {
        mean(self.scores.iter().flatten().map(|score| f64::from(u8::from(score.is_none()))))
    }

    /// Whether all samples with several scored candidates have equal scores. False if there is no such sample.
    fn is_level(&self) -> bool {
        let several: Vec<Vec<f64>> =
            self.scores.iter().map(|scores| scores.iter().flatten().copied().collect()).collect();
        let mut several = several.iter().filter(|scores| scores.len() > 1).peekable();
        let level = |scores: &Vec<f64>| scores.iter().all(|other| order(scores[0], *other).is_eq());
        several.peek().is_some() && several.all(level)
    }

    /// The finding if no sample has two scored candidates.
    fn nothing_compared(&self) -> Finding {
        let scored: usize = self.scores.iter().flatten().flatten().count();
        let all: usize = self.samples.iter().map(|sample| sample.candidates.len()).sum();
        let figures = json!({ "scored": scored, "candidates": all });
        if scored == 0 {
            let says = format!("No verdict: none of {} has a score", counted(all, "candidate"));
            let doubt = Doubt::Unreliable("there are no scores; see the outcomes".to_owned());
            return Finding::new(says, figures, doubt);
        }
        let [all, samples] = [counted(all, "candidate"), counted(self.samples.len(), "sample")];
        let says = format!("{} of {all} scored, in {samples}; no sample has two to compare", thousands(scored));
        Finding::new(says, figures, Doubt::Caution(format!("the scores were {NO_GOLD}")))
    }
}

/// 1 if the first is greater, 0.5 if they differ by rounding alone, else 0.
fn point(first: f64, second: f64) -> f64 {
    match order(first, second) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    }
}

/// `33.3%`.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// `50%`, `33.3%`.
fn short_percent(share: f64) -> String {
    let number = format!("{:.1}", 100.0 * share);
    format!("{}%", number.strip_suffix(".0").unwrap_or(&number))
}

fn percents(interval: Option<Interval>, confidence: f64) -> String {
    let of = level(confidence);
    interval.map(|i| format!(" [{:.1}, {:.1}{of}]", 100.0 * i.low, 100.0 * i.high)).unwrap_or_default()
}

fn bracket(interval: Option<Interval>, confidence: f64) -> String {
    let of = level(confidence);
    interval.map(|i| format!(" [{}, {}{of}]", fixed(i.low, 3), fixed(i.high, 3))).unwrap_or_default()
}

/// Suffix for a confidence level other than the default.
fn level(confidence: f64) -> String {
    if confidence == CONFIDENCE { String::new() } else { format!("; at {}", short_percent(confidence)) }
}

mod agreement;
mod best;
mod carried;
mod doubts;
mod labels;
mod winner;

#[cfg(test)]
mod label_tests;
#[cfg(test)]
mod tests;
