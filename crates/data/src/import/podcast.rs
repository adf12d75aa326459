//! Podcast Summary Assessment (Manakul and Gales, 2022): transcripts with the summaries of twenty systems, rated at
//! TREC 2020. JSON lines or one array.
//!
//! Rows have `transcript`, `summary`, `episode_id`, `system_id`, `score` (`B`, `F`, `G`, `E`: bad, fair, good,
//! excellent, as 0 to 3) and usually `attributes`, the answers to eight questions. Rows of one episode become one
//! sample; the score is `overall`, the answers are `q1` to `q8`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Importer, Malformed, parse_rows};
use crate::line_error::excerpt;
use crate::values::number;
use crate::{Candidate, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "podcast",
    summary: "Podcast Summary Assessment: 179 transcripts × 20 summaries, rated from bad to excellent",
    convert,
};

const GRADES: [&str; 4] = ["B", "F", "G", "E"];

#[derive(Deserialize)]
struct PodcastRow {
    transcript: String,
    summary: String,
    episode_id: String,
    system_id: String,
    score: Value,
    #[serde(default)]
    attributes: Vec<Value>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut positions = BTreeMap::new();
    for (place, row) in parse_rows::<PodcastRow>(bytes)?.into_iter().enumerate() {
        let malformed = |field: &str, why: String| Malformed { path: format!("[{place}].{field}"), why };
        let mut scores = BTreeMap::new();
        let grade = row.score.as_str().and_then(|text| GRADES.iter().position(|grade| *grade == text));
        let overall = match grade {
            Some(grade) => grade as f64,
            None => row.score.as_f64().ok_or_else(|| {
                malformed("score", format!("`{}` is not B, F, G or E", excerpt(&row.score.to_string())))
            })?,
        };
        scores.insert("overall".to_owned(), overall);
        for (question, answer) in row.attributes.iter().enumerate() {
            if let Some(answer) =
                number(answer).map_err(|why| malformed(&format!("attributes[{question}]"), why.to_string()))?
            {
                scores.insert(format!("q{}", question + 1), answer);
            }
        }
        let position = *positions.entry(row.episode_id.clone()).or_insert(samples.len());
        if position == samples.len() {
            samples.push(Sample {
                id: row.episode_id,
                context: row.transcript.into(),
                instruction: None,
                texts: BTreeMap::new(),
                candidates: Vec::new(),
                references: Vec::new(),
                preference: None,
            });
        }
        samples[position].candidates.push(Candidate { id: row.system_id, text: row.summary.into(), scores });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;
    use super::*;

    #[test]
    fn rows_of_an_episode_become_a_sample_with_grades_as_numbers() {
        let row = |system: &str, score: &str| {
            format!(
                r#"{{"transcript": "t", "summary": "s", "episode_id": "e1", "system_id": "{system}", "score": "{score}", "attributes": [1, 0, null]}}"#
            )
        };
        let text = format!("[{}, {}]", row("R1", "E"), row("A1", "B"));
        let samples = IMPORTER.import_bytes(text.as_bytes(), "f.json").expect("importable");
        assert_eq!((samples.len(), samples[0].id.as_str(), samples[0].candidates.len()), (1, "e1", 2));
        let scores = &samples[0].candidates[0].scores;
        assert_eq!((scores["overall"], scores["q1"], scores["q2"], scores.get("q3")), (3.0, 1.0, 0.0, None));
        assert!(refusal("podcast", &format!("[{}]", row("R1", "X"))).contains("is not B, F, G or E"));
    }
}
