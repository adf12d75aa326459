//! Summary of how the stages of a plan ended.

use probity_methods::Conclusion;
use probity_session::{InShort, RunEnd, RunOutcome};

use crate::events::verdict_text;
use crate::exit::Completed;
use crate::terminal::{print, table, visible_line, wrapped};

/// Prints the conclusions of a recipe's stages and their table.
pub(crate) fn conclude(ends: &[RunEnd<'_>]) -> miette::Result<()> {
    let verdict: Vec<Conclusion> = ends.iter().flat_map(verdict).collect();
    if !verdict.is_empty() {
        let text = if verdict.len() > MOST_REASONS { short_text(&verdict) } else { verdict_text(&verdict) };
        print(&format!("\n{}", text.trim_end()))?;
    }
    let columns = ["stage", "status", "outcomes", "result", "folder"].map(str::to_owned);
    let rows: Vec<Vec<String>> = ends.iter().map(row).collect();
    print(&format!("\n{}", table(&columns, &rows)))?;
    Ok(())
}

/// With more conclusions the reasons are omitted; each stage has printed them.
const MOST_REASONS: usize = 8;

/// A stage's conclusions with its name.
fn verdict(end: &RunEnd<'_>) -> Vec<Conclusion> {
    let name = end.stage.name();
    let named = |one: &Conclusion| {
        let about = one.about.as_ref().map_or_else(|| name.to_owned(), |about| format!("{name}, {about}"));
        Conclusion { about: Some(about), ..one.clone() }
    };
    end.in_short().into_iter().flat_map(|found| &found.verdict).map(named).collect()
}

/// One line per conclusion.
fn short_text(verdict: &[Conclusion]) -> String {
    let line = |one: &Conclusion| {
        let (about, trust) = (one.about.as_deref().unwrap_or_default(), one.trust.to_string().to_uppercase());
        wrapped(&visible_line(&format!("{about}: {} ({trust})", one.says)), 2)
    };
    verdict.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(end: &RunEnd<'_>) -> Vec<String> {
    let status = match end.ended {
        RunOutcome::Finished(_) => "finished",
        RunOutcome::Before(_) => "finished before",
        RunOutcome::Until(_) => "stopped",
        RunOutcome::Planned => "planned",
        RunOutcome::Failed => "failed",
    };
    let outcomes = end.in_short().map(|found| found.outcomes.line());
    let found = end.in_short().map(InShort::figures);
    let out = end.stage.run.output.out.as_ref().map(|out| out.display().to_string());
    let heads = [end.stage.name(), status].map(str::to_owned);
    heads.into_iter().chain([outcomes, found, out].map(Option::unwrap_or_default)).collect()
}

/// The result of the plan.
pub(crate) fn done(ends: &[RunEnd<'_>]) -> Completed {
    let unscored = |end: &RunEnd<'_>| {
        end.stage.run.ask.strict && end.in_short().is_some_and(|found| found.outcomes.unscored() > 0)
    };
    match () {
        // First, because 1 means that everything was done.
        () if ends.iter().any(|end| matches!(end.ended, RunOutcome::Failed)) => Completed::InPart,
        () if ends.iter().any(unscored) => Completed::Unscored,
        () => Completed::Success,
    }
}
