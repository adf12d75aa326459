//! Typed options, defined once for all front ends.
//!
//! The options of a method, metric or run are a plain type: fields are options, doc comments are help, and [`Default`]
//! gives the defaults. The command line, recipes, JSON and keyword arguments are adapters: they use the [`OptionSpec`]s
//! of the type to turn user input into [`GivenOptions`]. [`read`] then builds the type, or reports which option is
//! wrong and why.

mod file;
mod pair;
mod read;
mod spec;
mod text;

pub use file::{open_regular, read_text};
pub use pair::{PairProblem, read_pair};
pub use read::{GivenOptions, OptionCause, OptionError, ValueError, read};
pub use spec::{OptionChoice, OptionKind, OptionSpec, Options, specs};
pub use text::{as_text, name};
