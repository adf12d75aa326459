//! `probity check`: whether a run's folder is as it was written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use probity_store::{ANSWERS, Answers, Extent, MANIFEST, Manifest, Status, StoreError};

use crate::exit::{Done, message};
use crate::terminal::{print, thousands, visible, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Check that a run's folder is as it was written: the manifest by its seal, the files that it lists by length and \
SHA-256, and the answers row by row and
all together.

Of a run that is not finished there are answers alone to check: its other files follow from them. A folder of shared \
answers (--cache) is checked too.
Everything that is wrong is named, and the exit code is 1. What is damaged is mended by the command of that run with \
--resume, which is printed:
answers that fail their check are asked again, and all other files are written anew. Where the manifest is lost, or \
the database cannot be opened, a new
folder is needed; answers that can be read are taken over with --cache and the old one.";

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
            let checked = Checked::of(folder);
            let Checked { said, wrong } = checked
                .unwrap_or_else(|error| Checked { said: "no run".to_owned(), wrong: vec![message(error.as_ref())] });
            whole &= wrong.is_empty();
            let state = if wrong.is_empty() {
                "as it was written".to_owned()
            } else {
                format!("{} wrong", thousands(wrong.len() as u64))
            };
            print(&format!("{}: {state}; {said}", visible_line(&folder.display().to_string())))?;
            for one in &wrong {
                print(&format!("  {}", visible(one).replace('\n', "\n  ")))?;
            }
            if let Some(command) =
                Manifest::read(folder).ok().filter(|_| !wrong.is_empty()).and_then(|run| again(&run, folder))
            {
                print(&format!("  hint: what is damaged is written again by: {}", visible_line(&command)))?;
            }
        }
        Ok(if whole { Done::Success } else { Done::Differs })
    }
}

/// The command that goes on with a run, where the arguments that it was given say what it is.
fn again(run: &Manifest, folder: &Path) -> Option<String> {
    let given = &run.info.arguments_given;
    let is = |name: &str| given.iter().any(|argument| argument == name);
    let kept = given.iter().filter(|argument| !matches!(argument.as_str(), "--overwrite" | "--resume"));
    let mut words: Vec<String> = kept.map(|argument| quoted(argument)).collect();
    // The demo replaces what it did before, and a recipe knows its folders.
    let is_demo = given.first().is_some_and(|command| command == "demo");
    if !is_demo
        && run.info.recipe.is_none()
        && !is("--out")
        && !given.iter().any(|argument| argument.starts_with("--out="))
    {
        // Its folder was called by the time.
        words.extend(["--out".to_owned(), quoted(&folder.display().to_string())]);
    }
    if !is_demo {
        let keeps_answers = !run.info.model.is_null() && !is("--no-store");
        words.push(if keeps_answers { "--resume" } else { "--overwrite" }.to_owned());
    }
    (!given.is_empty()).then(|| format!("probity {}", words.join(" ")))
}

/// As a shell reads it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

/// What was looked at, and what is wrong with it.
pub(crate) struct Checked {
    said: String,
    pub(crate) wrong: Vec<String>,
}

impl Checked {
    /// Looks at everything. An error where there is neither a run nor answers.
    pub(crate) fn of(folder: &Path) -> anyhow::Result<Self> {
        let mut wrong = Vec::new();
        let manifest = manifest(folder, &mut wrong)?;
        let finished = manifest.as_ref().filter(|run| run.status == Status::Finished);
        let contents = finished.map(|run| &run.contents);
        for (name, content) in contents.into_iter().flatten() {
            if let Some(why) = content.difference(&folder.join(name)) {
                wrong.push(format!("{name}: {why}"));
            }
        }
        if let Some(name) = finished.and_then(|run| {
            run.files.iter().find(|name| !name.starts_with(ANSWERS) && !run.contents.contains_key(*name))
        }) {
            wrong.push(format!("{MANIFEST}: it does not say what {name} holds"));
        }
        let answers = folder.join(ANSWERS);
        let listed = manifest.as_ref().is_some_and(|run| run.files.iter().any(|name| name == ANSWERS));
        let rows = match (answers.exists(), Answers::open_read_only(&answers)) {
            (false, _) if listed => {
                wrong.push(format!("{ANSWERS}: it is missing"));
                0
            }
            (false, _) => 0,
            (true, Ok(answers)) => check_answers(&answers, finished.and_then(|run| run.answers.as_ref()), &mut wrong)?,
            (true, Err(error)) => {
                wrong.push(error.to_string());
                0
            }
        };
        let status = manifest.as_ref().map_or("answers", |run| run.status.name());
        let files = contents.map_or(0, BTreeMap::len);
        Ok(Self { said: format!("{status}, {files} files, {} rows of answers", thousands(rows as u64)), wrong })
    }
}

/// The manifest; absent of answers that runs share, which have none, and where it is lost.
fn manifest(folder: &Path, wrong: &mut Vec<String>) -> anyhow::Result<Option<Manifest>> {
    let has_answers = folder.join(ANSWERS).exists();
    let why = match Manifest::read(folder) {
        Ok(manifest) => {
            if !Manifest::is_as_written(folder)? {
                wrong.push(format!("{MANIFEST}: it is not as it was written"));
            }
            return Ok(Some(manifest));
        }
        Err(StoreError::NoRun { .. }) if has_answers && !has_files_of_a_run(folder)? => return Ok(None),
        Err(StoreError::NoRun { .. }) if has_answers => "it is missing".to_owned(),
        Err(error) if has_answers => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    wrong.push(format!(
        "{MANIFEST}: {why}; the answers are there all the same, and a new run takes them with --cache and this folder"
    ));
    Ok(None)
}

/// Whether a folder holds more than answers.
fn has_files_of_a_run(folder: &Path) -> anyhow::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(ANSWERS) && !name.starts_with('.') {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks every row, and that all are there; how many there are.
fn check_answers(answers: &Answers, extent: Option<&Extent>, wrong: &mut Vec<String>) -> anyhow::Result<usize> {
    let before = wrong.len();
    let rows = answers.check(|row| wrong.push(format!("{ANSWERS}: {row}")));
    let rows = rows.or_else(|error| {
        wrong.push(error.to_string());
        anyhow::Ok(0)
    })?;
    // Where a row is named already, that the rows together are not what they were says no more.
    if let (Some(extent), true) = (extent, wrong.len() == before) {
        let found = answers.extent()?;
        if found.requests != extent.requests {
            wrong.push(format!("{ANSWERS}: {} requests, and had {}", found.requests, extent.requests));
        } else if found != *extent {
            wrong.push(format!("{ANSWERS}: its rows are sound, and not those that the run has written"));
        }
    }
    Ok(rows)
}
