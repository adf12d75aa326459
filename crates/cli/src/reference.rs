//! Shell completions and manual pages, generated from the command line.

use std::io;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::error::{FileError, OutputError};
use crate::exit::Completed;

/// Options of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write probity.1, probity-compare.1 … into this folder
    ///
    /// Without it, only the first page is printed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl CompletionsArgs {
    pub(crate) fn run(self, command: &mut clap::Command) -> miette::Result<Completed> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "probity", &mut script);
        io::Write::write_all(&mut io::stdout().lock(), &script).map_err(OutputError::from)?;
        Ok(Completed::Success)
    }
}

impl ManArgs {
    pub(crate) fn run(self, command: clap::Command) -> miette::Result<Completed> {
        if let Some(folder) = self.out {
            let cannot = || format!("cannot write manual pages to {}", folder.display());
            std::fs::create_dir_all(&folder).map_err(FileError::context(cannot()))?;
            clap_mangen::generate_to(command, &folder).map_err(FileError::context(cannot()))?;
        } else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(OutputError::from)?;
            io::Write::write_all(&mut io::stdout().lock(), &page).map_err(OutputError::from)?;
        }
        Ok(Completed::Success)
    }
}
