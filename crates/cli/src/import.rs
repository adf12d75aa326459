//! `probity import`: converts public datasets to our JSONL.

use std::path::PathBuf;

use clap::Args;
use probity_data::{importer, importers};

use crate::data::SamplesOut;
use crate::exit::Completed;
use crate::global::Global;

/// Options of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Data set; see the list below
    name: String,
    /// Its published file, or - for stdin
    file: PathBuf,
    #[command(flatten)]
    to: SamplesOut,
}

/// The list of importers, for the help.
pub(crate) fn after_help() -> String {
    let width = importers().iter().map(|importer| importer.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        importers().iter().map(|importer| format!("  {:width$}  {}", importer.name, importer.summary)).collect();
    format!("Data sets:\n{}", lines.join("\n"))
}

impl ImportArgs {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        let importer = importer(&self.name)?;
        self.to.check(&self.file)?;
        self.to.write(&importer.import(&self.file)?, global)?;
        Ok(Completed::Success)
    }
}
