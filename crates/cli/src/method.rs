//! Running a method of the registry into a run folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, FromArgMatches};
use probity_data::{Sample, write_samples};
use probity_lm::{LanguageModel, ModelDescription, SinkError};
use probity_methods::{Conclusion, Cost, DynMethod, Output, Run, Section, Summary};
use probity_metrics::Models;
use probity_report::text::tokens_text;
use probity_runtime::LoadOptions;
use probity_store::{Answers, Existing, RunFolder, RunInfo, SAMPLES, TableWriter};
use serde_json::{Value, json};

use crate::args::Global;
use crate::compute::{ModelArgs, in_force};
use crate::config::Config;
use crate::data::DataArgs;
use crate::exit::Done;
use crate::interrupt::{self, was_interrupted};
use crate::plan::{Plan, Stage};
use crate::problems::Problems;
use crate::progress::{Reporter, seconds_text};
use crate::terminal::{print, size, table, thousands, visible, visible_line, wrapped};

/// Options of every run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// The folder for the manifest, the tables and the summary; made where it is not there. Left out:
    /// runs/METHOD-DATE-TIME
    #[arg(long, value_name = "DIR", help_heading = "Data and output")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// How a run is gone about.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data and output")]
pub(crate) struct AskArgs {
    /// Ask and write nothing: print the number of questions, the tokens with and without sharing, and estimates of
    /// memory and time
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Exit with 1 where a sample could not be scored
    #[arg(long)]
    pub(crate) strict: bool,
}

/// What becomes of an earlier run, and where answers are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data and output")]
pub(crate) struct KeepArgs {
    /// Replace an earlier run in that folder
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Go on with the run in that folder: what is answered there is not asked again
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,
    /// Take answers that are kept in this folder, and keep new ones there too; runs of any kind may share it
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Keep no answers: a run that is interrupted begins anew
    #[arg(long, conflicts_with = "resume")]
    pub(crate) no_store: bool,
}

impl KeepArgs {
    pub(crate) fn existing(&self) -> Existing {
        match (self.overwrite, self.resume) {
            (true, _) => Existing::Replace,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }
}

/// The answers that runs share in that folder.
pub(crate) fn shared_answers(cache: Option<&Path>) -> anyhow::Result<Option<Answers>> {
    Ok(cache.map(Answers::open_shared).transpose()?)
}

/// Settings that an answer depends on besides the model.
pub(crate) fn answer_settings(options: LoadOptions) -> String {
    format!("min_mass:{}", options.min_mass)
}

/// The method's command with the options of every run.
pub(crate) fn command(method: &dyn DynMethod) -> clap::Command {
    let command = with_options(clap::Command::new(method.name()), &method.options());
    // Augmenting puts the options' own description in the place of the method's.
    let command = RunArgs::augment_args(command).about(method.about()).long_about(method.long_about());
    // A run that is there already has to be named.
    command.mut_arg("resume", |option| option.requires("out")).mut_arg("overwrite", |option| option.requires("out"))
}

/// A command line as a plan of one stage, run.
pub(crate) fn run(
    method: &'static dyn DynMethod,
    matches: &ArgMatches,
    arguments: &[OsString],
) -> anyhow::Result<Done> {
    let mut stage = Stage::new(method, matches.clone(), None)?;
    if !stage.args.ask.dry_run {
        let config = Config::load()?;
        stage.args.out.get_or_insert_with(|| folder_of_its_own(method.name(), config.runs()));
    }
    let plan = Plan {
        stages: vec![stage],
        report: None,
        found: Problems::default(),
        recipe: None,
        arguments: typed(arguments),
    };
    plan.run(Global::from_arg_matches(matches)?)
}

/// `runs/compare-20261124-101530`, in universal time; with a number behind it where that is taken.
fn folder_of_its_own(method: &str, runs: &Path) -> PathBuf {
    let now: String = probity_store::now().chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("{method}-{}", now.replace('T', "-").trim_end_matches('Z'));
    let numbered = |n: u32| runs.join(if n < 2 { name.clone() } else { format!("{name}-{n}") });
    (1..u32::MAX).map(numbered).find(|path| !path.exists()).expect("so many runs in one second")
}

/// The arguments without the program's name.
pub(crate) fn typed(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// What a run is, for its manifest.
pub(crate) struct About<'a> {
    /// The command's name.
    pub(crate) command: &'a str,
    /// The arguments as typed.
    pub(crate) arguments: &'a [String],
    /// The method's options in force.
    pub(crate) params: &'a Value,
    pub(crate) data: &'a Value,
    pub(crate) model: &'a ModelDescription,
    /// Further models that the method asks.
    pub(crate) others: &'a [ModelDescription],
    pub(crate) options: LoadOptions,
}

impl About<'_> {
    /// What the manifest says of the run when it begins.
    pub(crate) fn info(&self) -> RunInfo {
        let seeds = self.params["seed"].as_u64().map(|seed| ("seed".to_owned(), seed));
        RunInfo {
            command: self.command.to_owned(),
            arguments_given: self.arguments.to_vec(),
            arguments_in_force: json!({"method": self.params, "model": in_force(self.options), "data": self.data}),
            versions: BTreeMap::from([("probity".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
            model: json!(self.model),
            other_models: self.others.iter().map(|other| json!(other)).collect(),
            seeds: seeds.into_iter().collect(),
            recipe: None,
        }
    }
}

/// All models that a run works with.
pub(crate) struct Asked<'a> {
    pub(crate) model: &'a dyn LanguageModel,
    /// Further ones, where the method asks for them.
    pub(crate) others: &'a [&'a dyn LanguageModel],
    pub(crate) for_metrics: Models,
}

/// Runs the method; its rows are in the folder when this returns, also after an error.
pub(crate) fn execute(
    method: &dyn DynMethod,
    matches: &ArgMatches,
    samples: &[Sample],
    asked: Asked<'_>,
    folder: &mut RunFolder,
    reporter: &RefCell<Reporter>,
) -> anyhow::Result<Summary> {
    folder.write_file(SAMPLES, |writer| anyhow::Ok(write_samples(writer, samples)?))?;
    let mut output = FolderOutput { folder, tables: Vec::new(), reporter, name: method.name() };
    let Asked { model, others, for_metrics } = asked;
    let mut run = Run::new(model, &mut output).with_other_models(others).with_metric_models(for_metrics);
    let result = method.run(matches, samples, &mut run);
    output.reporter.borrow_mut().finish();
    let tables = std::mem::take(&mut output.tables);
    let summary = result?;
    for (_, table) in tables {
        table.finish()?;
    }
    folder.write_summary(&summary)?;
    folder.set_cost(&summary.cost)?;
    Ok(summary)
}

/// Says in the manifest how the run ended.
pub(crate) fn close<T>(folder: RunFolder, result: anyhow::Result<T>) -> anyhow::Result<T> {
    match result {
        Ok(value) => {
            folder.finish()?;
            Ok(value)
        }
        Err(error) => {
            let text = error.to_string();
            let why = text.split("\n\nhint: ").next().unwrap_or_default();
            // The error that ended the run is what the user must see, not that it could not be noted (on a full disk,
            // say).
            let _ = if was_interrupted(&error) { folder.interrupt() } else { folder.fail(why) };
            Err(error)
        }
    }
}

/// Prints the tables of a summary.
pub(crate) fn show(summary: &Summary) -> anyhow::Result<()> {
    if !summary.verdict.is_empty() {
        print(&verdict_text(&summary.verdict))?;
    }
    for section in &summary.sections {
        print(&section_text(section))?;
    }
    let cost = summary.cost;
    let told = format!(
        "{} questions in {}; {}; {} of keys and values at most",
        thousands(cost.requests as u64),
        seconds_text(cost.seconds),
        tokens_text(cost.tokens_computed, cost.tokens_unshared),
        size(cost.peak_cache_bytes),
    );
    print(&wrapped(&told, 2))?;
    if let Some(text) = generation_text(&cost) {
        print(&wrapped(&text, 2))?;
    }
    print(&visible(&summary.signature_line))?;
    Ok(())
}

/// What the run says, and how far to trust it, before how it came about.
pub(crate) fn verdict_text(verdict: &[Conclusion]) -> String {
    let mut text = String::new();
    for one in verdict {
        let about = one.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
        for line in
            [format!("{about}{}", one.says), format!("{}: {}", one.trust.to_string().to_uppercase(), one.because)]
        {
            text.push_str(&wrapped(&visible_line(&line), 2));
            text.push('\n');
        }
    }
    text
}

/// How much was generated, and how well it was guessed; nothing where nothing was.
fn generation_text(cost: &Cost) -> Option<String> {
    let generated = (cost.tokens_generated > 0).then(|| thousands(cost.tokens_generated))?;
    let drafts = cost.acceptance().map(|share| {
        format!(
            "; {} drafted, {} of them accepted ({:.0} %)",
            thousands(cost.tokens_drafted),
            thousands(cost.drafts_accepted),
            100.0 * share
        )
    });
    Some(format!("{generated} tokens generated{}", drafts.unwrap_or_default()))
}

/// A section as it is printed.
pub(crate) fn section_text(section: &Section) -> String {
    let mut text = format!("{}\n", visible(&section.title));
    if !section.columns.is_empty() {
        text.push_str(&table(&section.columns, &section.rows));
        text.push('\n');
    }
    for note in &section.notes {
        text.push_str(&wrapped(&visible_line(note), 2));
        text.push('\n');
    }
    text
}

/// A method's output as tables of a run folder.
struct FolderOutput<'a> {
    folder: &'a mut RunFolder,
    tables: Vec<(&'static str, TableWriter)>,
    reporter: &'a RefCell<Reporter>,
    name: &'static str,
}

impl Output for FolderOutput<'_> {
    fn table(&mut self, table: &'static str, _: usize) -> Result<(), SinkError> {
        let writer = self.folder.table(&format!("{table}.jsonl"))?;
        self.tables.push((table, writer));
        Ok(())
    }

    fn row(&mut self, table: &'static str, index: usize, row: Value) -> Result<(), SinkError> {
        let writer = self.tables.iter_mut().find(|(name, _)| *name == table).map(|(_, writer)| writer);
        writer.ok_or_else(|| format!("table `{table}` was not announced"))?.put(index, &row)?;
        if let Some(outcome) = row["outcome"].as_str() {
            self.reporter.borrow_mut().outcome(outcome);
        }
        // After the row is in: what was finished is kept.
        Ok(interrupt::check()?)
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.reporter.borrow_mut().questions(self.name, done, Some(total));
    }
}

/// The rows of a table that a run has finished.
pub(crate) fn rows(folder: &Path, table: &str) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(folder.join(format!("{table}.jsonl")))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
