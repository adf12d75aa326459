//! Options of every command.

use clap::{Args, ValueEnum};

/// Options of every command.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Global {
    /// Say nothing but results, warnings and errors (and progress, where --progress json asks for it).
    #[arg(long, short, global = true, help_heading = "General")]
    pub(crate) quiet: bool,
    /// How progress is told on standard error.
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

/// How progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ProgressArg {
    /// A bar on a terminal, elsewhere a line now and then
    #[default]
    Auto,
    /// A line now and then
    Lines,
    /// An object a line, for other programs: `event` is `message`, `warning`, `begin`, `progress`, `end` or `error`
    Json,
}
