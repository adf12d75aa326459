//! Stage tables that are read from files instead of computed.

use std::collections::BTreeMap;
use std::path::Path;

use probity_data::{DataError, JsonLines, LineProblems, open_regular};
use probity_methods::{GivenTable, MethodError, Staging};
use probity_runtime::weights::sha256_file;
use serde_json::{Value, json};

use crate::SessionError;
use crate::options::{AskOptions, StageTable};

/// How a method handles its stages according to its options; reads the tables.
pub(crate) fn staging(options: &AskOptions) -> Result<Staging, SessionError> {
    let mut tables = BTreeMap::new();
    for StageTable { stage, file } in &options.from {
        if tables.insert(stage.clone(), read(file)?).is_some() {
            return Err(MethodError::Option {
                option: format!("--from {stage}={}", file.display()),
                why: "this stage already has a table".to_owned(),
                hint: "pass one file per stage".to_owned(),
            }
            .into());
        }
    }
    Ok(Staging { until: options.until.clone(), tables, stands_in: false })
}

/// The manifest's entry for the tables, by stage; null if there are none.
pub(crate) fn described_tables(options: &AskOptions) -> Value {
    if options.from.is_empty() {
        return Value::Null;
    }
    let described = options.from.iter().map(|StageTable { stage, file }| {
        (stage.clone(), json!({ "path": file.display().to_string(), "sha256": sha256_file(file).ok() }))
    });
    Value::Object(described.collect())
}

fn read(file: &Path) -> Result<GivenTable, DataError> {
    let mut problems = LineProblems::new(file.display().to_string());
    let mut rows = Vec::new();
    for (line, row) in JsonLines::<Value, _>::new(open_regular(file)?) {
        match row {
            Ok(row) => rows.push((line as u64, row)),
            Err(error) => problems.push(line, error),
        }
    }
    if problems.is_empty() {
        Ok(GivenTable { path: file.to_owned(), rows })
    } else {
        Err(DataError::Problems(problems))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_line() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("t.jsonl");
        std::fs::write(&file, "\u{feff}{\"text\": \"a\"}\n\n{\"text\": \"b\", \"text\": \"c\"}\n").expect("written");
        let error = read(&file).expect_err("twice").to_string();
        assert!(error.contains("line 3 of") && error.ends_with("duplicate key `text`"), "{error}");
    }

    #[test]
    fn a_stage_or_a_file_without_a_name_is_none() {
        for text in ["revisions", "revisions=", "=mine.jsonl"] {
            assert!(text.parse::<StageTable>().is_err(), "{text}");
        }
        assert!("revisions=a=b".parse::<StageTable>().is_ok_and(|table| table.file == Path::new("a=b")));
    }
}
