//! Why samples could not be had.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use miette::Diagnostic;

use probity_lm::Utf16Text;

use crate::line_error::LineError;
use crate::mapping::MappingError;

/// How many problems a message lists before it says how many more there are.
pub const LISTED: usize = 20;

/// How many problems and warnings are kept in memory unless more are asked for; the rest is counted.
pub const KEPT: usize = 1000;

/// How a file's records are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordUnit {
    /// By lines of text; a row of several lines by its first.
    #[default]
    Line,
    /// By rows.
    Row,
    /// By the items of a list.
    Item,
    /// By their places from 0, as frames of Python have them.
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

/// A line that could not be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{unit} {line}: {error}")]
pub struct LineProblem {
    /// The line's or row's number, from 1; a place from 0 where that is how they are counted.
    pub line: usize,
    /// Which of both it is.
    pub unit: RecordUnit,
    /// What is wrong with it.
    #[source]
    #[diagnostic_source]
    pub error: LineError,
}

/// All problems of one file. Its display is a message for a person; its help has a line for each hint.
#[derive(Debug)]
pub struct LineProblems {
    /// The file's name, as in messages.
    pub file: String,
    /// The first ones, in the order of the lines: at most `keep`.
    pub kept: Vec<LineProblem>,
    /// How many are kept: a thousand unless all were asked for.
    pub keep: usize,
    /// How the file's records are counted.
    pub unit: RecordUnit,
    /// How many more there were.
    pub more: usize,
    /// A line as it should be, for the hint where a line has another shape.
    pub example: Option<&'static str>,
}

impl LineProblems {
    /// None yet, in `file`.
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), kept: Vec::new(), keep: KEPT, unit: RecordUnit::Line, more: 0, example: None }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.kept.len() + self.more
    }

    /// Adds one; those of a line stay in the order in which they came.
    pub fn push(&mut self, line: usize, error: LineError) {
        // Problems come in more than one pass: what a method refuses is found after the file was read. They are told by
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

    /// What to do about the first of them, each hint once.
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
            hints.push(format!("a good line: {example}"));
        }
        let is_text = self.unit == RecordUnit::Line
            && self.kept.len() > 1
            && self.kept.iter().zip(1..).all(|(p, line)| p.line == line && matches!(p.error, LineError::Syntax { .. }));
        if is_text && self.example.is_some() {
            hints
                .push("no line is JSON; a table of comma-separated values is read with `--data-format csv`".to_owned());
        }
        hints
    }
}

/// The same problem on some lines.
struct Cause {
    /// Each once.
    lines: Vec<usize>,
    error: String,
    /// Whether others say the same of other values.
    alike: bool,
    count: usize,
}

/// What is wrong; with a cell of a table without its value, which stands in backquotes: a column may be wrong
/// throughout.
fn cause_of(error: &LineError) -> (Option<String>, String) {
    let text = error.to_string();
    if !matches!(error, LineError::Cell { .. }) {
        return (None, text);
    }
    // Values stand in backquotes, at odd places of the split.
    let kept = text.split('`').enumerate().map(|(part, text)| if part % 2 == 0 { text } else { "…" }).collect();
    (error.field().map(str::to_owned), kept)
}

/// Problems by what is wrong, in the order in which causes come first.
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
                // A line that fails in two cells has two problems and is named once.
                if cause.lines.last() != Some(&problem.line) {
                    cause.lines.push(problem.line);
                }
            }
            None => causes.push(Cause { lines: vec![problem.line], error: text, alike: false, count: 1 }),
        }
    }
    causes
}

/// So many lines of one cause are named.
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
            ([], _) => write!(f, "no problem in {}", self.file)?,
            ([only], 0) => write!(f, "broken {} {} of {}: {}", self.unit, only.line, self.file, only.error)?,
            (kept, _) => {
                write!(f, "{} problems in {}", self.count(), self.file)?;
                let mut told = 0;
                for Cause { lines, error, alike, count } in by_cause(kept).into_iter().take(LISTED) {
                    let more = if alike { ", and the like" } else { "" };
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

/// Why samples could not be read or written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DataError {
    /// The file could not be opened.
    #[error("{file} could not be opened: {source}")]
    Open {
        /// The file's name, as in messages.
        file: String,
        /// Why.
        source: io::Error,
        /// What to do, where that is known.
        #[help]
        hint: Option<&'static str>,
    },
    /// Lines of the file are wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Problems(LineProblems),
    /// The file holds nothing.
    #[error("{file} holds no lines to read")]
    #[diagnostic(help("each line is one JSON object: {example}"))]
    Empty {
        /// The file's name, as in messages.
        file: String,
        /// A line as it should be.
        example: &'static str,
    },
    /// A table in a file has no rows.
    #[error("{file} holds no rows")]
    #[diagnostic(help("the first line names the columns, such as {columns}; each line after it is a row"))]
    EmptyTable {
        /// The file's name, as in messages.
        file: String,
        /// Columns as they could be.
        columns: &'static str,
    },
    /// A table in memory has no rows.
    #[error("{table} has no rows")]
    #[diagnostic(help("give one row at least: a context with candidates"))]
    NoRows {
        /// What messages call it.
        table: String,
    },
    /// The mapping does not go with the file's columns.
    #[error("{file} cannot be read as samples: {source}")]
    Mapping {
        /// The file's name, as in messages.
        file: String,
        /// Why.
        #[diagnostic_source]
        source: UnfitMapping,
    },
    /// The file is of a kind that is not read.
    #[error("{file} cannot be read: it is {what}")]
    #[diagnostic(help("{hint}"))]
    Foreign {
        /// The file's name, as in messages.
        file: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A public file has not the form that its importer knows.
    #[error(
        "{file} is no {importer} file: {}{why}",
        if path.is_empty() { String::new() } else { format!("at `{path}`: ") }
    )]
    Import {
        /// The file's name, as in messages.
        file: String,
        /// The importer.
        importer: &'static str,
        /// The path of keys to what is wrong; empty for the whole file.
        path: String,
        /// What was expected and found.
        why: String,
        /// The command for the importer whose form the file has, where there is one.
        #[help]
        hint: Option<String>,
    },
    /// No importer has that name.
    #[error("there is no importer `{name}`")]
    #[diagnostic(help(
        "{}the importers are {known}",
        nearest.map(|n| format!("did you \
        mean `{n}`? ")).unwrap_or_default()
    ))]
    UnknownImporter {
        /// The name asked for.
        name: String,
        /// The name most like it.
        nearest: Option<&'static str>,
        /// All names.
        known: String,
    },
    /// A sample cannot be written so that it could be read again. Nothing was written.
    #[error("sample {index} (`{id}`) cannot be written: {error}")]
    Unwritable {
        /// Its position, from 0.
        index: usize,
        /// Its id.
        id: String,
        /// What is wrong with it.
        error: Box<LineError>,
    },
    /// Writing failed.
    #[error("samples could not be written: {0}")]
    Write(#[source] io::Error),
    /// A mapping of columns contradicts itself.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Columns(#[from] MappingError),
    /// The file of a public data set, which has to be imported first.
    #[error("{path} is a {name} file as it was published", path = path.display())]
    #[diagnostic(help("probity import {name} {path} --out {name}.jsonl makes samples of it", path = path.display()))]
    PublicSet {
        /// The file.
        path: PathBuf,
        /// The data set's importer.
        name: &'static str,
    },
}

/// Why a mapping, given or taken from the file itself, does not go with the file. Texts are fit for a message.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum UnfitMapping {
    /// A column is named that is not there.
    #[error("there is no column `{column}` to be `{field}`")]
    #[diagnostic(help("{near}the columns are {columns}"))]
    NoColumn {
        /// What the column was to be.
        field: String,
        /// Its name.
        column: String,
        /// `did you mean …? `, where a name is near enough.
        near: String,
        /// The columns that there are.
        columns: String,
    },
    /// A field that is needed has no column.
    #[error("no column is {what}")]
    #[diagnostic(help(
        "say which one is: --map {field}=COLUMN{}{}",
        if *field == "context" { ", or --map context:= for none" } else { "" },
        columns.as_ref().map(|columns| format!("; the columns are {columns}")).unwrap_or_default()
    ))]
    Missing {
        /// The field.
        field: &'static str,
        /// What it is.
        what: &'static str,
        /// The columns that there are, where the file says so at its beginning.
        columns: Option<String>,
    },
    /// Ids of candidates beside several columns of candidates.
    #[error("`candidate-id` goes with one candidate column")]
    #[diagnostic(help("leave `candidate-id` out, or map one `candidate`"))]
    CandidateIds,
    /// A score of which candidate is not said.
    #[error("`score.{of}` does not say whose score it is")]
    #[diagnostic(help("write {forms}"))]
    Score {
        /// The field after `score.`.
        of: String,
        /// How it could be written.
        forms: String,
    },
    /// Preferences without what their answers answer.
    #[error("its rows have `chosen` and `rejected` without the prompt that they answer")]
    #[diagnostic(help(
        "say where that is: --map instruction=COLUMN; where there is none: --map context:= --map candidate.chosen=chosen \
         --map candidate.rejected=rejected --map preference:=chosen"
    ))]
    NoPrompt,
}

impl DataError {
    /// That a file could not be opened.
    pub(crate) fn open(file: String) -> impl Fn(io::Error) -> Self {
        move |source| {
            // A text in UTF-16 is told as what it is wherever a text is read.
            if source.get_ref().and_then(|inner| inner.downcast_ref::<Utf16Text>()).is_some() {
                return Self::Foreign { file: file.clone(), what: Utf16Text::WHAT, hint: Utf16Text::HINT };
            }
            let hint = match source.kind() {
                io::ErrorKind::NotFound => Some("check the path, or give - to read standard input"),
                io::ErrorKind::IsADirectory => Some("give one file, not a folder"),
                _ => None,
            };
            Self::Open { file: file.clone(), source, hint }
        }
    }
}

/// The hint of the error or of what it comes from; empty where none has one.
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
        assert!(hint_of(&problems).starts_with("each line must be"));
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
        // One cause is one line.
        assert!(text.starts_with("1005 problems in demo.jsonl\n  lines 1, 2, 3, 4, 5 and 995 more: byte 3"), "{text}");
        assert!(text.ends_with("\n  and 5 more"), "{text}");
        assert_eq!(hint_of(&problems).lines().count(), 1);
        assert_eq!((problems.kept.len(), problems.count()), (KEPT, KEPT + 5));
    }
}
