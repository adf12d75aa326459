//! What happens while a plan is done, for whoever wants to be told.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use probity_lm::{ModelDescription, SinkError};
use probity_methods::RunSummary;
use probity_runtime::{LoadOptions, PlannedCost, PlannedMemory, TimeEstimate, TokenProgress};

/// Is told what happens: a terminal, a stream of JSON, a notebook, a test.
pub trait Events: Send + Sync {
    /// Something on the way, which is for people.
    fn notice(&self, notice: Notice<'_>);

    /// What somebody asked for. An error ends the plan.
    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError>;
}

/// What is told on the way.
#[derive(Clone, Copy)]
pub enum Notice<'a> {
    /// Something that is good to know.
    Message(&'a str),
    /// Something to look at.
    Warning(&'a str),
    /// A stage failed, and the others go on.
    Error(&'a str),
    /// A model is loaded, and took so many seconds.
    Loaded {
        /// What it is.
        model: &'a ModelDescription,
        /// How long that took.
        seconds: f64,
    },
    /// How far the model that is asked from now on is, in tokens: questions cost too different amounts to tell times by.
    Tokens(&'a Arc<TokenProgress>),
    /// How many answers were there already, counted as it goes: they cost nothing.
    Found(&'a Arc<AtomicUsize>),
    /// So much is done.
    Progress {
        /// The method, or a part of it.
        what: &'a str,
        /// What is counted.
        work: ProgressUnit,
        /// How many are done.
        done: usize,
        /// Of so many; absent where that is not known.
        total: Option<usize>,
    },
    /// An answer ended so.
    Outcome(&'a str),
    /// Nothing more comes of what was told of last.
    StepEnded,
}

/// What progress counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Questions to a model.
    Questions,
    /// Candidates that metrics score.
    Candidates,
}

/// What somebody asked for.
#[derive(Clone, Copy)]
pub enum SessionReport<'a> {
    /// A stage of a recipe begins.
    Stage(&'a str),
    /// What a run found.
    Summary(&'a RunSummary),
    /// What a run would cost.
    DryRun(&'a DryRun),
}

/// What a run would cost on this machine.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// By stage and model, in the order in which they are asked; at least one.
    pub parts: Vec<PlannedPart>,
}

/// What one model would be asked in one stage of a method. Of stages behind others it is the most that it can be.
#[derive(Debug, Clone)]
pub struct PlannedPart {
    /// The stage's name; absent where the method has none.
    pub stage: Option<&'static str>,
    /// The model's name.
    pub model: String,
    /// Memory that this would take on each device.
    pub memory: Vec<PlannedMemory>,
    /// How it would be run.
    pub options: LoadOptions,
    /// What would be asked.
    pub plan: PlannedCost,
    /// How long that would take.
    pub estimate: TimeEstimate,
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Events for Silent {
    fn notice(&self, _: Notice<'_>) {}

    fn report(&self, _: SessionReport<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}
