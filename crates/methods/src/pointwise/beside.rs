//! What stands beside scores of texts: figures that need no model, and one score told under two names.

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::text::fixed;
use probity_stats::{Correlation, per_context};

use super::report::Scores;
use crate::gold;
use crate::{Conclusion, Trust};

/// Two lists that order the texts of a context so much alike are one.
const ALIKE: f64 = 0.95;

/// What knows nothing of a text's quality agrees with gold so well (Spearman, mean over contexts).
pub(super) struct Baseline {
    name: &'static str,
    spearman: f64,
}

/// The number of words, in the direction that agrees better, and a constant for each system: the mean of what people gave
/// its texts in the other samples. Of the candidates that have a score and gold.
pub(super) fn baselines(samples: &[Sample], attribute: &str, scores: &Scores) -> Vec<Baseline> {
    let by_text = |score: &dyn Fn(usize, usize) -> Option<f64>| {
        let of_sample = |(item, row): (usize, &Vec<Option<f64>>)| {
            (0..row.len()).map(|candidate| row[candidate].and_then(|_| score(item, candidate))).collect()
        };
        let scores: Vec<Vec<Option<f64>>> = scores.iter().enumerate().map(of_sample).collect();
        spearman(samples, attribute, &scores)
    };
    let words = |item: usize, candidate: usize| {
        Some(samples[item].candidates[candidate].text.split_whitespace().count() as f64)
    };
    let mut totals: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for candidate in samples.iter().flat_map(|sample| &sample.candidates) {
        if let Some(gold) = candidate.scores.get(attribute) {
            let (sum, count) = totals.entry(candidate.id.as_str()).or_default();
            (*sum, *count) = (*sum + gold, *count + 1);
        }
    }
    let of_system = |item: usize, candidate: usize| {
        let candidate = &samples[item].candidates[candidate];
        let (sum, count) = totals.get(candidate.id.as_str())?;
        let own = candidate.scores.get(attribute);
        let (sum, count) = (sum - own.unwrap_or(&0.0), count - usize::from(own.is_some()));
        (count > 0).then(|| sum / count as f64)
    };
    let length = by_text(&words).map(|rho| Baseline {
        name: if rho < 0.0 { "length (shorter is better)" } else { "length" },
        spearman: rho.abs(),
    });
    let system = by_text(&of_system).map(|spearman| Baseline { name: "a constant for each system", spearman });
    length.into_iter().chain(system).collect()
}

fn spearman(samples: &[Sample], attribute: &str, scores: &Scores) -> Option<f64> {
    let contexts = gold::contexts(samples, attribute, scores);
    let lists: Vec<(Vec<f64>, Vec<f64>)> =
        contexts.iter().map(|context| context.iter().map(|one| (one.predicted, one.gold)).unzip()).collect();
    per_context(Correlation::Spearman, lists.iter().map(|(a, b)| (a.as_slice(), b.as_slice()))).mean
}

/// Puts baselines beside what a conclusion says of agreement with gold; one that agrees as well makes it doubtful.
pub(super) fn tell_baselines(found: &mut Conclusion, baselines: &[Baseline]) {
    let Some(own) = found.figures["spearman"].as_f64().filter(|_| !baselines.is_empty()) else { return };
    let shown: Vec<String> =
        baselines.iter().map(|one| format!("{} has {}", one.name, fixed(one.spearman, 3))).collect();
    let said = found.agreement.as_mut().unwrap_or(&mut found.says);
    *said = format!("{said}; {}", shown.join(", "));
    for one in baselines {
        found.figures["baselines"][one.name] = one.spearman.into();
    }
    let best = baselines.iter().filter(|one| one.spearman >= own).max_by(|a, b| a.spearman.total_cmp(&b.spearman));
    if let Some(best) = best.filter(|_| found.trust != Trust::Unreliable) {
        let why = format!("{} agrees as well without reading a text", best.name);
        found.because = match found.trust {
            Trust::Reliable => why,
            _ => format!("{}; {why}", found.because),
        };
        found.trust = Trust::Caution;
    }
}

/// Says of each attribute's conclusion where its scores order texts as those of an earlier one do.
pub(super) fn tell_repeated(verdict: &mut [Conclusion], asked: &[(&str, Vec<Vec<Option<f64>>>)]) {
    for (place, (name, scores)) in asked.iter().enumerate() {
        let alike =
            asked[..place].iter().filter_map(|(other, before)| Some((other, rank_correlation(before, scores)?)));
        let Some((other, rho)) = alike.filter(|(_, rho)| *rho >= ALIKE).max_by(|a, b| a.1.total_cmp(&b.1)) else {
            continue;
        };
        for found in verdict.iter_mut().filter(|found| found.about.as_deref() == Some(name)) {
            let because = &found.because;
            found.because = format!(
                "{because}; but these scores order texts as those of {other} do (Spearman {}): one score under two names",
                fixed(rho, 3)
            );
            found.figures["same_as"] = (*other).into();
        }
    }
}

/// The mean over samples of Spearman between two lists of scores; over all where no sample has several candidates.
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
            because: "it was held against gold".to_owned(),
            figures: json!({ "spearman": 0.7 }),
        }
    }

    #[test]
    fn length_and_a_constant_for_each_system_are_told_beside_the_score() {
        let mut samples: Vec<Sample> = (0..6).map(|k| sample(&k.to_string(), &[1.0, 2.0, 3.0])).collect();
        for candidate in samples.iter_mut().flat_map(|sample| &mut sample.candidates) {
            // The better, the shorter.
            candidate.text = "word ".repeat(5 - candidate.scores["coherence"] as usize).into();
        }
        let scores = vec![vec![Some(0.0); 3]; 6];
        let found = baselines(&samples, "coherence", &scores);
        let shown: Vec<(&str, f64)> = found.iter().map(|one| (one.name, one.spearman)).collect();
        assert_eq!(shown, [("length (shorter is better)", 1.0), ("a constant for each system", 1.0)]);
        let mut told = conclusion("coherence", Trust::Reliable);
        tell_baselines(&mut told, &found);
        assert_eq!(
            (told.trust, told.figures["baselines"]["a constant for each system"].as_f64()),
            (Trust::Caution, Some(1.0))
        );
        assert!(told.says.contains("length (shorter is better) has 1.000"), "{}", told.says);
        assert!(told.because.ends_with("agrees as well without reading a text"), "{}", told.because);
    }

    #[test]
    fn one_score_under_two_names_is_told_of_the_second() {
        let first: Vec<Vec<Option<f64>>> =
            (0..4).map(|k| vec![Some(-2.0), Some(-1.0 - f64::from(k)), Some(-5.0)]).collect();
        let moved =
            first.iter().map(|row| row.iter().map(|score| score.map(|score| score + 0.007)).collect()).collect();
        let turned = first.iter().map(|row| row.iter().map(|score| score.map(|score| -score)).collect()).collect();
        let mut verdict = ["coherence", "fluency", "brevity"].map(|about| conclusion(about, Trust::Reliable));
        tell_repeated(&mut verdict, &[("coherence", first), ("fluency", moved), ("brevity", turned)]);
        let said = |place: usize| verdict[place].because.contains("one score under two names");
        assert_eq!([said(0), said(1), said(2)], [false, true, false]);
        assert_eq!(verdict[1].figures["same_as"], "coherence");
    }
}
