//! The user's defaults from the environment and a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probity_options::{GivenOptions, OptionSpec, read};
use serde::Deserialize;
use serde_json::Value;

use crate::options::ComputingOptions;

/// The option whose keys may be set in the file.
const COMPUTE: &str = "compute";

/// Default folder of runs.
const RUNS: &str = "runs";

/// Defaults of all commands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
// An ignored typo would silently keep the built-in default.
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// The model of a command without `--model`.
    pub model: Option<String>,
    /// The folder of runs without `--out`.
    pub runs: Option<PathBuf>,
    /// Keys of `--compute` for all commands that compute.
    #[serde(default)]
    compute: BTreeMap<String, Value>,
}

/// Why the defaults cannot be read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum UserConfigError {
    /// The configuration folder is unknown.
    #[error("no home folder found")]
    #[diagnostic(help("set PROBITY_CONFIG to a file"))]
    NoHome,
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is invalid.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help(
        "set model = \"NAME\", runs = \"DIR\" and, under [compute], keys of --compute such as threads = 4"
    ))]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

impl UserConfig {
    /// Reads the environment, then the file.
    pub fn load() -> Result<Self, UserConfigError> {
        let file = Self::file_alone()?;
        Ok(Self {
            model: var("PROBITY_MODEL").or(file.model),
            runs: var("PROBITY_RUNS").map(PathBuf::from).or(file.runs),
            compute: file.compute,
        })
    }

    /// Reads only the file.
    pub fn file_alone() -> Result<Self, UserConfigError> {
        let Some(path) = place().filter(|path| path.is_file()) else { return Ok(Self::default()) };
        let text =
            probity_options::read_text(&path).map_err(|source| UserConfigError::Io { path: path.clone(), source })?;
        let wrong = |why: String| UserConfigError::Content { why, path };
        let config: Self = match toml::from_str(&text) {
            Ok(config) => config,
            Err(error) => return Err(wrong(error.to_string().trim_end().to_owned())),
        };
        let given = GivenOptions::from_iter([(COMPUTE.to_owned(), config.compute().into())]);
        match read::<ComputingOptions>(&given) {
            Ok(_) => Ok(config),
            Err(error) => Err(wrong(format!("[compute]: {error}"))),
        }
    }

    /// The keys of `--compute`, each as `KEY=VALUE`.
    pub fn compute(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.compute.iter().map(|(key, value)| format!("{key}={}", text(value))).collect()
    }

    /// Adds the defaults to a command with these options; its own values take precedence.
    pub fn add_compute(&self, specs: &[OptionSpec], given: &mut GivenOptions) {
        if !self.compute.is_empty() && specs.iter().any(|spec| spec.field == COMPUTE) {
            let is_own =
                |pair: &String| pair.split_once('=').is_none_or(|(key, _)| !given.contains_key(&key.replace('-', "_")));
            let mut pairs: Vec<Value> = self.compute().into_iter().filter(is_own).map(Value::from).collect();
            match given.remove(COMPUTE) {
                Some(Value::Array(own)) => pairs.extend(own),
                own => pairs.extend(own),
            }
            given.insert(COMPUTE.to_owned(), pairs.into());
        }
    }

    /// The folder of runs without `--out`.
    pub fn runs(&self) -> &Path {
        self.runs.as_deref().unwrap_or(Path::new(RUNS))
    }

    /// The path of the file: `$PROBITY_CONFIG`, or `probity/config.toml` in the system's configuration folder.
    pub fn place() -> Result<PathBuf, UserConfigError> {
        place().ok_or(UserConfigError::NoHome)
    }

    /// A new folder for a run of `method`: `runs/compare-20261124-101530` in UTC, with a number appended if it exists.
    pub fn folder_of_its_own(&self, method: &str) -> PathBuf {
        let now: String = probity_store::now().chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("{method}-{}", now.replace('T', "-").trim_end_matches('Z'));
        let numbered = |n: u32| self.runs().join(if n < 2 { name.clone() } else { format!("{name}-{n}") });
        (1..u32::MAX).map(numbered).find(|path| !path.exists()).expect("so many runs in one second")
    }
}

/// The variable's value. As in the XDG specification, an empty variable counts as unset.
fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn place() -> Option<PathBuf> {
    let folder = || {
        let home = std::env::home_dir();
        let own = if cfg!(windows) { var("APPDATA") } else { var("XDG_CONFIG_HOME") };
        own.map(PathBuf::from).or_else(|| Some(home?.join(".config")))
    };
    var("PROBITY_CONFIG").map(PathBuf::from).or_else(|| Some(folder()?.join("probity/config.toml")))
}
