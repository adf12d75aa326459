//! Human labels of samples: one line of JSON per label.

use std::collections::BTreeMap;
use std::path::Path;

use probity_lm::without_byte_order_mark;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::line_error::excerpt;
use crate::open::{file_name, read_whole};
use crate::sample::called_tie;
use crate::values::{MOST_SCORE, NumberError};
use crate::{DataError, JsonLines, LineError, LineProblems, Preference, TIE};

/// Maximum size of a label file: 1 GiB.
pub(crate) const LONGEST: u64 = 1 << 30;

const EXAMPLE: &str =
    r#"{"item": "1", "attribute": "coherence", "candidate_i": "a", "candidate_j": "b", "preferred": "a"}"#;

/// A question about a sample for a person.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelTask {
    /// Id of the sample.
    pub item: String,
    /// Attribute to judge; absent for overall quality.
    pub attribute: Option<String>,
    /// The candidates in question.
    pub subject: LabelSubject,
}

/// The candidates that a task is about, by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelSubject {
    /// Which of two candidates is better. They differ, and neither is called `tie`.
    Pair {
        /// Id of the first candidate.
        i: String,
        /// Id of the second candidate.
        j: String,
    },
    /// The quality of one candidate.
    Candidate(String),
}

impl LabelTask {
    /// The task in canonical form: the order of a pair does not matter.
    #[must_use]
    pub fn key(&self) -> Self {
        let mut key = self.clone();
        if let LabelSubject::Pair { i, j } = &mut key.subject
            && i > j
        {
            std::mem::swap(i, j);
        }
        key
    }
}

/// A person's answer to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Label {
    /// The better candidate of a pair, or a tie.
    Preferred(Preference),
    /// Score of the candidate: finite, higher is better.
    Score(f64),
    /// The person skipped the task.
    Skipped,
    /// The earlier label is withdrawn.
    Withdrawn,
}

/// A line of a label file.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelRow {
    /// The task.
    pub task: LabelTask,
    /// The label.
    pub label: Label,
    /// Who made the label; absent if unknown.
    pub annotator: Option<String>,
    /// Time taken.
    pub seconds: Option<f64>,
}

/// The labels of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelFile {
    /// File name for messages.
    pub file: String,
    /// The valid lines with their numbers: the last label of each task and annotator, unless withdrawn.
    pub rows: Vec<(usize, LabelRow)>,
    /// Number of the last line if it was written only in part. It is ignored.
    pub half_line: Option<usize>,
}

/// Reads a label file, or standard input for `-`. A file with an invalid line is rejected with all of its problems; a
/// partially written last line is ignored.
pub fn read_labels(path: &Path) -> Result<LabelFile, DataError> {
    let file = file_name(path);
    let bytes = read_whole(path, LONGEST)?;
    if bytes.trim_ascii().is_empty() {
        return Err(DataError::Empty { file, example: EXAMPLE });
    }
    LabelFile::parse(&bytes, file)
}

impl LabelFile {
    /// The labels in the bytes of a file.
    pub(crate) fn parse(bytes: &[u8], file: String) -> Result<Self, DataError> {
        let whole = whole_lines(bytes);
        let mut problems = LineProblems { example: Some(EXAMPLE), ..LineProblems::new(file.clone()) };
        let mut counting: BTreeMap<(Option<String>, LabelTask), (usize, LabelRow)> = BTreeMap::new();
        for (line, read) in JsonLines::<LabelLine, _>::new(without_byte_order_mark(whole)) {
            match read.map_err(|error| vec![error]).and_then(LabelLine::row) {
                Ok(row) => {
                    counting.insert((row.annotator.clone(), row.task.key()), (line, row));
                }
                Err(wrong) => wrong.into_iter().for_each(|error| problems.push(line, error)),
            }
        }
        if !problems.is_empty() {
            return Err(DataError::Problems(problems));
        }
        let mut rows: Vec<_> = counting.into_values().filter(|(_, row)| row.label != Label::Withdrawn).collect();
        rows.sort_unstable_by_key(|(line, _)| *line);
        // Splitting whole lines at their ends leaves an empty last item, which counts as the partial line.
        let lines = || whole.split(|byte| *byte == b'\n').count();
        Ok(Self { file, rows, half_line: (whole.len() < bytes.len()).then(lines) })
    }
}

/// The bytes without a partially written last line: one without a line end that starts like our lines and ends within
/// its JSON. Any other text may be the user's own and is not ignored.
pub(crate) fn whole_lines(bytes: &[u8]) -> &[u8] {
    const START: &[u8] = br#"{"item":"#;
    let (whole, last) = bytes.split_at(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    let last = without_byte_order_mark(last);
    let is_ours = last.starts_with(START) || START.starts_with(last);
    let is_cut = is_ours && serde_json::from_slice::<Value>(last).is_err_and(|error| error.is_eof());
    if is_cut { whole } else { bytes }
}

/// The serialised form of a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelLine {
    item: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate_i: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate_j: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preferred: Option<Preference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skipped: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    withdrawn: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

impl LabelRow {
    /// The line, with its line end.
    pub(crate) fn line(&self) -> String {
        let LabelTask { item, attribute, subject } = self.task.clone();
        let (candidate_i, candidate_j, candidate) = match subject {
            LabelSubject::Pair { i, j } => (Some(i), Some(j), None),
            LabelSubject::Candidate(candidate) => (None, None, Some(candidate)),
        };
        let (preferred, score) = match &self.label {
            Label::Preferred(preferred) => (Some(preferred.clone()), None),
            Label::Score(score) => (None, Some(*score)),
            Label::Skipped | Label::Withdrawn => (None, None),
        };
        let (skipped, withdrawn) = (self.label == Label::Skipped, self.label == Label::Withdrawn);
        let (annotator, seconds) = (self.annotator.clone(), self.seconds);
        let line = LabelLine {
            item,
            attribute,
            candidate_i,
            candidate_j,
            candidate,
            preferred,
            score,
            skipped,
            withdrawn,
            annotator,
            seconds,
        };
        serde_json::to_string(&line).expect("texts and finite numbers") + "\n"
    }
}

impl LabelLine {
    /// The row, or all errors of the line.
    fn row(self) -> Result<LabelRow, Vec<LineError>> {
        let mut wrong = Vec::new();
        let subject = LabelSubject::from_fields(self.candidate, self.candidate_i, self.candidate_j);
        let label = match (self.preferred, self.score, self.skipped, self.withdrawn) {
            (Some(preferred), None, false, false) => Ok(Label::Preferred(preferred)),
            (None, Some(score), false, false) => Ok(Label::Score(score)),
            (None, None, true, false) => Ok(Label::Skipped),
            (None, None, false, true) => Ok(Label::Withdrawn),
            _ => Err(LineError::content(
                "",
                "exactly one of `preferred`, `score`, `skipped` and `withdrawn` is \
                                             required",
            )),
        };
        if let (Ok(subject), Ok(label)) = (&subject, &label) {
            wrong.extend(unfit(subject, label));
        }
        let empty = |field: &str, text: Option<&String>| {
            text.is_some_and(String::is_empty).then(|| LineError::content(field, "empty"))
        };
        if self.score.is_some_and(|score| score.abs() > MOST_SCORE) {
            wrong.push(LineError::content("score", NumberError::Far.to_string()));
        }
        wrong.extend(empty("item", Some(&self.item)));
        wrong.extend(empty("attribute", self.attribute.as_ref()));
        wrong.extend(empty("annotator", self.annotator.as_ref()));
        if self.seconds.is_some_and(|seconds| seconds < 0.0) {
            wrong.push(LineError::content("seconds", "below 0"));
        }
        match (subject, label) {
            (Ok(subject), Ok(label)) if wrong.is_empty() => {
                let task = LabelTask { item: self.item, attribute: self.attribute, subject };
                Ok(LabelRow { task, label, annotator: self.annotator, seconds: self.seconds })
            }
            (subject, label) => Err(subject.err().into_iter().chain(label.err()).chain(wrong).collect()),
        }
    }
}

/// The error of a label that does not fit its candidates.
fn unfit(subject: &LabelSubject, label: &Label) -> Option<LineError> {
    match (subject, label) {
        (LabelSubject::Pair { i, j }, Label::Preferred(Preference::Candidate(id))) if id != i && id != j => {
            let why = format!("`{}` is neither candidate, nor `{TIE}`", excerpt(id));
            Some(LineError::content("preferred", why))
        }
        (LabelSubject::Candidate(_), Label::Preferred(_)) => {
            Some(LineError::content("preferred", "a single candidate takes a `score`"))
        }
        (LabelSubject::Pair { .. }, Label::Score(_)) => {
            Some(LineError::content("score", "a pair of candidates takes `preferred`"))
        }
        _ => None,
    }
}

impl LabelSubject {
    /// Whether this candidate is the first of a pair.
    #[must_use]
    pub fn is_first(&self, candidate: &str) -> bool {
        matches!(self, Self::Pair { i, .. } if i == candidate)
    }

    /// The subject named by the field `candidate`, or by `candidate_i` and `candidate_j`.
    pub(crate) fn from_fields(
        candidate: Option<String>,
        candidate_i: Option<String>,
        candidate_j: Option<String>,
    ) -> Result<Self, LineError> {
        match (candidate, candidate_i, candidate_j) {
            (Some(candidate), None, None) => Ok(Self::Candidate(candidate)),
            (None, Some(i), Some(j)) if i == j => Err(LineError::content("candidate_j", "same as `candidate_i`")),
            (None, Some(i), Some(_)) if i == TIE => Err(called_tie("candidate_i")),
            (None, Some(_), Some(j)) if j == TIE => Err(called_tie("candidate_j")),
            (None, Some(i), Some(j)) => Ok(Self::Pair { i, j }),
            _ => Err(LineError::content("", "either `candidate`, or `candidate_i` and `candidate_j`, is required")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = r#"{"item":"1","attribute":"flow","candidate_i":"a","candidate_j":"b","preferred":"a"}"#;

    fn read(lines: &[&str]) -> Result<Vec<(usize, LabelRow)>, DataError> {
        LabelFile::parse((lines.join("\n") + "\n").as_bytes(), "l.jsonl".into()).map(|file| file.rows)
    }

    fn error_text(line: &str) -> String {
        read(&[line]).expect_err("refused").to_string()
    }

    #[test]
    fn every_kind_of_line_is_read_as_it_is_written() {
        let lines = [
            PAIR,
            r#"{"item":"1","candidate_i":"a","candidate_j":"b","preferred":"tie","annotator":"Ann","seconds":1.25}"#,
            r#"{"item":"2","attribute":"flow","candidate":"tie","score":4.0,"annotator":"Ann"}"#,
            r#"{"item":"3","candidate":"a","skipped":true}"#,
        ];
        let rows = read(&lines).expect("good");
        assert_eq!(rows.iter().map(|(_, row)| row.line()).collect::<Vec<_>>().concat(), lines.join("\n") + "\n");
        assert_eq!(rows.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(rows[0].1.label, Label::Preferred(Preference::Candidate("a".into())));
        assert_eq!((&rows[1].1.label, rows[1].1.seconds), (&Label::Preferred(Preference::Tie), Some(1.25)));
        // Other programs write missing values as null.
        assert_eq!(read(&[&PAIR.replace('}', r#","score":null,"annotator":null}"#)]).expect("good")[0].1, rows[0].1);
    }

    #[test]
    fn the_last_line_of_a_task_counts_by_each_annotator_and_whatever_its_order() {
        let by = |annotator: &str, line: &str| line.replace('}', &format!(r#","annotator":"{annotator}"}}"#));
        let turned = r#"{"item":"1","attribute":"flow","candidate_i":"b","candidate_j":"a","preferred":"b"}"#;
        let withdrawn = r#"{"item":"1","attribute":"flow","candidate_i":"a","candidate_j":"b","withdrawn":true}"#;
        let other = r#"{"item":"1","candidate_i":"a","candidate_j":"b","preferred":"a"}"#;
        let lines = [by("Ann", PAIR), by("Bob", PAIR), PAIR.to_owned(), by("Ann", turned), other.to_owned()];
        let counting = |lines: &[String]| {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            read(&lines).expect("good").iter().map(|(line, _)| *line).collect::<Vec<_>>()
        };
        assert_eq!(counting(&lines), [2, 3, 4, 5]);
        assert_eq!(counting(&[&lines[..], &[by("Ann", withdrawn)]].concat()), [2, 3, 5]);
        assert_eq!(counting(&[&lines[..], &[by("Ann", withdrawn), by("Ann", PAIR)]].concat()), [2, 3, 5, 7]);
    }

    #[test]
    fn what_a_line_cannot_mean_is_refused_by_line_and_field() {
        let cases = [
            (PAIR.replace(r#""preferred":"a""#, r#""preferred":"c""#), "field `preferred`: `c` is neither candidate"),
            (PAIR.replace(r#""b""#, r#""a""#), "field `candidate_j`: same as `candidate_i`"),
            (
                PAIR.replace(r#""b""#, r#""tie""#),
                "field `candidate_j`: a candidate named `tie` is ambiguous with a tie",
            ),
            (
                PAIR.replace(r#""preferred":"a""#, r#""score":1"#),
                "field `score`: a pair of candidates takes \
                                                                  `preferred`",
            ),
            (PAIR.replace(r#""preferred":"a""#, r#""skipped":false"#), "exactly one of `preferred`"),
            (PAIR.replace('}', r#","skipped":true}"#), "exactly one of `preferred`"),
            (PAIR.replace('}', r#","candidate":"a"}"#), "either `candidate`, or"),
            (PAIR.replace("flow", ""), "field `attribute`: empty"),
            (PAIR.replace(r#""item":"1""#, r#""item":"""#), "field `item`: empty"),
            (PAIR.replace('}', r#","annotator":""}"#), "field `annotator`: empty"),
            (PAIR.replace('}', r#","seconds":-1}"#), "field `seconds`: below 0"),
            (PAIR.replace('}', r#","annotater":"x"}"#), "unknown field `annotater`"),
            (PAIR.replace('}', ""), "EOF"),
            (
                r#"{"item":"1","candidate":"a","preferred":"a"}"#.to_owned(),
                "field `preferred`: a single candidate takes a `score`",
            ),
        ];
        for (line, why) in cases {
            let told = error_text(&line);
            assert!(told.starts_with("broken line 1 of l.jsonl: ") && told.contains(why), "{line}\n{told}");
        }
        let many = read(&[PAIR, "{", PAIR, "[]"]).expect_err("refused").to_string();
        assert!(many.contains("2 problems") && many.contains("line 2: ") && many.contains("line 4: "), "{many}");
    }

    #[test]
    fn wherever_writing_was_cut_the_lines_before_are_read() {
        let lines = [PAIR, r#"{"item":"größer\n","candidate":"a","score":-2.5,"seconds":1e-7}"#]
            .map(|line| format!("{line}\n"));
        let whole = lines.concat();
        for cut in 0..whole.len() {
            let read = LabelFile::parse(&whole.as_bytes()[..cut], "l.jsonl".into()).expect("good before the cut");
            // A line is complete once its last bracket is written.
            let there = lines.iter().scan(0, |end, line| {
                *end += line.len();
                Some(*end - 1)
            });
            let there = there.filter(|end| *end <= cut).count();
            assert_eq!(read.rows.len(), there, "cut at {cut}");
            let begun =
                cut > 0 && !whole.as_bytes()[..cut].ends_with(b"\n") && !whole.as_bytes()[..cut].ends_with(b"}");
            assert_eq!(read.half_line, begun.then_some(there + 1), "cut at {cut}");
        }
    }

    #[test]
    fn a_last_line_that_is_not_ours_is_no_half_line() {
        for last in ["notes", r#"{"id":"1","context":"#, r#"{"item":1}"#, r#"{"item":"1"} {"#] {
            let error = LabelFile::parse(format!("{PAIR}\n{last}").as_bytes(), "l.jsonl".into()).expect_err("refused");
            assert!(error.to_string().starts_with("broken line 2"), "{last}\n{error}");
        }
    }
}
