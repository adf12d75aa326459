//! Evaluation methods on the language-model contract.
//!
//! A [`Method`] turns samples into prompts, asks a [`LanguageModel`](probity_lm::LanguageModel) about all of them at once, writes each
//! answer to an [`Output`] as it comes, and concludes with a [`Summary`]. It knows nothing of tensors, files or terminals. Methods are
//! found through the registry, [`methods`]: the command line, its help and its reference pages are made from there. A new method is one
//! file and one line.

mod attributes;
mod error;
mod method;
mod pairs;
mod question;
mod quote;
mod run;
mod summary;
mod template;

pub use error::MethodError;
pub use method::{DynMethod, Method};
pub use run::{Cost, MemoryOutput, Output, Run};
pub use summary::{Outcomes, Report, Section, Signature, Summary};
pub use template::TemplateError;
