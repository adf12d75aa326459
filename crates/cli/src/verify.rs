//! `probity check`: checks whether run folders are unchanged.

use std::path::{Path, PathBuf};

use clap::Args;
use probity_session::{CheckedRun, message};
use probity_store::{Manifest, RunStatus};

use crate::exit::Completed;
use crate::method::without;
use crate::terminal::{print, quoted, thousands, visible, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Check that a run folder is unchanged: the manifest by its seal, the files that it lists by length and SHA-256, and the \
answers row by row and all together.

An unfinished run that did not stop after a stage has only answers and the tables of finished stages to check; its \
other files follow from them. Folders of cached answers (--cache) are checked too. All problems are listed. The exit \
code is 1 if there are any, and 2 if a folder is not a run. The printed command with --resume repairs a run: it \
recomputes damaged answers and rewrites all other files. If the manifest is lost or the database cannot be opened, \
use a new folder and pass the old one with --cache to reuse the answers that can be read.";

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct RunCheckArgs {
    /// Run folders, or folders of cached answers
    #[arg(required = true)]
    folder: Vec<PathBuf>,
}

impl RunCheckArgs {
    pub(crate) fn run(self) -> miette::Result<Completed> {
        let mut completed = Completed::Success;
        for folder in &self.folder {
            let checked = CheckedRun::check(folder);
            completed = match &checked {
                // A folder that is no run does not stop the other checks.
                Err(_) => Completed::InPart,
                Ok(checked) if completed == Completed::Success && !checked.wrong.is_empty() => Completed::Differs,
                Ok(_) => completed,
            };
            let CheckedRun { said, wrong } = checked.unwrap_or_else(|error| CheckedRun {
                said: "not a \
                                                                   run"
                .to_owned(),
                wrong: vec![message(&error)],
            });
            let state = if wrong.is_empty() {
                "unchanged".to_owned()
            } else {
                format!("problems: {}", thousands(wrong.len() as u64))
            };
            print(&format!("{}: {state}; {said}", visible_line(&folder.display().to_string())))?;
            for one in &wrong {
                print(&format!("  {}", visible(one).replace('\n', "\n  ")))?;
            }
            let run = Manifest::read(folder).ok().filter(|_| !wrong.is_empty());
            if let Some((run, command)) = run.and_then(|run| again(&run, folder).map(|command| (run, command))) {
                // Files that may have been changed on purpose are not overwritten.
                let is_kept = run.status != RunStatus::Finished && !run.contents.is_empty();
                let first = if is_kept { " after removing it" } else { "" };
                // A recipe names its folders, and this one may be a copy.
                let place = if run.info.recipe.is_some() { " in the folder that its recipe names" } else { "" };
                let command = visible_line(&command);
                print(&format!("  hint: repair what is damaged{place}{first}: {command}"))?;
            }
        }
        Ok(completed)
    }
}

/// The command that repairs a run, if its arguments identify the run.
fn again(run: &Manifest, folder: &Path) -> Option<String> {
    let given = &run.info.arguments_given;
    let (is_demo, is_recipe) = (given.first()? == "demo", run.info.recipe.is_some());
    // The demo replaces earlier results. The other runs of a recipe stay unchanged.
    let keeps_answers = !run.info.model.is_null() && !given.iter().any(|argument| argument == "--no-store");
    let how = match () {
        () if is_demo => None,
        () if is_recipe || keeps_answers => Some("--resume"),
        // Without stored answers a run cannot be resumed.
        () => Some("--overwrite"),
    };
    // The checked folder, because the run may have been moved or named after the time.
    let of_place: &[&str] = if is_demo { &[] } else { &["--out"] };
    let of_answers: &[&str] =
        if is_recipe { &["--overwrite", "--resume", "--no-store"] } else { &["--overwrite", "--resume"] };
    let mut words: Vec<String> = without(given, of_answers, of_place).iter().map(|argument| quoted(argument)).collect();
    if !is_demo && !is_recipe {
        words.extend(["--out".to_owned(), quoted(&folder.display().to_string())]);
    }
    words.extend(how.map(str::to_owned));
    Some(format!("probity {}", words.join(" ")))
}
