//! Options defined once, and read from wherever they are given.
//!
//! The options of a method, a metric or a run are a plain type: its fields are the options, their doc comments the
//! help, its [`Default`] the defaults. From that one definition come the command line, the keys of a recipe, JSON and
//! keyword arguments: each of them is an adapter that makes [`GivenOptions`] of what the user wrote by the [`OptionSpec`]s of
//! the type, and [`read`] makes the type of it, or says which option is wrong and why.

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
