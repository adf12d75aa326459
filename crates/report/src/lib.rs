//! Reports of runs: one HTML file that needs nothing else, tables for other programs, and plots.
//!
//! A run is a folder that `probity-store` wrote, of any method, finished or not. What can be shown is told by the
//! fields of its tables and not by its method's name. Reading goes line by line: memory grows with the number of
//! scores, not with prompts or texts.
//!
//! Every text may come from data and be hostile. Markup is made by `maud`, which escapes; the page's data are
//! compressed blocks without a `<` in them; its script puts text into text nodes alone; and its content security policy
//! allows that one script and style by their hashes, and nothing else.

mod compare;
mod error;
mod explorer;
mod export;
mod facts;
mod figures;
mod histogram;
mod measures;
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
