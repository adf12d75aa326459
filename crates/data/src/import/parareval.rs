//! `ParaReval` (Jourdan et al., 2025): pairs of revisions of a paragraph from a scientific article, with human labels.
//! JSON lines or one array.
//!
//! `original_paragraph` becomes the context, `instruction` the instruction, the two models' paragraphs the candidates
//! (named after their models), `reference_paragraph` the reference. The preference is the extended one: the annotator's
//! choice; without a choice, the only correct revision, or else the only related one; otherwise a tie. Scores from the
//! annotation: `relatedness` (2 strictly, 1 with additional modifications, 0 not), `correctness` and `acceptable` (1 or
//! 0), and for each category of the revision whether it was chosen in the category's question (1 or 0). Further texts
//! are `categories`, one per line, and the id of the `paragraph`, because pairs of one paragraph are not independent.

#![expect(non_snake_case, reason = "fields are called as in the file")]

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

use super::{Importer, Malformed, parse_rows};
use crate::{Candidate, Preference, Sample};

pub(super) const IMPORTER: Importer = Importer {
    name: "parareval",
    summary: "ParaReval: two revisions of a paragraph, the author's own, human choices",
    convert,
};

#[derive(Deserialize)]
struct ParaRevalRow {
    id_pairing: Id,
    model_A: Option<String>,
    model_B: Option<String>,
    original_paragraph: String,
    reference_paragraph: Option<String>,
    model_A_paragraph: String,
    model_B_paragraph: String,
    instruction: Option<String>,
    id_paragraph: Option<String>,
    labels: Option<Vec<String>>,
    eval_annotation: Option<Annotation>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a string")]
enum Id {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
struct Annotation {
    relatedness_A: Option<Relatedness>,
    relatedness_B: Option<Relatedness>,
    correctness_A: Option<bool>,
    correctness_B: Option<bool>,
    acceptable: Option<AnnotatorChoice>,
    preference: Option<AnnotatorChoice>,
    #[serde(rename = "Rewriting_light")]
    light: Option<AnnotatorChoice>,
    #[serde(rename = "Rewriting_medium")]
    medium: Option<AnnotatorChoice>,
    #[serde(rename = "Rewriting_heavy")]
    heavy: Option<AnnotatorChoice>,
    #[serde(rename = "Concision")]
    concision: Option<AnnotatorChoice>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum Relatedness {
    #[serde(rename = "Yes strictly")]
    Strict,
    #[serde(rename = "Yes with additional modifications")]
    Loose,
    No,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
enum AnnotatorChoice {
    #[serde(alias = "A only")]
    A,
    #[serde(alias = "B only")]
    B,
    #[serde(alias = "Tie")]
    Both,
    None,
}

/// 0 for A, 1 for B.
type ShownSide = usize;

/// The extended preference (Jourdan et al. 2025) between two texts: the chosen one; without a choice the only correct
/// one, or else the only related one. `None` is a tie.
pub fn extended_choice(chosen: Option<usize>, correct: [bool; 2], related: [bool; 2]) -> Option<usize> {
    let only = |[a, b]: [bool; 2]| (a != b).then_some(usize::from(b));
    chosen.or_else(|| only(correct)).or_else(|| only(related))
}

impl Annotation {
    /// The extended preference, if the pair was annotated; `names` are the candidate ids.
    fn preferred(&self, names: &[String; 2]) -> Option<Preference> {
        let chosen = match self.preference? {
            AnnotatorChoice::A => Some(0),
            AnnotatorChoice::B => Some(1),
            AnnotatorChoice::Both | AnnotatorChoice::None => None,
        };
        let correct = [self.correctness_A, self.correctness_B].map(|correct| correct == Some(true));
        let related =
            [self.relatedness_A, self.relatedness_B].map(|related| related.is_some_and(|r| r != Relatedness::No));
        let side = extended_choice(chosen, correct, related);
        Some(side.map_or(Preference::Tie, |side: ShownSide| Preference::Candidate(names[side].clone())))
    }

    fn scores(&self, side: ShownSide) -> BTreeMap<String, f64> {
        let relatedness = [self.relatedness_A, self.relatedness_B][side].map(|relatedness| match relatedness {
            Relatedness::Strict => 2.0,
            Relatedness::Loose => 1.0,
            Relatedness::No => 0.0,
        });
        let correctness = [self.correctness_A, self.correctness_B][side].map(|correct| f64::from(u8::from(correct)));
        let accepted =
            |choice| choice == AnnotatorChoice::Both || choice == [AnnotatorChoice::A, AnnotatorChoice::B][side];
        let chosen = |choice: Option<AnnotatorChoice>| choice.map(|choice| f64::from(u8::from(accepted(choice))));
        let scores = [
            ("relatedness", relatedness),
            ("correctness", correctness),
            ("acceptable", chosen(self.acceptable)),
            ("rewriting_light", chosen(self.light)),
            ("rewriting_medium", chosen(self.medium)),
            ("rewriting_heavy", chosen(self.heavy)),
            ("concision", chosen(self.concision)),
        ];
        scores.into_iter().filter_map(|(attribute, score)| Some((attribute.to_owned(), score?))).collect()
    }
}

fn convert(bytes: &[u8]) -> Result<Vec<Sample>, Malformed> {
    let mut ids = Ids::default();
    Ok(parse_rows::<ParaRevalRow>(bytes)?.into_iter().map(|row| sample(row, &mut ids)).collect())
}

/// Ids in use, and the number of rows of each pair.
#[derive(Default)]
struct Ids {
    given: HashSet<String>,
    rows: HashMap<String, usize>,
}

impl Ids {
    /// The pair's own id for its first row, then `#2` and so on, skipping ids in use.
    fn next(&mut self, pairing: &str) -> String {
        let rows = self.rows.entry(pairing.to_owned()).or_default();
        loop {
            *rows += 1;
            let id = if *rows == 1 { pairing.to_owned() } else { format!("{pairing}#{rows}") };
            if self.given.insert(id.clone()) {
                return id;
            }
        }
    }
}

fn sample(row: ParaRevalRow, ids: &mut Ids) -> Sample {
    let pairing = match row.id_pairing {
        Id::Number(number) => number.to_string(),
        Id::Text(text) => text,
    };
    // A pair with several annotators has several rows.
    let id = ids.next(&pairing);
    let names = match (row.model_A, row.model_B) {
        (Some(a), Some(b)) if a != b && !a.is_empty() && !b.is_empty() => [a, b],
        _ => ["A".to_owned(), "B".to_owned()],
    };
    let annotation = row.eval_annotation;
    let preference = annotation.as_ref().and_then(|annotation| annotation.preferred(&names));
    let scores = |side| annotation.as_ref().map(|annotation| annotation.scores(side)).unwrap_or_default();
    let texts = [row.model_A_paragraph, row.model_B_paragraph];
    let candidates = names.into_iter().zip(texts).enumerate();
    let categories = row.labels.filter(|labels| !labels.is_empty()).map(|labels| labels.join("\n").to_lowercase());
    let further = [("categories", categories), ("paragraph", row.id_paragraph)];
    Sample {
        id,
        context: row.original_paragraph.into(),
        instruction: row.instruction.map(Into::into),
        texts: further.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))).collect(),
        candidates: candidates
            .map(|(side, (id, text))| Candidate { id, text: text.into(), scores: scores(side) })
            .collect(),
        references: row.reference_paragraph.into_iter().map(Into::into).collect(),
        preference,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{public_file, refusal};
    use super::*;

    #[test]
    fn the_public_file_gives_the_extended_choices_that_it_holds_itself() {
        let Some(path) = public_file("parareval_129.jsonl") else { return };
        let samples = IMPORTER.import(&path).expect("importable");
        assert_eq!(samples.len(), 129);
        let text = std::fs::read_to_string(path).expect("read");
        let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let agree = samples.iter().zip(&rows).filter(|(sample, row)| {
            let expected = match row["eval_annotation"]["extended_choice"].as_str().expect("a choice") {
                "Tie" => Preference::Tie,
                side => Preference::Candidate(row[format!("model_{side}")].as_str().expect("a model").to_owned()),
            };
            sample.preference == Some(expected)
        });
        assert_eq!(agree.count(), 129);
        assert!(samples.iter().all(|s| s.candidates.iter().all(|c| c.scores.len() >= 3) && s.references.len() == 1));
        let first = &samples[0];
        assert_eq!(
            (&*first.texts["categories"], first.texts["paragraph"].starts_with("nCTSF")),
            ("rewriting_light", true)
        );
        assert_eq!([0, 1].map(|side| first.candidates[side].scores["rewriting_light"]), [0.0, 1.0]);
    }

    #[test]
    fn ids_are_unique_also_where_a_pair_is_called_as_another_is_numbered() {
        let mut ids = Ids::default();
        let given: Vec<String> = ["7", "7#2", "7", "7", "7#2", "8"].iter().map(|pairing| ids.next(pairing)).collect();
        assert_eq!(given, ["7", "7#2", "7#3", "7#4", "7#2#2", "8"]);
    }

    fn row(preference: &str, correct: [bool; 2], related: [&str; 2]) -> String {
        format!(
            r#"{{"id_pairing": 7, "model_A": "m", "model_B": "n", "original_paragraph": "o", "reference_paragraph": "r", "instruction": "i",
            "model_A_paragraph": "a", "model_B_paragraph": "b", "eval_annotation": {{"preference": "{preference}", "acceptable": "A only",
            "correctness_A": {}, "correctness_B": {}, "relatedness_A": "{}", "relatedness_B": "{}"}}}}"#,
            correct[0], correct[1], related[0], related[1]
        )
        .replace('\n', " ")
    }

    #[test]
    fn without_a_choice_the_only_correct_then_the_only_related_revision_is_preferred() {
        let rows = [
            row("B", [true, false], ["Yes strictly", "No"]),
            row("None", [false, true], ["Yes strictly", "No"]),
            row("Both", [true, true], ["Yes with additional modifications", "No"]),
            row("None", [false, false], ["No", "No"]),
        ];
        let samples = IMPORTER.import_bytes(rows.join("\n").as_bytes(), "f.jsonl").expect("importable");
        let candidate = |id: &str| Some(Preference::Candidate(id.to_owned()));
        assert_eq!(
            samples.iter().map(|s| s.preference.clone()).collect::<Vec<_>>(),
            [candidate("n"), candidate("n"), candidate("m"), Some(Preference::Tie)]
        );
        assert_eq!(samples.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["7", "7#2", "7#3", "7#4"]);
        let scores = &samples[2].candidates[0].scores;
        assert_eq!((scores["relatedness"], scores["correctness"], scores["acceptable"]), (1.0, 1.0, 1.0));
        assert_eq!(samples[2].candidates[1].scores["acceptable"], 0.0);
    }

    #[test]
    fn a_malformed_file_is_refused_with_the_key_path() {
        let message = refusal("parareval", &row("C", [true, true], ["No", "No"]));
        assert!(message.contains("at `line 1`: field `eval_annotation.preference`: unknown variant `C`"), "{message}");
        assert!(refusal("parareval", r#"{"id_pairing": 1}"#).contains("missing field `original_paragraph`"));
    }
}
