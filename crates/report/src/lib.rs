//! Reports of runs: one self-contained HTML file, tables for other programs, and plots.
//!
//! A run is a folder written by `probity-store`, of any method, finished or not. The content of a report depends on the
//! fields of the run's tables, not on the name of its method. Files are read line by line: memory grows with the number
//! of scores, not of prompts or texts.
//!
//! All texts may come from data and be hostile. `maud` escapes markup; the page's data are compressed blocks without
//! `<`; its script writes only to text nodes; and its content security policy allows only this script and style, by
//! their hashes.

mod attributes;
mod compare;
mod error;
mod explorer;
mod export;
mod facts;
mod figures;
mod histogram;
mod names;
mod page;
mod plot;
mod report;
mod rows;
mod run;
mod tables;
pub mod text;

pub use error::ReportError;
pub use export::{csv, json, latex, markdown, markdown_text};
pub use page::policy_hash;
pub use plot::{Figure, theme_style};
pub use report::{Options, RunReport};
pub use run::ReportedRun;
