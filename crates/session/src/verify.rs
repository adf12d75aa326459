//! Checks whether a run folder is unchanged since it was written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use probity_report::text::counted;
use probity_store::{ANSWERS, Answers, AnswersExtent, ENCODINGS, MANIFEST, Manifest, RunStatus, StoreError};

use crate::{ErrorText, SessionError};

/// The result of a check.
pub struct CheckedRun {
    /// The run's status and the amount of data checked.
    pub said: String,
    /// The problems found.
    pub wrong: Vec<String>,
}

impl CheckedRun {
    /// Checks everything. Fails if the folder has neither a run nor answers.
    pub fn check(folder: &Path) -> Result<Self, SessionError> {
        let mut wrong = Vec::new();
        let manifest = manifest(folder, &mut wrong)?;
        // A run that stopped after a stage records the content of its files, and an interrupted one that of finished
        // stages. Earlier versions did not.
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

/// Whether a file is part of a database, whose rows have their own checksums.
fn is_database(name: &str) -> bool {
    name.starts_with(ANSWERS) || name.starts_with(ENCODINGS)
}

/// The manifest; `None` if it is lost, or for shared answers, which have none.
fn manifest(folder: &Path, wrong: &mut Vec<String>) -> Result<Option<Manifest>, SessionError> {
    let has_answers = folder.join(ANSWERS).exists();
    let why = match Manifest::read(folder) {
        Ok(manifest) => {
            if !Manifest::is_as_written(folder)? {
                wrong.push(format!("{MANIFEST}: it was changed"));
            }
            return Ok(Some(manifest));
        }
        Err(StoreError::NoRun(_)) if has_answers && !has_files_of_a_run(folder)? => return Ok(None),
        Err(StoreError::NoRun(_)) if has_answers => "it is missing".to_owned(),
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

/// Checks every row and the number of rows, which it returns.
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
    // If a row is already reported, a wrong total adds nothing.
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
