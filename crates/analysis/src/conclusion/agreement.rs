//! Agreement of scores with labels: gold scores first, then preferences.

use probity_data::{Preference, Sample};
use probity_lm::text::{counted, fixed};
use probity_stats::{ChoiceAccuracy, ChoicePoint, FigureEstimate, Interval, NoInterval};
use serde_json::json;
use smart_default::SmartDefault;

use super::carried::Carried;
use super::labels::HumanLabels;
use super::{ConclusionCase, Doubt, Finding, bracket, percent, percents, short_percent};
use crate::gold;
use crate::thresholds::{FEW_UNITS, WEAK_ABOVE_CHANCE, WEAK_CORRELATION};

impl ConclusionCase<'_> {
    pub(super) fn correlation(&self) -> Option<Finding> {
        let figures = self.gold?;
        let found = figures.spearman.per_context;
        // If the scores are constant in every usable context, the mean is 0 by definition and has no interval.
        let constant = found.figure.contexts > 0 && found.figure.constant_predictions == found.figure.contexts;
        if constant || self.is_level() {
            let says = "No agreement with gold: the candidates of each sample have equal scores";
            let doubt = Doubt::Unreliable("equal scores carry no information about the texts".to_owned());
            return Some(Finding::new(says, json!({ "spearman": null, "interval": null }), doubt));
        }
        // Samples of one candidate have no order within them, so use the pooled correlation.
        let pooled = figures.spearman.pooled;
        let (name, estimate) = match found.figure.mean {
            Some(mean) => ("contexts", found.with_figure((mean, found.figure.contexts))),
            None => ("scores", pooled.with_figure((pooled.figure.coefficient?, pooled.figure.n))),
        };
        let FigureEstimate { figure: (value, n), interval, no_interval, p } = estimate;
        let over = match (name, n) {
            ("contexts", 1) => "in the one context".to_owned(),
            ("contexts", _) => format!("mean over {}", counted(n, "context")),
            _ => format!("over all {}", counted(n, "score")),
        };
        let doubt = match interval {
            // Chance is tested before the number of contexts: an interval that contains 0 is conclusive at any number.
            Some(Interval { low, high }) if low <= 0.0 && high >= 0.0 => {
                Doubt::Unreliable("the interval includes 0 (chance)".to_owned())
            }
            Some(Interval { high, .. }) if high < 0.0 => {
                Doubt::Unreliable("it ranks texts opposite to gold".to_owned())
            }
            None if n < 2 => Doubt::Caution(format!("there are too few {name} for an interval")),
            None => Doubt::Caution(match no_interval {
                Some(why) if why != NoInterval::AllAlike => format!("there is no interval: {why}"),
                _ => format!("there is no interval: all {name} are alike"),
            }),
            Some(_) if n < FEW_UNITS => {
                Doubt::Caution(format!("compared with gold on only {}", counted(n, name.trim_end_matches('s'))))
            }
            Some(_) if value < WEAK_CORRELATION => Doubt::Caution("the agreement with gold is weak".to_owned()),
            Some(Interval { low, .. }) if low < WEAK_CORRELATION => {
                Doubt::Caution(may_be_weak(&fixed(low, 3), &fixed(WEAK_CORRELATION, 1)))
            }
            Some(_) => Doubt::None,
        };
        let carried = if name == "contexts" { self.carried(value, interval) } else { None };
        let doubt = match (doubt, &carried) {
            (Doubt::None, Some(Carried { why, .. })) => Doubt::Caution(why.clone()),
            (Doubt::Caution(other), Some(Carried { why, .. })) => Doubt::Caution(format!("{other}; {why}")),
            (doubt, _) => doubt,
        };
        let agrees = match doubt {
            Doubt::Unreliable(_) if interval.is_some_and(|interval| interval.high < 0.0) => "Disagrees with gold",
            Doubt::Unreliable(_) => "No agreement with gold beyond chance",
            _ if interval.is_none() => "Not enough data to tell whether it agrees with gold",
            _ => "Agrees with gold",
        };
        let pairs = figures.pairwise;
        let count = pairs.correct + pairs.wrong + pairs.tied;
        let right = pairs.accuracy;
        let right = right.map(|share| format!("; right on {} of {}", percent(share), counted(count, "pair")));
        let right = right.unwrap_or_default();
        let as_judged = self.as_judged.and_then(|figures| match name {
            "contexts" => figures.spearman.per_context.figure.mean,
            _ => figures.spearman.pooled.figure.coefficient,
        });
        let debiased = as_judged.map(|value| format!(", debiased; as judged {}", fixed(value, 3))).unwrap_or_default();
        let (spearman, interval_text) = (fixed(value, 3), bracket(interval, self.confidence));
        let says = format!("{agrees}: Spearman {spearman}{interval_text} ({over}{debiased}){right}");
        let mut figures = json!({
            "spearman": value, "interval": interval, "p": p, "over": name, "n": n, "pairwise_accuracy": pairs.accuracy, "pairs": count,
        });
        if let Some(as_judged) = as_judged {
            figures["spearman_as_judged"] = json!(as_judged);
        }
        if let Some(Carried { without, .. }) = carried {
            figures["without_systems"] = json!(without);
        }
        Some(Finding::new(says, figures, doubt))
    }

    /// Agreement over samples whose preferred candidate and its best rival have scores.
    pub(super) fn preference(&self, labels: HumanLabels) -> Option<Finding> {
        if !self.preferences {
            return None;
        }
        let of_sample = |(sample, scores): (&Sample, &Vec<Option<f64>>)| gold::choice(sample, scores);
        let choices: Vec<ChoicePoint> = self.samples.iter().zip(self.scores).filter_map(of_sample).collect();
        let is_tie = |(sample, scores): &(&Sample, &Vec<Option<f64>>)| {
            sample.preference == Some(Preference::Tie) && scores.iter().flatten().count() > 1
        };
        let ties = self.samples.iter().zip(self.scores).filter(is_tie).count();
        let noun = if self.gold.is_some() { "preference" } else { "label" };
        let of_scored = if labels.unscored == 0 { "" } else { " with scores" };
        accuracy(&choices, self.confidence, &AccuracyWording { judge: self.judge, noun, of_scored, ties })
    }
}

/// Wording of agreement with preferences.
#[derive(SmartDefault)]
pub(super) struct AccuracyWording<'w> {
    #[default("metric")]
    judge: &'w str,
    #[default("label")]
    noun: &'w str,
    /// Restricts the labels in the sentence, e.g. to those with scores.
    of_scored: &'w str,
    /// Labels that prefer no candidate. They are omitted from the accuracy, and counted.
    ties: usize,
}

/// Agreement with preferences.
pub(super) fn accuracy(choices: &[ChoicePoint], confidence: f64, words: &AccuracyWording<'_>) -> Option<Finding> {
    let AccuracyWording { judge, noun, of_scored, ties } = *words;
    let ChoiceAccuracy { accuracy, chance, interval, p, samples } =
        ChoiceAccuracy::from_choices(choices, confidence).ok()?;
    let Interval { low, high } = interval;
    let weak = chance + WEAK_ABOVE_CHANCE * (1.0 - chance);
    // With so few labels, even an accuracy of 1 could be chance.
    let all_right: Vec<ChoicePoint> = choices.iter().map(|choice| ChoicePoint { point: 1.0, ..*choice }).collect();
    let best = ChoiceAccuracy::from_choices(&all_right, confidence).ok()?;
    let doubt = if best.interval.low <= chance && high >= chance {
        let few = match samples {
            1 => "1 label is too few".to_owned(),
            _ => format!("{samples} labels are too few"),
        };
        Doubt::Mute(format!("{few} to tell whether the {judge} is right"))
    } else if low <= chance && chance <= high {
        // As above, chance is tested before the number of samples.
        let why = format!("no better than chance: the interval includes {}", short_percent(chance));
        Doubt::Unreliable(why)
    } else if high < chance {
        Doubt::Unreliable("it disagrees with the preferences".to_owned())
    } else if samples < FEW_UNITS {
        Doubt::Caution(format!("compared with preferences on only {}", counted(samples, "sample")))
    } else if accuracy < weak {
        Doubt::Caution("the agreement with gold is weak".to_owned())
    } else if low < weak {
        Doubt::Caution(may_be_weak(&short_percent(low), &short_percent(weak)))
    } else {
        Doubt::None
    };
    let count = |is: fn(&ChoicePoint) -> bool| choices.iter().filter(|choice| is(choice)).count();
    let (right, level) = (count(|choice| choice.point == 1.0), count(|choice| choice.is_shared()));
    let level = if level == 0 { String::new() } else { format!(" and ties on {level}") };
    let left_out = match ties {
        0 => String::new(),
        _ => format!(" ({} left out)", counted(ties, "tie")),
    };
    let says = format!(
        "The {judge} is right on {right} of your {}{of_scored}{left_out}{level}: {}{}; chance is {}",
        counted(samples, noun),
        percent(accuracy),
        percents(Some(interval), confidence),
        short_percent(chance)
    );
    let figures = json!({ "accuracy": accuracy, "interval": interval, "p": p, "samples": samples, "ties_left_out": ties, "chance": chance });
    Some(Finding::new(says, figures, doubt))
}

/// Why strong agreement is uncertain. `low` is the lower end of the interval, `weak` the limit.
fn may_be_weak(low: &str, weak: &str) -> String {
    format!("the agreement may be weak: the interval starts at {low}, and below {weak} is weak")
}
