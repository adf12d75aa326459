//! Samples, readers and importers of public data sets.
//!
//! A [`SampleSource`] is a file of samples: JSON lines with one [`Sample`] per line, or a table (CSV, TSV, Parquet,
//! other JSON lines) whose columns a [`Mapping`] converts to samples. Files may be compressed by gzip or zstd.
//! [`SampleSource::samples`] rejects a file with any invalid line and lists all problems; [`SampleSource::open`]
//! streams the valid samples and collects the problems. [`Records`] and [`JsonLines`] stream lines of any other kind.
//! [`importers`] convert public data sets to samples. [`read_label_tasks`] reads labelling tasks, a [`LabelAppender`]
//! writes labels, and [`read_labels`] returns the valid ones.

mod array;
mod automatic;
mod cell_text;
mod column;
mod conversation;
mod delimited;
mod documents;
mod error;
mod format;
mod import;
mod label_file;
mod label_tasks;
mod labels;
mod line_error;
mod lines;
mod mapping;
mod open;
mod parquet_file;
mod parquet_footer;
mod partial;
mod peeked;
mod plan;
mod preferences;
mod read;
mod read_options;
mod rows;
mod sample;
mod samples;
mod scores;
mod shape;
mod source;
mod survey;
mod values;
mod write;

pub use column::TableRow;
pub use documents::{Document, document_files, passage_tokens, passages, read_documents};
pub use error::{DataError, KEPT, LISTED, LineProblem, LineProblems, RecordUnit, UnfitMapping};
pub use format::{DataFormat, UnknownFormat};
pub use import::{
    CritiqueLabels, Importer, LabelledCritiques, extended_choice, importer, importers, labelled_critiques,
};
pub use label_file::{LabelAppender, LabelFileError};
pub use label_tasks::read_label_tasks;
pub use labels::{Label, LabelFile, LabelRow, LabelSubject, LabelTask, read_labels};
pub use line_error::LineError;
pub use lines::{JsonLines, MAX_LINE, from_value};
pub use mapping::{Field, MapEntry, Mapping, MappingError};
pub use open::{open, open_regular};
pub use read::{ReadReport, Record, Records, read_from, read_strict};
pub use read_options::{ReadOptions, public_set};
pub use rows::GivenTable;
pub use sample::{Candidate, Preference, Sample, SharedText, TIE, called_tie};
pub use scores::{ScoreRow, ScoreTable, is_score_table, read_scores};
pub use source::{SampleFile, SampleSource};
pub use survey::{LONG_TEXT, SampleSurvey, SampleWarning, ScoreSurvey, WarningKind};
pub use write::write_samples;
