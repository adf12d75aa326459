//! `JudgeBench` (Tan et al., 2024): pairs with one correct response. JSON lines or one array.
//!
//! Rows have `pair_id`, `source`, `question`, `response_A`, `response_B` and `label` (`A>B`, `B>A` or `A=B`). Ids are
//! `source/pair_id`, so that subset statistics are by source.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Importer, Malformed, parse_rows};
use crate::line_error::excerpt;
use crate::{Candidate, Preference, Sample};

pub(super) const IMPORTER: Importer =
    Importer { name: "judge-bench", summary: "JudgeBench: questions, two responses, the correct one", convert };

#[derive(Deserialize)]
struct JudgeBenchRow {
    pair_id: String,
    source: String,
    question: String,
    #[serde(rename = "response_A")]
    response_a: String,
    #[serde(rename = "response_B")]
    response_b: String,
    label: String,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    parse_rows::<JudgeBenchRow>(bytes)?.into_iter().enumerate().map(|(place, row)| sample(place, row)).collect()
}

fn sample(place: usize, row: JudgeBenchRow) -> Result<Sample, Malformed> {
    let preference = match row.label.as_str() {
        "A>B" => Preference::Candidate("A".to_owned()),
        "B>A" => Preference::Candidate("B".to_owned()),
        "A=B" => Preference::Tie,
        other => {
            return Err(Malformed {
                path: format!("[{place}].label"),
                why: format!("`{}` is not A>B, B>A or A=B", excerpt(other)),
            });
        }
    };
    let candidates = [("A", row.response_a), ("B", row.response_b)];
    let candidate =
        |(id, text): (&str, String)| Candidate { id: id.to_owned(), text: text.into(), scores: BTreeMap::new() };
    Ok(Sample {
        id: format!("{}/{}", row.source, row.pair_id),
        context: row.question.into(),
        instruction: None,
        texts: BTreeMap::new(),
        candidates: candidates.map(candidate).into(),
        references: Vec::new(),
        preference: Some(preference),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;
    use super::*;

    #[test]
    fn the_right_response_is_preferred_and_the_source_is_the_subset() {
        let row = |label: &str| {
            format!(
                r#"{{"pair_id": "7", "original_id": "1", "source": "math", "question": "2+2?", "response_model": "m", "response_A": "4", "response_B": "5", "label": "{label}"}}"#
            )
        };
        let samples = IMPORTER.import_bytes(row("A>B").as_bytes(), "f.jsonl").expect("importable");
        assert_eq!(
            (samples[0].id.as_str(), &samples[0].preference),
            ("math/7", &Some(Preference::Candidate("A".into())))
        );
        assert!(refusal("judge-bench", &row("A<B")).contains("at `[0].label`: `A<B` is not A>B, B>A or A=B"));
    }
}
