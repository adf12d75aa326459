//! Pairs of answers with a human label, in the two public forms of such data sets. JSON lines or one array.
//!
//! `LLMBar` (Zeng et al., 2024) and similar: `input`, `output_1`, `output_2`, `label` (1 or 2). Auto-J (Li et al.,
//! 2024) and similar: `prompt`, `response 1`, `response 2`, `label` (0: the first is better, 1: the second, 2:
//! neither). The prompt becomes the context, the answers become the candidates `1` and `2`, and the label becomes the
//! preference; it is optional.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};

use super::{Importer, Malformed, parse_rows};
use crate::{Candidate, Preference, Sample};

pub(super) const AUTO_J: Importer = Importer {
    name: "auto-j",
    summary: "Auto-J and similar sets: a prompt, two responses, the better one or a tie",
    convert: auto_j,
};

pub(super) const LLMBAR: Importer = Importer {
    name: "llmbar",
    summary: "LLMBar and similar sets: an instruction, two outputs, the better one",
    convert: llmbar,
};

#[derive(Deserialize)]
struct LlmbarRow {
    input: String,
    output_1: String,
    output_2: String,
    #[serde(default, deserialize_with = "label_from_one")]
    label: Option<Preference>,
}

#[derive(Deserialize)]
struct AutoJRow {
    prompt: String,
    #[serde(rename = "response 1", alias = "response_1", alias = "response1")]
    response_1: String,
    #[serde(rename = "response 2", alias = "response_2", alias = "response2")]
    response_2: String,
    #[serde(default, deserialize_with = "label_from_zero")]
    label: Option<Preference>,
}

fn label_from_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Preference>, D::Error> {
    match Option::<i64>::deserialize(deserializer)? {
        None => Ok(None),
        Some(label @ 1..=2) => Ok(Some(Preference::Candidate(label.to_string()))),
        Some(other) => Err(de::Error::invalid_value(de::Unexpected::Signed(other), &"1 or 2")),
    }
}

fn label_from_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Preference>, D::Error> {
    match Option::<i64>::deserialize(deserializer)? {
        None => Ok(None),
        Some(label @ 0..=1) => Ok(Some(Preference::Candidate((label + 1).to_string()))),
        Some(2) => Ok(Some(Preference::Tie)),
        Some(other) => Err(de::Error::invalid_value(de::Unexpected::Signed(other), &"0, 1 or 2")),
    }
}

fn llmbar(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let rows = parse_rows::<LlmbarRow>(bytes)?.into_iter().enumerate();
    Ok(rows.map(|(i, row)| pair(i, row.input, [row.output_1, row.output_2], row.label)).collect())
}

fn auto_j(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let rows = parse_rows::<AutoJRow>(bytes)?.into_iter().enumerate();
    Ok(rows.map(|(i, row)| pair(i, row.prompt, [row.response_1, row.response_2], row.label)).collect())
}

fn pair(index: usize, context: String, texts: [String; 2], preference: Option<Preference>) -> Sample {
    let candidates = ["1", "2"].into_iter().zip(texts);
    let candidates = candidates
        .map(|(id, text)| Candidate { id: id.to_owned(), text: text.into(), scores: BTreeMap::new() })
        .collect();
    Sample {
        id: format!("pair-{:04}", index + 1),
        context: context.into(),
        instruction: None,
        texts: BTreeMap::new(),
        candidates,
        references: Vec::new(),
        preference,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;
    use crate::error::hint_of;
    use crate::importer;

    #[test]
    fn the_public_files_give_a_preference_for_each_pair() {
        for (name, pairs, first_preferred) in [("llmbar_natural.json", 100, 42), ("mt_bench_200.json", 200, 101)] {
            let Some(path) = public_file(name) else { continue };
            let samples = LLMBAR.import(&path).expect("importable");
            assert_eq!(samples.len(), pairs);
            let preferred = samples.iter().filter(|s| s.preference == Some(Preference::Candidate("1".into()))).count();
            assert_eq!(preferred, first_preferred);
        }
    }

    #[test]
    fn a_row_becomes_two_candidates_and_a_preference() {
        let text = r#"[{"input": "Name a lake.", "output_1": "Baikal", "output_2": "Rhine", "label": 1}]"#;
        let samples = LLMBAR.import_bytes(text.as_bytes(), "f.json").expect("importable");
        assert_eq!((samples[0].id.as_str(), &*samples[0].context), ("pair-0001", "Name a lake."));
        assert_eq!(samples[0].candidate("2").expect("second").text, "Rhine");
        assert_eq!(samples[0].preference, Some(Preference::Candidate("1".into())));
    }

    #[test]
    fn labels_from_zero_and_ties_are_read_from_lines_and_from_an_array() {
        let row = |label: &str| {
            format!(r#"{{"scenario": "chitchat", {label} "prompt": "Hi", "response 1": "a", "response 2": "b"}}"#)
        };
        let rows = [row(r#""label": 0,"#), row(r#""label": 1,"#), row(r#""label": 2,"#), row("")];
        let preferred = |id: &str| Some(Preference::Candidate(id.to_owned()));
        for text in [rows.join("\n"), format!("[{}]", rows.join(","))] {
            let samples = AUTO_J.import_bytes(text.as_bytes(), "f.jsonl").expect("importable");
            let found: Vec<_> = samples.iter().map(|s| s.preference.clone()).collect();
            assert_eq!(found, [preferred("1"), preferred("2"), Some(Preference::Tie), None]);
            assert_eq!((samples[3].id.as_str(), &*samples[3].candidates[1].text), ("pair-0004", "b"));
        }
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let message = refusal("llmbar", r#"[{"input": "a", "output_1": "b", "output_2": "c", "label": 3}]"#);
        assert!(message.contains("at `[0].label`: invalid value: integer `3`, expected 1 or 2"), "{message}");
        assert!(
            refusal("llmbar", r#"[{"input": "a", "output_1": "b", "label": 1}]"#)
                .contains("at `[0]`: missing field `output_2`")
        );
        let good = r#"{"prompt": "Hi", "response 1": "a", "response 2": "b", "label": 0}"#;
        let message = refusal("auto-j", &format!("{good}\n{}\n", good.replace('0', "3")));
        assert!(
            message.contains("at `line 2`: field `label`: invalid value: integer `3`, expected 0, 1 or 2"),
            "{message}"
        );
        let fits =
            importer("llmbar").expect("registered").import_bytes(good.as_bytes(), "f.json").expect_err("another");
        assert_eq!(hint_of(&fits), "probity import auto-j f.json");
    }
}
