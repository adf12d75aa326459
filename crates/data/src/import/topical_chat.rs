//! `TopicalChat` with the USR ratings (Mehri and Eskenazi, 2020): six responses to each of sixty dialogues.
//!
//! The file is an array of rated responses: `source` (the dialogue, one turn per line), `context` (the fact that the
//! response should use; `_nofact` for none), `system_id`, `system_output`, `scores`. Rows with the same dialogue and
//! fact become one sample; responses are trimmed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Importer, Malformed, parse};
use crate::sample::unique_entries;
use crate::{Candidate, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "topical-chat",
    summary: "TopicalChat with USR ratings: 60 dialogues × 6 responses, six scores",
    convert,
};

/// Marks a missing fact.
const NO_FACT: &str = "_nofact";

#[derive(Deserialize)]
struct TopicalChatRow {
    source: String,
    context: String,
    system_id: String,
    system_output: String,
    #[serde(deserialize_with = "unique_entries")]
    scores: BTreeMap<String, f64>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut positions = BTreeMap::new();
    for row in parse::<Vec<TopicalChatRow>>(bytes)? {
        // Keyed by fact as well: the same dialogue with another fact is another task.
        let position = *positions.entry((row.source.clone(), row.context.clone())).or_insert(samples.len());
        if position == samples.len() {
            samples.push(Sample {
                id: format!("dialogue-{:03}", position + 1),
                context: lay_out(&row.source, &row.context).into(),
                instruction: None,
                texts: BTreeMap::new(),
                candidates: Vec::new(),
                references: Vec::new(),
                preference: None,
            });
        }
        samples[position].candidates.push(Candidate {
            id: row.system_id,
            text: row.system_output.trim().to_owned().into(),
            scores: row.scores,
        });
    }
    Ok(samples)
}

/// The dialogue, one turn per line, followed by the fact. The speakers alternate; the file does not record who begins.
fn lay_out(source: &str, fact: &str) -> String {
    let turns = source.lines().map(str::trim).filter(|t| !t.is_empty()).map(|t| format!("- {t}\n"));
    let mut context: String =
        std::iter::once("Conversation so far, one turn a line:\n".to_owned()).chain(turns).collect();
    let fact = fact.trim();
    if !fact.is_empty() && fact != NO_FACT {
        context.push_str("\nFact that the next response should draw on:\n");
        context.push_str(fact);
    }
    context.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;

    #[test]
    fn the_public_file_gives_60_dialogues_of_6_responses() {
        let Some(path) = public_file("topical_chat.json") else { return };
        let samples = IMPORTER.import(&path).expect("importable");
        assert_eq!(samples.len(), 60);
        let names = ["coherence", "engagingness", "groundedness", "naturalness", "overall", "understandability"];
        for sample in &samples {
            assert_eq!(sample.candidates.len(), 6);
            assert!(sample.candidates.iter().all(|c| c.scores.keys().eq(names)));
            assert!(!sample.context.contains(NO_FACT));
        }
    }

    #[test]
    fn rows_of_one_dialogue_and_fact_become_one_sample() {
        let row = |source: &str, fact: &str, system: &str| {
            format!(
                r#"{{"source": "{source}", "context": "{fact}", "system_id": "{system}", "system_output": " yes .\n", "scores": {{"overall": 4}}}}"#
            )
        };
        let rows = [
            row(r"hi \n hello \n\n", r"Ice floats.\n", "A"),
            row("hi", r"_nofact\n", "A"),
            row(r"hi \n hello \n\n", r"Ice floats.\n", "B"),
        ];
        let samples = IMPORTER.import_bytes(format!("[{}]", rows.join(",")).as_bytes(), "f.json").expect("importable");
        assert_eq!(samples.iter().map(|s| s.candidates.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(
            samples[0].context,
            "Conversation so far, one turn a line:\n- hi\n- hello\n\nFact that the next response should draw on:\nIce \
             floats."
        );
        assert_eq!(samples[1].context, "Conversation so far, one turn a line:\n- hi");
        assert_eq!((samples[1].id.as_str(), &*samples[0].candidates[1].text), ("dialogue-002", "yes ."));
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let message = refusal("topical-chat", r#"[{"source": "s", "context": "c", "system_id": 4}]"#);
        assert!(message.contains("at `[0].system_id`"), "{message}");
        let row = r#"{"source": "s", "context": "c", "system_id": "A", "system_output": "", "scores": {}}"#;
        let message = refusal("topical-chat", &format!("[{row}, {row}]"));
        assert!(
            message.contains(
                "at `dialogue-001`: field `candidates[1].id`: duplicate candidate `A`, first at \
                              candidates[0]"
            ),
            "{message}"
        );
    }
}
