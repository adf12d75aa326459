//! Errors of reading and writing samples.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use miette::Diagnostic;

use probity_lm::Utf16Text;

use crate::line_error::LineError;
use crate::mapping::MappingError;

/// Maximum number of problems listed in a message; the rest is counted.
pub const LISTED: usize = 20;

/// Default number of problems and warnings kept in memory; the rest is counted.
pub const KEPT: usize = 1000;

/// Unit in which the records of a file are numbered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordUnit {
    /// Lines of text; a row of several lines counts as its first.
    #[default]
    Line,
    /// Rows.
    Row,
    /// Items of a list.
    Item,
    /// Positions from 0, as in Python data frames.
    Index,
}

impl fmt::Display for RecordUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line => "line",
            Self::Row => "row",
            Self::Item => "item",
            Self::Index => "index",
        })
    }
}

impl RecordUnit {
    /// Of several.
    fn plural(self) -> &'static str {
        match self {
            Self::Line => "lines",
            Self::Row => "rows",
            Self::Item => "items",
            Self::Index => "indices",
        }
    }
}

/// A line that cannot be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{unit} {line}: {error}")]
pub struct LineProblem {
    /// Number of the line or row, from 1; for [`RecordUnit::Index`] the position from 0.
    pub line: usize,
    /// Unit of `line`.
    pub unit: RecordUnit,
    /// The error in the line.
    #[source]
    #[diagnostic_source]
    pub error: LineError,
}

/// All problems of one file. Displays as a user message; its help has one line per hint.
#[derive(Debug)]
pub struct LineProblems {
    /// File name for messages.
    pub file: String,
    /// The first problems, ordered by line: at most `keep`.
    pub kept: Vec<LineProblem>,
    /// Maximum number of problems kept; [`KEPT`] by default.
    pub keep: usize,
    /// Unit in which records are numbered.
    pub unit: RecordUnit,
    /// Number of problems not kept.
    pub more: usize,
    /// An example of a valid line, for the hint about a line of another shape.
    pub example: Option<&'static str>,
}

impl LineProblems {
    /// No problems, for `file`.
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), kept: Vec::new(), keep: KEPT, unit: RecordUnit::Line, more: 0, example: None }
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Total number of problems.
    pub fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    /// Adds a problem; problems of one line keep their order of insertion.
    pub fn push(&mut self, line: usize, error: LineError) {
        // Problems come from several passes (a method may reject samples after the file is read), but are listed by
        // line.
        let place = self.kept.partition_point(|problem| problem.line <= line);
        if place < self.keep {
            self.kept.insert(place, LineProblem { line, unit: self.unit, error });
        }
        if place >= self.keep || self.kept.len() > self.keep {
            self.kept.truncate(self.keep);
            self.more += 1;
        }
    }

    /// The hints for the kept problems, without repetition.
    pub fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        for hint in self.kept.iter().take(LISTED).filter_map(|p| p.error.help()) {
            let hint = hint.to_string();
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        let shapes = |p: &LineProblem| matches!(p.error, LineError::Shape { nearest: None, .. });
        if let Some(example) = self.example.filter(|_| self.kept.iter().take(LISTED).any(shapes)) {
            hints.push(format!("example of a valid line: {example}"));
        }
        let is_text = self.unit == RecordUnit::Line
            && self.kept.len() > 1
            && self.kept.iter().zip(1..).all(|(p, line)| p.line == line && matches!(p.error, LineError::Syntax { .. }));
        if is_text && self.example.is_some() {
            hints.push("no line is JSON; use `--data-format csv` for comma-separated values".to_owned());
        }
        hints
    }
}

/// One problem shared by several lines.
struct Cause {
    /// Without repetition.
    lines: Vec<usize>,
    error: String,
    /// Whether other problems differ only in the value.
    alike: bool,
    count: usize,
}

/// The column and message of an error. For table cells the value, which is in backquotes, is masked, because a whole
/// column may be wrong.
fn cause_of(error: &LineError) -> (Option<String>, String) {
    let text = error.to_string();
    if !matches!(error, LineError::Cell { .. }) {
        return (None, text);
    }
    // Values are in backquotes, so they are the odd parts of the split.
    let kept = text.split('`').enumerate().map(|(part, text)| if part % 2 == 0 { text } else { "…" }).collect();
    (error.field().map(str::to_owned), kept)
}

/// Groups problems by cause, in order of first appearance.
fn by_cause(problems: &[LineProblem]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    let mut places: BTreeMap<(Option<String>, String), usize> = BTreeMap::new();
    for problem in problems {
        let text = problem.error.to_string();
        let place = *places.entry(cause_of(&problem.error)).or_insert(causes.len());
        match causes.get_mut(place) {
            Some(cause) => {
                cause.count += 1;
                cause.alike |= cause.error != text;
                // A line with errors in two cells has two problems but is listed once.
                if cause.lines.last() != Some(&problem.line) {
                    cause.lines.push(problem.line);
                }
            }
            None => causes.push(Cause { lines: vec![problem.line], error: text, alike: false, count: 1 }),
        }
    }
    causes
}

/// Maximum number of lines listed per cause.
const NAMED: usize = 5;

impl LineProblems {
    /// `line 4`, or `lines 4, 7, 9 and 31 more`.
    fn places(&self, lines: &[usize]) -> String {
        let unit = self.unit;
        match lines {
            [only] => format!("{unit} {only}"),
            all if all.len() <= NAMED => {
                let list: Vec<String> = all.iter().map(ToString::to_string).collect();
                format!("{} {}", unit.plural(), list.join(", "))
            }
            all => {
                let list: Vec<String> = all[..NAMED].iter().map(ToString::to_string).collect();
                format!("{} {} and {} more", unit.plural(), list.join(", "), all.len() - NAMED)
            }
        }
    }
}

impl fmt::Display for LineProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kept[..], self.more) {
            ([], _) => write!(f, "no problems in {}", self.file)?,
            ([only], 0) => write!(f, "broken {} {} of {}: {}", self.unit, only.line, self.file, only.error)?,
            (kept, _) => {
                write!(f, "{} problems in {}", self.count(), self.file)?;
                let mut told = 0;
                for Cause { lines, error, alike, count } in by_cause(kept).into_iter().take(LISTED) {
                    let more = if alike { " (and similar)" } else { "" };
                    write!(f, "\n  {}: {error}{more}", self.places(&lines))?;
                    told += count;
                }
                if self.count() > told {
                    write!(f, "\n  and {} more", self.count() - told)?;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for LineProblems {}

impl Diagnostic for LineProblems {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let hints = self.hints();
        (!hints.is_empty()).then(|| Box::new(hints.join("\n")) as Box<dyn fmt::Display>)
    }
}

/// Error of reading or writing samples.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DataError {
    /// The file cannot be opened.
    #[error("{file} could not be opened: {source}")]
    Open {
        /// File name for messages.
        file: String,
        /// The cause.
        source: io::Error,
        /// Suggested fix, if known.
        #[help]
        hint: Option<&'static str>,
    },
    /// Lines of the file are invalid.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Problems(LineProblems),
    /// The file is empty.
    #[error("{file} has no lines")]
    #[diagnostic(help("write one JSON object per line: {example}"))]
    Empty {
        /// File name for messages.
        file: String,
        /// An example of a valid line.
        example: &'static str,
    },
    /// The table in a file has no rows.
    #[error("{file} has no rows")]
    #[diagnostic(help("name the columns in the first line, such as {columns}, and add one row per line"))]
    EmptyTable {
        /// File name for messages.
        file: String,
        /// Example columns.
        columns: &'static str,
    },
    /// A table in memory has no rows.
    #[error("{table} has no rows")]
    #[diagnostic(help("add at least one row with a context and candidates"))]
    NoRows {
        /// Name of the table for messages.
        table: String,
    },
    /// The mapping does not fit the columns of the file.
    #[error("{file} cannot be read as samples: {source}")]
    Mapping {
        /// File name for messages.
        file: String,
        /// The cause.
        #[diagnostic_source]
        source: UnfitMapping,
    },
    /// Unsupported file type.
    #[error("{file} cannot be read: it is {what}")]
    #[diagnostic(help("{hint}"))]
    Foreign {
        /// File name for messages.
        file: String,
        /// The type that was recognised.
        what: &'static str,
        /// Suggested fix.
        hint: &'static str,
    },
    /// A public file does not have the form that its importer expects.
    #[error(
        "{file} is not a valid {importer} file: {}{why}",
        if path.is_empty() { String::new() } else { format!("at `{path}`: ") }
    )]
    Import {
        /// File name for messages.
        file: String,
        /// Name of the importer.
        importer: &'static str,
        /// Path of keys to the error; empty for the whole file.
        path: String,
        /// What was expected and found.
        why: String,
        /// Command of the importer that accepts the file, if any.
        #[help]
        hint: Option<String>,
    },
    /// Unknown importer.
    #[error("unknown importer `{name}`")]
    #[diagnostic(help(
        "{}the importers are {known}",
        nearest.map(|n| format!("did you \
        mean `{n}`? ")).unwrap_or_default()
    ))]
    UnknownImporter {
        /// The requested name.
        name: String,
        /// The most similar known name.
        nearest: Option<&'static str>,
        /// All names.
        known: String,
    },
    /// A sample cannot be written such that it could be read again. Nothing was written.
    #[error("sample {index} (`{id}`) cannot be written: {error}")]
    Unwritable {
        /// Position of the sample, from 0.
        index: usize,
        /// Id of the sample.
        id: String,
        /// The error in the sample.
        error: Box<LineError>,
    },
    /// Writing failed.
    #[error("samples could not be written: {0}")]
    Write(#[source] io::Error),
    /// Invalid column mapping.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Columns(#[from] MappingError),
    /// The file of a public data set, which has to be imported first.
    #[error("{path} is a published {name} file", path = path.display())]
    #[diagnostic(help("convert it with: probity import {name} {path} --out {name}.jsonl", path = path.display()))]
    PublicSet {
        /// The file.
        path: PathBuf,
        /// Name of the importer for the data set.
        name: &'static str,
    },
}

/// A mapping, from the user or derived from the file, does not fit the file. The texts are ready for messages.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum UnfitMapping {
    /// A mapped column does not exist.
    #[error("no column `{column}` for `{field}`")]
    #[diagnostic(help("{near}the columns are {columns}"))]
    NoColumn {
        /// Field that the column is mapped to.
        field: String,
        /// Name of the column.
        column: String,
        /// `did you mean …? `, or empty if no name is similar.
        near: String,
        /// The existing columns.
        columns: String,
    },
    /// A required field has no column.
    #[error("no column is mapped to {what}")]
    #[diagnostic(help(
        "map one: --map {field}=COLUMN{}{}",
        if *field == "context" { ", or --map context:= for none" } else { "" },
        columns.as_ref().map(|columns| format!("; the columns are {columns}")).unwrap_or_default()
    ))]
    Missing {
        /// The field.
        field: &'static str,
        /// Description of the field.
        what: &'static str,
        /// The existing columns, if the file lists them in advance.
        columns: Option<String>,
    },
    /// Candidate ids with several candidate columns.
    #[error("`candidate-id` requires a single candidate column")]
    #[diagnostic(help("omit `candidate-id`, or map one `candidate`"))]
    CandidateIds,
    /// A score without a candidate where there are several.
    #[error("`score.{of}` does not name a candidate")]
    #[diagnostic(help("write {forms}"))]
    Score {
        /// Field after `score.`.
        of: String,
        /// Possible spellings.
        forms: String,
    },
    /// Preference columns without a prompt.
    #[error("its rows have `chosen` and `rejected` but no prompt")]
    #[diagnostic(help(
        "map the prompt: --map instruction=COLUMN; without a prompt: --map context:= --map candidate.chosen=chosen \
         --map candidate.rejected=rejected --map preference:=chosen"
    ))]
    NoPrompt,
}

impl DataError {
    /// Wraps an error of opening a file.
    pub(crate) fn open(file: String) -> impl Fn(io::Error) -> Self {
        move |source| {
            // UTF-16 text is reported as such wherever it is read.
            if source.get_ref().and_then(|inner| inner.downcast_ref::<Utf16Text>()).is_some() {
                return Self::Foreign { file: file.clone(), what: Utf16Text::WHAT, hint: Utf16Text::HINT };
            }
            let hint = match source.kind() {
                io::ErrorKind::NotFound => Some("check the path, or use - to read standard input"),
                io::ErrorKind::IsADirectory => Some("name a file, not a folder"),
                _ => None,
            };
            Self::Open { file: file.clone(), source, hint }
        }
    }
}

/// The hint of the error or of its causes; empty if none has one.
#[cfg(test)]
pub(crate) fn hint_of(error: &dyn Diagnostic) -> String {
    let own = error.help().map(|hint| hint.to_string());
    own.or_else(|| error.diagnostic_source().map(hint_of)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_is_one_line_with_a_hint() {
        let mut problems = LineProblems::new("demo.jsonl");
        problems.push(17, LineError::Syntax { column: 34, why: "expected `,` or `}`".into() });
        assert_eq!(problems.to_string(), "broken line 17 of demo.jsonl: expected `,` or `}` at column 34");
        assert!(hint_of(&problems).starts_with("write one complete JSON object per line"));
    }

    #[test]
    fn problems_are_listed_by_line_with_each_hint_once_at_the_end() {
        let mut problems = LineProblems::new("demo.jsonl");
        for line in [9, 11, 4, 9] {
            problems.push(line, LineError::content("labels", format!("wrong {line}")).with_hint("choose others"));
        }
        let text = problems.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("  line 4:")
                && lines[2].starts_with("  line 9:")
                && lines[3].starts_with("  line 11:"),
            "{text}"
        );
        assert!(text.ends_with("wrong 11"), "{text}");
        assert_eq!(hint_of(&problems), "choose others");
    }

    #[test]
    fn of_too_many_problems_those_of_the_first_lines_are_kept() {
        let mut problems = LineProblems::new("demo.jsonl");
        for line in (1..=KEPT + 5).rev() {
            problems.push(line, LineError::Utf8 { byte: 3 });
        }
        assert_eq!((problems.kept[0].line, problems.kept[KEPT - 1].line, problems.count()), (1, KEPT, KEPT + 5));
    }

    #[test]
    fn different_causes_are_listed_up_to_twenty() {
        let mut problems = LineProblems::new("demo.jsonl");
        for line in 1..=30 {
            problems.push(line, LineError::Utf8 { byte: line });
        }
        let text = problems.to_string();
        assert!(text.contains("line 20:") && !text.contains("line 21:") && text.contains("and 10 more"), "{text}");
    }

    #[test]
    fn one_cause_on_many_lines_is_told_once_with_its_lines() {
        let mut problems = LineProblems::new("demo.jsonl");
        for line in 1..=KEPT + 5 {
            problems.push(line, LineError::Utf8 { byte: 3 });
        }
        let text = problems.to_string();
        // Lines with one cause share one line of the message.
        assert!(text.starts_with("1005 problems in demo.jsonl\n  lines 1, 2, 3, 4, 5 and 995 more: byte 3"), "{text}");
        assert!(text.ends_with("\n  and 5 more"), "{text}");
        assert_eq!(hint_of(&problems).lines().count(), 1);
        assert_eq!((problems.kept.len(), problems.count()), (KEPT, KEPT + 5));
    }
}
