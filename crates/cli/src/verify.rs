//! `probity check`: whether a run's folder is as it was written.

use std::path::{Path, PathBuf};

use clap::Args;
use probity_store::{ANSWERS, Answers, Content, Manifest, Status};

use crate::exit::Done;
use crate::terminal::{print, thousands, visible, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Check that a run's folder is as it was written: the files that its manifest lists by length and SHA-256, and every row of its answers by its seal.

Of a run that is not finished there are answers alone to check: its other files follow from them. A folder of shared answers (--cache) is checked too.
Everything that is wrong is named, and the exit code is 1. What is damaged is mended by the command of that run with --resume: answers that fail their
check are asked again, and all other files are written anew.";

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Folders of runs, or of shared answers
    #[arg(required = true)]
    folder: Vec<PathBuf>,
}

impl CheckArgs {
    pub(crate) fn run(self) -> anyhow::Result<Done> {
        let mut whole = true;
        for folder in &self.folder {
            let (said, wrong) = check(folder)?;
            whole &= wrong.is_empty();
            let state = if wrong.is_empty() { "as it was written".to_owned() } else { format!("{} wrong", thousands(wrong.len() as u64)) };
            print(&format!("{}: {state}; {said}", visible_line(&folder.display().to_string())))?;
            for one in wrong {
                print(&format!("  {}", visible(&one)))?;
            }
        }
        Ok(if whole { Done::Success } else { Done::Differs })
    }
}

/// What was looked at, and what is wrong with it.
fn check(folder: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let answers = folder.join(ANSWERS);
    let manifest = match Manifest::read(folder) {
        Ok(manifest) => Some(manifest),
        // Answers that runs share have no manifest.
        Err(_) if answers.exists() => None,
        Err(error) => return Err(error.into()),
    };
    let mut wrong = Vec::new();
    let mut files = 0;
    for (name, content) in manifest.iter().filter(|run| run.status == Status::Finished).flat_map(|run| &run.contents) {
        files += 1;
        match Content::of(&folder.join(name)) {
            Ok(found) if found == *content => {}
            Ok(found) if found.bytes != content.bytes => wrong.push(format!("{name}: {} bytes, and had {}", found.bytes, content.bytes)),
            Ok(_) => wrong.push(format!("{name}: its content is not what was written")),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    let listed = manifest.as_ref().is_some_and(|run| run.files.iter().any(|name| name == ANSWERS));
    let rows = match Answers::open_read_only(&answers).and_then(|answers| answers.check(|row| wrong.push(format!("{ANSWERS}: {row}")))) {
        Ok(rows) => rows,
        Err(_) if !answers.exists() && !listed => 0,
        Err(error) => {
            wrong.push(error.to_string());
            0
        }
    };
    let status = manifest.map_or_else(|| "shared answers".to_owned(), |run| run.status.name().to_owned());
    Ok((format!("{status}, {files} files, {} rows of answers", thousands(rows as u64)), wrong))
}
