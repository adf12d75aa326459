//! `WebNLG` 2017 with its human ratings (Gardent et al., 2017), in the form used by comparative assessment: an object
//! keyed by item, containing objects keyed by system.
//!
//! A system has `text`, `data` (the triples as one text) and numbers such as `fluency`, `grammar` and `semantics`;
//! every number is a score.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Importer, Malformed, parse};
use crate::sample::unique_map;
use crate::{Candidate, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "webnlg",
    summary: "WebNLG 2017: sets of triples × the texts of ten systems, fluency, grammar, semantics",
    convert,
};

#[derive(Deserialize)]
#[serde(transparent)]
struct WebNlgFile(#[serde(deserialize_with = "unique_map")] Vec<(String, WebNlgItem)>);

#[derive(Deserialize)]
#[serde(transparent)]
struct WebNlgItem(#[serde(deserialize_with = "unique_map")] Vec<(String, SystemOutput)>);

#[derive(Deserialize)]
struct SystemOutput {
    text: String,
    data: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let sample = |(id, item): (String, WebNlgItem)| {
        let context = item.0.first().map(|(_, output)| output.data.clone()).unwrap_or_default();
        let candidate = |(id, output): (String, SystemOutput)| {
            let scores: BTreeMap<String, f64> =
                output.rest.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect();
            Candidate { id, text: output.text.into(), scores }
        };
        let candidates = item.0.into_iter().map(candidate).collect();
        let instruction =
            Some("Say in fluent English what the triples (subject | relation | object) state.".to_owned());
        Sample {
            id,
            context: context.into(),
            instruction: instruction.map(Into::into),
            texts: BTreeMap::new(),
            candidates,
            references: Vec::new(),
            preference: None,
        }
    };
    Ok(parse::<WebNlgFile>(bytes)?.0.into_iter().map(sample).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::refusal;
    use super::*;

    #[test]
    fn an_item_becomes_a_sample_and_every_number_a_score() {
        let text = r#"{"12": {"ADAPT": {"text": "Rome is in Italy.", "data": "Rome | country | Italy", "fluency": 2.7, "semantics": 3, "team": "x"},
            "PKUWRITER": {"text": "Italy.", "data": "Rome | country | Italy", "fluency": 1}}}"#;
        let samples = IMPORTER.import_bytes(text.as_bytes(), "f.json").expect("importable");
        assert_eq!((samples[0].id.as_str(), &*samples[0].context), ("12", "Rome | country | Italy"));
        let scores = &samples[0].candidates[0].scores;
        assert_eq!((scores["fluency"], scores["semantics"], scores.len()), (2.7, 3.0, 2));
        assert!(refusal("webnlg", r#"{"1": {"A": {"text": "x"}}}"#).contains("missing field `data`"));
    }
}
