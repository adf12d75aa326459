//! Whether two runs are finished and have the same judge and items. Differences that are no error become caveats.

use std::collections::BTreeMap;
use std::path::Path;

use probity_data::{JsonLines, Sample, SharedText, open_regular};
use probity_lm::text::counted;
use probity_store::{Manifest, RunStatus, SAMPLES, StoreError};
use serde_json::Value;

use crate::error::AnalysisError;

/// The manifest of a run; `None` for a table of scores outside a run.
pub(super) fn manifest(run: &Path) -> Result<Option<Manifest>, AnalysisError> {
    match Manifest::read(run) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(StoreError::NoRun(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reasons to doubt the figures of a run.
#[derive(Default)]
pub(super) struct Doubts {
    pub(super) caveats: Vec<String>,
    /// Whether the run calls its judge unreliable.
    pub(super) unreliable: bool,
}

/// Reads the doubts that a run reports itself. An unfinished run is an error unless `unlike`.
pub(super) fn doubts(run: &Path, unlike: bool) -> Result<Doubts, AnalysisError> {
    let Some(Manifest { status, .. }) = manifest(run)? else { return Ok(Doubts::default()) };
    let shown = run.display();
    let mut caveats = match status {
        RunStatus::Finished => Vec::new(),
        _ if unlike => vec![format!("{shown} is {}", status.name())],
        _ => return Err(AnalysisError::Unfinished { run: shown.to_string(), status: status.name() }),
    };
    // Without a summary, nothing is known about the judge.
    let summary = std::fs::read(run.join("summary.json")).ok();
    let summary: Option<Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut unreliable = false;
    let verdicts = summary.as_ref().and_then(|summary| summary["verdict"].as_array());
    for one in verdicts.into_iter().flatten().filter(|one| one["trust"] == "unreliable") {
        let about = one["about"].as_str().map(|about| format!("{about}: ")).unwrap_or_default();
        let because = one["because"].as_str().unwrap_or_default();
        caveats.push(format!("{shown} calls itself UNRELIABLE ({about}{because})"));
        unreliable = true;
    }
    Ok(Doubts { caveats, unreliable })
}

/// Differences between two runs as text. It is an error if their methods differ or, unless `unlike`, their judges or
/// items.
pub(super) fn differences(run: &Path, baseline: &Path, unlike: bool) -> Result<Vec<String>, AnalysisError> {
    let (Some(now), Some(before)) = (manifest(run)?, manifest(baseline)?) else { return Ok(Vec::new()) };
    let (mut units, mut judges, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for found in now.info.differences(&before.info) {
        match found.setting.as_str() {
            // Scores of two methods have different scales and cannot be compared.
            "command" => units.push(found.in_words()),
            "model" | "model.fingerprint" | "model.precision" | "model.device" | "other_models" => {
                judges.push(found.in_words());
            }
            // Name and folder of the model.
            setting if setting.starts_with("model.") => {}
            setting if setting.starts_with("versions.") || setting.starts_with("arguments.method.") => {
                others.push(found.in_words());
            }
            // Settings of the data.
            _ => {}
        }
    }
    let refused = |what: Vec<String>, hint| {
        let [run, baseline] = [run, baseline].map(|path| path.display().to_string());
        Err(AnalysisError::Unlike { run, baseline, what: what.join("; "), hint })
    };
    if !units.is_empty() {
        return refused(units, "judge both by the same method: scores of two have two scales");
    }
    judges.extend(other_contexts(run, baseline)?);
    if !judges.is_empty() && !unlike {
        let hint = "judge the same items by the same model and precision; --allow-unlike holds them against each other \
                    all the same, and says so";
        return refused(judges, hint);
    }
    Ok([judges, others].concat())
}

/// Number of items with the same id but different contexts.
fn other_contexts(run: &Path, baseline: &Path) -> Result<Option<String>, AnalysisError> {
    let (now, before) = (run.join(SAMPLES), baseline.join(SAMPLES));
    if !now.is_file() || !before.is_file() {
        return Ok(None);
    }
    let there = contexts(&before)?;
    let (mut both, mut other) = (0, Vec::new());
    for (id, context) in contexts(&now)? {
        if let Some(then) = there.get(&id) {
            both += 1;
            if *then != context {
                other.push(id);
            }
        }
    }
    let first = other.first().map(|id| id.escape_debug().to_string());
    Ok(first.map(|first| {
        format!("{} of {} of one name are about other texts, `{first}` first", other.len(), counted(both, "item"))
    }))
}

fn contexts(file: &Path) -> Result<BTreeMap<String, SharedText>, AnalysisError> {
    let mut contexts = BTreeMap::new();
    for (line, row) in JsonLines::<Sample, _>::new(open_regular(file).map_err(AnalysisError::Scores)?) {
        let sample = row.map_err(|error| AnalysisError::Row {
            place: format!("line {line} of {}", file.display()),
            why: error.to_string(),
        })?;
        contexts.insert(sample.id, sample.context);
    }
    Ok(contexts)
}
