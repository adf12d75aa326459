//! `SummEval` (Fabbri et al., 2021): news articles with the summaries of sixteen systems, rated by experts.
//!
//! The file is an object keyed by article: `src`, `ref_summs` (texts), `sys_summs` (keyed by system: `sys_summ` and
//! `scores` by attribute). Each article becomes a sample, with the article's key as its id; each system is a candidate.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Importer, Malformed, parse};
use crate::sample::{unique_entries, unique_map};
use crate::{Candidate, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "summeval",
    summary: "SummEval: 100 news articles × 16 summaries, four expert scores, references",
    convert,
};

#[derive(Deserialize)]
#[serde(transparent)]
struct SummEvalFile(#[serde(deserialize_with = "unique_map")] Vec<(String, Article)>);

#[derive(Deserialize)]
struct Article {
    src: String,
    #[serde(default)]
    ref_summs: Vec<String>,
    #[serde(deserialize_with = "unique_map")]
    sys_summs: Vec<(String, SystemSummary)>,
}

#[derive(Deserialize)]
struct SystemSummary {
    sys_summ: String,
    #[serde(default, deserialize_with = "unique_entries")]
    scores: BTreeMap<String, f64>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let articles = parse::<SummEvalFile>(bytes)?.0.into_iter();
    Ok(articles
        .map(|(id, article)| {
            let summaries = article.sys_summs.into_iter();
            let candidates =
                summaries.map(|(id, s)| Candidate { id, text: s.sys_summ.into(), scores: s.scores }).collect();
            Sample {
                id,
                context: article.src.into(),
                instruction: None,
                texts: BTreeMap::new(),
                candidates,
                references: article.ref_summs.into_iter().map(Into::into).collect(),
                preference: None,
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;

    #[test]
    fn the_public_file_gives_100_articles_of_16_summaries() {
        let Some(path) = public_file("summeval.json") else { return };
        let samples = IMPORTER.import(&path).expect("importable");
        assert_eq!(samples.len(), 100);
        assert!(samples.iter().all(|s| s.candidates.len() == 16 && s.references.len() == 11));
        assert!(samples.iter().flat_map(|s| &s.candidates).all(|c| c.scores.len() == 4));
        assert_eq!(samples[0].candidates[0].id, "M11");
        assert_eq!(samples[0].candidates[0].scores["relevance"], 5.0 / 3.0);
    }

    #[test]
    fn an_article_becomes_a_sample_in_the_order_of_the_file() {
        let text = r#"{"z": {"src": "The lake froze.", "ref_summs": ["It froze."], "ref_summ": "It froze.",
            "sys_summs": {"M9": {"sys_summ": "Ice.", "scores": {"coherence": 2.5}}, "M1": {"sys_summ": "Water."}}},
            "a": {"src": "Rain.", "sys_summs": {"M1": {"sys_summ": "Wet.", "scores": {}}}}}"#;
        let samples = IMPORTER.import_bytes(text.as_bytes(), "f.json").expect("importable");
        assert_eq!(samples.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(samples[0].candidates.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["M9", "M1"]);
        assert_eq!((&*samples[0].context, &samples[0].references[..]), ("The lake froze.", &["It froze.".into()][..]));
        assert_eq!(samples[0].candidates[0].scores["coherence"], 2.5);
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let message = refusal("summeval", r#"{"a": {"src": "x", "sys_summs": {"M1": {"sys_summ": 3}}}}"#);
        assert!(
            message.contains("at `a.sys_summs.M1.sys_summ`: invalid type: integer `3`, expected a string"),
            "{message}"
        );
        let message = refusal(
            "summeval",
            r#"{"a": {"src": "x", "sys_summs": {"M1": {"sys_summ": "s", "scores": {"fluency": "good"}}}}}"#,
        );
        assert!(message.contains("at `a.sys_summs.M1.scores.fluency`"), "{message}");
        assert!(
            refusal("summeval", r#"{"a": {"src": "x", "sys_summs": {}}}"#)
                .contains("at `a`: field `candidates`: no candidates")
        );
        assert!(refusal("summeval", r#"{"a": {"src": "x"}}"#).contains("missing field `sys_summs`"));
        let twice = r#"{"src": "x", "sys_summs": {"M1": {"sys_summ": "s"}}}"#;
        assert!(refusal("summeval", &format!(r#"{{"a": {twice}, "a": {twice}}}"#)).contains("duplicate key `a`"));
    }
}
