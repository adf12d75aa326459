//! `probity import`: public files to our JSONL.

use std::path::PathBuf;

use clap::Args;
use probity_data::{importer, importers};

use crate::data;
use crate::exit::Completed;
use crate::global::Global;

/// Options of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The data set; see below
    name: String,
    /// Its public file, or - for standard input
    file: PathBuf,
    /// Write here instead of to standard output; the file is replaced whole or not at all
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The importers, for the help.
pub(crate) fn after_help() -> String {
    let width = importers().iter().map(|importer| importer.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        importers().iter().map(|importer| format!("  {:width$}  {}", importer.name, importer.summary)).collect();
    format!("Data sets:\n{}", lines.join("\n"))
}

impl ImportArgs {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        let samples = importer(&self.name)?.import(&self.file)?;
        data::write(&samples, &self.file, self.out.as_deref(), global)?;
        Ok(Completed::Success)
    }
}
