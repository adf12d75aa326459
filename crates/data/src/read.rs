//! Reads JSON lines as validated records with unique ids.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::array::items_as_lines;
use crate::error::RecordUnit;
use crate::line_error::excerpt;
use crate::open::{file_name, open};
use crate::shape::wrong_with_sample;
use crate::{DataError, JsonLines, LineError, LineProblems, Sample};

/// A type of line with an id that is unique in its file.
pub trait Record: DeserializeOwned {
    /// Name of the type in messages, such as `sample`.
    const KIND: &'static str;
    /// An example of a valid line, for hints.
    const EXAMPLE: &'static str;
    /// Suggested fix for a duplicate id, if any.
    const ID_TWICE: Option<&'static str> = None;

    /// The id of the record.
    fn id(&self) -> &str;

    /// Validates the content beyond shape and id; errors are made by [`LineError::content`].
    fn check(&self) -> Vec<LineError>;

    /// An error of the raw line that the parsed value does not show.
    fn check_line(_line: &[u8]) -> Option<LineError> {
        None
    }

    /// All errors in the shape of a line, for types that can report more than the first.
    fn wrong_shape(_line: &Value) -> Vec<LineError> {
        Vec::new()
    }
}

impl Record for Sample {
    const KIND: &'static str = "sample";
    const ID_TWICE: Option<&'static str> = Some(
        "to group rows into one sample, map their candidates: --map candidate-id=COLUMN; to number the rows instead: \
         --map id:=",
    );
    const EXAMPLE: &'static str =
        r#"{"id": "1", "context": "…", "candidates": [{"id": "a", "text": "…"}, {"id": "b", "text": "…"}]}"#;

    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Vec<LineError> {
        Self::check(self)
    }

    fn wrong_shape(line: &Value) -> Vec<LineError> {
        wrong_with_sample(line)
    }
}

/// The result of a lenient read.
#[derive(Debug)]
pub struct ReadReport<T> {
    /// The valid records with their line numbers, in the order of the file.
    pub records: Vec<(usize, T)>,
    /// The errors of the other lines.
    pub problems: LineProblems,
}

impl<T> ReadReport<T> {
    /// The records if all lines are valid; otherwise all problems.
    pub fn strict(self) -> Result<Vec<T>, DataError> {
        if self.problems.is_empty() {
            Ok(self.records.into_iter().map(|(_, record)| record).collect())
        } else {
            Err(DataError::Problems(self.problems))
        }
    }
}

/// Reads the records of a JSON lines file, or of standard input for `-`.
///
/// A file with any invalid line is rejected with all of its problems; [`Records`] skips such lines.
pub fn read_strict<T: Record>(path: &Path) -> Result<Vec<T>, DataError> {
    read_from(open(path)?, file_name(path), None)?.strict()
}

/// Reads the valid records of JSON lines (all or the first `limit`) and the errors of the other lines up to there;
/// `file` is the file name for messages.
///
/// The second of two records with one id is an error. An empty file and a JSON array are rejected. If reading fails
/// midway, the result has the earlier records and the failure as its last problem.
pub fn read_from<T: Record>(
    reader: impl BufRead + Send,
    file: String,
    limit: Option<usize>,
) -> Result<ReadReport<T>, DataError> {
    let mut records = Records::new(reader, file, limit)?;
    let good = records.by_ref().collect();
    Ok(ReadReport { records: good, problems: records.into_problems() })
}

/// Numbered records, or all errors of each.
pub(crate) type RecordItems<'a, T> = Box<dyn Iterator<Item = (usize, Result<T, Vec<LineError>>)> + Send + 'a>;

/// Streams the valid records of a file with their line numbers, by the rules of [`read_from`]: for files larger than
/// memory. Only the ids of earlier records are kept.
pub struct Records<'a, T> {
    items: RecordItems<'a, T>,
    /// Read ahead, to detect an empty file.
    first: Option<(usize, T)>,
    left: usize,
    places_of_ids: BTreeMap<String, usize>,
    problems: LineProblems,
}

impl<T: Record + 'static> Records<'static, T> {
    /// Opens a JSON lines file, or standard input for `-`: all records or the first `limit`.
    pub fn open(path: &Path, limit: Option<usize>) -> Result<Self, DataError> {
        Self::new(open(path)?, file_name(path), limit)
    }
}

impl<'a, T: Record + 'a> Records<'a, T> {
    /// Streams the records of JSON lines from any reader; `file` is its name for messages.
    pub fn new(reader: impl BufRead + Send + 'a, file: String, limit: Option<usize>) -> Result<Self, DataError> {
        Self::lines(reader, LineProblems::new(file), limit)
    }

    /// Same as [`Records::new`], adding to existing problems.
    pub(crate) fn lines(
        reader: impl BufRead + Send + 'a,
        problems: LineProblems,
        limit: Option<usize>,
    ) -> Result<Self, DataError> {
        let (reader, unit) = items_as_lines(reader);
        let problems = LineProblems { unit, ..problems };
        let mut lines = JsonLines::<T, _>::new(reader);
        let items = std::iter::from_fn(move || {
            let (number, item) = lines.next()?;
            Some(match T::check_line(lines.line()) {
                Some(error) => (number, Err(vec![error])),
                None => (number, item.map_err(|error| with_more::<T>(error, lines.line()))),
            })
        });
        Self::from_items(Box::new(items), problems, limit)
    }
}

impl<'a, T: Record> Records<'a, T> {
    /// Streams the records among items, adding to existing problems.
    pub(crate) fn from_items(
        items: RecordItems<'a, T>,
        problems: LineProblems,
        limit: Option<usize>,
    ) -> Result<Self, DataError> {
        let problems = LineProblems { example: Some(T::EXAMPLE), ..problems };
        let left = limit.unwrap_or(usize::MAX);
        let mut records = Self { items, first: None, left, places_of_ids: BTreeMap::new(), problems };
        records.first = records.read();
        // A file with only invalid lines is not empty: its problems are more helpful.
        if records.first.is_none() && records.problems.is_empty() && limit != Some(0) {
            let LineProblems { file, unit, .. } = records.problems;
            return Err(match unit {
                RecordUnit::Index => DataError::NoRows { table: file },
                _ => DataError::Empty { file, example: T::EXAMPLE },
            });
        }
        Ok(records)
    }

    /// The problems of the lines skipped so far.
    pub fn into_problems(self) -> LineProblems {
        self.problems
    }

    fn read(&mut self) -> Option<(usize, T)> {
        while self.left > 0 {
            let (number, record) = self.items.next()?;
            let wrong = match record {
                Err(wrong) => wrong,
                Ok(record) => {
                    let wrong = self.check(&record, number);
                    if wrong.is_empty() {
                        // The limit counts valid records; otherwise each invalid line would shrink a run over the first
                        // ten.
                        self.left -= 1;
                        return Some((number, record));
                    }
                    wrong
                }
            };
            for error in wrong {
                self.problems.push(number, error);
            }
        }
        None
    }

    fn check(&mut self, record: &T, number: usize) -> Vec<LineError> {
        let mut wrong = record.check();
        let id = record.id();
        if id.is_empty() {
            wrong.insert(0, LineError::content("id", "empty"));
        } else if let Some(first) = self.places_of_ids.get(id) {
            let why = format!("duplicate {} `{}`, first on {} {first}", T::KIND, excerpt(id), self.problems.unit);
            let error = LineError::content("id", why);
            wrong.insert(0, T::ID_TWICE.into_iter().fold(error, LineError::with_hint));
        // A rejected record does not claim its id, so a corrected copy further down is accepted.
        } else if wrong.is_empty() {
            self.places_of_ids.insert(id.to_owned(), number);
        }
        wrong
    }
}

impl<T: Record> Iterator for Records<'_, T> {
    type Item = (usize, T);

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.read())
    }
}

/// The parser's first error with its column, and all other shape errors of the line.
fn with_more<T: Record>(first: LineError, line: &[u8]) -> Vec<LineError> {
    let shape = matches!(first, LineError::Shape { .. });
    let value = if shape { serde_json::from_slice(line).unwrap_or_default() } else { Value::Null };
    let told = first.to_string();
    let more = if value.is_object() { T::wrong_shape(&value) } else { Vec::new() };
    // The parser's message with the column replaces the same message without it.
    let more: Vec<LineError> = more.into_iter().filter(|error| !told.starts_with(&error.to_string())).collect();
    std::iter::once(first).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SampleSource;
    use crate::error::hint_of;

    const GOOD: &str = r#"{"id":"s1","context":"c","candidates":[{"id":"a","text":"x"},{"id":"b","text":""}]}"#;

    fn lenient(text: &str, limit: Option<usize>) -> Result<ReadReport<Sample>, DataError> {
        read_from(text.as_bytes(), "demo.jsonl".into(), limit)
    }

    fn problems(line: &str) -> LineProblems {
        let report = lenient(line, None).expect("readable");
        assert!(report.records.is_empty());
        report.problems
    }

    fn problem(line: &str) -> String {
        problems(line).to_string()
    }

    #[test]
    fn empty_text_and_a_single_candidate_are_offered() {
        let report =
            lenient(r#"{"id":"s1","context":"","candidates":[{"id":"a","text":""}]}"#, None).expect("readable");
        assert_eq!(report.records.len(), 1);
    }

    #[test]
    fn a_second_use_of_an_id_is_the_problem_and_names_both_lines() {
        let report = lenient(&format!("{GOOD}\n\n{GOOD}\n"), None).expect("readable");
        assert_eq!(report.records.len(), 1);
        assert_eq!(
            report.problems.to_string(),
            "broken line 3 of demo.jsonl: field `id`: duplicate sample `s1`, first on line 1"
        );
    }

    #[test]
    fn a_field_of_another_type_is_told_with_a_good_line() {
        let problem = problems(r#"{"id":7,"context":"c","candidates":[]}"#);
        assert!(problem.to_string().contains("field `id`: invalid type: integer `7`"), "{problem}");
        assert!(hint_of(&problem).contains("example of a valid line: {\"id\": \"1\""), "{}", hint_of(&problem));
        assert!(!hint_of(&problems("{")).contains("a valid line"));
    }

    #[test]
    fn a_table_by_the_name_of_json_lines_is_told_as_one() {
        assert!(hint_of(&problems("id,context\ns1,\"a\"\n")).contains("--data-format csv"));
        let report = lenient(&format!("id\n{GOOD}\n{{\n"), None).expect("readable");
        assert!(!hint_of(&report.problems).contains("--data-format"), "one line is good");
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
            (r#"{"id":"s","context":"c","candidates":[]}"#, "field `candidates`: no candidates"),
            (r#"{"id":"s","context":"c","candidates":[{"id":"","text":"x"}]}"#, "field `candidates[0].id`: empty"),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x"},{"id":"a","text":"y"}]}"#,
                "field `candidates[1].id`: duplicate candidate `a`, first at candidates[0]",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"alpha","text":"x"}],"preference":"alpah"}"#,
                "field `preference`: unknown candidate `alpah`; did you mean `alpha`?",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"tie","text":"x"}],"preference":"tie"}"#,
                "field `candidates[0].id`: a candidate named `tie` is ambiguous with a tie",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"fluency":1,"fluency":2}}]}"#,
                "duplicate key `fluency`",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"":1}}]}"#,
                "field `candidates[0].scores`: an attribute",
            ),
            (
                r#"{"id":"s","context":"c","candidates":[{"id":"a","text":"x","scores":{"f":null}}]}"#,
                "invalid type: null",
            ),
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
    fn an_empty_file_is_refused_with_a_hint_and_an_array_is_read_by_its_items() {
        let empty = lenient(" \n\n", None).expect_err("empty");
        assert!(hint_of(&empty).starts_with("write one JSON object per line: {\"id\""));
        let read = lenient(&format!("\n [\n{GOOD},\n {{\"id\": 7}}]"), None).expect("readable");
        assert_eq!(read.records.len(), 1);
        assert!(
            read.problems.to_string().contains("item 2: field `id`: invalid type: integer `7`"),
            "{}",
            read.problems
        );
    }

    #[test]
    fn a_missing_file_and_a_folder_are_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let missing = SampleSource::new(folder.path().join("absent.jsonl")).samples().expect_err("missing");
        assert!(missing.to_string().contains("absent.jsonl could not be opened"), "{missing}");
        assert!(hint_of(&missing).starts_with("check the path"));
        let wrong = SampleSource::new(folder.path()).samples().expect_err("folder");
        assert!(hint_of(&wrong).starts_with("name a file"), "{wrong:?}");
    }

    #[test]
    fn strict_reading_refuses_what_lenient_reading_passes_over() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("d.jsonl");
        std::fs::write(&path, format!("{GOOD}\n{{\n")).expect("written");
        let mut source = SampleSource::new(&path);
        assert!(matches!(source.samples(), Err(DataError::Problems(p)) if p.count() == 1));
        assert_eq!(Records::<Sample>::open(&path, None).expect("readable").count(), 1);
        source.limit = Some(1);
        assert_eq!(source.samples().expect("the first is good").len(), 1);
    }
}
