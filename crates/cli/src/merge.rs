//! `probity merge`: merges the shards of a run.

use std::path::PathBuf;

use clap::Args;
use probity_session::{Plan, PlannedRun, Shards};

use crate::events::Terminal;
use crate::exit::Completed;
use crate::global::Global;
use crate::method::{run_plan, without};

pub(crate) const LONG_ABOUT: &str = "\
Merge the folders of all parts (--shard I/N) into the folder of one run.

The merge repeats the queries in the order of a single run and takes their answers from the parts. Tables, summary \
and answers are byte-identical to those of that run, even if a method computes over all samples together. The model's \
files must be on this machine; the model is loaded only if a query has no answer in the parts (one that did not fit).

A part that is missing, duplicate, unfinished, damaged or from another run is an error, and nothing is written. So is \
a model, a file of the options (a template, a checklist) or a recipe that differs from that of the parts. Run it in \
the folder where the parts were run, so that paths lead to the same files.";

/// Options of `merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Folders of all parts, in any order
    #[arg(required = true, value_name = "DIR")]
    folder: Vec<PathBuf>,
    /// Folder for the whole run
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an earlier run in that folder
    #[arg(long)]
    overwrite: bool,
    /// Continue an interrupted merge
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
}

/// This version does not know the command of a shard.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("`probity {command}` is not the command of a run: {why}")]
#[diagnostic(help("merge parts made by this version, in the folder where they were run"))]
pub(crate) struct NoRunCommand {
    pub(crate) command: String,
    pub(crate) why: String,
}

impl MergeArgs {
    /// `planned_run` parses the arguments of a run; for a recipe it selects the run with this name.
    pub(crate) fn run(
        &self,
        global: Global,
        planned_run: impl Fn(&[String], Option<&str>) -> miette::Result<PlannedRun>,
    ) -> miette::Result<Completed> {
        let shards = Shards::open(&self.folder)?;
        shards.apart_from(&self.out)?;
        let given = without(shards.arguments(), &["--overwrite", "--resume"], &["--out", "--shard"]);
        let name = shards.recipe().map(|recipe| recipe.stage.clone());
        let mut stage = planned_run(&given, name.as_deref())?.with_shards(shards);
        stage.run.output.out = Some(self.out.clone());
        let keep = &mut stage.run.keep;
        (keep.overwrite, keep.resume, keep.cache) = (self.overwrite, self.resume, None);
        let mut arguments = given;
        if name.is_none() {
            arguments.extend(["--out".to_owned(), self.out.display().to_string()]);
        }
        run_plan(&Plan::single_stage(stage, arguments), None, Terminal::new(global), global)
    }
}
