//! Run folders: manifest, answers, tables, summary.
//!
//! A run folder is safe against a kill at any time. `manifest.json` and `summary.json` are written atomically. Tables
//! are JSON lines in a fixed order; a kill loses at most the rows that were unflushed or waiting for earlier ones.
//! Answers are stored in a database as soon as the model returns them, and everything else is derived from them:
//! resuming a run repeats it with stored answers.

mod access;
mod answers;
mod atomic;
mod database;
mod earlier_devices;
mod encodings;
mod error;
mod manifest;
mod recorded;
mod requests;
mod run;
mod table;

pub use answers::{
    ANSWERS, Answers, AnswersExtent, FoundAnswer, KeptQuestion, ModelEntry, NamedRequest, QuestionEntry,
};
pub use atomic::write_whole;
pub use encodings::{ENCODINGS, Encodings, RecordedEncoder};
pub use error::StoreError;
pub use manifest::{
    EarlierDevices, FORMAT, FileContent, Machine, Manifest, RecipeMark, RunInfo, RunStatus, SettingDifference, now,
    regular,
};
pub use recorded::Recorded;
pub use requests::{AnsweredRequest, AnyAnswer, Difference, RunOverlap, sample_of};
pub use run::{Existing, RunFolder, SUMMARY, check_writable};
pub use table::{FLUSH_EVERY, TableWriter};

/// File name in a run folder.
pub const MANIFEST: &str = "manifest.json";

/// File name in a run folder: the judged samples.
pub const SAMPLES: &str = "samples.jsonl";
