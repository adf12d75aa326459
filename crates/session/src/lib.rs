//! Turns a method with its options, data and models into a run folder. All front ends use this crate.
//!
//! A [`Plan`] consists of [`PlannedRun`]s. [`Plan::check`] reports all problems before a model is loaded, and
//! [`Plan::run`] runs it and sends [`Events`] to a terminal, a program that reads JSON, a notebook or a test. This
//! crate does not depend on a command line or a terminal; an [`Interrupt`] is passed in.

mod answers;
mod check;
mod context;
mod dry_run;
mod error;
mod error_text;
mod events;
mod execute;
mod inputs;
mod interrupt;
mod merge;
mod model_pool;
mod nowhere;
mod option_files;
mod options;
mod plan;
mod pooled;
mod problems;
mod ready;
mod requests;
mod run_info;
mod samples;
mod shard;
mod stage;
mod stage_kinds;
mod stage_tables;
mod user_config;
mod verify;
mod warnings;

pub use answers::{answer_settings, shared_answers};
pub use context::Context;
pub use error::SessionError;
pub use error_text::{ErrorText, causes, message};
pub use events::{DryRun, Events, Notice, PlannedPart, ProgressUnit, SessionReport, Silent};
pub use execute::close;
pub use inputs::resolved;
pub use interrupt::{Interrupt, Interrupted, was_interrupted};
pub use merge::Shards;
pub use model_pool::{ModelPool, OpenedModel};
pub use option_files::unreadable_files;
pub use options::{
    AskOptions, ByteSize, ByteSizeError, ComputeOptions, ComputingOptions, DataOptions, KeepOptions, ModelOptions,
    OutputOptions, RunOptions, StageTable, StageTableError, computing_in_force,
};
pub use plan::{InShort, Plan, RunEnd, RunOutcome, report_answers, report_damaged};
pub use problems::{PlanProblems, StageLines};
pub use ready::ReadyStage;
pub use requests::{AnswerWriter, GenerateLine, LineTally, RequestLine, ScoreLine, answer};
pub use run_info::probity_version;
pub use samples::GivenSamples;
pub use shard::{Shard, ShardError};
pub use stage::{OtherStage, PlannedRun, StageOrigin};
pub use stage_kinds::{stage_kind, stage_kinds, stage_options};
pub use user_config::{UserConfig, UserConfigError};
pub use verify::CheckedRun;
