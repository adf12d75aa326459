//! Samples, readers and importers of public data sets.
//!
//! A [`SampleSource`] is a file of samples: JSON lines, one [`Sample`] a line, or a table (CSV, TSV, Parquet, foreign JSON
//! lines) whose columns a [`Mapping`] turns into samples; gzip and zstd are unpacked on the way. [`SampleSource::samples`]
//! refuses a file with anything wrong in it and lists all of it; [`SampleSource::open`] gives the good samples one at a time
//! and the problems. [`Records`] and [`JsonLines`] stream lines of any other kind. [`importers`] turn public data sets
//! into samples. [`read_label_tasks`] says what people are asked about samples, a [`LabelAppender`] keeps what they
//! say, and [`read_labels`] gives what counts of it.

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
