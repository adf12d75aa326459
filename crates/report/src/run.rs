//! A run folder as read from disk: manifest, summary and files.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use probity_analysis::conclusion::Conclusion;
use probity_lm::parse_unique;
use probity_store::{ANSWERS, FileContent, MANIFEST, Manifest, SAMPLES, SUMMARY, regular};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::ReportError;
use crate::rows::BELONGS_TO;

/// A run in a report. Its tables are read when needed.
#[derive(Debug)]
pub struct ReportedRun {
    /// Folder.
    pub(crate) path: PathBuf,
    /// Name in the report.
    pub(crate) name: String,
    /// Manifest of any version.
    pub(crate) manifest: Value,
    /// Whether the manifest is unchanged since the run wrote it.
    pub(crate) is_as_written: bool,
    /// Summary; null if there is none.
    pub(crate) summary: Value,
    /// Tables in manifest order.
    pub(crate) tables: Vec<TableFile>,
}

/// A table of a run.
#[derive(Debug, Clone)]
pub(crate) struct TableFile {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) kind: TableKind,
}

/// Kind of a table's rows, derived from their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableKind {
    /// Rows with `item`, `candidate_i`, `candidate_j`.
    Comparisons,
    /// Rows with `item`, `candidate`, `score`.
    Scores,
    /// Rows with one of [`BELONGS_TO`] and any other fields.
    Other,
}

/// Reads a regular file as text.
fn regular_text(path: &Path) -> io::Result<String> {
    regular(path)?;
    fs::read_to_string(path)
}

impl ReportedRun {
    /// The conclusions of the run; none of a run without a summary, or of an unknown form.
    pub fn verdict(&self) -> Vec<Conclusion> {
        Vec::deserialize(&self.summary["verdict"]).unwrap_or_default()
    }

    /// The signature on one line; `None` without a summary.
    pub fn signature(&self) -> Option<&str> {
        self.summary["signature_line"].as_str()
    }

    /// Reads manifest and summary. A folder without a valid manifest is an error; all other files are optional.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let refuse = |why: String| ReportError::NotARun { path: path.to_owned(), why };
        let text =
            regular_text(&path.join(MANIFEST)).map_err(|e| refuse(format!("{MANIFEST} could not be read: {e}")))?;
        let manifest: Value =
            parse_unique(text.as_bytes()).map_err(|e| refuse(format!("{MANIFEST} is not JSON: {e}")))?;
        // Files are checked only for manifests that this version can read.
        let is_as_written = match Manifest::read(path) {
            Ok(ours) => {
                ours.check_files(path)?;
                Manifest::is_as_written(path)?
            }
            Err(_) => true,
        };
        if manifest["probity_run"].is_null() {
            return Err(refuse(format!("{MANIFEST} is not one of probity's")));
        }
        let summary = match regular_text(&path.join(SUMMARY)) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| refuse(format!("{SUMMARY} is not JSON: {e}")))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Value::Null,
            Err(e) => return Err(ReportError::read(&path.join(SUMMARY))(e)),
        };
        // Resolved first, since a path such as `.` has no file name.
        let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name =
            folder.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let mut run = Self { path: path.to_owned(), name, manifest, is_as_written, summary, tables: Vec::new() };
        run.tables = run.find_tables()?;
        Ok(run)
    }

    /// Name in the report: the folder's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the name, for folders with equal names.
    pub fn rename(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    /// Whether it read samples, as opposed to questions or documents.
    pub(crate) fn reads_samples(&self) -> bool {
        self.samples().is_some() || self.manifest.pointer("/arguments_in_force/data/samples").is_some()
    }

    /// Samples file, if the run kept it.
    pub(crate) fn samples(&self) -> Option<PathBuf> {
        Some(self.path.join(SAMPLES)).filter(|path| path.is_file())
    }

    /// Database of answers, if the run kept one.
    pub(crate) fn answers(&self) -> Option<PathBuf> {
        Some(self.path.join(ANSWERS)).filter(|path| path.is_file())
    }

    /// A string of the manifest, or else of the summary.
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.manifest.pointer(pointer).or_else(|| self.summary.pointer(pointer)).and_then(Value::as_str)
    }

    /// Method.
    pub(crate) fn method(&self) -> &str {
        self.text("/command").or_else(|| self.text("/method")).unwrap_or("unknown")
    }

    /// Input files that have changed since the run. Paths into folders that do not exist here are not checked.
    pub(crate) fn changed_inputs(&self) -> Vec<&str> {
        let inputs = self.manifest.pointer("/arguments_in_force/data").and_then(Value::as_object);
        let files = inputs.into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
        let named = files.filter_map(|file| Some((file["path"].as_str()?, file["sha256"].as_str()?)));
        let is_changed = |name: &str, sha256: &str| {
            let path = Path::new(name);
            let is_gone = !path.exists() && path.parent().is_some_and(Path::is_dir);
            is_gone || FileContent::read(path).is_ok_and(|found| found.sha256 != sha256)
        };
        named.filter(|(name, sha256)| is_changed(name, sha256)).map(|(name, _)| name).collect()
    }

    fn find_tables(&self) -> Result<Vec<TableFile>, ReportError> {
        let mut tables = Vec::new();
        for name in self.manifest["files"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            // The manifest is untrusted and could list any file of the system.
            let plain = !name.contains(['/', '\\']) && !name.starts_with('.');
            let path = self.path.join(name);
            if !plain || name == SAMPLES || !path.is_file() || path.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            if let Some(kind) = kind(&path)? {
                tables.push(TableFile { path, name: name.to_owned(), kind });
            }
        }
        Ok(tables)
    }
}

/// Determines the kind of a table from its first row; `None` without a complete row, or if rows have no id.
fn kind(path: &Path) -> Result<Option<TableKind>, ReportError> {
    let mut line = String::new();
    let file = File::open(path).map_err(ReportError::read(path))?;
    BufReader::new(file).read_line(&mut line).map_err(ReportError::read(path))?;
    if !line.ends_with('\n') {
        return Ok(None);
    }
    let broken = |e: serde_json::Error| ReportError::Line { path: path.to_owned(), line: 1, why: e.to_string() };
    let row: Value = serde_json::from_str(&line).map_err(broken)?;
    let has = |field: &str| row.get(field).is_some();
    // A pair without an outcome was not judged: it is in a list of pairs to label.
    let is_judged_pair = has("candidate_i") && has("candidate_j") && has("outcome");
    Ok(match (has("item"), is_judged_pair, has("candidate") && has("score")) {
        (true, true, _) => Some(TableKind::Comparisons),
        (true, false, true) => Some(TableKind::Scores),
        _ => BELONGS_TO.into_iter().any(has).then_some(TableKind::Other),
    })
}
