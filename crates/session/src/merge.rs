//! Merges the shards of a run into one run.
//!
//! The merged run makes the same queries in the same order as an undivided run, and finds the answers in the shards.
//! Its tables, summary and answers are therefore byte-identical to that run, even if the method computes over all
//! samples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use probity_data::{ReadOptions, Sample};
use probity_lm::ModelDescription;
use probity_report::text::counted;
use probity_store::{ANSWERS, Answers, ENCODINGS, Encodings, Manifest, RecipeMark, RunInfo, RunStatus, SAMPLES};
use serde_json::Value;

use crate::samples::GivenSamples;
use crate::{CheckedRun, SessionError, Shard, resolved};

/// Number of missing shards to name.
const SHOWN: usize = 10;

/// All shards of a run, each in its own folder.
#[derive(Debug)]
pub struct Shards {
    /// In the order of their numbers.
    folders: Vec<PathBuf>,
    /// The manifest's data of the merged run.
    info: RunInfo,
    samples: GivenSamples,
    /// The sum over all shards.
    cost: Value,
}

/// A finished, undamaged shard.
struct Part {
    folder: PathBuf,
    manifest: Manifest,
    shard: Shard,
    samples: Vec<Sample>,
}

impl Shards {
    /// Opens the shards of a run, in any order. Fails if one is no shard, unfinished, damaged or of another run, or if
    /// shards are missing.
    pub fn open(folders: &[PathBuf]) -> Result<Self, SessionError> {
        let mut parts = folders.iter().map(|folder| Part::open(folder)).collect::<Result<Vec<_>, _>>()?;
        parts.sort_by_key(|part| part.shard.number);
        let Some(first) = parts.first() else {
            return refuse(Path::new("."), "no folders of parts were passed", "name the folders of all parts");
        };
        for (place, part) in parts.iter().enumerate() {
            first.is_with(part)?;
            if place > 0 && parts[place - 1].shard.number == part.shard.number {
                let why = format!("part {} is also in {}", part.shard, parts[place - 1].folder.display());
                return refuse(&part.folder, why, "name each part once");
            }
        }
        let of = first.shard.of;
        let there: BTreeSet<usize> = parts.iter().map(|part| part.shard.number).collect();
        let missing: Vec<String> =
            (1..=of).filter(|number| !there.contains(number)).map(|number| Shard { number, of }.to_string()).collect();
        if !missing.is_empty() {
            let shown = missing[..missing.len().min(SHOWN)].join(", ");
            let more = if missing.len() > SHOWN { " …" } else { "" };
            let all = counted(of, "part");
            let why = format!("{} of {all} are missing: {shown}{more}", missing.len());
            let hint = "run the missing parts, each with its --shard, and name the folders of all parts";
            return refuse(&first.folder, why, hint);
        }
        let total: usize = parts.iter().map(|part| part.samples.len()).sum();
        if let Some(wrong) = parts.iter().find(|part| part.shard.len(total) != part.samples.len()) {
            let why = format!(
                "it has {}, which does not fit a part of {total} \
                         samples",
                counted(wrong.samples.len(), "sample")
            );
            return refuse(&wrong.folder, why, "make all parts from the same samples");
        }
        let mut info = first.manifest.info.clone();
        let described = &mut info.arguments_in_force["data"];
        if let Some(data) = described.as_object_mut() {
            data.retain(|name, _| name != "shard" && name != "whole");
        }
        described["samples"] = total.into();
        let described = described.clone();
        let cost = parts.iter().map(|part| &part.manifest.cost).fold(Value::Null, |all, cost| sum(&all, cost));
        let folders = parts.iter().map(|part| part.folder.clone()).collect();
        let mut lists: Vec<_> = parts.into_iter().map(|part| part.samples.into_iter()).collect();
        let samples: Vec<Sample> = (0..total).filter_map(|place| lists[place % of].next()).collect();
        Ok(Self { folders, info, samples: GivenSamples { samples: samples.into(), described }, cost })
    }

    /// The arguments of the first shard.
    pub fn arguments(&self) -> &[String] {
        &self.info.arguments_given
    }

    /// An error if `out` is inside one of the shards or contains one.
    pub fn apart_from(&self, out: &Path) -> Result<(), SessionError> {
        let whole = resolved(out);
        let overlaps = |folder: &&PathBuf| {
            let part = resolved(folder);
            whole.starts_with(&part) || part.starts_with(&whole)
        };
        match self.folders.iter().find(overlaps) {
            Some(part) => {
                let why = format!("it overlaps with {}, which is one of the parts", part.display());
                refuse(out, why, "use a separate folder with --out")
            }
            None => Ok(()),
        }
    }

    /// An error if this machine differs from what the shards used: another model of the same name, a changed file,
    /// another recipe.
    pub(crate) fn check_found(&self, found: &RunInfo) -> Result<(), SessionError> {
        let mut found = found.clone();
        found.arguments_in_force["data"] = self.info.arguments_in_force["data"].clone();
        match found.difference(&self.info) {
            None => Ok(()),
            Some(what) => {
                let why = format!("it was made with different inputs: {what}");
                refuse(
                    &self.folders[0],
                    why,
                    "restore the inputs of the parts, and merge in the folder where they were run",
                )
            }
        }
    }

    /// The recipe of which they are a stage.
    pub fn recipe(&self) -> Option<&RecipeMark> {
        self.info.recipe.as_ref()
    }

    /// The samples of all shards.
    pub fn samples(&self) -> &GivenSamples {
        &self.samples
    }

    /// The manifest's data of the merged run, with these arguments.
    pub(crate) fn info(&self, arguments: &[String]) -> RunInfo {
        RunInfo { arguments_given: arguments.to_vec(), ..self.info.clone() }
    }

    pub(crate) fn cost(&self) -> &Value {
        &self.cost
    }

    /// The description of the queried model.
    pub(crate) fn description(&self) -> Result<ModelDescription, SessionError> {
        serde_json::from_value(self.info.model.clone()).or_else(|error| {
            let why = format!("its manifest does not describe the model: {error}");
            refuse(&self.folders[0], why, "merge parts made by this version")
        })
    }

    /// Copies the answers of all shards.
    pub(crate) fn give_answers(&self, to: &Answers) -> Result<(), SessionError> {
        let places = self.folders.iter().map(|folder| folder.join(ANSWERS));
        Ok(places.filter(|place| place.exists()).try_for_each(|place| to.absorb(&place))?)
    }

    /// Copies the encodings of all shards.
    pub(crate) fn give_encodings(&self, to: &Encodings) {
        let places = self.folders.iter().map(|folder| folder.join(ENCODINGS));
        places.filter(|place| place.exists()).for_each(|place| to.absorb(&place));
    }
}

impl Part {
    fn open(folder: &Path) -> Result<Self, SessionError> {
        let manifest = Manifest::read(folder)?;
        if !matches!(manifest.status, RunStatus::Finished | RunStatus::Stopped { .. }) {
            // A killed run could not update its status.
            let cut = if manifest.status == RunStatus::Running { " or was killed" } else { "" };
            let why = format!("it is {}{cut}; only parts that have ended can be merged", manifest.status.name());
            return refuse(folder, why, "run its command with --resume to continue it");
        }
        let data = &manifest.info.arguments_in_force["data"];
        let Some(shard) = data["shard"].as_str().and_then(|shard| shard.parse().ok()) else {
            return refuse(folder, "it is a whole run, not a part", "make parts with --shard I/N");
        };
        if let Some(wrong) = CheckedRun::check(folder)?.wrong.first() {
            let hint = format!("run `probity check {}` to see how to repair it", folder.display());
            return refuse(folder, format!("it was changed or damaged: {wrong}"), hint);
        }
        if !manifest.info.model.is_null() && !folder.join(ANSWERS).exists() {
            return refuse(folder, "it has no stored answers, which merging needs", "run it without --no-store");
        }
        let samples = ReadOptions::default().samples(&folder.join(SAMPLES))?;
        Ok(Self { folder: folder.to_owned(), manifest, shard, samples })
    }

    /// An error if `other` is a shard of another run.
    fn is_with(&self, other: &Self) -> Result<(), SessionError> {
        const WHOLE: &str = "arguments.data.whole";
        const OWN: [&str; 3] = ["arguments.data.shard", "arguments.data.samples", "arguments.data.path"];
        let with = format!("{} is part {}", self.folder.display(), self.shard);
        if other.shard.of != self.shard.of {
            let why = format!("it is part {}, and {with}", other.shard);
            return refuse(&other.folder, why, "merge parts of one run");
        }
        if other.manifest.status != self.manifest.status {
            let [ended, was] = [other, self].map(|part| part.manifest.status.name());
            let why = format!("it is {ended}, and {} is {was}", self.folder.display());
            return refuse(&other.folder, why, "run all parts to the same stage");
        }
        let differences = self.manifest.info.differences(&other.manifest.info);
        // Differing samples are reported only if nothing else explains them.
        let mut told: Vec<_> = differences.iter().filter(|found| !OWN.contains(&found.setting.as_str())).collect();
        told.sort_by_key(|found| found.setting == WHOLE);
        match told.first() {
            None => Ok(()),
            Some(found) if found.setting == WHOLE => {
                let why = format!("it has other samples than {}", self.folder.display());
                refuse(&other.folder, why, "use the same data for all parts")
            }
            Some(found) => {
                let why = format!("it belongs to another run than {}: {}", self.folder.display(), found.in_words());
                refuse(&other.folder, why, "merge parts of one run")
            }
        }
    }
}

/// The sum of two costs; for peak memory the maximum.
fn sum(a: &Value, b: &Value) -> Value {
    let (Some(fields), true) = (b.as_object(), a.is_object()) else { return b.clone() };
    let together = |(name, there): (&String, &Value)| {
        let here = &a[name];
        let value = match (here.as_u64(), there.as_u64(), here.as_f64(), there.as_f64()) {
            (Some(x), Some(y), ..) if name.starts_with("peak") => x.max(y).into(),
            (Some(x), Some(y), ..) => (x + y).into(),
            (.., Some(x), Some(y)) => (x + y).into(),
            _ => there.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(fields.iter().map(together).collect())
}

fn refuse<T>(folder: &Path, why: impl Into<String>, hint: impl Into<String>) -> Result<T, SessionError> {
    Err(SessionError::NoShard { path: folder.to_owned(), why: why.into(), hint: hint.into() })
}
