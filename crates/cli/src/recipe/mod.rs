//! `probity run` and `probity recipe`: runs described in a file.

mod keys;
mod read;
mod schema;
mod template;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use probity_options::{GivenOptions, OptionSpec, specs};
use probity_session::{AskOptions, KeepOptions, Plan, PlannedRun, Shard, stage_kind};

use crate::events::Terminal;
use crate::exit::Completed;
use crate::global::Global;
use crate::method::{run_plan, typed};
use crate::options::{OptionSet, TypedGiven};
use crate::output::{is_stdout, write_text};
use crate::progress::Reporter;
use crate::report::RecipeReport;
use crate::terminal::{print, table, thousands};
use read::{AskedRecipe, RecipeContent};

/// The help of `run`.
pub(crate) const RUN_ABOUT: &str = "\
Run a recipe: data, models, methods and folders in one file.

A recipe is TOML. Each [run.NAME] is a command: its `method`, and that method's options by their long names. Options \
that several runs share are in [defaults], [model.NAME] and [data.NAME]. If `model` or `data` is a list, the run is \
repeated for each item:

  [data.news]
  data = \"summeval.jsonl\"
  limit = 20

  [model.small]
  model = \"smollm2-135m-instruct\"

  [model.judge]
  model = \"qwen2.5-coder-1.5b-instruct\"
  precision = \"fast\"

  [run.pairs]
  method = \"compare\"
  model = [\"small\", \"judge\"]
  attribute = [\"coherence\", \"fluency\"]
  out = \"runs/{run}-{model}\"

  [report]
  html = \"report.html\"

[report] has the options of `probity report`. It covers all finished runs of the recipe, including those that --only \
omits. Paths are relative to the recipe's folder. In `out`, {run}, {method}, {model} and {data} are replaced by names.

Options, data, folders, models and prompts are checked before a model is loaded, and all problems are listed with \
their lines. Each model is loaded once, and its runs follow one after another; a run that fails does not stop the \
others. --resume continues an interrupted recipe and skips finished runs.";

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunCommand {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Judge only part I of N (every N-th sample, from the I-th)
    ///
    /// The folder of each run is then OUT.I-of-N. Runs that judge no samples, or read the results of other runs, are
    /// skipped until all parts are merged.
    #[arg(long, value_name = "I/N", help_heading = "Data and output")]
    shard: Option<Shard>,
    #[command(flatten)]
    flags: TypedGiven<RunFlags>,
}

/// Options of one invocation.
#[derive(Debug)]
struct RunFlags;

impl OptionSet for RunFlags {
    fn specs() -> Vec<OptionSpec> {
        [specs::<AskOptions>(), specs::<KeepOptions>()].concat()
    }
}

/// Which recipe, and which of its runs.
#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    /// Recipe file (TOML)
    #[arg(value_name = "RECIPE")]
    recipe: PathBuf,
    /// Do only this run; repeatable
    #[arg(long, value_name = "RUN", help_heading = "Data and output")]
    only: Vec<String>,
}

/// Recipes: write one, check one, describe them all.
#[derive(Debug, Subcommand)]
pub(crate) enum RecipeCommand {
    /// Write a recipe for a method, with all options and defaults
    New(NewArgs),
    /// Check a recipe without loading a model, and show its stages
    Check(RecipeArgs),
    /// Print the JSON schema of recipes, for editors
    ///
    /// Save the schema as recipe.schema.json. A TOML editor (taplo, Even Better TOML) then completes and checks every
    /// recipe whose first line is `#:schema ./recipe.schema.json`.
    Schema(SchemaArgs),
}

/// Options of `recipe new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Method
    #[arg(value_parser = PossibleValuesParser::new(keys::methods()))]
    method: String,
    /// Write to this file instead of standard output
    ///
    /// An existing file is not replaced.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Options of `recipe schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Write to this file instead of standard output
    ///
    /// The file is replaced whole or not at all.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl RunCommand {
    pub(crate) fn run(&self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        // Typed options take precedence over the recipe.
        let (mut plan, report) = self.recipe.plan(self.flags.given.clone(), typed(arguments))?;
        let Some(shard) = self.shard else {
            return run_plan(&plan, report.as_ref(), Terminal::new(global), global);
        };
        plan.part(shard);
        if plan.stages.is_empty() {
            return Err(NothingToPart { recipe: self.recipe.recipe.display().to_string() }.into());
        }
        run_plan(&plan, None, Terminal::new(global), global)
    }

    /// The run with this name.
    pub(crate) fn stage(&self, name: &str) -> miette::Result<Option<PlannedRun>> {
        let (plan, _) = self.recipe.plan(GivenOptions::default(), Vec::new())?;
        Ok(plan.stages.into_iter().find(|stage| stage.name() == name))
    }
}

/// All runs of a recipe, to be resumed.
pub(crate) fn plan(recipe: &Path) -> miette::Result<Plan> {
    let args = RecipeArgs { recipe: recipe.to_owned(), only: Vec::new() };
    let resuming = [("resume".to_owned(), true.into())].into_iter().collect();
    Ok(args.plan(resuming, Vec::new())?.0)
}

impl RecipeArgs {
    fn plan(&self, flags: GivenOptions, arguments: Vec<String>) -> miette::Result<(Plan, Option<RecipeReport>)> {
        let asked = AskedRecipe { path: &self.recipe, only: &self.only, flags };
        let RecipeContent { stages, report, others, problems: mut found } = read::read(&asked)?;
        if let Some(report) = &report {
            report.check_places(&mut found);
        }
        Ok((Plan { stages, found, others, recipe: Some(self.recipe.display().to_string()), arguments }, report))
    }
}

/// Only allows replacing earlier runs.
fn overwriting() -> GivenOptions {
    [("overwrite".to_owned(), true.into())].into_iter().collect()
}

impl RecipeCommand {
    pub(crate) fn run(&self, global: Global) -> miette::Result<Completed> {
        match self {
            Self::New(args) => new(args, global),
            Self::Check(args) => check(args, global),
            Self::Schema(SchemaArgs { out }) => {
                let schema = format!("{:#}", schema::schema());
                match out {
                    Some(path) => write_text(path, &format!("{schema}\n"))?,
                    None => print(&schema)?,
                }
                Ok(Completed::Success)
            }
        }
    }
}

fn new(args: &NewArgs, global: Global) -> miette::Result<Completed> {
    let method = stage_kind(&args.method).expect("clap lets only names of methods through");
    let out = args.out.as_ref().filter(|path| !is_stdout(path));
    let file = out.map_or("recipe.toml".to_owned(), |path| path.display().to_string());
    let text = template::recipe(method, &file);
    let Some(path) = out else {
        print(text.trim_end())?;
        return Ok(Completed::Success);
    };
    if path.symlink_metadata().is_ok() {
        return Err(RecipeExists { file }.into());
    }
    write_text(path, &text)?;
    Reporter::new(global).say(&format!("wrote {file}; fill in its values, then: probity run {file}"));
    Ok(Completed::Success)
}

/// A recipe that cannot be sharded.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("--shard: no run of {recipe} judges samples of its own")]
#[diagnostic(help("omit --shard"))]
struct NothingToPart {
    recipe: String,
}

/// The file of a new recipe exists.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{file} already exists")]
#[diagnostic(help("choose another file with --out"))]
struct RecipeExists {
    file: String,
}

fn check(args: &RecipeArgs, global: Global) -> miette::Result<Completed> {
    // Existing folders do not make a recipe invalid: `run` reports them.
    let (plan, _) = args.plan(overwriting(), Vec::new())?;
    let ready = plan.check()?;
    let columns = ["stage", "method", "model", "samples", "folder"].map(str::to_owned);
    let rows = ready.iter().map(|ready| {
        let stage = ready.stage;
        let out = stage.run.output.out.as_ref().map(|out| out.display().to_string()).unwrap_or_default();
        let reads_samples = stage.needs.samples;
        let samples = if reads_samples { thousands(ready.samples.len() as u64) } else { String::new() };
        vec![stage.name().to_owned(), stage.method.name().to_owned(), stage.model.model.clone(), samples, out]
    });
    print(&table(&columns, &rows.collect::<Vec<_>>()))?;
    Reporter::new(global).say(&format!("{}: no problems", args.recipe.display()));
    Ok(Completed::Success)
}

/// The problems that `recipe check` reports, without opening data and models; empty if there are none. For fuzzing
/// only.
#[cfg(fuzzing)]
pub fn check_recipe(path: &std::path::Path) -> String {
    let asked = AskedRecipe { path, only: &[], flags: overwriting() };
    let read = read::read(&asked).and_then(|content| Ok(content.problems.into_result(Some("recipe.toml"))?));
    read.map_or_else(|error| probity_session::message(&*error), |()| String::new())
}
