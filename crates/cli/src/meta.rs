//! `probity meta`: agreement of scores with human judgements.

use std::ffi::OsString;

use clap::Args;
use probity_methods::Meta;
use probity_methods::MethodReport;
use probity_options::OptionSpec;
use probity_session::{Plan, PlannedRun, stage_options};

use crate::error::OutputError;
use crate::events::{Terminal, show};
use crate::exit::Completed;
use crate::global::Global;
use crate::method::{resumable, run_plan, typed};
use crate::options::{OptionSet, TypedGiven};
use crate::terminal::{print, visible_json, wrapped};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  probity meta --scores metrics-run --gold summeval.jsonl --average
  probity meta --scores scores.csv --gold gold.csv --metric bleu,rouge-l --compare bleu,rouge-l
  probity meta --scores compare-run --json
  probity meta --scores bleu-run --scores judge-run --gold data.jsonl --out meta-run

In the tables, p-values come from the method of the interval next to them. This is Student's t with the jackknife, \
which omits one context at a time, or Clopper and Pearson for shares. Rank correlations between systems have no \
interval; their p-values are scipy's defaults. `summary.json` also has scipy's p-values over all scores, which count \
the scores of one context as independent. Randomisation tests of differences swap whole contexts.";

/// Options of `meta`.
#[derive(Debug, Args)]
pub(crate) struct MetaArgs {
    #[command(flatten)]
    stage: TypedGiven<Meta>,
    /// Print the summary as JSON, with unrounded numbers
    #[arg(long, help_heading = "Data and output")]
    json: bool,
}

impl OptionSet for Meta {
    fn specs() -> Vec<OptionSpec> {
        stage_options(&Self)
    }

    fn adjust_command(command: clap::Command) -> clap::Command {
        resumable(command)
            .mut_arg("out", |option| option.help("Run folder for `probity report`, created if missing"))
            .mut_arg("resume", |option| option.help("Continue the run in the run folder"))
            .mut_arg("strict", |option| option.help("Exit with 1 if a score is undefined or has no counterpart"))
    }
}

impl MetaArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        let stage = PlannedRun::new(&Meta, &self.stage.given, None)?;
        let terminal = Terminal::new(global);
        let terminal = terminal.showing(if self.json { show_json } else { show_main });
        run_plan(&Plan::single_stage(stage, typed(arguments)), None, terminal, global)
    }
}

/// The main tables, and how to print the others.
fn show_main(summary: &MethodReport) -> Result<(), OutputError> {
    show(summary)?;
    if summary.details {
        return Ok(());
    }
    print(&wrapped("--details prints all tables, all differences and the notes.", 2))
}

fn show_json(summary: &MethodReport) -> Result<(), OutputError> {
    print(&visible_json(&serde_json::to_string(summary).expect("a summary is plain values")))
}
