//! Events of a running plan.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use probity_lm::{ModelDescription, SinkError};
use probity_methods::MethodReport;
use probity_runtime::{LoadOptions, PlannedCost, PlannedMemory, TimeEstimate, TokenProgress};

/// Receives events: a terminal, a stream of JSON, a notebook, a test.
pub trait Events: Send + Sync {
    /// Progress and messages for people.
    fn notice(&self, notice: Notice<'_>);

    /// A requested result. An error ends the plan.
    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError>;
}

/// Progress and messages.
#[derive(Clone, Copy)]
pub enum Notice<'a> {
    /// Information.
    Message(&'a str),
    /// A warning.
    Warning(&'a str),
    /// A stage failed; the others continue.
    Error(&'a str),
    /// A model was loaded.
    Loaded {
        /// The model.
        model: &'a ModelDescription,
        /// The seconds it took.
        seconds: f64,
    },
    /// Token progress of the queries from now on. Queries cost too different amounts to estimate times from their
    /// number.
    Tokens(&'a Arc<TokenProgress>),
    /// A running count of stored answers that were found.
    Found(&'a Arc<AtomicUsize>),
    /// Progress of the current step.
    Progress {
        /// The method or one of its steps.
        what: &'a str,
        /// The unit.
        work: ProgressUnit,
        /// How many are done.
        done: usize,
        /// The total, if known.
        total: Option<usize>,
    },
    /// The outcome of an answer.
    Outcome(&'a str),
    /// The current step ended.
    StepEnded,
}

/// The unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Queries to a model.
    Questions,
    /// Candidates that metrics score.
    Candidates,
}

/// A requested result.
#[derive(Clone, Copy)]
pub enum SessionReport<'a> {
    /// A stage of a recipe begins.
    Stage(&'a str),
    /// The results of a run.
    Summary(&'a MethodReport),
    /// The cost of a run.
    DryRun(&'a DryRun),
}

/// The cost of a run on this machine.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// By stage and model, in the order of the queries; at least one.
    pub parts: Vec<PlannedPart>,
}

/// Planned queries to one model in one stage of a method. For stages that depend on others this is an upper bound.
#[derive(Debug, Clone)]
pub struct PlannedPart {
    /// The stage's name, if the method has stages.
    pub stage: Option<&'static str>,
    /// The model's name.
    pub model: String,
    /// Required memory on each device.
    pub memory: Vec<PlannedMemory>,
    /// The options for running it.
    pub options: LoadOptions,
    /// The planned queries.
    pub plan: PlannedCost,
    /// The estimated time.
    pub estimate: TimeEstimate,
}

/// Ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Events for Silent {
    fn notice(&self, _: Notice<'_>) {}

    fn report(&self, _: SessionReport<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}
