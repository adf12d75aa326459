//! `probity data`, and the options that describe a data file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use miette::Diagnostic as _;
use probity_data::{
    DataError, DataFormat, KEPT, LineProblems, ReadOptions, Sample, SampleSurvey, public_set, write_samples,
};
use probity_session::message;
use serde_json::{Value, json};

use crate::exit::Completed;
use crate::global::Global;
use crate::options::Typed;
use crate::output::{is_stdout, spare_existing, spare_input, write_output};
use crate::progress::Reporter;
use crate::terminal::{counted, print, table, thousands, visible, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Check and convert files of samples.

A file is JSON lines in probity's own form (or one JSON array of such objects), or a table: CSV, TSV, Parquet or other \
JSON lines. All but Parquet may be compressed with gzip or zstd. Every command that takes samples reads all of them; \
--map maps columns to fields.

Published preference data is read directly: `chosen` and `rejected`, each a text or a list of messages, with `prompt` \
(or `question`, or `instruction` with `input`) or the messages before the answer. The chosen text comes first in every \
other sample.

One row is one sample. A candidate's id is its column's name, or a name of your own:
  --map id=doc_id --map context=article --map candidate=summary_a \\
  --map candidate.human=summary_b --map score.summary_a.coherence=coh_a \\
  --map score.human.coherence=coh_b --map reference=gold
A list column gives several candidates (with ids 1, 2, …) or references; scores are then lists too:
  --map context=text --map candidate=machine_summaries \\
  --map score.fluency=fluency --map reference=human_summaries
A path leads into objects and lists, and [] takes a value from each item:
  --map context=input.text --map instruction=turns[0] \\
  --map candidate=responses[].text --map candidate-id=responses[].model \\
  --map score.quality=responses[].rating
The texts of a list, and several columns, are joined into one context, instruction or text, separated by blank lines:
  --map context=title --map context=chunks[]
One row is one candidate; rows with the same id form one sample, in any order:
  --map id=doc --map context=article --map candidate=text \\
  --map candidate-id=system --map score.fluency=flu
:= sets the same value for every row (with such values alone, columns map by their own names). Negative indices count \
from the end:
  --map context:= --map candidate=messages[-1].content
A preference is a candidate's id, its column, a letter (A is the first) or `tie`; map any other value:
  --map preference=label --map preference.0=summary_a \\
  --map preference.1=human --map preference.2=tie

Without an id, samples are numbered by row. An empty cell is an empty text, or a missing score, reference or \
preference.";

/// Subcommands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// List all problems in files of samples, and their contents
    ///
    /// Problems are lines or rows that cannot be used; each is reported with its field. Warnings are samples that can
    /// be read but may not be what you meant. The exit code is 2 if there are problems, and 0 if there are only
    /// warnings. Rows grouped by id are held in memory; all other files are read in bounded memory, except for the
    /// samples' ids.
    Check(DataCheckArgs),
    /// Write samples as probity's JSON lines
    Convert(ConvertArgs),
}

impl DataCommand {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        match self {
            Self::Check(args) => args.run(),
            Self::Convert(args) => args.run(global),
        }
    }
}

/// Options of `data check`.
#[derive(Debug, Args)]
pub(crate) struct DataCheckArgs {
    /// Files to check, or - for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    /// List all problems and warnings, not only the first 1,000
    #[arg(long)]
    all: bool,
    /// Print one JSON object per file
    #[arg(long)]
    json: bool,
}

/// The result of checking a file.
struct Checked {
    file: String,
    /// Why the file cannot be read at all.
    refused: Option<String>,
    format: Option<DataFormat>,
    unmapped: Vec<String>,
    survey: SampleSurvey,
    problems: LineProblems,
}

impl DataCheckArgs {
    fn run(&self) -> miette::Result<Completed> {
        let mut done = Completed::Success;
        for path in &self.files {
            let checked = self.check(path)?;
            if checked.refused.is_some() || !checked.problems.is_empty() {
                done = Completed::InPart;
            }
            print(&if self.json { checked.json().to_string() } else { checked.text() })?;
        }
        Ok(done)
    }

    fn check(&self, path: &Path) -> miette::Result<Checked> {
        let source = self.read.source(path)?;
        let file = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let keep = if self.all { usize::MAX } else { KEPT };
        let survey = SampleSurvey::keeping(keep);
        let problems = LineProblems::new(file.clone());
        let mut checked = Checked { file, refused: None, format: None, unmapped: Vec::new(), survey, problems };
        match source.open_keeping(keep) {
            Ok(mut file) => {
                for (line, sample) in file.records.by_ref() {
                    checked.survey.add(line, &sample);
                }
                checked.format = Some(file.format);
                checked.unmapped = file.unmapped();
                checked.problems = file.records.into_problems();
            }
            Err(DataError::Problems(problems)) => checked.problems = problems,
            Err(error) => checked.refused = Some(message(&error)),
        }
        // Tried only if nothing could be read, because every importer reads the whole file.
        if checked.survey.samples == 0
            && let Some(told) = public_set(path)
        {
            checked.refused = Some(message(&told));
        }
        Ok(checked)
    }
}

impl Checked {
    fn json(&self) -> Value {
        let problem = |problem: &probity_data::LineProblem| {
            json!({
                "line": problem.line, "field": problem.error.field(), "why": problem.error.to_string(), "hint": problem.error.help().map(|hint| hint.to_string()),
            })
        };
        json!({
            "file": self.file, "format": self.format, "error": self.refused, "holds": self.survey, "columns_passed_over": self.unmapped,
            "counted_by": self.problems.unit.to_string(), "problems": self.problems.count(),
            "first_problems": self.problems.kept.iter().map(problem).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let kind = self.format.map(|format| format!(" ({format})")).unwrap_or_default();
        let _ = writeln!(text, "{}{kind}", self.file);
        if let Some(refused) = &self.refused {
            return format!("{text}{}\n", visible(refused));
        }
        let _ = writeln!(text, "{}", self.holds());
        if !self.unmapped.is_empty() {
            let names: Vec<String> = self.unmapped.iter().map(|name| format!("`{}`", visible_line(name))).collect();
            let _ = writeln!(text, "columns ignored: {}", names.join(", "));
        }
        self.list_warnings(&mut text);
        self.list_problems(&mut text);
        visible(&text)
    }

    /// A table of the usable content.
    fn holds(&self) -> String {
        let survey = &self.survey;
        let count = |what: &str, number: usize| vec![what.to_owned(), thousands(number as u64), String::new()];
        let mut rows = vec![count("samples", survey.samples), count("candidates", survey.candidates)];
        for (what, number) in [
            ("instructions", survey.instructions),
            ("references", survey.references),
            ("preferences", survey.preferences),
            ("ties", survey.ties),
        ] {
            if number > 0 {
                rows.push(count(what, number));
            }
        }
        for (attribute, scores) in &survey.attributes {
            let mut row = count(&format!("scores of {attribute}"), scores.candidates);
            row[2] = format!("from {} to {}", scores.lowest, scores.highest);
            rows.push(row);
        }
        rows.push(vec!["longest text".into(), thousands(survey.longest_text as u64), "characters".into()]);
        table(&["holds".into(), "number".into(), String::new()], &rows)
    }

    fn list_warnings(&self, text: &mut String) {
        let total: usize = self.survey.warnings.values().sum();
        if total == 0 {
            return;
        }
        let counts = self.survey.warnings.iter();
        let counts = counts.map(|(kind, number)| format!("{} × {}", thousands(*number as u64), kind.as_str()));
        let _ = writeln!(text, "\n{}: {}", counted(total, "warning"), counts.collect::<Vec<_>>().join("; "));
        for warning in &self.survey.kept {
            let _ = writeln!(text, "  {} {}: {}", self.problems.unit, warning.line, visible_line(&warning.to_string()));
        }
        note_rest(text, total - self.survey.kept.len());
    }

    fn list_problems(&self, text: &mut String) {
        if self.problems.is_empty() {
            let _ = write!(text, "\nno problems");
            return;
        }
        let _ = writeln!(text, "\n{}", counted(self.problems.count(), "problem"));
        for problem in &self.problems.kept {
            let _ = writeln!(text, "  {}", visible_line(&problem.to_string()));
        }
        note_rest(text, self.problems.more);
        for hint in self.problems.hints() {
            let _ = writeln!(text, "hint: {}", visible_line(&hint));
        }
    }
}

fn note_rest(text: &mut String, rest: usize) {
    if rest > 0 {
        let _ = writeln!(text, "  … and {} more; --all lists them", thousands(rest as u64));
    }
}

/// Options of `data convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// File to convert, or - for stdin
    file: PathBuf,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    #[command(flatten)]
    to: SamplesOut,
}

/// Where samples are written.
#[derive(Debug, Args)]
pub(crate) struct SamplesOut {
    /// Write to this file instead of standard output
    ///
    /// The file is written whole or not at all.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    overwrite: bool,
}

impl ConvertArgs {
    fn run(self, global: Global) -> miette::Result<Completed> {
        self.to.check(&self.file)?;
        let samples = self.read.source(&self.file)?.samples()?;
        self.to.write(&samples, global)?;
        Ok(Completed::Success)
    }
}

impl SamplesOut {
    fn path(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new("-"))
    }

    /// Fails if the output is the input or exists.
    pub(crate) fn check(&self, from: &Path) -> miette::Result<()> {
        spare_input(from, self.path())?;
        spare_existing(self.path(), self.overwrite)
    }

    /// Writes samples and prints their number.
    pub(crate) fn write(&self, samples: &[Sample], global: Global) -> miette::Result<()> {
        let out = self.path();
        write_output(out, |writer| Ok(write_samples(writer, samples)?))?;
        let candidates: usize = samples.iter().map(|sample| sample.candidates.len()).sum();
        let counts = format!("{}, {}", counted(samples.len(), "sample"), counted(candidates, "candidate"));
        let to = if is_stdout(out) { String::new() } else { format!(" in {}", out.display()) };
        Reporter::new(global).say(&format!("{counts}{to}"));
        Ok(())
    }
}
