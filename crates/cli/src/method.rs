//! Commands of registered methods, and running plans on a terminal.

use std::ffi::OsString;
use std::sync::Arc;

use clap::{ArgMatches, FromArgMatches};
use miette::IntoDiagnostic as _;
use probity_methods::DynMethod;
use probity_session::{Context, Plan, PlannedRun, RunEnd, RunOutcome, UserConfig, stage_options, was_interrupted};

use crate::events::Terminal;
use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::options::{typed_options, with_options};
use crate::plan_end::{conclude, done};
use crate::report::RecipeReport;

/// The method's command with the options of every run.
pub(crate) fn command(method: &dyn DynMethod) -> clap::Command {
    let command = clap::Command::new(method.name()).about(method.about()).long_about(method.long_about());
    resumable(with_options(command, &stage_options(method)))
}

/// A command whose run can be resumed, which requires the folder.
pub(crate) fn resumable(command: clap::Command) -> clap::Command {
    command.mut_arg("resume", |option| option.requires("out")).mut_arg("overwrite", |option| option.requires("out"))
}

/// The stage that a command line requests.
pub(crate) fn stage(method: &'static dyn DynMethod, matches: &ArgMatches) -> miette::Result<PlannedRun> {
    Ok(PlannedRun::new(method, &typed_options(matches, &stage_options(method)), None)?)
}

/// Runs a command line as a plan of one stage.
pub(crate) fn run(
    method: &'static dyn DynMethod,
    matches: &ArgMatches,
    arguments: &[OsString],
) -> miette::Result<Completed> {
    let mut stage = stage(method, matches)?;
    // A dry run writes nothing, and results computed from labels alone can be recomputed: neither needs a folder.
    if !stage.run.ask.dry_run && stage.needs.model {
        let config = UserConfig::load()?;
        stage.run.output.out.get_or_insert_with(|| config.folder_of_its_own(method.name()));
    }
    let global = Global::from_arg_matches(matches).into_diagnostic()?;
    run_plan(&Plan::single_stage(stage, typed(arguments)), None, Terminal::new(global), global)
}

/// Checks a plan, runs it, and reports how its stages ended.
pub(crate) fn run_plan(
    plan: &Plan,
    report: Option<&RecipeReport>,
    terminal: Terminal,
    global: Global,
) -> miette::Result<Completed> {
    let ready = plan.check()?;
    let terminal = Arc::new(terminal);
    let context = Context::new(terminal.clone(), interrupt::catch(global.progress));
    let ends = plan.run(ready, &context).inspect_err(|error| {
        // Without stored answers there is nothing to resume.
        let goes_on =
            |stage: &&PlannedRun| !stage.run.keep.no_store && !stage.run.ask.dry_run && stage.run.output.out.is_some();
        if was_interrupted(error)
            && let Some(stage) = plan.stages.iter().find(goes_on)
        {
            // A folder named after the time must be passed, since the same command would create another. Recipes name
            // their folders.
            let out = stage.run.output.out.as_ref().filter(|_| plan.recipe.is_none());
            let out = out.map(|out| format!("--out {} ", out.display())).unwrap_or_default();
            terminal.reporter().say(&format!("run the same command with {out}--resume to continue"));
        }
    })?;
    if plan.recipe.is_some() {
        conclude(&ends)?;
    } else if let [RunEnd { stage, ended: RunOutcome::Finished(_) }] = &ends[..]
        && let Some(out) = &stage.run.output.out
    {
        let out = out.display();
        terminal
            .reporter()
            .say(&format!("all tables: probity show {out} --all; as a page: probity report {out} --html report.html"));
    }
    if let Some(report) = report {
        report.report(&ends, &terminal.reporter())?;
    }
    Ok(done(&ends))
}

/// The arguments without the program's name.
pub(crate) fn typed(arguments: &[OsString]) -> Vec<String> {
    // The manifest is JSON, which cannot contain invalid Unicode.
    arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Removes flags, and options with their values.
pub(crate) fn without(arguments: &[String], flags: &[&str], options: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let has_value = |option: &&str| argument.strip_prefix(*option).is_some_and(|rest| rest.starts_with('='));
        if options.contains(&argument.as_str()) {
            arguments.next();
        } else if !flags.contains(&argument.as_str()) && !options.iter().any(has_value) {
            left.push(argument.clone());
        }
    }
    left
}
