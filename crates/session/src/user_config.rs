//! What the user wants unless told otherwise: the environment, then a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probity_options::{GivenOptions, OptionSpec, read};
use serde::Deserialize;
use serde_json::Value;

use crate::options::ComputingOptions;

/// The option whose keys the file may hold.
const COMPUTE: &str = "compute";

/// Where runs without a folder of their own go.
const RUNS: &str = "runs";

/// Defaults of all commands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
// A misspelt key that is passed over would leave what is built in in force, without a word.
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// The model of a command that names none.
    pub model: Option<String>,
    /// The folder of runs without one of their own.
    pub runs: Option<PathBuf>,
    /// Keys of `--compute` for all commands that compute.
    #[serde(default)]
    compute: BTreeMap<String, Value>,
}

/// Why there are no defaults.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum UserConfigError {
    /// No folder is known in which it could be.
    #[error("no home folder found")]
    #[diagnostic(help("set PROBITY_CONFIG to a file"))]
    NoHome,
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It says something else.
    #[error("{}: {why}", path.display())]
    #[diagnostic(help(
        "set model = \"NAME\", runs = \"DIR\" and, under [compute], keys of --compute such as threads = 4"
    ))]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl UserConfig {
    /// Of the environment and, behind it, the file.
    pub fn load() -> Result<Self, UserConfigError> {
        let file = Self::file_alone()?;
        Ok(Self {
            model: var("PROBITY_MODEL").or(file.model),
            runs: var("PROBITY_RUNS").map(PathBuf::from).or(file.runs),
            compute: file.compute,
        })
    }

    /// Of the file alone.
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

    /// The same for a command with these options: what it is given itself counts.
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

    /// The folder of runs without one of their own.
    pub fn runs(&self) -> &Path {
        self.runs.as_deref().unwrap_or(Path::new(RUNS))
    }

    /// The file: `$PROBITY_CONFIG`, else `probity/config.toml` where the system keeps such files.
    pub fn place() -> Result<PathBuf, UserConfigError> {
        place().ok_or(UserConfigError::NoHome)
    }

    /// A folder for a run of that method that is not there yet: `runs/compare-20261124-101530`, in universal time; with
    /// a number behind it where that is taken.
    pub fn folder_of_its_own(&self, method: &str) -> PathBuf {
        let now: String = probity_store::now().chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("{method}-{}", now.replace('T', "-").trim_end_matches('Z'));
        let numbered = |n: u32| self.runs().join(if n < 2 { name.clone() } else { format!("{name}-{n}") });
        (1..u32::MAX).map(numbered).find(|path| !path.exists()).expect("so many runs in one second")
    }
}

/// The variable's value; of an empty one as of one that is not set, as XDG's specification has it.
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
