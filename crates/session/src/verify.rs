//! Whether a run's folder is as it was written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use probity_report::text::counted;
use probity_store::{ANSWERS, Answers, AnswersExtent, ENCODINGS, MANIFEST, Manifest, RunStatus, StoreError};

use crate::{ErrorText, SessionError};

/// What was looked at, and what is wrong with it.
pub struct CheckedRun {
    /// How it stands, and how much there was to look at.
    pub said: String,
    /// Each thing that is wrong.
    pub wrong: Vec<String>,
}

impl CheckedRun {
    /// Looks at everything. An error where there is neither a run nor answers.
    pub fn check(folder: &Path) -> Result<Self, SessionError> {
        let mut wrong = Vec::new();
        let manifest = manifest(folder, &mut wrong)?;
        // One that ended after a stage says what its files hold too, and one that did not come to its end what the
        // tables of stages hold that are done; earlier versions did not.
        let says = |run: &&Manifest| run.status == RunStatus::Finished || !run.contents.is_empty();
        let telling = manifest.as_ref().filter(says);
        let contents = telling.map(|run| &run.contents);
        for (name, content) in contents.into_iter().flatten() {
            if let Some(why) = content.difference(&folder.join(name)) {
                wrong.push(format!("{name}: {why}"));
            }
        }
        let has_ended = |run: &&Manifest| matches!(run.status, RunStatus::Finished | RunStatus::Stopped { .. });
        if let Some(name) = telling
            .filter(has_ended)
            .and_then(|run| run.files.iter().find(|name| !is_database(name) && !run.contents.contains_key(*name)))
        {
            wrong.push(format!("{MANIFEST}: it does not list the content of {name}"));
        }
        let answers = folder.join(ANSWERS);
        let listed = manifest.as_ref().is_some_and(|run| run.files.iter().any(|name| name == ANSWERS));
        let rows = match (answers.exists(), Answers::open_read_only(&answers)) {
            (false, _) if listed => {
                wrong.push(format!("{ANSWERS}: it is missing"));
                0
            }
            (false, _) => 0,
            (true, Ok(answers)) => check_answers(&answers, telling.and_then(|run| run.answers.as_ref()), &mut wrong)?,
            (true, Err(error)) => {
                wrong.push(ErrorText::from_error(&error).to_string());
                0
            }
        };
        let status = manifest.as_ref().map_or("answers", |run| run.status.name());
        let files = contents.map_or(0, BTreeMap::len);
        Ok(Self { said: format!("{status}, {}, {} of answers", counted(files, "file"), counted(rows, "row")), wrong })
    }
}

/// Whether a file is part of a database: its rows have seals of their own.
fn is_database(name: &str) -> bool {
    name.starts_with(ANSWERS) || name.starts_with(ENCODINGS)
}

/// The manifest; absent of answers that runs share, which have none, and where it is lost.
fn manifest(folder: &Path, wrong: &mut Vec<String>) -> Result<Option<Manifest>, SessionError> {
    let has_answers = folder.join(ANSWERS).exists();
    let why = match Manifest::read(folder) {
        Ok(manifest) => {
            if !Manifest::is_as_written(folder)? {
                wrong.push(format!("{MANIFEST}: it was changed"));
            }
            return Ok(Some(manifest));
        }
        Err(StoreError::NoRun { .. }) if has_answers && !has_files_of_a_run(folder)? => return Ok(None),
        Err(StoreError::NoRun { .. }) if has_answers => "it is missing".to_owned(),
        Err(error) if has_answers => error.to_string(),
        Err(error) => return Err(error.into()),
    };
    wrong.push(format!(
        "{MANIFEST}: {why}; the answers still exist: reuse them in a new run with --cache and this folder"
    ));
    Ok(None)
}

/// Whether a folder holds more than answers.
fn has_files_of_a_run(folder: &Path) -> Result<bool, SessionError> {
    let failed = |source| SessionError::Io { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if !is_database(&name) && !name.starts_with('.') {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks every row, and that all are there; how many there are.
fn check_answers(
    answers: &Answers,
    extent: Option<&AnswersExtent>,
    wrong: &mut Vec<String>,
) -> Result<usize, SessionError> {
    let before = wrong.len();
    let rows = answers.check(|row| wrong.push(format!("{ANSWERS}: {row}")));
    let rows = rows.or_else(|error| {
        wrong.push(ErrorText::from_error(&error).to_string());
        Ok::<_, StoreError>(0)
    })?;
    // Where a row is named already, that the rows together are not what they were says no more.
    if let (Some(extent), true) = (extent, wrong.len() == before) {
        let found = answers.extent()?;
        if found.requests != extent.requests {
            wrong.push(format!("{ANSWERS}: {} requests instead of {}", found.requests, extent.requests));
        } else if found != *extent {
            wrong.push(format!("{ANSWERS}: its rows are valid, but not those that the run wrote"));
        }
    }
    Ok(rows)
}
