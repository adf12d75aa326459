//! Run folders: manifest, answers, tables, summary.
//!
//! A run is a folder that is safe to kill at any instant. `manifest.json` and `summary.json` are there whole or not at
//! all; tables are JSON lines in a fixed order, of which a kill loses at most the rows that had not been flushed or
//! still waited for earlier ones. Answers are in a database as soon as the model has given them, and everything else
//! follows from them: a run is resumed by running it again over its answers.

mod access;
mod answers;
mod asked;
mod atomic;
mod database;
mod earlier_devices;
mod encodings;
mod error;
mod manifest;
mod recorded;
mod run;
mod table;

pub use answers::{
    ANSWERS, Answers, AnswersExtent, FoundAnswer, KeptQuestion, ModelEntry, NamedRequest, QuestionEntry,
};
pub use asked::{AnyAnswer, AskedRequest, Difference, RunOverlap, sample_of};
pub use atomic::write_whole;
pub use encodings::{ENCODINGS, Encodings, RecordedEncoder};
pub use error::StoreError;
pub use manifest::{
    EarlierDevices, FORMAT, FileContent, Machine, Manifest, RecipeMark, RunInfo, RunStatus, SettingDifference, now,
    regular,
};
pub use recorded::Recorded;
pub use run::{Existing, RunFolder, SUMMARY, check_writable};
pub use table::{FLUSH_EVERY, TableWriter};

/// The file's name in a run folder.
pub const MANIFEST: &str = "manifest.json";

/// The file's name in a run folder: the samples that were judged.
pub const SAMPLES: &str = "samples.jsonl";
