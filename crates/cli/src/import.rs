//! `probity import`: public files to our JSONL.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use probity_data::{importer, importers, write_samples};
use probity_store::write_whole;

use crate::args::Global;
use crate::exit::Done;
use crate::progress::Reporter;
use crate::terminal::thousands;

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
    let lines: Vec<String> = importers().iter().map(|importer| format!("  {:width$}  {}", importer.name, importer.summary)).collect();
    format!("Data sets:\n{}", lines.join("\n"))
}

impl ImportArgs {
    pub(crate) fn run(self, global: Global) -> anyhow::Result<Done> {
        let samples = importer(&self.name)?.import(&self.file)?;
        if let Some(path) = &self.out {
            write_whole(path, |writer| anyhow::Ok(write_samples(writer, &samples)?))?;
        } else {
            let mut out = io::BufWriter::new(io::stdout().lock());
            write_samples(&mut out, &samples)?;
            out.flush()?;
        }
        let candidates: usize = samples.iter().map(|sample| sample.candidates.len()).sum();
        let counts = format!("{} samples, {} candidates", thousands(samples.len() as u64), thousands(candidates as u64));
        let to = self.out.map(|path| format!(" in {}", path.display())).unwrap_or_default();
        Reporter::new(global).say(&format!("{counts}{to}"));
        Ok(Done::Success)
    }
}
