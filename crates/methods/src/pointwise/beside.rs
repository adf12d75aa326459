//! Context for scores: baselines without a model, and scores that rank alike under two attributes.

use std::collections::BTreeMap;

use probity_analysis::AttributeScores;
use probity_data::{Candidate, Preference, Sample};
use probity_lm::text::fixed;
use probity_stats::{Correlation, per_context};

use crate::candidate_report::Scores;
use crate::conclusion::{is_position, percent};
use crate::figures::mean;
use crate::gold;
use crate::{Conclusion, Trust};

/// Two lists of scores with at least this rank correlation count as the same.
const ALIKE: f64 = 0.95;

/// A baseline that ignores quality, with its agreement with people.
pub(super) struct BaselineAgreement {
    name: &'static str,
    agreement: f64,
}

/// The human labels for comparison.
#[derive(Clone, Copy)]
enum AgreementLabels<'a> {
    /// Gold scores of an attribute: mean Spearman over contexts.
    Gold(&'a str),
    /// Preferences: the share of agreement.
    Preferences,
}

impl<'a> AgreementLabels<'a> {
    fn from_conclusion(found: &Conclusion, attribute: &'a str) -> Option<(Self, f64)> {
        let figure = |labels: Self| Some((labels, found.figures[labels.figure()].as_f64()?));
        figure(AgreementLabels::Gold(attribute)).or_else(|| figure(AgreementLabels::Preferences))
    }

    fn figure(self) -> &'static str {
        match self {
            Self::Gold(_) => "spearman",
            Self::Preferences => "accuracy",
        }
    }

    fn format_agreement(self, agreement: f64) -> String {
        match self {
            Self::Gold(_) => fixed(agreement, 3),
            Self::Preferences => percent(agreement),
        }
    }

    /// The human value of a candidate: its gold score, or 1 if it is the preferred one and else 0.
    fn worth(self, sample: &Sample, candidate: &Candidate) -> Option<f64> {
        match (self, &sample.preference) {
            (Self::Gold(attribute), _) => candidate.scores.get(attribute).copied(),
            (Self::Preferences, Some(Preference::Candidate(id))) => Some(f64::from(u8::from(candidate.id == *id))),
            (Self::Preferences, _) => None,
        }
    }

    fn agreement(self, samples: &[Sample], scores: &Scores) -> Option<f64> {
        match self {
            Self::Gold(attribute) => gold::spearman(samples, attribute, scores),
            Self::Preferences => {
                let choices = samples.iter().zip(scores).filter_map(|(sample, row)| gold::choice(sample, row));
                mean(choices.map(|choice| choice.point))
            }
        }
    }
}

/// Two baselines over the scored candidates: the number of words, in the direction that agrees better, and one constant
/// per system. The constant is the mean human value of the system's texts in other samples; it is omitted if ids are
/// positions.
fn baselines(samples: &[Sample], labels: AgreementLabels<'_>, scores: &Scores) -> Vec<BaselineAgreement> {
    let by_text = |score: &dyn Fn(&Sample, &Candidate) -> Option<f64>| {
        let of_sample = |(sample, row): (&Sample, &Vec<Option<f64>>)| -> Vec<Option<f64>> {
            row.iter()
                .zip(&sample.candidates)
                .map(|(own, candidate)| own.and_then(|_| score(sample, candidate)))
                .collect()
        };
        let scores: Vec<Vec<Option<f64>>> = samples.iter().zip(scores).map(of_sample).collect();
        labels.agreement(samples, &scores)
    };
    let words = |candidate: &Candidate| candidate.text.split_whitespace().count() as f64;
    let mut totals: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for sample in samples {
        for candidate in &sample.candidates {
            if let Some(worth) = labels.worth(sample, candidate) {
                let (sum, count) = totals.entry(candidate.id.as_str()).or_default();
                (*sum, *count) = (*sum + worth, *count + 1);
            }
        }
    }
    let names_systems = !totals.keys().all(|id| is_position(id));
    let of_system = |sample: &Sample, candidate: &Candidate| {
        let (sum, count) = totals.get(candidate.id.as_str())?;
        let own = labels.worth(sample, candidate);
        let (sum, count) = (sum - own.unwrap_or(0.0), count - usize::from(own.is_some()));
        (count > 0).then(|| sum / count as f64)
    };
    let of =
        |name: &'static str, agreement: Option<f64>| agreement.map(|agreement| BaselineAgreement { name, agreement });
    let longer = of("length", by_text(&|_, candidate| Some(words(candidate))));
    let shorter = of("length (shorter is better)", by_text(&|_, candidate| Some(-words(candidate))));
    let length = longer.into_iter().chain(shorter).max_by(|a, b| a.agreement.total_cmp(&b.agreement));
    let constant = names_systems.then(|| of("constant per system", by_text(&of_system))).flatten();
    length.into_iter().chain(constant).collect()
}

/// Adds baselines to a conclusion about agreement with people. A baseline that agrees at least as well lowers its
/// trust.
pub(super) fn report_baselines(found: &mut Conclusion, samples: &[Sample], attribute: &str, scores: &Scores) {
    let Some((labels, own)) = AgreementLabels::from_conclusion(found, attribute) else { return };
    let baselines = baselines(samples, labels, scores);
    if baselines.is_empty() {
        return;
    }
    let shown: Vec<String> =
        baselines.iter().map(|one| format!("{} {}", one.name, labels.format_agreement(one.agreement))).collect();
    let said = found.agreement.as_mut().unwrap_or(&mut found.says);
    *said = format!("{said}; baselines: {}", shown.join(", "));
    for one in &baselines {
        found.figures["baselines"][one.name] = one.agreement.into();
    }
    let best = baselines.iter().filter(|one| one.agreement >= own).max_by(|a, b| a.agreement.total_cmp(&b.agreement));
    if let Some(best) = best.filter(|_| found.trust != Trust::Unreliable) {
        let why = format!("the baseline {} agrees at least as well", best.name);
        found.because = match found.trust {
            Trust::Reliable => why,
            _ => format!("{}; {why}", found.because),
        };
        found.trust = Trust::Caution;
    }
}

/// Notes in an attribute's conclusion if its scores rank texts like those of an earlier attribute.
pub(super) fn report_repeated(verdict: &mut [Conclusion], asked: &[AttributeScores]) {
    for (place, one) in asked.iter().enumerate() {
        let alike = asked[..place]
            .iter()
            .filter_map(|before| Some((before.attribute.as_deref()?, rank_correlation(&before.scores, &one.scores)?)));
        let Some((other, rho)) = alike.filter(|(_, rho)| *rho >= ALIKE).max_by(|a, b| a.1.total_cmp(&b.1)) else {
            continue;
        };
        for found in verdict.iter_mut().filter(|found| found.about == one.attribute) {
            let because = &found.because;
            found.because = format!(
                "{because}; but these scores rank texts like those of {other} (Spearman {}), as if both were one \
                 attribute",
                fixed(rho, 3)
            );
            found.figures["same_as"] = other.into();
        }
    }
}

/// The mean over samples of Spearman between two lists of scores, or pooled if no sample has several candidates.
fn rank_correlation(first: &Scores, second: &Scores) -> Option<f64> {
    let both = |(a, b): (&Vec<Option<f64>>, &Vec<Option<f64>>)| -> (Vec<f64>, Vec<f64>) {
        a.iter().zip(b).filter_map(|(a, b)| a.zip(*b)).unzip()
    };
    let lists: Vec<(Vec<f64>, Vec<f64>)> = first.iter().zip(second).map(both).collect();
    let mean = per_context(Correlation::Spearman, lists.iter().map(|(a, b)| (a.as_slice(), b.as_slice()))).mean;
    mean.or_else(|| {
        let (first, second): (Vec<_>, Vec<_>) = lists.iter().cloned().unzip();
        probity_stats::spearman(&first.concat(), &second.concat())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::sample;

    fn conclusion(about: &str, trust: Trust) -> Conclusion {
        Conclusion {
            about: Some(about.to_owned()),
            says: "Agrees with gold".to_owned(),
            agreement: None,
            trust,
            because: "it was compared with gold".to_owned(),
            figures: json!({ "spearman": 0.7 }),
        }
    }

    fn of_systems(id: &str, gold: &[f64]) -> Sample {
        let mut sample = sample(id, gold);
        for candidate in &mut sample.candidates {
            candidate.id = format!("system {}", candidate.id);
        }
        sample
    }

    #[test]
    fn length_and_a_constant_for_each_system_are_told_beside_the_score() {
        let mut samples: Vec<Sample> = (0..6).map(|k| of_systems(&k.to_string(), &[1.0, 2.0, 3.0])).collect();
        for candidate in samples.iter_mut().flat_map(|sample| &mut sample.candidates) {
            // Shorter texts are better.
            candidate.text = "word ".repeat(5 - candidate.scores["coherence"] as usize).into();
        }
        let scores = vec![vec![Some(0.0); 3]; 6];
        let found = baselines(&samples, AgreementLabels::Gold("coherence"), &scores);
        let shown: Vec<(&str, f64)> = found.iter().map(|one| (one.name, one.agreement)).collect();
        assert_eq!(shown, [("length (shorter is better)", 1.0), ("constant per system", 1.0)]);
        let mut told = conclusion("coherence", Trust::Reliable);
        report_baselines(&mut told, &samples, "coherence", &scores);
        assert_eq!(
            (told.trust, told.figures["baselines"]["constant per system"].as_f64()),
            (Trust::Caution, Some(1.0))
        );
        assert!(told.says.contains("length (shorter is better) 1.000"), "{}", told.says);
        assert!(told.because.ends_with("agrees at least as well"), "{}", told.because);
    }

    #[test]
    fn preferences_have_the_same_baselines() {
        let mut samples: Vec<Sample> = (0..10).map(|k| of_systems(&k.to_string(), &[1.0, 2.0])).collect();
        for (k, sample) in samples.iter_mut().enumerate() {
            // The second system is preferred in nine samples and has the longer text in eight.
            sample.preference = Some(Preference::Candidate(if k == 0 { "system 0" } else { "system 1" }.to_owned()));
            let longer = usize::from(k > 1);
            for (place, candidate) in sample.candidates.iter_mut().enumerate() {
                candidate.scores.clear();
                candidate.text = "word ".repeat(2 + usize::from(place == longer)).into();
            }
        }
        let scores = vec![vec![Some(0.0), Some(1.0)]; 10];
        let mut told = conclusion("coherence", Trust::Reliable);
        told.figures = json!({ "accuracy": 0.9 });
        report_baselines(&mut told, &samples, "coherence", &scores);
        let figures = &told.figures["baselines"];
        assert_eq!((figures["length"].as_f64(), figures["constant per system"].as_f64()), (Some(0.9), Some(0.9)));
        assert_eq!(told.trust, Trust::Caution);
        assert!(told.says.ends_with("; baselines: length 90.0%, constant per system 90.0%"), "{}", told.says);
        // An id that is a position names no system.
        for candidate in samples.iter_mut().flat_map(|sample| &mut sample.candidates) {
            candidate.id = candidate.id.replace("system ", "answer_");
        }
        assert_eq!(baselines(&samples, AgreementLabels::Gold("coherence"), &scores).len(), 0);
        let preferences =
            samples.iter_mut().map(|sample| sample.preference = Some(Preference::Candidate("answer_1".to_owned())));
        assert_eq!(preferences.count(), 10);
        let shown = baselines(&samples, AgreementLabels::Preferences, &scores);
        assert_eq!(shown.iter().map(|one| one.name).collect::<Vec<_>>(), ["length"]);
    }

    #[test]
    fn one_score_under_two_names_is_told_of_the_second() {
        let first: Vec<Vec<Option<f64>>> =
            (0..4).map(|k| vec![Some(-2.0), Some(-1.0 - f64::from(k)), Some(-5.0)]).collect();
        let moved =
            first.iter().map(|row| row.iter().map(|score| score.map(|score| score + 0.007)).collect()).collect();
        let turned = first.iter().map(|row| row.iter().map(|score| score.map(|score| -score)).collect()).collect();
        let mut verdict = ["coherence", "fluency", "brevity"].map(|about| conclusion(about, Trust::Reliable));
        let named = [("coherence", first), ("fluency", moved), ("brevity", turned)];
        let asked = named.map(|(name, scores)| AttributeScores { attribute: Some(name.to_owned()), scores });
        report_repeated(&mut verdict, &asked);
        let said = |place: usize| verdict[place].because.contains("as if both were one attribute");
        assert_eq!([said(0), said(1), said(2)], [false, true, false]);
        assert_eq!(verdict[1].figures["same_as"], "coherence");
    }
}
