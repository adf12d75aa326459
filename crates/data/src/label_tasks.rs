//! Reads labelling tasks from a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use probity_lm::nearest;
use serde::Deserialize;

use crate::labels::{LabelSubject, LabelTask};
use crate::line_error::excerpt;
use crate::open::{file_name, open};
use crate::{DataError, JsonLines, LineError, LineProblems, Sample};

const EXAMPLE: &str = r#"{"item": "1", "attribute": "coherence", "candidate_i": "a", "candidate_j": "b"}"#;

/// A line of tasks. Other fields are ignored.
#[derive(Deserialize)]
struct TaskLine {
    item: String,
    #[serde(default)]
    attribute: Option<String>,
    #[serde(default)]
    candidate_i: Option<String>,
    #[serde(default)]
    candidate_j: Option<String>,
    #[serde(default)]
    candidate: Option<String>,
}

/// Reads the tasks of a JSON lines file, or of standard input for `-`, in order and without duplicates.
///
/// A task has an `item`, usually an `attribute`, and either a `candidate` or a pair (`candidate_i`, `candidate_j`), as
/// in `to_label.jsonl` of `probity meta`. A file with an invalid line or an unknown id is rejected with all of its
/// problems.
pub fn read_label_tasks(path: &Path, samples: &[Sample]) -> Result<Vec<LabelTask>, DataError> {
    let file = file_name(path);
    let known: BTreeMap<&str, &Sample> = samples.iter().map(|sample| (sample.id.as_str(), sample)).collect();
    let mut problems = LineProblems { example: Some(EXAMPLE), ..LineProblems::new(file.clone()) };
    let (mut tasks, mut seen) = (Vec::new(), BTreeSet::new());
    for (line, read) in JsonLines::<TaskLine, _>::new(open(path)?) {
        match read.map_err(|error| vec![error]).and_then(|read| read.task(&known)) {
            Ok(task) if seen.insert(task.key()) => tasks.push(task),
            Ok(_) => {}
            Err(wrong) => wrong.into_iter().for_each(|error| problems.push(line, error)),
        }
    }
    if !problems.is_empty() {
        return Err(DataError::Problems(problems));
    }
    if tasks.is_empty() { Err(DataError::Empty { file, example: EXAMPLE }) } else { Ok(tasks) }
}

impl TaskLine {
    /// The task, or all errors of the line.
    fn task(self, samples: &BTreeMap<&str, &Sample>) -> Result<LabelTask, Vec<LineError>> {
        let mut wrong = self.unknown_names(samples);
        if self.attribute.as_ref().is_some_and(String::is_empty) {
            wrong.push(LineError::content("attribute", "empty").with_hint("omit it to label overall preference"));
        }
        match LabelSubject::from_fields(self.candidate, self.candidate_i, self.candidate_j) {
            Ok(subject) if wrong.is_empty() => Ok(LabelTask { item: self.item, attribute: self.attribute, subject }),
            subject => {
                wrong.extend(subject.err());
                Err(wrong)
            }
        }
    }

    /// Ids that do not occur in the samples.
    fn unknown_names(&self, samples: &BTreeMap<&str, &Sample>) -> Vec<LineError> {
        let Some(sample) = samples.get(self.item.as_str()) else { return vec![unknown_item(&self.item, samples)] };
        let candidates = [&self.candidate_i, &self.candidate_j, &self.candidate];
        let named = ["candidate_i", "candidate_j", "candidate"].into_iter().zip(candidates);
        named.filter_map(|(field, id)| unknown_candidate(sample, field, id.as_deref()?)).collect()
    }
}

fn unknown_item(item: &str, samples: &BTreeMap<&str, &Sample>) -> LineError {
    let near = nearest(item, samples.keys().copied());
    let why = format!("unknown sample `{}`{}", excerpt(item), the_nearest(near));
    LineError::content("item", why).with_hint("pass the samples of the tasks with --data")
}

fn unknown_candidate(sample: &Sample, field: &str, id: &str) -> Option<LineError> {
    if sample.candidate(id).is_some() {
        return None;
    }
    let near = nearest(id, sample.candidates.iter().map(|candidate| candidate.id.as_str()));
    let why = format!("sample `{}` has no candidate `{}`{}", excerpt(&sample.id), excerpt(id), the_nearest(near));
    Some(LineError::content(field, why).with_hint("pass the samples of the tasks with --data"))
}

fn the_nearest(near: Option<&str>) -> String {
    near.map(|name| format!("; did you mean `{}`?", excerpt(name))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::hint_of;

    fn samples() -> Vec<Sample> {
        let lines = [
            r#"{"id":"one","context":"","candidates":[{"id":"a","text":"x"},{"id":"b","text":"y"}]}"#,
            r#"{"id":"two","context":"","candidates":[{"id":"a","text":"x"},{"id":"tie","text":"y"}]}"#,
        ];
        lines.map(|line| serde_json::from_str(line).expect("a sample")).into()
    }

    fn read(lines: &[&str]) -> Result<Vec<LabelTask>, DataError> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("tasks.jsonl");
        std::fs::write(&path, lines.join("\n")).expect("written");
        read_label_tasks(&path, &samples())
    }

    #[test]
    fn tasks_come_in_the_order_of_the_file_and_each_once_whichever_candidate_stands_first() {
        let tasks = read(&[
            r#"{"item":"two","candidate":"a"}"#,
            r#"{"item":"one","metric":"bleu","attribute":"flow","candidate_i":"b","candidate_j":"a","difference":0.1}"#,
            r#"{"item":"one","metric":"chrf","attribute":"flow","candidate_i":"a","candidate_j":"b"}"#,
            r#"{"item":"one","attribute":null,"candidate_i":"a","candidate_j":"b"}"#,
            // A single candidate cannot get a preference.
            r#"{"item":"two","candidate":"tie"}"#,
        ])
        .expect("readable");
        let pair = |i: &str, j: &str| LabelSubject::Pair { i: i.into(), j: j.into() };
        let subjects: Vec<_> = tasks.iter().map(|task| (task.item.as_str(), task.subject.clone())).collect();
        let one = |id: &str| LabelSubject::Candidate(id.into());
        assert_eq!(
            subjects,
            [("two", one("a")), ("one", pair("b", "a")), ("one", pair("a", "b")), ("two", one("tie"))]
        );
        assert_eq!((tasks[1].attribute.as_deref(), &tasks[2].attribute), (Some("flow"), &None));
    }

    #[test]
    fn all_problems_are_told_with_their_lines() {
        let error = read(&[
            r#"{"item":"tow","candidate":"a"}"#,
            r#"{"item":"one","candidate_i":"a","candidate_j":"c"}"#,
            r#"{"item":"one","candidate_i":"a"}"#,
            r#"{"item":"one","candidate_i":"a","candidate_j":"a","attribute":""}"#,
            r#"{"item":"two","candidate_i":"a","candidate_j":"tie"}"#,
            r#"{"item":"one","candidate":"a"}"#,
            r#"{"candidate":"a"}"#,
        ])
        .expect_err("refused");
        let told = error.to_string();
        for part in [
            "line 1: field `item`: unknown sample `tow`; did you mean `two`?",
            "line 2: field `candidate_j`: sample `one` has no candidate `c`",
            "line 3: either `candidate`, or",
            "line 4: field `attribute`: empty",
            "line 4: field `candidate_j`: same as `candidate_i`",
            "line 5: field `candidate_j`: a candidate named `tie` is ambiguous with a tie",
            "line 7: missing field `item`",
        ] {
            assert!(told.contains(part), "{part}\n{told}");
        }
        assert!(!told.contains("line 6"), "{told}");
        assert!(hint_of(&error).contains("with --data") && hint_of(&error).contains("another id"), "{error:?}");
        assert!(matches!(read(&[""]), Err(DataError::Empty { .. })));
    }
}
