//! How the stages of a plan ended.

use probity_session::{InShort, StageEnd, StageOutcome};

use crate::exit::Completed;
use crate::terminal::{print, table};

/// The table of a recipe's stages.
pub(crate) fn conclude(ends: &[StageEnd<'_>]) -> miette::Result<()> {
    let columns = ["stage", "status", "outcomes", "result", "folder"].map(str::to_owned);
    let rows: Vec<Vec<String>> = ends.iter().map(row).collect();
    print(&format!("\n{}", table(&columns, &rows)))?;
    Ok(())
}

fn row(end: &StageEnd<'_>) -> Vec<String> {
    let status = match end.ended {
        StageOutcome::Finished(_) => "finished",
        StageOutcome::Before(_) => "finished before",
        StageOutcome::Until(_) => "stopped",
        StageOutcome::Planned => "planned",
        StageOutcome::Failed => "failed",
    };
    let outcomes = end.in_short().map(|found| found.outcomes.line());
    let found = end.in_short().map(InShort::text);
    let out = end.stage.run.output.out.as_ref().map(|out| out.display().to_string());
    let heads = [end.stage.name(), status].map(str::to_owned);
    heads.into_iter().chain([outcomes, found, out].map(Option::unwrap_or_default)).collect()
}

/// What the plan comes to.
pub(crate) fn done(ends: &[StageEnd<'_>]) -> Completed {
    let unscored = |end: &StageEnd<'_>| {
        end.stage.run.ask.strict && end.in_short().is_some_and(|found| found.outcomes.unscored() > 0)
    };
    match () {
        // First, since 1 says that all was done.
        () if ends.iter().any(|end| matches!(end.ended, StageOutcome::Failed)) => Completed::InPart,
        () if ends.iter().any(unscored) => Completed::Unscored,
        () => Completed::Success,
    }
}
