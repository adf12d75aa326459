//! `probity meta`: how well scores agree with what people said.

mod align;
mod evaluate;
mod gold;
mod metrics;
mod preference;
mod tables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use probity_data::{ReadOptions, is_score_table};
use probity_methods::{Headline, Section};
use probity_runtime::weights::sha256_file;
use probity_session::{close, probity_version};
use probity_stats::Resampling;
use probity_store::{Existing, RunFolder, RunInfo, SAMPLES};
use serde_json::{Value, json};

use crate::events::section_text;
use crate::exit::Done;
use crate::global::Global;
use crate::method::typed;
use crate::options::Typed;
use crate::progress::Reporter;
use crate::terminal::{print, visible, visible_json};
use evaluate::Evaluation;
use gold::Gold;
use metrics::Metrics;

pub(crate) const LONG_ABOUT: &str = "\
Hold scores against gold: correlations, accuracy of pairs, tests between metrics

Scores come from run folders, from scores.jsonl of `probity metrics` or of a method, or from any table with the \
columns item, candidate and either
metric and score or one column for each metric. Gold comes from samples (their candidates' scores and preferences) or \
from another such table.
Both are matched by item and candidate.

For each metric and gold attribute: Pearson, Spearman and Kendall τ-b as the mean over contexts, between systems \
(candidate ids) and over all scores,
with p-values and intervals over contexts; accuracy of pairs, also with ties and the ε at which metric scores are best \
taken for equal. What cannot be
computed, constant scores for example, is undefined and said so. Scores that rounding alone tells apart (by 1e-12 of \
the largest) are equal: in ranks,
correlations and accuracy alike.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  probity meta --scores metrics-run --gold summeval.jsonl --average
  probity meta --scores scores.csv --gold gold.csv --metric bleu,rouge-l --compare bleu,rouge-l
  probity meta --scores compare-run --json
  probity meta --scores bleu-run --scores judge-run --gold data.jsonl --out meta-run

p-values: of the mean over contexts by Student's t over contexts; between systems and over all scores as scipy's \
defaults. Over all scores they take
scores of one context for independent. Intervals leave out whole contexts by turns, tests of differences swap them.";

/// Options of `meta`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct MetaArgs {
    /// Scores: a run's folder, or a table (JSON lines, CSV, TSV or Parquet); once for each
    #[arg(long, value_name = "FILE|DIR", required = true)]
    scores: Vec<PathBuf>,
    /// Gold: samples, or a table of scores (whatever has a column `item`). Without it, the samples that the first run
    /// kept
    #[arg(long, value_name = "FILE")]
    gold: Option<PathBuf>,
    #[command(flatten)]
    read: Typed<ReadOptions>,
    /// Only these metrics, separated by commas
    #[arg(long, value_name = "NAMES")]
    metric: Vec<String>,
    /// Only these gold attributes, separated by commas
    #[arg(long, value_name = "NAMES")]
    attribute: Vec<String>,
    /// Also average each metric's figures over the attributes
    #[arg(long)]
    average: bool,
    /// Test the difference between two metrics: Williams' test, t over contexts, randomisation; once for each pair
    #[arg(long, value_name = "A,B")]
    compare: Vec<String>,
    /// Swaps that a randomisation test draws where it cannot go through all (more than 4,096)
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// How often an interval holds what it is of
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
    confidence: f64,
    /// Seed of the swaps that are drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the summary as JSON, numbers unrounded
    #[arg(long)]
    json: bool,
    /// A folder for manifest and summary, which `probity report` shows; made where it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace an earlier run in that folder
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// Exit with 1 where a score is undefined or has no counterpart
    #[arg(long)]
    strict: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "expected a number between 0 and 1, such as 0.95".to_owned())
}

impl MetaArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> anyhow::Result<Done> {
        if let Some(out) = &self.out {
            // Told before the randomisation tests, which may take long.
            RunFolder::look(out, self.existing())?;
        }
        let metrics = Metrics::read(&self.scores)?.chosen(&self.metric)?;
        let gold_path = self.gold_path()?;
        let gold = if is_score_table(&gold_path) {
            Gold::of_table(&gold_path)?
        } else {
            Gold::of_samples(self.read.samples(&gold_path)?, &gold_path)
        };
        let gold = gold.chosen(&self.attribute)?;
        let resampling = Resampling { rounds: self.rounds as usize, confidence: self.confidence, seed: self.seed };
        let pairs = self.compare.iter().map(|text| metrics.pair(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let evaluation = Evaluation::of(&metrics, &gold, &pairs, self.average, &resampling)?;
        let summary = summary_of(&metrics, &evaluation, &resampling);
        if let Some(out) = &self.out {
            let folder = RunFolder::create(out, self.existing(), self.info(arguments, &gold_path))?;
            write(folder, &summary)?;
            Reporter::new(global).say(&format!("{}", out.display()));
        }
        if self.json {
            print(&visible_json(&summary.to_string()))?;
        } else {
            tables::sections(&evaluation, &resampling).iter().try_for_each(|section| print(&section_text(section)))?;
            print(&visible(&signature_line(&metrics, &resampling)))?;
        }
        Ok(if self.strict && evaluation.left_out() > 0 { Done::Unscored } else { Done::Success })
    }

    fn existing(&self) -> Existing {
        if self.overwrite { Existing::Replace } else { Existing::Refuse }
    }

    /// What was given, or the samples of the first run that kept any.
    fn gold_path(&self) -> anyhow::Result<PathBuf> {
        let kept = || self.scores.iter().map(|path| path.join(SAMPLES)).find(|path| path.is_file());
        let missing = "there is no gold to compare with\n\nhint: give the samples with the people's scores, or a table \
                       of them: --gold FILE";
        self.gold.clone().or_else(kept).ok_or_else(|| anyhow::anyhow!(missing))
    }

    fn info(&self, arguments: &[OsString], gold: &PathBuf) -> RunInfo {
        let hashed = |path: &PathBuf| {
            let file = metrics::file_of(path);
            json!({"path": path, "sha256": file.is_file().then(|| sha256_file(&file).ok()).flatten()})
        };
        let method = json!({
            "scores": self.scores.iter().map(hashed).collect::<Vec<_>>(), "metric": self.metric, "attribute": self.attribute,
            "average": self.average, "compare": self.compare, "rounds": self.rounds, "confidence": self.confidence, "seed": self.seed,
        });
        RunInfo {
            command: "meta".to_owned(),
            arguments_given: typed(arguments),
            arguments_in_force: json!({"method": method, "data": hashed(gold)}),
            versions: probity_version(),
            model: Value::Null,
            other_models: Vec::new(),
            seeds: BTreeMap::from([("seed".to_owned(), self.seed)]),
            recipe: None,
        }
    }
}

/// What `summary.json` holds.
fn summary_of(metrics: &Metrics, evaluation: &Evaluation, resampling: &Resampling) -> Value {
    let sections: Vec<Section> = tables::sections(evaluation, resampling);
    let headline: Vec<Headline> = evaluation.headline();
    json!({
        "method": "meta", "signature_line": signature_line(metrics, resampling), "outcomes": evaluation.outcomes(), "headline": headline,
        "values": evaluation, "sections": sections,
    })
}

/// What the figures depend on besides the files, on one line.
fn signature_line(metrics: &Metrics, resampling: &Resampling) -> String {
    let Resampling { rounds, confidence, seed } = resampling;
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "meta|version:{version}|metrics:{}|rounds:{rounds}|confidence:{confidence}|seed:{seed}",
        metrics.names().join(",")
    )
}

fn write(mut folder: RunFolder, summary: &Value) -> anyhow::Result<()> {
    let written = folder.write_summary(summary);
    close(folder, written.as_ref().map(drop).map_err(|error| error as _))?;
    Ok(written?)
}
