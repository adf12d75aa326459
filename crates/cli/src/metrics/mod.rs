//! `probity metrics`: scores candidates against references with the registered metrics.

mod lines;

use std::ffi::OsString;

use clap::Args;
use probity_methods::{MethodReport, Metrics};
use probity_metrics::{DynDefinition, choose, metrics};
use probity_options::{OptionKind, OptionSpec};
use probity_session::{Events, Notice, Plan, PlannedRun, stage_options};

use crate::error::OutputError;
use crate::events::{Terminal, verdict_text};
use crate::exit::Completed;
use crate::global::Global;
use crate::method::{resumable, run_plan, typed};
use crate::options::{OptionSet, TypedGiven};
use crate::terminal::{print, table_text, wrapped};
use lines::LinesArgs;

/// Options of `metrics`.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    stage: TypedGiven<Metrics>,
    /// List all metrics with their options and exit
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    lines: LinesArgs,
    /// Print the summary as JSON instead of tables
    #[arg(long, help_heading = "Data and output")]
    json: bool,
}

impl OptionSet for Metrics {
    fn specs() -> Vec<OptionSpec> {
        stage_options(&Self)
    }

    fn adjust_command(command: clap::Command) -> clap::Command {
        resumable(command)
            .mut_arg("metric", |option| option.required(false).required_unless_present("list"))
            .mut_arg("data", |option| {
                option
                    .required(false)
                    .required_unless_present_any(["hypotheses", "list"])
                    .help("Samples: JSONL, CSV, TSV, Parquet (.gz, .zst); - for stdin; `context` is the source")
            })
            .mut_arg("out", |option| {
                option.help("Run folder, created if missing; without it, only the table is printed")
            })
            .mut_arg("strict", |option| option.help("Exit with 1 if a score is undefined"))
    }
}

/// The list of metrics.
pub(crate) fn after_help() -> String {
    let width = metrics().iter().map(|metric| metric.name().len()).max().unwrap_or(0);
    let lines: Vec<String> =
        metrics().iter().map(|metric| format!("  {:width$}  {}", metric.name(), metric.about())).collect();
    format!(
        "Metrics (--list has their options):\n{}\n\nExamples:\n  probity metrics --metric bleu,rouge-l --data \
         samples.jsonl --out scores\n  probity metrics --metric bleu,chrf:word-order=2,ter --hypotheses out.txt \
         --references ref.txt\n  probity metrics --metric bert-score:layer=5 --encoder all-minilm-l6-v2 --data \
         samples.jsonl",
        lines.join("\n")
    )
}

impl MetricsArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        if self.list {
            let listed: Vec<String> = metrics().iter().map(|metric| described(*metric)).collect();
            print(&wrapped(&listed.join("\n\n"), 2))?;
            return Ok(Completed::Success);
        }
        let stage = self.stage()?;
        let given = &self.stage.given;
        let terminal = Terminal::new(global).showing(if self.json { show_json } else { show });
        let used = stage.configured.models();
        for option in ["encoder", "model"] {
            if given.contains_key(option) && used.iter().all(|model| model.role != option) {
                let unused = format!("--{option} is not used: none of the metrics needs it");
                terminal.notice(Notice::Warning(&unused));
            }
        }
        run_plan(&Plan::single_stage(stage, typed(arguments)), None, terminal, global)
    }
}

impl MetricsArgs {
    /// The stage that the arguments request.
    pub(crate) fn stage(&self) -> miette::Result<PlannedRun> {
        let mut given = self.stage.given.clone();
        if let Some(path) = self.lines.first() {
            given.insert("data".to_owned(), path.display().to_string().into());
        }
        let mut stage = PlannedRun::new(&Metrics, &given, None)?;
        if self.lines.first().is_some() {
            let texts: Vec<&str> =
                given["metric"].as_array().into_iter().flatten().filter_map(|m| m.as_str()).collect();
            stage.samples = Some(self.lines.read(&choose(&texts.join(","))?)?);
        }
        Ok(stage)
    }
}

/// Prints the verdict, and the table with the metrics' signatures below it.
fn show(summary: &MethodReport) -> Result<(), OutputError> {
    let verdict = std::iter::once(verdict_text(&summary.verdict));
    let parts: Vec<String> = verdict.chain(summary.tables.iter().take(1).map(table_text)).collect();
    print(parts.join("\n").trim_end())
}

fn show_json(summary: &MethodReport) -> Result<(), OutputError> {
    print(&serde_json::to_string_pretty(summary).expect("a summary is plain values"))
}

/// A metric's documentation and options.
fn described(metric: &dyn DynDefinition) -> String {
    let option = |option: OptionSpec| {
        let form = match &option.kind {
            OptionKind::Flag => "yes|no".to_owned(),
            OptionKind::Choice(choices) => {
                choices.iter().map(|choice| choice.name.as_str()).collect::<Vec<_>>().join("|")
            }
            _ if !option.form.is_empty() => option.form.clone(),
            _ => "N".to_owned(),
        };
        let default = option.typed_defaults().join(",");
        let default =
            if default.is_empty() || option.kind == OptionKind::Flag { String::new() } else { format!(" [{default}]") };
        format!("\n    {}={form}{default}  {}", option.name(), option.description())
    };
    let options: String = metric.options().into_iter().map(option).collect();
    let parts = metric.parts();
    let parts = if parts.is_empty() { String::new() } else { format!("\n  also reports: {}", parts.join(", ")) };
    let text = metric.long_about().replace("\n\n", "\n  ");
    format!("{}\n  {text}{parts}{options}", metric.name())
}
