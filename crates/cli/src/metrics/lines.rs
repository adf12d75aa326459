//! Plain text files instead of samples, one text per line.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use probity_data::{Candidate, LineError, Sample, open};
use probity_metrics::{ChosenMetric, Need};
use probity_runtime::weights::sha256_file;
use probity_session::GivenSamples;
use serde_json::{Value, json};

use crate::error::FileError;
use crate::terminal::counted;

/// Candidates, references and sources as files of lines.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data and output")]
pub(super) struct LinesArgs {
    /// Candidates as plain text, one per line; one file per system
    ///
    /// They replace --data.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["data", "map", "data_format", "limit"])]
    hypotheses: Vec<PathBuf>,
    /// References for the lines of --hypotheses (several files)
    ///
    /// Each file adds one reference to every line.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "hypotheses")]
    references: Vec<PathBuf>,
    /// Source texts for the lines of --hypotheses
    #[arg(long, value_name = "FILE", requires = "hypotheses")]
    sources: Option<PathBuf>,
}

/// Problems with plain text files.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum TextsError {
    #[error("{metric} needs {option}")]
    #[diagnostic(help("add {option} FILE, with one line for each line of {}", hypotheses.display()))]
    Missing { option: &'static str, metric: String, hypotheses: PathBuf },
    #[error("{} is empty", path.display())]
    #[diagnostic(help("write one candidate per line"))]
    Empty { path: PathBuf },
    #[error("--hypotheses: {wrong}")]
    #[diagnostic(help("name each file once"))]
    Names { wrong: LineError },
    #[error("the files have different numbers of lines\n{counts}")]
    #[diagnostic(help("line N of each file belongs to line N of the others; write an empty line for an empty text"))]
    Lengths { counts: String },
}

impl LinesArgs {
    /// The first file of candidates, if any.
    pub(super) fn first(&self) -> Option<&Path> {
        self.hypotheses.first().map(PathBuf::as_path)
    }

    /// The samples for these metrics, and their entry in the manifest.
    pub(super) fn read(&self, metrics: &[ChosenMetric]) -> miette::Result<GivenSamples> {
        let missing = |(need, option, is_given): (Need, &'static str, bool)| {
            let needing = metrics.iter().find(|metric| metric.definition().needs().contains(&need) && !is_given)?;
            let (metric, hypotheses) = (needing.label().to_owned(), self.hypotheses[0].clone());
            Some(TextsError::Missing { option, metric, hypotheses })
        };
        let options = [
            (Need::References, "--references", !self.references.is_empty()),
            (Need::Source, "--sources", self.sources.is_some()),
        ];
        if let Some(error) = options.into_iter().find_map(missing) {
            return Err(error.into());
        }
        let samples = self.samples()?;
        let paths = self.hypotheses.iter().chain(&self.references).chain(&self.sources);
        let hashed = |path: &PathBuf| {
            // The content of a pipe is gone.
            let sha256 = path.is_file().then(|| sha256_file(path)).transpose()?;
            Ok(json!({"path": path, "sha256": sha256}))
        };
        let files = paths.map(hashed).collect::<miette::Result<Vec<Value>>>()?;
        let described = json!({"files": files, "samples": samples.len()});
        Ok(GivenSamples { samples: samples.into(), described })
    }

    /// One sample per line, with the line number as id; candidates are named after their files.
    fn samples(&self) -> miette::Result<Vec<Sample>> {
        let read = |paths: &[PathBuf]| {
            paths.iter().map(|path| Ok((path.clone(), lines(path)?))).collect::<miette::Result<Vec<_>>>()
        };
        let (hypotheses, references) = (read(&self.hypotheses)?, read(&self.references)?);
        let sources = read(self.sources.as_slice())?;
        same_lengths([&hypotheses, &references, &sources].into_iter().flatten())?;
        let (mut hypotheses, mut references) = (turned(hypotheses), turned(references).into_iter());
        let mut sources = turned(sources).into_iter();
        let names: Vec<String> = self.hypotheses.iter().map(|path| path.display().to_string()).collect();
        let candidate =
            |(id, text): (&String, String)| Candidate { id: id.clone(), text: text.into(), scores: BTreeMap::new() };
        let sample = |(index, texts): (usize, Vec<String>)| Sample {
            id: (index + 1).to_string(),
            context: sources.next().into_iter().flatten().next().unwrap_or_default().into(),
            instruction: None,
            texts: BTreeMap::new(),
            candidates: names.iter().zip(texts).map(candidate).collect(),
            references: references.next().unwrap_or_default().into_iter().map(Into::into).collect(),
            preference: None,
        };
        let samples: Vec<Sample> = hypotheses.drain(..).enumerate().map(sample).collect();
        if samples.is_empty() {
            return Err(TextsError::Empty { path: self.hypotheses[0].clone() }.into());
        }
        // Candidates are named after their files, so the first sample has the problems of all.
        if let Some(wrong) = samples[0].check().into_iter().next() {
            return Err(TextsError::Names { wrong }.into());
        }
        Ok(samples)
    }
}

/// The lines of a file, without line breaks.
fn lines(path: &Path) -> miette::Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in open(path)?.lines() {
        let place = || format!("cannot read line {} of {}", lines.len() + 1, path.display());
        let mut line = line.map_err(|error| FileError::context(place())(error))?;
        if line.ends_with('\r') {
            line.pop();
        }
        lines.push(line);
    }
    Ok(lines)
}

fn same_lengths<'a>(files: impl Iterator<Item = &'a (PathBuf, Vec<String>)> + Clone) -> miette::Result<()> {
    let mut lengths = files.clone().map(|(_, lines)| lines.len());
    let first = lengths.next();
    if lengths.all(|length| Some(length) == first) {
        return Ok(());
    }
    let counts = files.map(|(path, lines)| (path.display(), counted(lines.len(), "line")));
    let counts: Vec<String> = counts.map(|(path, count)| format!("  {path} has {count}")).collect();
    Err(TextsError::Lengths { counts: counts.join("\n") }.into())
}

/// Transposes lines by file into files by line.
fn turned(files: Vec<(PathBuf, Vec<String>)>) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (_, lines) in files {
        rows.resize_with(lines.len(), Vec::new);
        rows.iter_mut().zip(lines).for_each(|(row, line)| row.push(line));
    }
    rows
}
