//! What is to be run: a method, data, a model and a folder, once for a command line and once for each stage of a
//! recipe.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, FromArgMatches};
use probity_lm::{LanguageModel, ModelDescription};
use probity_methods::{DynMethod, Headline, Outcomes, Summary};
use probity_runtime::LoadOptions;
use probity_store::{RecipeMark, Recorded, RunFolder, RunInfo, SUMMARY};

use serde::Deserialize;

use crate::args::Global;
use crate::check::{Checker, Ready};
use crate::dry_run;
use crate::exit::{Done, closed_pipe, message};
use crate::interrupt::{self, was_interrupted};
use crate::method::{About, Asked, RunArgs, answer_settings, close, execute, shared_answers, show};
use crate::problems::{Lines, Problems};
use crate::progress::Reporter;
use crate::report::ReportOptions;
use crate::shelf::{Shelf, Shelved};
use crate::terminal::{print, table, thousands, visible_line};

/// A method with its options, over data, asked of a model, into a folder.
pub(crate) struct Stage {
    pub(crate) method: &'static dyn DynMethod,
    /// The options of the method.
    pub(crate) matches: ArgMatches,
    /// Those of every run.
    pub(crate) args: RunArgs,
    /// Where it comes from; absent where it was typed as a command.
    pub(crate) origin: Option<Origin>,
}

/// Where a stage of a recipe comes from.
pub(crate) struct Origin {
    pub(crate) mark: RecipeMark,
    pub(crate) lines: Lines,
}

impl Stage {
    /// A stage of options that clap has read.
    pub(crate) fn new(
        method: &'static dyn DynMethod,
        matches: ArgMatches,
        origin: Option<Origin>,
    ) -> Result<Self, clap::Error> {
        let args = RunArgs::from_arg_matches(&matches)?;
        Ok(Self { method, matches, args, origin })
    }

    /// What the manifest says of the recipe.
    pub(crate) fn mark(&self) -> Option<RecipeMark> {
        self.origin.as_ref().map(|origin| origin.mark.clone())
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        self.origin.as_ref().map_or(self.method.name(), |origin| &origin.mark.stage)
    }
}

/// Stages, and the arguments that they were asked for with.
pub(crate) struct Plan {
    pub(crate) stages: Vec<Stage>,
    /// What is reported of them together.
    pub(crate) report: Option<ReportOptions>,
    /// What is wrong with stages that are not among them.
    pub(crate) found: Problems,
    /// The recipe's file; absent where there is none.
    pub(crate) recipe: Option<String>,
    /// As typed, the program's name left out.
    pub(crate) arguments: Vec<String>,
}

/// How a stage ended.
enum Ended {
    Finished(Conclusion),
    /// It had been finished before, just so.
    Before(Conclusion),
    /// Only planned.
    Planned,
    Failed,
}

impl Ended {
    fn conclusion(&self) -> Option<&Conclusion> {
        match self {
            Self::Finished(conclusion) | Self::Before(conclusion) => Some(conclusion),
            Self::Planned | Self::Failed => None,
        }
    }

    fn row(&self, stage: &Stage) -> Vec<String> {
        let status = match self {
            Self::Finished(_) => "finished",
            Self::Before(_) => "finished before",
            Self::Planned => "planned",
            Self::Failed => "failed",
        };
        let outcomes = self.conclusion().map(|told| told.outcomes.line());
        let headline = self.conclusion().map(Conclusion::in_short);
        let out = stage.args.out.as_ref().map(|out| out.display().to_string());
        vec![
            stage.name().to_owned(),
            status.to_owned(),
            outcomes.unwrap_or_default(),
            headline.unwrap_or_default(),
            out.unwrap_or_default(),
        ]
    }
}

/// What `summary.json` says in short.
#[derive(Debug, Deserialize)]
struct Conclusion {
    outcomes: Outcomes,
    #[serde(default)]
    headline: Vec<Headline>,
    #[serde(default)]
    verdict: Vec<probity_methods::Conclusion>,
}

impl Conclusion {
    /// Its figures; of a run that has none, as one without gold, what it says.
    fn in_short(&self) -> String {
        let figures: Vec<String> = self.headline.iter().map(ToString::to_string).collect();
        let said = || self.verdict.iter().map(|verdict| verdict.says.clone()).collect();
        if figures.is_empty() { said() } else { figures }.join(", ")
    }

    fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(SUMMARY);
        let text = std::fs::read(&path).with_context(|| format!("{} could not be read", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a summary of probity", path.display()))
    }
}

impl Plan {
    /// Checks all stages; what is wrong with any of them is one error, and nothing has been loaded or written.
    pub(crate) fn check(&self) -> anyhow::Result<Vec<Ready<'_>>> {
        let mut problems = self.found.clone();
        let mut checker = Checker::new(self);
        let ready: Vec<Ready<'_>> =
            self.stages.iter().filter_map(|stage| checker.check(stage, &mut problems)).collect();
        problems.into_result(self.recipe.as_deref())?;
        if let Some(report) = &self.report {
            report.spare_other_files()?;
        }
        Ok(ready)
    }

    /// Checks all stages, then runs them, those of one model one after another. A stage of a recipe that fails does not
    /// stop the others.
    pub(crate) fn run(&self, global: Global) -> anyhow::Result<Done> {
        let reporter = &RefCell::new(Reporter::new(global));
        let mut ready = self.check()?;
        interrupt::catch(global.progress);
        by_model(&mut ready);
        let shelf = Shelf::new(reporter);
        let mut ended = Vec::with_capacity(ready.len());
        for ready in ready {
            let stage = ready.stage;
            let end = match self.run_stage(&ready, &shelf, reporter) {
                Err(error) if self.recipe.is_some() && !was_interrupted(&error) && !error.chain().any(closed_pipe) => {
                    let told = message(error.as_ref());
                    reporter.borrow().error(&format!(
                        "error: run `{}`: {}",
                        stage.name(),
                        told.strip_prefix("error: ").unwrap_or(&told)
                    ));
                    Ended::Failed
                }
                end => end.inspect_err(|error| {
                    if was_interrupted(error) && !stage.args.keep.no_store && !stage.args.ask.dry_run {
                        let out = stage.args.out.as_ref().filter(|_| self.recipe.is_none());
                        let out = out.map(|out| format!("--out {} ", out.display())).unwrap_or_default();
                        reporter.borrow().say(&format!("the same command with {out}--resume goes on from here"));
                    }
                })?,
            };
            ended.push((stage, end));
        }
        let done = self.conclude(&ended)?;
        self.report(&ended, &reporter.borrow())?;
        Ok(done)
    }

    /// Reports on the stages that have come to their end.
    fn report(&self, ended: &[(&Stage, Ended)], reporter: &Reporter) -> anyhow::Result<()> {
        let finished = ended.iter().filter(|(_, end)| end.conclusion().is_some());
        let folders: Vec<PathBuf> = finished.filter_map(|(stage, _)| stage.args.out.clone()).collect();
        match &self.report {
            Some(report) if !folders.is_empty() => report.report(&folders, reporter),
            _ => Ok(()),
        }
    }

    fn run_stage(&self, ready: &Ready<'_>, shelf: &Shelf<'_>, reporter: &RefCell<Reporter>) -> anyhow::Result<Ended> {
        let Ready { stage, samples, .. } = ready;
        let args = &stage.args;
        if let Some(out) = args.out.as_ref().filter(|_| ready.finished) {
            return Ok(Ended::Before(Conclusion::read(out)?));
        }
        interrupt::check()?;
        let (description, options) = shelf.with(&args.model, |model| (model.description().clone(), model.options()))?;
        if self.recipe.is_some() {
            print(&format!("\n── {} ──", visible_line(stage.name())))?;
        }
        let Some(out) = args.out.as_ref().filter(|_| !args.ask.dry_run) else {
            shelf.with(&args.model, |model| dry_run::method(ready, samples, model, &mut reporter.borrow_mut()))??;
            return Ok(Ended::Planned);
        };
        let Summary { outcomes, headline, verdict, .. } = self.judge(ready, shelf, (description, options), reporter)?;
        let reporter = reporter.borrow();
        reporter.say(&format!("results are in {}", out.display()));
        let unscored = outcomes.unscored();
        if unscored > 0 {
            let results = if unscored == 1 { "result" } else { "results" };
            reporter.warn(&format!("{} {results} without a score; the outcomes say why", thousands(unscored as u64)));
        }
        Ok(Ended::Finished(Conclusion { outcomes, headline, verdict }))
    }

    /// Fills the run folder, and shows the summary.
    fn judge(
        &self,
        ready: &Ready<'_>,
        shelf: &Shelf<'_>,
        (description, options): (ModelDescription, LoadOptions),
        reporter: &RefCell<Reporter>,
    ) -> anyhow::Result<Summary> {
        let Ready { stage: Stage { method, matches, args, .. }, samples, data, .. } = ready;
        let params = method.params_in_force(matches)?;
        let others = ready.other_descriptions()?;
        let command = method.name();
        let about = About {
            command,
            arguments: &self.arguments,
            params: &params,
            data,
            model: &description,
            others: &others,
            options,
        };
        let info = RunInfo { recipe: ready.stage.mark(), ..about.info() };
        let out = args.out.as_ref().expect("a run that is no dry one has a folder");
        let mut folder = RunFolder::create(out, args.keep.existing(), info)?;
        let model = Shelved::new(shelf, args.model.clone(), description);
        let others: Vec<Shelved<'_>> = ready
            .others
            .iter()
            .zip(others)
            .map(|(other, about)| Shelved::new(shelf, other.args.clone(), about))
            .collect();
        let mut judge = || {
            let own = if args.keep.no_store { None } else { Some(folder.answers()?) };
            let shared = shared_answers(args.keep.cache.as_deref())?;
            let settings = answer_settings(options);
            let recorded = Recorded::new(&model, &settings, own.as_ref(), shared.as_ref())?;
            reporter.borrow_mut().looks_up(recorded.found_so_far());
            let others = others.iter().map(|other| recorded.beside(other, &settings)).collect::<Result<Vec<_>, _>>()?;
            let others: Vec<&dyn LanguageModel> = others.iter().map(|other| -> &dyn LanguageModel { other }).collect();
            let for_metrics = ready.metric_models(&mut reporter.borrow_mut())?;
            let asked = Asked { model: &recorded, others: &others, for_metrics };
            let summary = execute(*method, matches, samples, asked, &mut folder, reporter)?;
            recorded.finish()?;
            tell_damaged(&recorded.damaged(), &reporter.borrow());
            if recorded.found() > 0 {
                reporter.borrow().say(&format!("{} answers were there already", thousands(recorded.found() as u64)));
            }
            Ok(summary)
        };
        let result = judge();
        let summary = close(folder, result)?;
        show(&summary)?;
        Ok(summary)
    }

    /// The table of a recipe's stages, and what the plan comes to.
    fn conclude(&self, ended: &[(&Stage, Ended)]) -> anyhow::Result<Done> {
        if self.recipe.is_some() {
            let columns = ["stage", "status", "outcomes", "result", "folder"].map(str::to_owned);
            let rows: Vec<Vec<String>> = ended.iter().map(|(stage, end)| end.row(stage)).collect();
            print(&format!("\n{}", table(&columns, &rows)))?;
        }
        let unscored = |(stage, end): &(&Stage, Ended)| {
            stage.args.ask.strict && end.conclusion().is_some_and(|conclusion| conclusion.outcomes.unscored() > 0)
        };
        Ok(match () {
            () if ended.iter().any(|(_, end)| matches!(end, Ended::Failed)) => Done::InPart,
            () if ended.iter().any(unscored) => Done::Unscored,
            () => Done::Success,
        })
    }
}

/// So many damaged answers are named.
const NAMED: usize = 5;

/// Answers that were kept and are not as they were written: they were asked again.
pub(crate) fn tell_damaged(damaged: &[String], reporter: &Reporter) {
    if damaged.is_empty() {
        return;
    }
    let named: Vec<&str> = damaged.iter().take(NAMED).map(String::as_str).collect();
    let more = damaged.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if damaged.len() == 1 {
        "1 kept answer was".to_owned()
    } else {
        format!("{} kept answers were", thousands(damaged.len() as u64))
    };
    reporter
        .warn(&format!("{what} damaged and asked again: {}{more}; look whether the disk is failing", named.join(", ")));
}

/// Puts stages of one model together, in the order in which each model comes first.
fn by_model(ready: &mut Vec<Ready<'_>>) {
    let mut sorted: Vec<Ready<'_>> = Vec::with_capacity(ready.len());
    for stage in ready.drain(..) {
        let of_model = |other: &Ready<'_>| other.stage.args.model.has_weights_of(&stage.stage.args.model);
        let place = sorted.iter().rposition(of_model).map_or(sorted.len(), |last| last + 1);
        sorted.insert(place, stage);
    }
    *ready = sorted;
}
