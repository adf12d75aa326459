//! Events of a run, for the Python caller.

use std::sync::Arc;

use parking_lot::Mutex;
use probity_lm::SinkError;
use probity_methods::MethodReport;
use probity_runtime::{PlannedMemory, TokenProgress};
use probity_session::{DryRun, Events, Notice, SessionReport, computing_in_force};
use serde_json::{Value, json};

/// Stores events until they are collected.
#[derive(Default)]
pub(crate) struct WaitingEvents(Mutex<Told>);

/// Events since the last collection.
#[derive(Default)]
pub(crate) struct Told {
    /// Messages with their kind: `message`, `warning` or `error`.
    pub(crate) messages: Vec<(&'static str, String)>,
    /// Progress: activity, count and total.
    pub(crate) progress: Option<Progress>,
    tokens: Option<Arc<TokenProgress>>,
    /// The summary, or the result of a dry run.
    pub(crate) result: Option<Value>,
}

/// Progress of an activity.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) what: String,
    pub(crate) done: usize,
    pub(crate) total: Option<usize>,
    /// Share of the tokens already computed, if known.
    pub(crate) share: Option<f64>,
}

impl WaitingEvents {
    /// Collects the events since the last call.
    pub(crate) fn take(&self) -> Told {
        let mut told = self.0.lock();
        let tokens = told.tokens.clone();
        let result = told.result.clone();
        std::mem::replace(&mut *told, Told { tokens, result, ..Told::default() })
    }
}

impl Events for WaitingEvents {
    fn notice(&self, notice: Notice<'_>) {
        let mut told = self.0.lock();
        let mut say = |kind, text: String| told.messages.push((kind, text));
        match notice {
            Notice::Message(text) => say("message", text.to_owned()),
            Notice::Warning(text) => say("warning", text.to_owned()),
            Notice::Error(text) => say("error", text.to_owned()),
            Notice::Loaded { model, seconds } => {
                say("message", format!("{}, loaded in {seconds:.1} s", model.headline()));
            }
            Notice::Tokens(progress) => told.tokens = Some(Arc::clone(progress)),
            Notice::Progress { what, done, total, .. } => {
                let share = told.tokens.as_ref().zip(total).and_then(|(tokens, total)| share(tokens, done, total));
                told.progress = Some(Progress { what: what.to_owned(), done, total, share });
            }
            Notice::Found(_) | Notice::Outcome(_) | Notice::StepEnded => {}
        }
    }

    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError> {
        match report {
            SessionReport::Stage(_) => {}
            SessionReport::Summary(summary) => self.0.lock().result = Some(summary_value(summary)),
            SessionReport::DryRun(dry_run) => self.0.lock().result = Some(dry_run_value(dry_run)),
        }
        Ok(())
    }
}

/// Share of the work done in tokens. The cost of queries varies too much to count them.
fn share(tokens: &TokenProgress, done: usize, total: usize) -> Option<f64> {
    let unseen = (total as u64).saturating_sub(tokens.seen().max(done as u64));
    let (computed, left) = (tokens.computed(), tokens.left(unseen));
    (computed > 0).then(|| computed as f64 / (computed + left).max(1) as f64)
}

fn summary_value(summary: &MethodReport) -> Value {
    serde_json::to_value(summary).expect("a summary is plain values")
}

fn dry_run_value(dry_run: &DryRun) -> Value {
    let part = |part: &probity_session::PlannedPart| {
        let sum = |of: fn(&PlannedMemory) -> Option<u64>| part.memory.iter().map(of).sum::<Option<u64>>();
        let mut value = json!({
            "stage": part.stage, "model": part.model, "questions": part.plan.questions,
            "too_long": part.plan.too_long, "tokens_unshared": part.plan.usage.tokens_unshared,
            "tokens_computed": part.plan.usage.tokens_computed, "tokens_generated": part.plan.generated,
            "weight_bytes": sum(|memory| Some(memory.weights)), "cache_bytes": sum(|memory| Some(memory.cache)),
            "activation_bytes": sum(|memory| memory.activations), "process_bytes": part.memory[0].process,
            "free_bytes": sum(|memory| memory.free),
            "seconds": part.estimate.seconds, "computing": computing_in_force(part.options),
        });
        if part.memory.len() > 1 {
            let share = |memory: &PlannedMemory| {
                json!({
                    "device": memory.device, "weight_bytes": memory.weights, "cache_bytes": memory.cache,
                    "activation_bytes": memory.activations, "free_bytes": memory.free,
                })
            };
            value["shares"] = part.memory.iter().map(share).collect();
        }
        value
    };
    json!({ "parts": dry_run.parts.iter().map(part).collect::<Vec<_>>() })
}
