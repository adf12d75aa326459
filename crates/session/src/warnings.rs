//! Warnings about the input of a stage, before any query.

use probity_data::{Field, MapEntry, Sample};
use probity_methods::near_known_attribute;
use probity_report::text::{counted, thousands};
use serde_json::Value;

use crate::stage::PlannedRun;
use crate::{Events, Notice};

/// Maximum number of items named in a warning.
const NAMED: usize = 5;

/// Warns of input that is valid but probably unintended, and would not be visible in the results.
pub(crate) fn warn_of_input(stage: &PlannedRun, samples: &[Sample], events: &dyn Events) {
    let attributes =
        if stage.needs.model { misspelt(&stage.configured.options_in_force(), samples) } else { Vec::new() };
    for warning in attributes.into_iter().chain(fewer_candidates(stage, samples)).chain(without_text(samples)) {
        events.notice(Notice::Warning(&warning));
    }
}

/// Attributes spelt almost like a known one. Attributes with gold scores in the data are considered intended.
fn misspelt(options: &Value, samples: &[Sample]) -> Vec<String> {
    let asked = options["attribute"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // The part after `=` names the gold score to compare with.
    let asked = asked.map(|asked| asked.split_once('=').map_or(asked, |(word, _)| word));
    let mut candidates = samples.iter().flat_map(|sample| &sample.candidates);
    let unknown = asked.filter(|asked| !candidates.any(|candidate| candidate.scores.contains_key(*asked)));
    let warning = |asked: &str| {
        let known = near_known_attribute(asked)?;
        Some(format!("attribute `{}` is used as written; did you mean `{known}`?", asked.escape_debug()))
    };
    unknown.filter_map(warning).collect()
}

/// Rows with empty columns of candidates: they have fewer candidates than the mapping says, without an outcome that
/// shows it.
fn fewer_candidates(stage: &PlannedRun, samples: &[Sample]) -> Option<String> {
    let is_candidate = |entry: &&MapEntry| matches!(entry.field, Field::Candidate(_));
    let columns = stage.run.data.read.map.iter().filter(is_candidate).count();
    let fewer: Vec<String> =
        samples.iter().filter(|sample| sample.candidates.len() < columns).map(|sample| quoted(&sample.id)).collect();
    let (of, columns) = (counted(samples.len(), "sample"), counted(columns, "column"));
    (!fewer.is_empty()).then(|| {
        let count = thousands(fewer.len() as u64);
        format!("{count} of {of} lack a text in some of {columns} of candidates: {}", named(&fewer))
    })
}

/// Candidates without a text.
fn without_text(samples: &[Sample]) -> Option<String> {
    let of_sample = |sample: &Sample| -> Vec<String> {
        let empty = sample.candidates.iter().filter(|candidate| candidate.text.trim().is_empty());
        empty.map(|candidate| format!("{} of sample {}", quoted(&candidate.id), quoted(&sample.id))).collect()
    };
    let empty: Vec<String> = samples.iter().flat_map(of_sample).collect();
    let have = if empty.len() == 1 { "has" } else { "have" };
    (!empty.is_empty()).then(|| format!("{} {have} no text: {}", counted(empty.len(), "candidate"), named(&empty)))
}

fn quoted(id: &str) -> String {
    format!("`{}`", id.escape_debug())
}

fn named(items: &[String]) -> String {
    let shown = items[..items.len().min(NAMED)].join(", ");
    match items.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {} more", thousands(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(id: &str, texts: &[&str]) -> Sample {
        let candidate = |(k, text): (usize, &&str)| json!({"id": format!("c{k}"), "text": text});
        let candidates: Vec<Value> = texts.iter().enumerate().map(candidate).collect();
        serde_json::from_value(json!({"id": id, "context": "", "candidates": candidates})).expect("a sample")
    }

    #[test]
    fn a_candidate_without_text_is_named_with_its_sample() {
        let samples = [sample("a", &["x", " \n"]), sample("b", &["x", "y"])];
        assert_eq!(without_text(&samples).as_deref(), Some("1 candidate has no text: `c1` of sample `a`"));
        assert_eq!(without_text(&samples[1..]), None);
        let many: Vec<Sample> = (0..7).map(|k| sample(&k.to_string(), &[""])).collect();
        let all = without_text(&many).expect("seven");
        assert!(all.starts_with("7 candidates have no text: `c0` of sample `0`, `c0` of sample `1`, "), "{all}");
        assert!(all.ends_with("`c0` of sample `4` and 2 more"), "{all}");
    }

    #[test]
    fn an_attribute_spelt_nearly_like_a_known_one_is_told_unless_the_data_have_gold_of_it() {
        let asked = |name: &str, samples: &[Sample]| misspelt(&json!({"attribute": [name]}), samples);
        let samples = [sample("a", &["x", "y"])];
        let told = "attribute `coherance` is used as written; did you mean `coherence`?";
        assert!(asked("informativeness=relevance", &samples).is_empty(), "the word is known");
        assert_eq!(asked("coherance", &samples), [told]);
        for word in ["coherence", "Coherent", "tone of voice", "truthfulness", "overall quality"] {
            assert_eq!(asked(word, &samples), [""; 0], "{word}");
        }
        let mut gold = samples.clone();
        gold[0].candidates[1].scores.insert("coherance".to_owned(), 1.0);
        assert_eq!(asked("coherance", &gold), [""; 0]);
    }
}
