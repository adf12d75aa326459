//! `MetaCritique` (Sun et al., 2024): critiques of answers to questions, with human labels per claim. One array or JSON
//! lines.
//!
//! `question` and `response` become the context. The texts `question`, `answer` and `reference_answer` hold them and
//! the reference answer (`reference_answer`, in the published files `gpt4_answer`). Each `NAME_critique` (a text, or an
//! object with `critique`) is a candidate, named by its `model` or else by NAME. The reference critique
//! (`reference_critique`, in the published files `gpt4_critique`) is the reference. If the file has no other critique,
//! as in the benchmark file, it is the candidate. Gold scores follow from the labels, as the paper defines them:
//! `precision`, the share of the critique's claims that are true; `recall`, the share of the reference's claims that it
//! makes; `f1`, their harmonic mean, 0 if either is 0. A critique without labels has no such scores.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Importer, LONGEST, Malformed, parse_rows, without_place};
use crate::line_error::excerpt;
use crate::open::{file_name, read_whole};
use crate::{Candidate, DataError, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "metacritique",
    summary: "MetaCritique: critiques of answers with human precision, recall and F1",
    convert,
};

/// A sample whose candidates are critiques, with the claims (atomic information units, AIUs) of each and their human
/// labels.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledCritiques {
    /// The sample, as the importer returns it.
    pub sample: Sample,
    /// Claims of the reference critique; empty if the file has none.
    pub reference: Vec<String>,
    /// Labels of each candidate, in the order of the sample.
    pub critiques: Vec<CritiqueLabels>,
}

/// The claims of a critique and their human labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CritiqueLabels {
    /// The critique's own claims; empty if the file has none.
    pub aius: Vec<String>,
    /// Whether each own claim is true; empty if unlabelled.
    pub precision: Vec<bool>,
    /// Whether the critique makes each claim of the reference; empty if unlabelled.
    pub recall: Vec<bool>,
}

/// Reads critiques with their labels from a file of the importer `metacritique`.
///
/// # Errors
/// The importer rejects the file, or the numbers of labels and claims differ.
pub fn labelled_critiques(path: &Path) -> Result<Vec<LabelledCritiques>, DataError> {
    let (bytes, file) = (read_whole(path, LONGEST)?, file_name(path));
    IMPORTER.import_bytes(&bytes, &file)?;
    labelled(&bytes).map_err(|Malformed { path, why }| DataError::Import {
        file,
        importer: IMPORTER.name,
        path: excerpt(&path),
        why,
        hint: None,
    })
}

#[derive(Deserialize)]
struct MetaCritiqueRow {
    index: Option<u64>,
    question: String,
    response: String,
    #[serde(alias = "gpt4_answer")]
    reference_answer: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize, Default)]
struct Critique {
    #[serde(rename = "critique")]
    text: String,
    model: Option<String>,
    #[serde(default)]
    aius: Vec<String>,
    #[serde(default)]
    precision_labels: Vec<bool>,
    #[serde(default)]
    recall_labels: Vec<bool>,
}

const REFERENCES: [&str; 2] = ["reference", "gpt4"];

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    Ok(labelled(bytes)?.into_iter().map(|labelled| labelled.sample).collect())
}

fn labelled(bytes: &[u8]) -> Result<Vec<LabelledCritiques>, Malformed> {
    parse_rows::<MetaCritiqueRow>(bytes)?.into_iter().enumerate().map(|(place, row)| parse_row(place, row)).collect()
}

fn parse_row(place: usize, row: MetaCritiqueRow) -> Result<LabelledCritiques, Malformed> {
    let (mut critiques, mut references) = (Vec::new(), Vec::new());
    for (key, value) in row.rest {
        let Some(name) = key.strip_suffix("_critique").filter(|name| !name.is_empty()) else { continue };
        let critique =
            critique(value).map_err(|(path, why)| Malformed { path: format!("[{place}].{key}{path}"), why })?;
        if REFERENCES.contains(&name) { &mut references } else { &mut critiques }.push((name.to_owned(), critique));
    }
    // Without any other critique, the reference is the candidate.
    if critiques.is_empty() {
        critiques = std::mem::take(&mut references);
    }
    let reference = references.first().map(|(_, critique)| critique.aius.clone()).unwrap_or_default();
    if let Some(claim) = reference.iter().position(|aiu| aiu.trim().is_empty()) {
        let path = format!("[{place}].{}_critique.aius", references[0].0);
        return Err(Malformed { path, why: format!("claim {claim} is empty") });
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (name, critique) in &critiques {
        critique
            .check(&reference)
            .map_err(|(labels, why)| Malformed { path: format!("[{place}].{name}_critique.{labels}"), why })?;
        // A file may contain two critiques by one model; the second is named by its key.
        let taken = |id: &str| candidates.iter().any(|known| known.id == id);
        let model = critique.model.clone().filter(|model| !model.is_empty() && !taken(model));
        let id = model.unwrap_or_else(|| name.clone());
        candidates.push(Candidate { id, text: critique.text.clone().into(), scores: critique.scores() });
    }
    let texts = [("question", Some(&row.question)), ("answer", Some(&row.response))];
    let texts = texts.into_iter().chain([("reference_answer", row.reference_answer.as_ref())]);
    let texts = texts.filter_map(|(name, text)| Some((name.to_owned(), text?.trim().into())));
    let sample = Sample {
        id: row.index.unwrap_or(place as u64).to_string(),
        context: format!("Question:\n{}\n\nAnswer:\n{}", row.question.trim(), row.response.trim()).into(),
        instruction: Some("Criticise the answer to the question.".to_owned().into()),
        texts: texts.filter(|(_, text): &(String, crate::SharedText)| !text.is_empty()).collect(),
        candidates,
        references: references.into_iter().map(|(_, critique)| critique.text.into()).collect(),
        preference: None,
    };
    let labels = |(_, Critique { aius, precision_labels, recall_labels, .. })| CritiqueLabels {
        aius,
        precision: precision_labels,
        recall: recall_labels,
    };
    Ok(LabelledCritiques { sample, reference, critiques: critiques.into_iter().map(labels).collect() })
}

/// Parses a critique with or without labels; an error has the path and the message.
fn critique(value: Value) -> Result<Critique, (String, String)> {
    if let Value::String(text) = value {
        return Ok(Critique { text, ..Critique::default() });
    }
    serde_path_to_error::deserialize(value).map_err(|e| {
        let path = e.path().to_string();
        (
            if path == "." { String::new() } else { format!(".{path}") },
            excerpt(&without_place(e.into_inner().to_string())),
        )
    })
}

impl Critique {
    /// Checks for empty claims and for label counts that differ from the claim counts.
    fn check(&self, reference: &[String]) -> Result<(), (&'static str, String)> {
        if let Some(place) = self.aius.iter().position(|aiu| aiu.trim().is_empty()) {
            return Err(("aius", format!("claim {place} is empty")));
        }
        let lists = [
            ("precision_labels", &self.precision_labels, self.aius.as_slice(), "the critique"),
            ("recall_labels", &self.recall_labels, reference, "the reference critique"),
        ];
        for (field, labels, aius, of) in lists {
            if !labels.is_empty() && !aius.is_empty() && labels.len() != aius.len() {
                let why = format!("{} labels, but {of} has {} `aius`", labels.len(), aius.len());
                return Err((field, why));
            }
        }
        Ok(())
    }

    fn scores(&self) -> BTreeMap<String, f64> {
        let share = |labels: &[bool]| {
            let yes = labels.iter().filter(|label| **label).count();
            (!labels.is_empty()).then(|| yes as f64 / labels.len() as f64)
        };
        let (precision, recall) = (share(&self.precision_labels), share(&self.recall_labels));
        let f1 = precision.zip(recall).map(|(p, r)| if p == 0.0 || r == 0.0 { 0.0 } else { 2.0 * p * r / (p + r) });
        let scores = [("precision", precision), ("recall", recall), ("f1", f1)];
        scores.into_iter().filter_map(|(attribute, score)| Some((attribute.to_owned(), score?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;

    #[test]
    fn the_public_annotation_gives_the_scores_that_it_holds_itself() {
        let Some(path) = public_file("metacritique_annotation.json") else { return };
        let samples = IMPORTER.import(&path).expect("importable");
        let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON");
        assert_eq!(samples.len(), 100);
        for (sample, row) in samples.iter().zip(&rows) {
            assert_eq!((sample.candidates.len(), sample.references.len()), (3, 1));
            for (candidate, key) in sample.candidates.iter().zip(["human_critique", "llm1_critique", "llm2_critique"]) {
                for attribute in ["precision", "recall", "f1"] {
                    let expected = row[key][format!("{attribute}_score")].as_f64().expect("a score");
                    assert!((candidate.scores[attribute] - expected).abs() < 1e-12, "{} {attribute}", sample.id);
                }
            }
        }
        let human = |attribute: &str| samples.iter().map(|s| s.candidates[0].scores[attribute]).sum::<f64>() / 100.0;
        let rounded = ["precision", "recall", "f1"].map(|attribute| (human(attribute) * 1e4).round() / 1e4);
        assert_eq!(rounded, [0.8537, 0.5097, 0.5824], "the paper's means of human critiques");
    }

    #[test]
    fn a_file_without_other_critiques_gives_the_reference_as_the_candidate() {
        let Some(path) = public_file("metacritique_benchmark.json") else { return };
        let samples = IMPORTER.import(&path).expect("importable");
        assert!(
            samples.iter().all(|s| s.candidates.len() == 1 && s.candidates[0].id == "gpt4" && s.references.is_empty())
        );
        assert_eq!(samples.len(), 100);
    }

    #[test]
    fn critiques_are_texts_or_objects_and_models_name_them_once() {
        let text = r#"[{"question": "Why?", "response": "So.", "hypothesis_critique": "Too short.", "reference_critique": {"critique": "No reason."},
            "one_critique": {"model": "m", "critique": "x", "precision_labels": [true, false], "recall_labels": []},
            "two_critique": {"model": "m", "critique": "y", "precision_labels": [false], "recall_labels": [true]}}]"#;
        let sample = IMPORTER.import_bytes(text.as_bytes(), "f.json").expect("importable").remove(0);
        let ids: Vec<_> = sample.candidates.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["hypothesis", "m", "two"]);
        assert_eq!(sample.candidates[1].scores, BTreeMap::from([("precision".to_owned(), 0.5)]));
        assert_eq!(sample.candidates[2].scores["f1"], 0.0);
        assert_eq!(
            (&*sample.context, &sample.references[..]),
            ("Question:\nWhy?\n\nAnswer:\nSo.", &["No reason.".into()][..])
        );
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let row = |critique: &str| format!(r#"[{{"question": "q", "response": "r", "a_critique": {critique}}}]"#);
        let message = refusal("metacritique", &row(r#"{"critique": "c", "recall_labels": [1]}"#));
        assert!(
            message.contains("at `[0].a_critique.recall_labels[0]`: invalid type: integer `1`, expected a boolean"),
            "{message}"
        );
        assert!(refusal("metacritique", &row("{}")).contains("at `[0].a_critique`: missing field `critique`"));
        assert!(refusal("metacritique", r#"[{"question": "q", "response": "r"}]"#).contains("no candidates"));
    }
}
