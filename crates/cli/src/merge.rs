//! `probity merge`: one run out of the folders of its parts.

use std::path::PathBuf;

use clap::Args;
use probity_session::{Plan, Shards, Stage};

use crate::events::Terminal;
use crate::exit::Completed;
use crate::global::Global;
use crate::method::{run_plan, without};

pub(crate) const LONG_ABOUT: &str = "\
Make of the folders of all parts (--shard I/N) the folder that one run would have made.

The same questions are asked once more, in the order of one run, and their answers are found in the parts: tables, \
summary and answers have the bytes of that run, also where a method computes over all samples together. The model's \
files must be on this machine; it is not loaded, unless a question has no answer there (one that did not fit).

A part that is missing, given twice, unfinished, damaged, or of another run is named, and nothing is written; so it is \
where the model, a file of the options (a template, a checklist) or the recipe is not what the parts were made with. Call \
it from where the parts were run, so that paths lead to the same files.";

/// Options of `merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The folders of all parts, in any order
    #[arg(required = true, value_name = "DIR")]
    folder: Vec<PathBuf>,
    /// The folder for the whole run
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an earlier run in that folder
    #[arg(long)]
    overwrite: bool,
    /// Go on with a merge that was interrupted
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
}

/// The command of a part is none that this version knows.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("`probity {command}` is not the command of a run: {why}")]
#[diagnostic(help("merge parts that this version has made, from the folder that they were run in"))]
pub(crate) struct NoRunCommand {
    pub(crate) command: String,
    pub(crate) why: String,
}

impl MergeArgs {
    /// `asked_for` understands the arguments of a run; of a recipe that of the name.
    pub(crate) fn run(
        &self,
        global: Global,
        asked_for: impl Fn(&[String], Option<&str>) -> miette::Result<Stage>,
    ) -> miette::Result<Completed> {
        let shards = Shards::open(&self.folder)?;
        shards.apart_from(&self.out)?;
        let given = without(shards.arguments(), &["--overwrite", "--resume"], &["--out", "--shard"]);
        let name = shards.recipe().map(|recipe| recipe.stage.clone());
        let mut stage = asked_for(&given, name.as_deref())?.of_shards(shards);
        stage.run.output.out = Some(self.out.clone());
        let keep = &mut stage.run.keep;
        (keep.overwrite, keep.resume, keep.cache) = (self.overwrite, self.resume, None);
        let mut arguments = given;
        if name.is_none() {
            arguments.extend(["--out".to_owned(), self.out.display().to_string()]);
        }
        run_plan(&Plan::of(stage, arguments), None, Terminal::new(global), global)
    }
}
