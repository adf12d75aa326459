//! What the user wants unless a command says otherwise: the environment, then a file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::FileError;
use crate::exit::Completed;
use crate::terminal::{print, table, visible_line};

/// Where runs without a folder of their own go.
const RUNS: &str = "runs";

/// Defaults of all commands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
// A misspelt key that is passed over would leave what is built in in force, without a word.
#[serde(deny_unknown_fields)]
pub(crate) struct UserConfig {
    /// The model of a command that names none.
    pub(crate) model: Option<String>,
    /// The folder of runs without one of their own.
    pub(crate) runs: Option<PathBuf>,
}

/// Why there are no defaults.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum ConfigError {
    #[error("there is no home folder")]
    #[diagnostic(help("set PROBITY_CONFIG to a file"))]
    NoHome,
    #[error("{}: {why}", path.display())]
    #[diagnostic(help("it may say model = \"NAME\" and runs = \"DIR\""))]
    Content { path: PathBuf, why: String },
}

impl UserConfig {
    /// Of the environment and, behind it, the file.
    pub(crate) fn load() -> miette::Result<Self> {
        let file = Self::file_alone()?;
        Ok(Self {
            model: var("PROBITY_MODEL").or(file.model),
            runs: var("PROBITY_RUNS").map(PathBuf::from).or(file.runs),
        })
    }

    fn file_alone() -> miette::Result<Self> {
        let Some(path) = place().filter(|path| path.is_file()) else { return Ok(Self::default()) };
        let text =
            std::fs::read_to_string(&path).map_err(FileError::of(format!("{} could not be read", path.display())))?;
        let wrong =
            |error: toml::de::Error| ConfigError::Content { why: error.to_string().trim_end().to_owned(), path };
        Ok(toml::from_str(&text).map_err(wrong)?)
    }

    /// The folder of runs without one of their own.
    pub(crate) fn runs(&self) -> &Path {
        self.runs.as_deref().unwrap_or(Path::new(RUNS))
    }
}

fn var(name: &str) -> Option<String> {
    // XDG's specification takes an empty variable for one that is not set; ours are read alike.
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// `$PROBITY_CONFIG`, else `probity/config.toml` where the system keeps such files.
fn place() -> Option<PathBuf> {
    let folder = || {
        let home = std::env::home_dir();
        let own = if cfg!(windows) { var("APPDATA") } else { var("XDG_CONFIG_HOME") };
        own.map(PathBuf::from).or_else(|| Some(home?.join(".config")))
    };
    var("PROBITY_CONFIG").map(PathBuf::from).or_else(|| Some(folder()?.join("probity/config.toml")))
}

pub(crate) const LONG_ABOUT: &str = "\
Show the defaults that are in force, and where they come from.

The file holds what commands take where they are not told otherwise:

  model = \"smollm2-135m-instruct\"   # --model
  runs = \"runs\"                     # the folder of runs without --out

$PROBITY_MODEL and $PROBITY_RUNS come before it, and an option before both.";

/// `probity config`.
pub(crate) fn show() -> miette::Result<Completed> {
    let path = place().ok_or(ConfigError::NoHome)?;
    let there = if path.is_file() { "" } else { " (not there; make it with a text editor)" };
    // Printed before the file is read: of one that is wrong it must be known where it lies.
    print(&format!("{}{there}", visible_line(&path.display().to_string())))?;
    let (file, all) = (UserConfig::file_alone()?, UserConfig::load()?);
    let from = |name: &str, in_file: bool| match () {
        () if var(name).is_some() => format!("${name}"),
        () if in_file => "the file".to_owned(),
        () => "built in".to_owned(),
    };
    let rows = [
        [
            "model".to_owned(),
            all.model.clone().unwrap_or_else(|| "– (--model is needed)".to_owned()),
            from("PROBITY_MODEL", file.model.is_some()),
        ],
        ["runs".to_owned(), all.runs().display().to_string(), from("PROBITY_RUNS", file.runs.is_some())],
    ];
    print(&table(&["default", "value", "from"].map(str::to_owned), &rows.map(Vec::from)))?;
    Ok(Completed::Success)
}
