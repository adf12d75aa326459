//! Samples, readers and importers of public data sets.

mod sample;

pub use sample::{Candidate, Preference, Sample, TIE};
