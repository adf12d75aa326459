//! Options of every command.

use clap::{Args, ValueEnum};

/// Options of every command.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Global {
    /// Print only results, warnings and errors
    ///
    /// `--progress json` still reports progress.
    #[arg(long, short, global = true, help_heading = "General")]
    pub(crate) quiet: bool,
    /// Format of progress on standard error
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        value_enum,
        default_value_t,
        hide_default_value = true,
        help_heading = "General"
    )]
    pub(crate) progress: ProgressArg,
}

/// Format of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ProgressArg {
    /// A bar on a terminal, otherwise occasional lines
    #[default]
    Auto,
    /// Occasional lines
    Lines,
    /// JSON lines; `event` is `message`, `warning`, `begin`, `progress`, `end` or `error`
    Json,
}
