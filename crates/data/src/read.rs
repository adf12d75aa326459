//! Files of JSON lines as checked records with unique ids.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::line_error::shown;
use crate::{DataError, JsonLines, LineError, Problems, Sample};

/// A kind of line with an id that is unique in its file.
pub trait Record: DeserializeOwned {
    /// How messages call it: `sample`.
    const KIND: &'static str;
    /// A line as it should be, for hints.
    const EXAMPLE: &'static str;

    /// The id.
    fn id(&self) -> &str;

    /// All that is wrong with the content beyond its shape and id; [`LineError::content`] makes one.
    fn check(&self) -> Vec<LineError>;
}

impl Record for Sample {
    const KIND: &'static str = "sample";
    const EXAMPLE: &'static str = r#"{"id": "1", "context": "…", "candidates": [{"id": "a", "text": "…"}, {"id": "b", "text": "…"}]}"#;

    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Vec<LineError> {
        Self::check(self)
    }
}

/// What a lenient reading came to.
#[derive(Debug)]
pub struct ReadReport<T> {
    /// The good records with their line numbers, in the order of the file.
    pub records: Vec<(usize, T)>,
    /// What was passed over.
    pub problems: Problems,
}

/// The samples of a JSONL file, `-` for standard input: all of them or the first `limit`.
///
/// A file with any broken line (among those read) is refused with all its problems; see [`read_lenient`] for the other policy.
pub fn read_samples(path: &Path, limit: Option<usize>) -> Result<Vec<Sample>, DataError> {
    read_strict(path, limit)
}

/// As [`read_samples`], for any kind of record.
pub fn read_strict<T: Record>(path: &Path, limit: Option<usize>) -> Result<Vec<T>, DataError> {
    let report = read_lenient(path, limit)?;
    if report.problems.is_empty() {
        Ok(report.records.into_iter().map(|(_, r)| r).collect())
    } else {
        Err(DataError::Problems(report.problems))
    }
}

/// The good records of a file (all or the first `limit`), and what is wrong with the other lines up to there.
///
/// Of two records with one id the second is the problem. A file that cannot be opened, that is empty or that is a JSON array is an error
/// here too; one whose reading fails half-way gives what came before and the failure as the last problem.
pub fn read_lenient<T: Record>(path: &Path, limit: Option<usize>) -> Result<ReadReport<T>, DataError> {
    read_from(open(path)?, file_name(path), limit)
}

/// As [`read_lenient`], from any reader; `file` is its name in messages.
pub fn read_from<T: Record>(reader: impl BufRead, file: String, limit: Option<usize>) -> Result<ReadReport<T>, DataError> {
    let mut records = Records::new(reader, file, limit)?;
    let good = records.by_ref().collect();
    Ok(ReadReport { records: good, problems: records.into_problems() })
}

/// The good records of a file with their line numbers, one at a time, by the rules of [`read_lenient`]: for files that are longer than
/// memory. What is kept of those that were read is their ids.
pub struct Records<T, R> {
    lines: JsonLines<T, R>,
    /// Read ahead, to tell an empty file.
    first: Option<(usize, T)>,
    left: usize,
    lines_of_ids: BTreeMap<String, usize>,
    problems: Problems,
}

impl<T: Record> Records<T, Box<dyn BufRead>> {
    /// The records of a file, `-` for standard input: all of them or the first `limit`.
    pub fn open(path: &Path, limit: Option<usize>) -> Result<Self, DataError> {
        Self::new(open(path)?, file_name(path), limit)
    }
}

impl<T: Record, R: BufRead> Records<T, R> {
    /// The records of any reader; `file` is its name in messages.
    pub fn new(mut reader: R, file: String, limit: Option<usize>) -> Result<Self, DataError> {
        let starts_as_array = reader.fill_buf().is_ok_and(|start| start.trim_ascii_start().starts_with(b"["));
        if starts_as_array {
            return Err(DataError::Array { file });
        }
        let problems = Problems { example: Some(T::EXAMPLE), ..Problems::new(file) };
        let left = limit.unwrap_or(usize::MAX);
        let mut records = Self { lines: JsonLines::new(reader), first: None, left, lines_of_ids: BTreeMap::new(), problems };
        records.first = records.read();
        if records.first.is_none() && records.problems.is_empty() && limit != Some(0) {
            return Err(DataError::Empty { file: records.problems.file, example: T::EXAMPLE });
        }
        Ok(records)
    }

    /// What was wrong with the lines that were passed over so far.
    pub fn into_problems(self) -> Problems {
        self.problems
    }

    fn read(&mut self) -> Option<(usize, T)> {
        while self.left > 0 {
            let (number, record) = self.lines.next()?;
            match record {
                Err(error) => self.problems.push(number, error),
                Ok(record) => {
                    let wrong = check(&record, number, &mut self.lines_of_ids);
                    if wrong.is_empty() {
                        self.left -= 1;
                        return Some((number, record));
                    }
                    for error in wrong {
                        self.problems.push(number, error);
                    }
                }
            }
        }
        None
    }
}

impl<T: Record, R: BufRead> Iterator for Records<T, R> {
    type Item = (usize, T);

    fn next(&mut self) -> Option<(usize, T)> {
        self.first.take().or_else(|| self.read())
    }
}

fn check<T: Record>(record: &T, number: usize, lines_of_ids: &mut BTreeMap<String, usize>) -> Vec<LineError> {
    let mut wrong = record.check();
    let id = record.id();
    if id.is_empty() {
        wrong.insert(0, LineError::content("id", "empty"));
    } else if let Some(first) = lines_of_ids.get(id) {
        wrong.insert(0, LineError::content("id", format!("{} `{}` was already on line {first}", T::KIND, shown(id))));
    } else if wrong.is_empty() {
        lines_of_ids.insert(id.to_owned(), number);
    }
    wrong
}

/// Opens a file, or standard input for `-`.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, DataError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let refused = |source| DataError::Open { file: file_name(path), source };
    let file = File::open(path).map_err(refused)?;
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(BufReader::new(file)))
}

/// How messages call a file.
pub(crate) fn file_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"id":"s1","context":"c","candidates":[{"id":"a","text":"x"},{"id":"b","text":""}]}"#;

    fn lenient(text: &str, limit: Option<usize>) -> Result<ReadReport<Sample>, DataError> {
        read_from(text.as_bytes(), "demo.jsonl".into(), limit)
    }

    fn problem(line: &str) -> String {
        let report = lenient(line, None).expect("readable");
        assert!(report.records.is_empty());
        report.problems.to_string()
    }

    #[test]
    fn empty_text_and_a_single_candidate_are_offered() {
        let report = lenient(r#"{"id":"s1","context":"","candidates":[{"id":"a","text":""}]}"#, None).expect("readable");
        assert_eq!(report.records.len(), 1);
    }

    #[test]
    fn a_second_use_of_an_id_is_the_problem_and_names_both_lines() {
        let report = lenient(&format!("{GOOD}\n\n{GOOD}\n"), None).expect("readable");
        assert_eq!(report.records.len(), 1);
        assert_eq!(report.problems.to_string(), "broken line 3 of demo.jsonl: field `id`: sample `s1` was already on line 1");
    }

    #[test]
    fn a_field_of_another_type_is_told_with_a_good_line() {
        let text = problem(r#"{"id":7,"context":"c","candidates":[]}"#);
        assert!(text.contains("field `id`: invalid type: integer `7`") && text.contains("hint: a good line: {\"id\": \"1\""), "{text}");
        assert!(!problem("{").contains("a good line"));
    }

    #[test]
    fn the_id_of_a_refused_sample_can_be_used_again() {
        let text = format!("{}\n{GOOD}\n", r#"{"id":"s1","context":"c","candidates":[]}"#);
        let report = lenient(&text, None).expect("readable");
        assert_eq!((report.records.len(), report.records[0].0, report.problems.count()), (1, 2, 1));
    }

    #[test]
    fn the_limit_counts_good_samples_and_ends_the_reading() {
        let text = format!("{{\n{GOOD}\n{}\nbroken\n", GOOD.replace("s1", "s2"));
        let report = lenient(&text, Some(2)).expect("readable");
        assert_eq!((report.records.len(), report.problems.count()), (2, 1));
        assert_eq!(lenient(&text, Some(0)).expect("nothing asked").records.len(), 0);
    }

    #[test]
    fn content_is_checked_with_the_field_named() {
        let cases = [
            (r#"{"id":"","context":"c","candidates":[{"id":"a","text":"x"}]}"#, "field `id`: empty"),
            (r#"{"id":"s","context":"c","candidates":[]}"#, "field `candidates`: there is no candidate"),
            (r#"{"id":"s","context":"c","candidates":[{"id":"","text":"x"}]}"#, "field `candidates[0].id`: empty"),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x"},{"id":"a","text":"y"}]}"#,
                "field `candidates[1].id`: candidate `a` was already at candidates[0]",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"alpha","text":"x"}],"preference":"alpah"}"#,
                "field `preference`: no candidate is called `alpah`; the nearest is `alpha`",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"tie","text":"x"}],"preference":"tie"}"#,
                "field `candidates[0].id`: a candidate called `tie` cannot be told from a preference for none",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"fluency":1,"fluency":2}}]}"#,
                "duplicate key `fluency`",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"":1}}]}"#,
                "field `candidates[0].scores`: an attribute",
            ),
            (r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"f":null}}]}"#, "invalid type: null"),
            (r#"{"id":"s","context":"c","canddates":[]}"#, "unknown field `canddates`"),
            (r#"{"id":"s","context":"c"}"#, "missing field `candidates`"),
        ];
        for (line, expected) in cases {
            let found = problem(line);
            assert!(found.contains(expected), "{line}\n{found}");
        }
    }

    #[test]
    fn all_problems_are_listed() {
        let text = format!("{{\n{GOOD}\n{GOOD}\n{{\"id\":\"\",\"context\":\"c\",\"candidates\":[]}}\n");
        let found = lenient(&text, None).expect("readable").problems.to_string();
        assert!(found.starts_with("4 problems in demo.jsonl\n  line 1: "), "{found}");
    }

    #[test]
    fn an_empty_file_and_an_array_are_refused_with_a_hint() {
        assert!(lenient(" \n\n", None).expect_err("empty").to_string().contains("hint: each line is one JSON object: {\"id\""));
        assert!(lenient("\n [\n{}]", None).expect_err("array").to_string().contains("jq -c '.[]'"));
    }

    #[test]
    fn a_missing_file_and_a_folder_are_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let missing = read_samples(&folder.path().join("absent.jsonl"), None).expect_err("missing").to_string();
        assert!(missing.contains("absent.jsonl could not be opened") && missing.contains("hint:"), "{missing}");
        let wrong = read_samples(folder.path(), None).expect_err("folder").to_string();
        assert!(wrong.contains("hint: give one file"), "{wrong}");
    }

    #[test]
    fn strict_reading_refuses_what_lenient_reading_passes_over() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("d.jsonl");
        std::fs::write(&path, format!("{GOOD}\n{{\n")).expect("written");
        assert!(matches!(read_samples(&path, None), Err(DataError::Problems(p)) if p.count() == 1));
        assert_eq!(read_lenient::<Sample>(&path, None).expect("readable").records.len(), 1);
        assert_eq!(read_samples(&path, Some(1)).expect("the first is good").len(), 1);
    }
}
