//! `RewardBench` (Lambert et al., 2024) and similar: a prompt, the chosen response and the rejected one. JSON lines or
//! one array.
//!
//! Rows have `prompt`, `chosen`, `rejected`, and usually `id` and `subset`. Ids are `subset/id`, so that subset
//! statistics are by subset. The chosen response is first in every other sample; otherwise a judge that always prefers
//! the first position would be right.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Importer, Malformed, parse_rows};
use crate::values::plain;
use crate::{Candidate, Preference, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "reward-bench",
    summary: "RewardBench: prompts, a chosen and a rejected response, by subset",
    convert,
};

#[derive(Deserialize)]
struct RewardBenchRow {
    prompt: String,
    chosen: String,
    rejected: String,
    #[serde(default)]
    id: Value,
    subset: Option<String>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    Ok(parse_rows::<RewardBenchRow>(bytes)?.into_iter().enumerate().map(|(place, row)| sample(place, row)).collect())
}

fn sample(place: usize, row: RewardBenchRow) -> Sample {
    let id = plain(&row.id).unwrap_or_else(|| (place + 1).to_string());
    let mut candidates = [("chosen", row.chosen), ("rejected", row.rejected)];
    if place % 2 == 1 {
        candidates.reverse();
    }
    let candidate =
        |(id, text): (&str, String)| Candidate { id: id.to_owned(), text: text.into(), scores: BTreeMap::new() };
    Sample {
        id: row.subset.map_or(id.clone(), |subset| format!("{subset}/{id}")),
        context: row.prompt.into(),
        instruction: None,
        texts: BTreeMap::new(),
        candidates: candidates.map(candidate).into(),
        references: Vec::new(),
        preference: Some(Preference::Candidate("chosen".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_response_is_preferred_and_stands_first_in_every_other_sample() {
        let rows = r#"{"id": 30, "subset": "hep-go", "prompt": "q", "chosen": "a", "chosen_model": "x", "rejected": "b", "rejected_model": "y"}
{"prompt": "r", "chosen": "c", "rejected": "d"}"#;
        let samples = IMPORTER.import_bytes(rows.as_bytes(), "f.jsonl").expect("importable");
        assert_eq!(samples.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["hep-go/30", "2"]);
        assert_eq!(samples.iter().map(|s| &*s.candidates[0].text).collect::<Vec<_>>(), ["a", "d"]);
        assert!(samples.iter().all(|s| s.preference == Some(Preference::Candidate("chosen".into()))));
    }
}
