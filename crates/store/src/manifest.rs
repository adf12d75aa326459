//! The manifest of a run: everything needed to interpret its numbers and to repeat it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::{fs, io};

use probity_lm::device_kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{ANSWERS, Answers, AnswersExtent, MANIFEST, StoreError};

/// The version of the manifest format.
pub const FORMAT: u32 = 1;

/// What is known when a run begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the command.
    pub command: String,
    /// The command line arguments, without the program.
    pub arguments_given: Vec<String>,
    /// Every setting in force, including defaults.
    pub arguments_in_force: Value,
    /// Versions by component (`probity`, `candle` …).
    pub versions: BTreeMap<String, String>,
    /// The model's description with its fingerprint; null without a model.
    pub model: Value,
    /// Descriptions of further models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<Value>,
    /// Random seeds by purpose.
    pub seeds: BTreeMap<String, u64>,
    /// The recipe that the run is a stage of, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<RecipeMark>,
}

/// A stage of a recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipeMark {
    /// Path of the recipe, from the user.
    pub path: String,
    /// SHA-256 of the recipe file, in hex.
    pub sha256: String,
    /// Name of the stage.
    pub stage: String,
}

/// Settings that do not affect results.
// Results are bit-identical for all of their values, so a run may be resumed on a machine with less memory.
const FREE: [&str; 7] =
    ["threads", "share_prefixes", "token_budget", "cache_budget", "drafting", "side_by_side", "isa"];

/// Settings that only affect the presentation of answers and scores, so a run can be resumed and shown with other
/// values.
const VIEWS: [&str; 1] = ["arguments.method.no_gold"];

/// A setting in which two runs differ.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingDifference {
    /// Path of the setting: `arguments.method.attribute`.
    pub setting: String,
    /// Value in this run; null if absent.
    pub here: Value,
    /// Value in the other run; null if absent.
    pub there: Value,
}

impl RunInfo {
    /// The settings that differ in another run, except those that affect no answer and no score (threads, memory,
    /// number of devices of a kind, `no_gold`).
    pub fn differences(&self, other: &Self) -> Vec<SettingDifference> {
        let form = |info: &Self| {
            let mut form = json!({
                "command": info.command,
                "versions": info.versions,
                "model": info.model,
                "other_models": info.other_models,
                "seeds": info.seeds,
                "arguments": info.arguments_in_force,
            });
            keep_device_kind(&mut form["model"]);
            keep_device_kind(&mut form["arguments"]["model"]);
            form["other_models"].as_array_mut().into_iter().flatten().for_each(keep_device_kind);
            form
        };
        let mut found = Vec::new();
        differences("", &form(self), &form(other), &mut found);
        found
    }

    /// Differences in devices of one kind and their drivers. They are not settings, but signatures name them, and they
    /// may affect the last digits.
    pub fn device_differences(&self, other: &Self) -> Vec<SettingDifference> {
        let devices = |info: &Self| {
            let of = |model: &Value| json!({"device": model["device"], "platform": model["platform"]});
            json!({"model": of(&info.model), "other_models": info.other_models.iter().map(of).collect::<Vec<_>>()})
        };
        let (settings, mut found) = (self.differences(other), Vec::new());
        differences("", &devices(self), &devices(other), &mut found);
        found.retain(|one| settings.iter().all(|other| one.setting != other.setting));
        found
    }

    /// Whether both runs present answers and scores in the same way; otherwise the summary is recomputed.
    pub fn has_views_of(&self, other: &Self) -> bool {
        let view = |info: &Self, setting: &str| {
            let path = setting.strip_prefix("arguments").unwrap_or_default().replace('.', "/");
            info.arguments_in_force.pointer(&path).cloned()
        };
        VIEWS.iter().all(|setting| view(self, setting) == view(other, setting))
    }

    /// The first setting that differs such that answers may differ; `None` if there is none. Data may be added or
    /// changed, because answers are keyed by the query, but not shortened.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let found = self.differences(other);
        // Answers are keyed by the query, so added or changed data only adds queries. One shard cannot be resumed as
        // another.
        let sets = |setting: &str| setting.strip_prefix("arguments.data.").is_none_or(|of_data| of_data == "shard");
        // If another setting differs, the number of samples follows from it. Existing output is not shortened.
        let shortens = |found: &&SettingDifference| {
            found.setting == "arguments.data.samples" && found.here.as_u64() < found.there.as_u64()
        };
        found
            .iter()
            .find(|found| sets(&found.setting))
            .or_else(|| found.iter().find(shortens))
            .map(SettingDifference::in_words)
    }
}

impl SettingDifference {
    /// `seeds.seed differs`; for a file, named by its option.
    pub fn in_words(&self) -> String {
        // If only one run has such files, use its names.
        let key = || [&self.here, &self.there].into_iter().find_map(|value| value.as_object()?.keys().next());
        let of = |files: &str| {
            let below = self.setting.strip_prefix("arguments.")?.strip_prefix(files)?;
            let key = if below.is_empty() { key().map(String::as_str) } else { below.split('.').nth(1) };
            Some(key.unwrap_or_default().to_owned())
        };
        if let Some(stage) = of("from") {
            return format!("--from {stage} differs");
        }
        match of("files").or_else(|| of("inputs")).map(|field| field.replace('_', "-")) {
            Some(option) if self.there.is_null() => format!("it does not record the file of --{option}"),
            Some(option) => format!("the file of --{option} differs"),
            None => {
                let [now, there] = [&self.here, &self.there].map(in_short);
                format!("{} differs: {now} now, {there} in the run", self.setting)
            }
        }
    }
}

/// A setting's value, shortened for one line of a message.
fn in_short(value: &Value) -> String {
    const MOST: usize = 60;
    let text = match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => format!("`{}`", text.escape_debug()),
        value => value.to_string(),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Reduces a model's devices to their kind.
fn keep_device_kind(model: &mut Value) {
    if let Some(model) = model.as_object_mut() {
        model.remove("platform");
    }
    if let Some(Value::String(device)) = model.get_mut("device") {
        *device = device_kind(device).to_owned();
    }
}

fn differences(path: &str, here: &Value, there: &Value, found: &mut Vec<SettingDifference>) {
    let (Some(a), Some(b)) = (here.as_object(), there.as_object()) else {
        if here != there {
            found.push(SettingDifference { setting: path.to_owned(), here: here.clone(), there: there.clone() });
        }
        return;
    };
    let is_free = |name: &str| path == "arguments.model" && FREE.contains(&name);
    for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))).filter(|name| !is_free(name)) {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if VIEWS.contains(&below.as_str()) {
            continue;
        }
        differences(&below, a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null), found);
    }
}

/// Where part of a run was computed before it was resumed on other devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlierDevices {
    /// The model's devices; null without a model.
    pub device: Value,
    /// The platform of the devices; null on `cpu`.
    pub platform: Value,
    /// The cost there; null if the run did not end normally.
    pub cost: Value,
}

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format; also identifies the folder as a run.
    pub probity_run: u32,
    /// Status of the run.
    #[serde(flatten)]
    pub status: RunStatus,
    /// Start time: UTC, RFC 3339.
    pub started: String,
    /// Times of resumption: UTC, RFC 3339.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Where part of the answers was computed before the run was resumed on other devices, in order; `model` has the
    /// devices of the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub computed_on: Vec<EarlierDevices>,
    /// End time; absent while running and after a kill.
    pub finished: Option<String>,
    /// Cost since the run began or was resumed; null before its end.
    #[serde(default)]
    pub cost: Value,
    /// The completed stages of the method with their keys and costs; empty for a method without stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Value>,
    /// What was run.
    #[serde(flatten)]
    pub info: RunInfo,
    /// The machine of the run.
    pub machine: Machine,
    /// The files written by the run, by name. Overwriting removes these and the manifest.
    pub files: Vec<String>,
    /// Checksums of the files of a finished or stopped run, by name; before that, of the tables of completed stages.
    /// The rows of the answer database have their own seals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, FileContent>,
    /// Content of a finished run's answer database; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersExtent>,
    /// SHA-256 of the file, in hex, computed with zeros in its place.
    #[serde(default)]
    seal: String,
}

/// Layout of the manifest's JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestLayout {
    Indented,
    /// Without white space.
    Compact,
}

/// Placeholder of the seal.
const UNSEALED: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// Number of lines of a table; absent for other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256, in hex.
    pub sha256: String,
}

impl FileContent {
    /// Reads the current content of a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        regular(path)?;
        let mut file = fs::File::open(path)?;
        let (mut hasher, mut rows, mut bytes) = (Sha256::new(), 0, 0);
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    bytes += read as u64;
                    rows += buffer[..read].split(|&byte| byte == b'\n').count() as u64 - 1;
                }
                // An interruption by a signal is not a failure of the file.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let is_table = path.extension().is_some_and(|extension| extension == "jsonl");
        let sha256 = format!("{:x}", hasher.finalize());
        Ok(Self { rows: is_table.then_some(rows), bytes, sha256 })
    }

    /// How a file differs from this content; `None` if it does not.
    pub fn difference(&self, path: &Path) -> Option<String> {
        match Self::read(path) {
            Ok(found) if found == *self => None,
            // Length before content: truncation is the most common damage, and the length shows it.
            Ok(found) if found.bytes != self.bytes => {
                Some(format!("it has {} bytes instead of {}", found.bytes, self.bytes))
            }
            Ok(found) if found.sha256 != self.sha256 => Some("its content was changed".to_owned()),
            Ok(_) => Some("its number of rows differs from the manifest".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("it is missing".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// An error for anything but a regular file: opening a pipe blocks until it has a writer.
pub fn regular(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Status of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RunStatus {
    /// Started. If no process is running, the run was killed; its tables hold the completed rows.
    Running,
    /// Completed.
    Finished,
    /// Interrupted by the user or the system; its tables hold the completed rows.
    Interrupted,
    /// Stopped after a stage as requested. `--resume` continues it.
    Stopped {
        /// Name of the stage.
        after: String,
    },
    /// Ended early with an error; its tables hold the completed rows.
    Failed {
        /// The error.
        why: String,
    },
}

impl RunStatus {
    /// Name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Stopped { .. } => "stopped",
            Self::Failed { .. } => "failed",
        }
    }
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system (`linux`).
    pub os: String,
    /// Processor architecture (`x86_64`).
    pub arch: String,
    /// Number of processors available to this process; absent if unknown.
    pub cpus: Option<usize>,
}

impl Machine {
    /// The current machine.
    pub fn here() -> Self {
        let cpus = std::thread::available_parallelism().ok().map(std::num::NonZero::get);
        Self { os: std::env::consts::OS.into(), arch: std::env::consts::ARCH.into(), cpus }
    }
}

impl Manifest {
    /// The manifest of a new run.
    pub fn begin(info: RunInfo) -> Self {
        Self {
            probity_run: FORMAT,
            status: RunStatus::Running,
            started: now(),
            resumed: Vec::new(),
            computed_on: Vec::new(),
            finished: None,
            cost: Value::Null,
            stages: Vec::new(),
            info,
            machine: Machine::here(),
            files: Vec::new(),
            contents: BTreeMap::new(),
            answers: None,
            seal: String::new(),
        }
    }

    /// The serialised manifest with its seal.
    pub(crate) fn sealed(&self, layout: ManifestLayout) -> Result<Vec<u8>, StoreError> {
        let unsealed = Self { seal: UNSEALED.to_owned(), ..self.clone() };
        let text = match layout {
            ManifestLayout::Indented => serde_json::to_string_pretty(&unsealed),
            ManifestLayout::Compact => serde_json::to_string(&unsealed),
        };
        let text = text.map_err(|source| StoreError::Json { path: MANIFEST.into(), source })? + "\n";
        // Over the bytes of the file instead of its values, so that even a changed space is detected.
        let seal = format!("{:x}", Sha256::digest(&text));
        // The last occurrence: user text may contain as many zeros.
        Ok(replace_last(&text, UNSEALED, &seal).into_bytes())
    }

    /// Whether the seal of the manifest in a folder is valid. Manifests of an earlier version without a seal count as
    /// valid.
    pub fn is_as_written(folder: &Path) -> Result<bool, StoreError> {
        let Self { seal, .. } = Self::read(folder)?;
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(StoreError::io("read", &path))?;
        Ok(seal.is_empty() || seal == format!("{:x}", Sha256::digest(replace_last(&text, &seal, UNSEALED))))
    }

    /// Reads the manifest of the run in a folder.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(MANIFEST);
        let whole = || {
            regular(&path)?;
            fs::read(&path)
        };
        let bytes = match whole() {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(StoreError::NoRun(folder.to_owned()));
            }
            Err(error) => return Err(StoreError::io("read", path)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|source| StoreError::BadManifest { path, source })
    }

    /// Whether a folder contains a finished run.
    pub fn was_finished(folder: &Path) -> bool {
        Self::read(folder).is_ok_and(|run| run.status == RunStatus::Finished)
    }

    /// Checks that a run is complete: an error names the first missing or changed file, or reports missing requests.
    pub fn check_files(&self, folder: &Path) -> Result<(), StoreError> {
        for (name, content) in &self.contents {
            let path = folder.join(name);
            if let Some(why) = content.difference(&path) {
                return Err(match self.status {
                    RunStatus::Finished => StoreError::Incomplete { path, why },
                    _ => StoreError::Changed { path, why },
                });
            }
        }
        let Some(answers) = &self.answers else { return Ok(()) };
        let path = folder.join(ANSWERS);
        if !path.exists() {
            return Err(StoreError::Incomplete { path, why: "it is missing".to_owned() });
        }
        // Only counted: each row's seal is checked when it is read.
        let requests = Answers::open_read_only(&path)?.count_requests()?;
        if requests == answers.requests {
            return Ok(());
        }
        Err(StoreError::Incomplete { path, why: format!("it has {requests} requests instead of {}", answers.requests) })
    }

    /// Takes over the state of an earlier run.
    pub(crate) fn resume(&mut self, old: &Self) {
        self.resumed =
            old.resumed.iter().cloned().chain([std::mem::replace(&mut self.started, old.started.clone())]).collect();
        self.computed_on.clone_from(&old.computed_on);
        if old.status != RunStatus::Finished {
            self.contents = old.contents.clone();
        }
    }

    pub(crate) fn end(&mut self, status: RunStatus) {
        self.status = status;
        self.finished = Some(now());
    }
}

fn replace_last(text: &str, from: &str, to: &str) -> String {
    text.rfind(from).map_or_else(|| text.to_owned(), |at| format!("{}{to}{}", &text[..at], &text[at + from.len()..]))
}

/// The current time: UTC, RFC 3339, to the second.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_is_told_by_the_option_that_leads_to_it() {
        let info = |more: Value| {
            let mut info = RunInfo { arguments_in_force: json!({"method": {"seed": 1}}), ..RunInfo::default() };
            info.arguments_in_force.as_object_mut().expect("one").extend(more.as_object().cloned().unwrap_or_default());
            info
        };
        let file = |hash: &str| json!([{"path": "t.j2", "sha256": hash}]);
        let template = |hash: &str| info(json!({"files": {"steps_template": file(hash)}}));
        let from = |hash: &str| info(json!({"from": {"verdicts": {"path": "v.jsonl", "sha256": hash}}}));
        let told = |here: &RunInfo, there: &RunInfo| here.difference(there).unwrap_or_default();
        let none = info(json!({}));
        assert_eq!(told(&template("a"), &template("b")), "the file of --steps-template differs");
        assert_eq!(told(&template("a"), &none), "it does not record the file of --steps-template");
        for other in [from("b"), none.clone()] {
            assert_eq!(told(&from("a"), &other), "--from verdicts differs");
        }
        assert_eq!(told(&none, &from("a")), "--from verdicts differs");
        let seed = info(json!({"method": {"seed": 2}}));
        assert_eq!(told(&seed, &none), "arguments.method.seed differs: 2 now, 1 in the run");
        assert_eq!(told(&none, &none), "");
        let method = |options: Value| info(json!({"method": options}));
        assert_eq!(
            told(&method(json!({"seed": 1, "no_gold": true})), &method(json!({"seed": 1, "no_gold": false}))),
            ""
        );
        // More samples add queries; fewer would remove existing output.
        let of = |samples: u32| info(json!({"data": {"samples": samples, "path": format!("{samples}.jsonl")}}));
        assert_eq!(told(&of(6), &of(5)), "");
        assert_eq!(told(&of(5), &of(6)), "arguments.data.samples differs: 5 now, 6 in the run");
        // A different shard is reported as such, even with fewer samples.
        let part = |shard: &str, samples: u32| info(json!({"data": {"samples": samples, "shard": shard}}));
        let differs = "arguments.data.shard differs: `2/2` now, `1/2` in the run";
        assert_eq!(told(&part("2/2", 3), &part("1/2", 4)), differs);
    }

    #[test]
    fn how_many_devices_compute_is_no_difference_and_their_kind_is() {
        let on = |device: &str| RunInfo {
            model: json!({"name": "m", "device": device}),
            other_models: vec![json!({"name": "n", "device": device})],
            arguments_in_force: json!({"model": {"device": device, "threads": 1}}),
            ..RunInfo::default()
        };
        let told = |here: &str, there: &str| on(here).difference(&on(there));
        for (one, other) in
            [("candle-cpu", "candle-cpu,candle-cpu"), ("cuda:0", "cuda:0,cuda:1"), ("cuda:1", "cuda:all")]
        {
            assert_eq!((told(one, other), told(other, one)), (None, None), "{one} and {other}");
        }
        let differs = told("cuda:0,cuda:1", "candle-cpu").expect("another kind");
        assert_eq!(differs, "model.device differs: `cuda` now, `candle-cpu` in the run");
        assert!(told("cpu", "candle-cpu").is_some());
    }

    #[test]
    fn a_run_goes_on_with_another_card_and_driver() {
        let on = |platform: Value| RunInfo {
            model: json!({"name": "m", "device": "cuda:0", "platform": platform}),
            other_models: vec![json!({"name": "n", "device": "cuda:0", "platform": platform})],
            ..RunInfo::default()
        };
        let older = RunInfo {
            model: json!({"name": "m", "device": "cuda:0"}),
            other_models: vec![json!({"name": "n", "device": "cuda:0"})],
            ..RunInfo::default()
        };
        let here = on(json!("NVIDIA H100, driver 580.65.06"));
        assert_eq!(here.difference(&on(json!("NVIDIA L40S, driver 535.104.05"))), None);
        assert_eq!((here.difference(&older), older.difference(&here)), (None, None));
    }

    #[test]
    fn the_form_is_read_back_and_times_are_rfc_3339() {
        let info = RunInfo { command: "compare".into(), seeds: [("pairs".into(), 7)].into(), ..RunInfo::default() };
        let mut manifest = Manifest::begin(info);
        manifest.end(RunStatus::Failed { why: "a full disk".into() });
        let value = serde_json::to_value(&manifest).expect("JSON");
        assert_eq!(
            (&value["probity_run"], &value["status"], &value["why"]),
            (&1.into(), &"failed".into(), &"a full disk".into())
        );
        assert_eq!((&value["command"], &value["seeds"]["pairs"]), (&"compare".into(), &7.into()));
        let started = value["started"].as_str().expect("a time");
        assert!(
            started.len() == 20 && started.ends_with('Z') && started.parse::<jiff::Timestamp>().is_ok(),
            "{started}"
        );
        assert_eq!(serde_json::from_value::<Manifest>(value).expect("readable"), manifest);
    }
}
