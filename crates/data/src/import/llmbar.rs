//! `LLMBar` (Zeng et al., 2024) and sets of the same form: an instruction, two outputs and which one is better.
//!
//! The file is an array of `input`, `output_1`, `output_2`, `label` (1 or 2). The input becomes the context, the outputs the candidates `1` and
//! `2`, the label the preference.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

use super::{Importer, Malformed, parse};
use crate::{Candidate, Preference, Sample};

pub(super) const IMPORTER: Importer =
    Importer { name: "llmbar", summary: "LLMBar and sets of its form: an instruction, two outputs, the better one", convert };

#[derive(Deserialize)]
struct Row {
    input: String,
    output_1: String,
    output_2: String,
    #[serde(deserialize_with = "one_or_two")]
    label: u8,
}

fn one_or_two<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    match i64::deserialize(deserializer)? {
        label @ 1..=2 => Ok(label as u8),
        other => Err(de::Error::invalid_value(de::Unexpected::Signed(other), &"1 or 2")),
    }
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let candidate = |id: &str, text| Candidate { id: id.to_owned(), text, scores: BTreeMap::new() };
    let rows = parse::<Vec<Row>>(bytes)?.into_iter().enumerate();
    Ok(rows
        .map(|(i, row)| Sample {
            id: format!("pair-{:04}", i + 1),
            context: row.input,
            instruction: None,
            candidates: vec![candidate("1", row.output_1), candidate("2", row.output_2)],
            references: Vec::new(),
            preference: Some(Preference::Candidate(row.label.to_string())),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;

    #[test]
    fn the_public_files_give_a_preference_for_each_pair() {
        for (name, pairs, first_preferred) in [("llmbar_natural.json", 100, 42), ("mt_bench_200.json", 200, 101)] {
            let Some(path) = public_file(name) else { continue };
            let samples = IMPORTER.import(&path).expect("importable");
            assert_eq!(samples.len(), pairs);
            let preferred = samples.iter().filter(|s| s.preference == Some(Preference::Candidate("1".into()))).count();
            assert_eq!(preferred, first_preferred);
        }
    }

    #[test]
    fn a_row_becomes_two_candidates_and_a_preference() {
        let text = r#"[{"input": "Name a lake.", "output_1": "Baikal", "output_2": "Rhine", "label": 1}]"#;
        let samples = IMPORTER.import_bytes(text.as_bytes(), "f.json").expect("importable");
        assert_eq!((samples[0].id.as_str(), samples[0].context.as_str()), ("pair-0001", "Name a lake."));
        assert_eq!(samples[0].candidate("2").expect("second").text, "Rhine");
        assert_eq!(samples[0].preference, Some(Preference::Candidate("1".into())));
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let message = refusal("llmbar", r#"[{"input": "a", "output_1": "b", "output_2": "c", "label": 3}]"#);
        assert!(message.contains("at `[0].label`: invalid value: integer `3`, expected 1 or 2"), "{message}");
        assert!(refusal("llmbar", r#"[{"input": "a", "output_1": "b", "label": 1}]"#).contains("at `[0]`: missing field `output_2`"));
    }
}
