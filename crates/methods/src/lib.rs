//! Evaluation methods for language models.
//!
//! A [`Method`] turns samples into prompts, queries a [`LanguageModel`](probity_lm::LanguageModel) with all of them at
//! once, writes each answer to a [`RunOutput`] as it arrives, and returns a [`MethodReport`]. It has no access to
//! tensors, files or terminals. The registry, [`methods`], lists all methods: the command line, its help and its
//! reference pages are generated from it. A new method is one file and one line.

pub mod answer;
pub mod answer_text;
mod article;
pub mod attributes;
pub mod builtin;
pub mod candidate_report;
mod checklist;
pub mod comparative;
pub mod defence;
pub mod defended;
mod error;
mod flags;
mod g_eval;
pub mod gpt_score;
pub mod judge;
mod meta;
mod method;
pub mod metrics;
pub mod pairs;
pub mod para_pluie;
mod pointwise;
mod prompt_scoring;
pub mod prompt_set;
pub mod query;
pub mod question;
pub mod quote;
mod registry;
mod reward;
mod row;
mod run;
mod scale;
pub mod signing;
pub mod stage;
mod summary;
pub mod template;
#[cfg(test)]
#[expect(dead_code, reason = "the tests of studies use the file too")]
mod testing;
pub mod written;
mod written_once;

pub use probity_analysis::conclusion::{Conclusion, Trust};
pub use probity_analysis::{Cell, Headline, RunScores, Table, cells};
use probity_analysis::{conclusion, figures, gold};
#[cfg(test)]
use registry::method;

pub use attributes::near_known_attribute;
pub use builtin::Builtin;
pub use defence::Defence;
pub use error::MethodError;
pub use meta::Meta;
pub use method::{Configured, DynMethod, Input, LabelledFile, Method, ModelKind, Needs, RoleModel, entry};
pub use metrics::Metrics;
pub use pairs::rng_for;
pub use registry::methods;
pub use run::{MemoryOutput, Run, RunOutput};
pub use scale::RatingScale;
pub use stage::{Artefact, GivenTable, KeepPart, MethodStage, RowError, StageDone, StageSpec, Staging, samples_key};
pub use summary::{Cost, MethodReport, Outcomes, Signature, TemplateMark};
