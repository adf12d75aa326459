//! What a run was: everything needed to know its numbers for what they are, and to run it again.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::{fs, io};

use probity_lm::device_kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{ANSWERS, Answers, AnswersExtent, MANIFEST, StoreError};

/// The version of the manifest's form.
pub const FORMAT: u32 = 1;

/// What is known of a run when it begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The command's name.
    pub command: String,
    /// The arguments as they were given, without the program.
    pub arguments_given: Vec<String>,
    /// Every setting with the value in force, defaults filled in.
    pub arguments_in_force: Value,
    /// Versions by part (`probity`, `candle` …).
    pub versions: BTreeMap<String, String>,
    /// The model's description with its fingerprint; null where there is none.
    pub model: Value,
    /// The same of further models that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<Value>,
    /// Seeds by what they are for.
    pub seeds: BTreeMap<String, u64>,
    /// The recipe that the run is a stage of; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<RecipeMark>,
}

/// A recipe and a stage of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipeMark {
    /// The recipe's file, as it was given.
    pub path: String,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// The stage's name.
    pub stage: String,
}

/// Settings that change no result.
// Results are the same bits whatever these are, so a run may be gone on with on a machine with less memory.
const FREE: [&str; 7] =
    ["threads", "share_prefixes", "token_budget", "cache_budget", "drafting", "side_by_side", "isa"];

/// Settings by which a run's answers and scores are looked at: they change neither, so that a run goes on, and is shown
/// again, with another value.
const VIEWS: [&str; 1] = ["arguments.method.no_gold"];

/// A setting in which two runs differ.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingDifference {
    /// Its path: `arguments.method.attribute`.
    pub setting: String,
    /// Its value in the run that was asked; null where it has none.
    pub here: Value,
    /// Its value in the other.
    pub there: Value,
}

impl RunInfo {
    /// The settings in which another run differs, but for those that change no answer and no score (threads, memory, how
    /// many devices of a kind, `no_gold`).
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

    /// In which devices of a kind, and in what drove them, another run differs. They are no settings, but signatures name them,
    /// and last digits may follow them.
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

    /// Whether both look at answers and scores in the same way: with other options a summary is made again.
    pub fn has_views_of(&self, other: &Self) -> bool {
        let view = |info: &Self, setting: &str| {
            let path = setting.strip_prefix("arguments").unwrap_or_default().replace('.', "/");
            info.arguments_in_force.pointer(&path).cloned()
        };
        VIEWS.iter().all(|setting| view(self, setting) == view(other, setting))
    }

    /// In which setting another run differs first so that its answers may; `None` where they would be the same.
    /// Data may differ: answers belong to what was asked. There may not be fewer.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let found = self.differences(other);
        // An answer is found by what was asked, so data that were added or changed only make new questions. A part of
        // them is not gone on with as another part.
        let sets = |setting: &str| setting.strip_prefix("arguments.data.").is_none_or(|of_data| of_data == "shard");
        // How many samples there are follows from the other settings where one differs. What is written is not shortened.
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
    /// `seeds.seed differs`; of a file, by the option that leads to it.
    pub fn in_words(&self) -> String {
        // Where one run has no such files at all, the other's say which.
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

/// A value of a setting, as long as a line of an error may hold.
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

/// Leaves the kind of a model's devices.
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

/// Where a part of a run's answers was computed, before it went on elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlierDevices {
    /// The model's devices; null where the run asked none.
    pub device: Value,
    /// What computed on them; null on `cpu`.
    pub platform: Value,
    /// What it cost there; null where the run did not come to its end.
    pub cost: Value,
}

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this form; also what marks a folder as a run of ours.
    pub probity_run: u32,
    /// Whether the run is still going, and how it ended.
    #[serde(flatten)]
    pub status: RunStatus,
    /// When it began: UTC, RFC 3339.
    pub started: String,
    /// When it was gone on with: UTC, RFC 3339, each time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Where a part of the answers was computed before the run was resumed on other devices, in order; `model` says where
    /// the rest was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub computed_on: Vec<EarlierDevices>,
    /// When it ended; absent while it runs, and for ever where it was killed.
    pub finished: Option<String>,
    /// What it cost since it began or was resumed; null before its end.
    #[serde(default)]
    pub cost: Value,
    /// The stages of the method that were done, with their keys and what each cost; none of a method without stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Value>,
    /// What was run.
    #[serde(flatten)]
    pub info: RunInfo,
    /// Where.
    pub machine: Machine,
    /// The files that the run has written, by name: these and the manifest are what overwriting removes.
    pub files: Vec<String>,
    /// What the files of a run hold that is finished or ended after a stage, by name, and before its end what the
    /// tables of stages hold that are done; of the database of answers each row has its own seal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, FileContent>,
    /// What a finished run's database of answers holds; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<AnswersExtent>,
    /// SHA-256 of the file, in hex, with zeros in its place.
    #[serde(default)]
    seal: String,
}

/// How a manifest is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestLayout {
    Indented,
    /// In as little room as may be.
    Compact,
}

/// The seal of a manifest before it is sealed.
const UNSEALED: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// Lines of a table; absent where the file is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Its length.
    pub bytes: u64,
    /// SHA-256, in hex.
    pub sha256: String,
}

impl FileContent {
    /// Of the file as it is.
    pub fn of(path: &Path) -> io::Result<Self> {
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
                // A signal that came in between is no failure of the file.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let is_table = path.extension().is_some_and(|extension| extension == "jsonl");
        let sha256 = format!("{:x}", hasher.finalize());
        Ok(Self { rows: is_table.then_some(rows), bytes, sha256 })
    }

    /// In what a file differs from this; `None` where it does not.
    pub fn difference(&self, path: &Path) -> Option<String> {
        match Self::of(path) {
            Ok(found) if found == *self => None,
            // Length before content: a file that was cut off is the commonest damage, and this says so.
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

/// An error where there is no regular file: opening a pipe waits for whoever writes to it.
pub fn regular(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RunStatus {
    /// It has begun. Where no process is at it, it was killed: its tables hold what was finished.
    Running,
    /// It came to its end.
    Finished,
    /// Its user, or the system, ended it. Its tables hold what was finished.
    Interrupted,
    /// It ended after a stage of its method, as it was to. With `--resume` it goes on.
    Stopped {
        /// The stage.
        after: String,
    },
    /// It ended early, by an error. Its tables hold what was finished.
    Failed {
        /// Why.
        why: String,
    },
}

impl RunStatus {
    /// As in the file.
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
    /// The operating system (`linux`).
    pub os: String,
    /// The processor's architecture (`x86_64`).
    pub arch: String,
    /// Processors that this process may use; absent where the system does not say.
    pub cpus: Option<usize>,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpus = std::thread::available_parallelism().ok().map(std::num::NonZero::get);
        Self { os: std::env::consts::OS.into(), arch: std::env::consts::ARCH.into(), cpus }
    }
}

impl Manifest {
    /// Of a run that begins now.
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

    /// The file's content.
    pub(crate) fn sealed(&self, layout: ManifestLayout) -> Result<Vec<u8>, StoreError> {
        let unsealed = Self { seal: UNSEALED.to_owned(), ..self.clone() };
        let text = match layout {
            ManifestLayout::Indented => serde_json::to_string_pretty(&unsealed),
            ManifestLayout::Compact => serde_json::to_string(&unsealed),
        };
        let text = text.map_err(|source| StoreError::Json { path: MANIFEST.into(), source })? + "\n";
        // Over the file's bytes and not its values, so that a changed space is seen too.
        let seal = format!("{:x}", Sha256::digest(&text));
        // The last: text of the user's may hold so many zeros as well.
        Ok(replace_last(&text, UNSEALED, &seal).into_bytes())
    }

    /// Whether the manifest in that folder is as it was written. One of an earlier version, which has no seal, is taken
    /// for such.
    pub fn is_as_written(folder: &Path) -> Result<bool, StoreError> {
        let Self { seal, .. } = Self::read(folder)?;
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(StoreError::io("read", &path))?;
        Ok(seal.is_empty() || seal == format!("{:x}", Sha256::digest(replace_last(&text, &seal, UNSEALED))))
    }

    /// The manifest of the run in that folder.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(MANIFEST);
        let whole = || {
            regular(&path)?;
            fs::read(&path)
        };
        let bytes = match whole() {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(StoreError::NoRun { path: folder.to_owned() });
            }
            Err(error) => return Err(StoreError::io("read", path)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|source| StoreError::BadManifest { path, source })
    }

    /// Whether that folder holds a run that came to its end.
    pub fn was_finished(folder: &Path) -> bool {
        Self::read(folder).is_ok_and(|run| run.status == RunStatus::Finished)
    }

    /// Whether a run has what it says it has: an error that names the first file that is missing or does not hold what
    /// was written, or that requests are missing.
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
        // Counted and not gone through: each row is held against its seal where it is read.
        let requests = Answers::open_read_only(&path)?.count_requests()?;
        if requests == answers.requests {
            return Ok(());
        }
        Err(StoreError::Incomplete { path, why: format!("it has {requests} requests instead of {}", answers.requests) })
    }

    /// Goes on with an earlier run.
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

/// UTC, RFC 3339, to the second.
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
        assert_eq!(told(&template("a"), &template("b")), "what the file of --steps-template holds differs");
        assert_eq!(told(&template("a"), &none), "it does not say what the file of --steps-template held");
        for other in [from("b"), none.clone()] {
            assert_eq!(told(&from("a"), &other), "--from verdicts differs");
        }
        assert_eq!(told(&none, &from("a")), "--from verdicts differs");
        assert_eq!(told(&info(json!({"method": {"seed": 2}})), &none), "arguments.method.seed differs: 2 now, 1 there");
        assert_eq!(told(&none, &none), "");
        let method = |options: Value| info(json!({"method": options}));
        assert_eq!(
            told(&method(json!({"seed": 1, "no_gold": true})), &method(json!({"seed": 1, "no_gold": false}))),
            ""
        );
        // More samples make new questions; fewer would take away what is written.
        let of = |samples: u32| info(json!({"data": {"samples": samples, "path": format!("{samples}.jsonl")}}));
        assert_eq!(told(&of(6), &of(5)), "");
        assert_eq!(told(&of(5), &of(6)), "arguments.data.samples differs: 5 now, 6 there");
        // Another part is told as what it is, also where it has fewer samples.
        let part = |shard: &str, samples: u32| info(json!({"data": {"samples": samples, "shard": shard}}));
        let differs = "arguments.data.shard differs: `2/2` now, `1/2` there";
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
        assert_eq!(differs, "model.device differs: `cuda` now, `candle-cpu` there");
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
