//! What metrics are held over: samples, or plain texts line by line.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use probity_data::{Candidate, LineError, ReadOptions, Sample, open};
use probity_metrics::{Choice, Item, Score};
use probity_runtime::weights::sha256_file;
use probity_session::DataOptions;
use serde::Serialize;
use serde_json::{Value, json};

use super::Place;
use crate::options::Typed;
use crate::terminal::thousands;

/// Where candidates, references and sources come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data and output")]
pub(super) struct MaterialArgs {
    /// The samples: JSON lines, CSV, TSV or Parquet, also packed by gzip or zstd, or - for standard input. A sample's
    /// `context` is the source
    #[arg(long, value_name = "FILE", required_unless_present_any = ["hypotheses", "list"])]
    data: Option<PathBuf>,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    /// Plain texts in place of samples: candidates, one a line; a file for each system
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["data", "map", "data_format", "limit"])]
    hypotheses: Vec<PathBuf>,
    /// References of the lines of --hypotheses; a file for each that a line has
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "hypotheses")]
    references: Vec<PathBuf>,
    /// The texts that the lines of --hypotheses were made from
    #[arg(long, value_name = "FILE", requires = "hypotheses")]
    sources: Option<PathBuf>,
}

/// Samples, and what a manifest says of them.
pub(super) struct Material {
    pub(super) samples: Vec<Sample>,
    pub(super) described: Value,
}

impl MaterialArgs {
    /// All samples; what a metric needs and a sample lacks is wrong with it.
    pub(super) fn read(&self, choices: &[Choice]) -> anyhow::Result<Material> {
        if let Some(path) = &self.data {
            let data = DataOptions { data: path.clone(), read: self.read.0.clone() };
            let samples = data.samples_for(|sample| lacking(choices, sample))?;
            let described = data.described(&samples)?;
            return Ok(Material { samples, described });
        }
        let samples = self.lines()?;
        let paths = self.hypotheses.iter().chain(&self.references).chain(&self.sources);
        let hashes = paths
            .map(|path| Ok(json!({"path": path, "sha256": sha256_file(path)?})))
            .collect::<anyhow::Result<Vec<_>>>()?;
        // All files have as many lines: what the first line lacks they all lack.
        if let Some(error) = samples.first().and_then(|sample| lacking(choices, sample).into_iter().next()) {
            anyhow::bail!(
                "{}",
                if error.field() == Some("references") {
                    self.no("--references", choices)
                } else {
                    self.no("--sources", choices)
                }
            );
        }
        Ok(Material { described: json!({"files": hashes, "samples": samples.len()}), samples })
    }

    fn no(&self, option: &str, choices: &[Choice]) -> String {
        let labels: Vec<&str> = choices.iter().map(Choice::label).collect();
        format!(
            "{option} is missing, and {} needs it\n\nhint: add {option} FILE, with a line for each line of {}",
            labels.join(","),
            self.hypotheses[0].display()
        )
    }

    /// A sample for each line, called by its number; candidates are called by their files.
    fn lines(&self) -> anyhow::Result<Vec<Sample>> {
        let read = |paths: &[PathBuf]| {
            paths.iter().map(|path| Ok((path.clone(), lines(path)?))).collect::<anyhow::Result<Vec<_>>>()
        };
        let (hypotheses, references) = (read(&self.hypotheses)?, read(&self.references)?);
        let sources = read(self.sources.as_slice())?;
        same_lengths([&hypotheses, &references, &sources].into_iter().flatten())?;
        let (mut hypotheses, mut references) = (turned(hypotheses), turned(references).into_iter());
        let mut sources = turned(sources).into_iter();
        let names: Vec<String> = self.hypotheses.iter().map(|path| path.display().to_string()).collect();
        let sample = |(index, texts): (usize, Vec<String>)| Sample {
            id: (index + 1).to_string(),
            context: sources.next().into_iter().flatten().next().unwrap_or_default(),
            instruction: None,
            candidates: names
                .iter()
                .zip(texts)
                .map(|(id, text)| Candidate { id: id.clone(), text, scores: BTreeMap::new() })
                .collect(),
            references: references.next().unwrap_or_default(),
            preference: None,
        };
        let samples: Vec<Sample> = hypotheses.drain(..).enumerate().map(sample).collect();
        anyhow::ensure!(
            !samples.is_empty(),
            "{} is empty\n\nhint: each line is one candidate",
            self.hypotheses[0].display()
        );
        // Candidates are called by their files, so that all samples are wrong as the first one is.
        if let Some(wrong) = samples[0].check().first() {
            anyhow::bail!("--hypotheses: {wrong}\n\nhint: give each file once");
        }
        Ok(samples)
    }
}

/// The lines of a file, without their ends.
fn lines(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for line in open(path)?.lines() {
        let mut line =
            line.with_context(|| format!("line {} of {} could not be read", lines.len() + 1, path.display()))?;
        if line.ends_with('\r') {
            line.pop();
        }
        lines.push(line);
    }
    Ok(lines)
}

fn same_lengths<'a>(files: impl Iterator<Item = &'a (PathBuf, Vec<String>)> + Clone) -> anyhow::Result<()> {
    let mut lengths = files.clone().map(|(_, lines)| lines.len());
    let first = lengths.next();
    if lengths.all(|length| Some(length) == first) {
        return Ok(());
    }
    let counts: Vec<String> = files
        .map(|(path, lines)| format!("  {} has {} lines", path.display(), thousands(lines.len() as u64)))
        .collect();
    anyhow::bail!(
        "the files differ in their number of lines\n{}\n\nhint: line N of each file belongs to line N of the others; \
         an empty line is an empty text",
        counts.join("\n")
    )
}

/// From lines by file to files by line.
fn turned(files: Vec<(PathBuf, Vec<String>)>) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (_, lines) in files {
        rows.resize_with(lines.len(), Vec::new);
        rows.iter_mut().zip(lines).for_each(|(row, line)| row.push(line));
    }
    rows
}

/// What metrics need and the sample lacks.
fn lacking(choices: &[Choice], sample: &Sample) -> Vec<LineError> {
    let item = item(sample, "");
    let needs = choices.iter().flat_map(|choice| choice.definition().needs().iter().map(move |need| (choice, *need)));
    let mut wrong: Vec<LineError> = Vec::new();
    for (choice, need) in needs.filter(|(_, need)| need.is_missing(&item)) {
        let field = need.field();
        if wrong.iter().all(|known| known.field() != Some(field)) {
            let why = format!("{} needs {}, and there is none\n\nhint: {}", choice.label(), need.what(), need.hint());
            wrong.push(LineError::content(field, why));
        }
    }
    wrong
}

fn item<'a>(sample: &'a Sample, candidate: &'a str) -> Item<'a> {
    Item {
        candidate,
        references: sample.references.iter().map(String::as_str).collect(),
        // Every sample has a context: an empty one is how it has no source.
        source: Some(sample.context.as_str()).filter(|context| !context.is_empty()),
    }
}

impl Material {
    /// All candidates, sample by sample.
    pub(super) fn places(&self) -> Vec<Place> {
        let of =
            |(index, sample): (usize, &Sample)| (0..sample.candidates.len()).map(move |candidate| (index, candidate));
        self.samples.iter().enumerate().flat_map(of).collect()
    }

    /// The items of [`Material::places`].
    pub(super) fn items(&self) -> Vec<Item<'_>> {
        self.samples
            .iter()
            .flat_map(|sample| sample.candidates.iter().map(move |candidate| item(sample, &candidate.text)))
            .collect()
    }

    /// Positions in `places` by candidate id, in the order in which ids come first; none where no two samples share an
    /// id, or all have one.
    pub(super) fn systems(&self, places: &[Place]) -> Vec<(String, Vec<usize>)> {
        let mut order: Vec<(String, Vec<usize>)> = Vec::new();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        for (position, (sample, candidate)) in places.iter().enumerate() {
            let id = self.samples[*sample].candidates[*candidate].id.as_str();
            let place = *known.entry(id).or_insert_with(|| {
                order.push((id.to_owned(), Vec::new()));
                order.len() - 1
            });
            order[place].1.push(position);
        }
        let shared = order.len() > 1 && order.iter().any(|(_, positions)| positions.len() > 1);
        if shared { order } else { Vec::new() }
    }

    /// A row of `scores.jsonl`.
    pub(super) fn row<'a>(&'a self, (sample, index): Place, metric: &'a str, score: Score) -> Row<'a> {
        let sample = &self.samples[sample];
        let (outcome, why) = match score {
            Score::Value(_) => ("scored", None),
            Score::Undefined(why) => ("undefined", Some(why)),
        };
        Row {
            item: &sample.id,
            candidate: &sample.candidates[index].id,
            index,
            metric,
            score: score.value(),
            outcome,
            why,
        }
    }
}

/// A row of `scores.jsonl`.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    item: &'a str,
    candidate: &'a str,
    /// The candidate's position in its sample.
    index: usize,
    metric: &'a str,
    score: Option<f64>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}
