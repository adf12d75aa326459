//! Samples, readers and importers of public data sets.
//!
//! A file of samples is JSON lines, one [`Sample`] a line, in UTF-8. [`read_samples`] refuses a file with any broken line and lists all its
//! problems; [`read_lenient`] gives the good samples and the problems, [`Records`] the same one at a time. [`JsonLines`] streams lines of any
//! other kind. [`importers`] turn public
//! data sets into samples.

mod error;
mod import;
mod line_error;
mod lines;
mod read;
mod sample;
mod write;

pub use error::{DataError, LISTED, Problem, Problems};
pub use import::{Importer, importer, importers};
pub use line_error::LineError;
pub use lines::{JsonLines, MAX_LINE};
pub use read::{ReadReport, Record, Records, open, read_from, read_lenient, read_samples, read_strict};
pub use sample::{Candidate, Preference, Sample, TIE};
pub use write::write_samples;
