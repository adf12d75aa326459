//! `--dry-run`: what a run would cost, by asking a model that plans instead of answering.

use probity_data::Sample;
use probity_lm::{LanguageModel, SinkError};
use probity_methods::{Output, Run};
use probity_runtime::{Model, Plan, Planner};
use serde_json::Value;

use crate::check::Ready;
use crate::compute::in_force;
use crate::plan::Stage;
use crate::progress::{Reporter, seconds_text};
use crate::terminal::{print, size, thousands};

/// Takes rows and keeps none.
pub(crate) struct Nowhere;

impl Output for Nowhere {
    fn table(&mut self, _: &'static str, _: usize) -> Result<(), SinkError> {
        Ok(())
    }

    fn row(&mut self, _: &'static str, _: usize, _: Value) -> Result<(), SinkError> {
        Ok(())
    }

    fn progress(&mut self, _: usize, _: usize) {}
}

/// Plans a stage's run and prints what it would cost. Questions to other models are counted as if this one were asked.
pub(crate) fn method(
    ready: &Ready<'_>,
    samples: &[Sample],
    model: &Model,
    reporter: &mut Reporter,
) -> anyhow::Result<()> {
    let planner = Planner::new(model);
    let others: Vec<&dyn LanguageModel> = ready.others.iter().map(|_| -> &dyn LanguageModel { &planner }).collect();
    let Stage { method, matches, .. } = ready.stage;
    let for_metrics = ready.metric_models(reporter)?;
    method.run(
        matches,
        samples,
        &mut Run::new(&planner, &mut Nowhere).with_other_models(&others).with_metric_models(for_metrics),
    )?;
    show(model, &planner.into_plan(), reporter)?;
    if !ready.others.is_empty() {
        let name = &model.description().name;
        print(&format!(
            "the questions to {} more are counted as if {name} were asked",
            thousands(ready.others.len() as u64)
        ))?;
    }
    Ok(())
}

/// Measures the machine and prints the plan.
pub(crate) fn show(model: &Model, plan: &Plan, reporter: &Reporter) -> anyhow::Result<()> {
    reporter.say("dry run: measuring this machine");
    let estimate = model.estimate(plan)?;
    let options = model.options();
    let budget = options.cache_budget.unwrap_or(0);
    let mut lines = vec![
        ("questions", thousands(plan.questions)),
        ("too long", thousands(plan.too_long)),
        ("tokens", format!("{} if each question were computed from scratch", thousands(plan.usage.tokens_unshared))),
        ("computed", format!("{} with shared beginnings computed once", thousands(plan.usage.tokens_computed))),
        ("weights", size(model.weight_bytes())),
        (
            "cache",
            format!("{} of keys and values at most, of {} allowed", size(plan.usage.peak_cache_bytes), size(budget)),
        ),
        (
            "memory",
            format!("{} for both; activations come on top", size(model.weight_bytes() + plan.usage.peak_cache_bytes)),
        ),
        ("time", format!("about {}", seconds_text(estimate.seconds))),
    ];
    if plan.generated > 0 {
        lines.insert(
            4,
            ("generated", format!("{} of these tokens at most, if no text ends early", thousands(plan.generated))),
        );
    }
    for (name, value) in lines {
        print(&format!("{name:<10} {value}"))?;
    }
    let mut rests = format!(
        "the time rests on what was just measured with {} threads: {} tokens of the longest prompt at {:.0} tokens/s",
        options.threads.unwrap_or(0),
        estimate.tokens,
        estimate.tokens_per_second
    );
    if let Some(rate) = estimate.generated_per_second {
        rests = format!("{rests}, and {} texts side by side at {rate:.0} tokens/s", estimate.side_by_side);
    }
    print(&rests)?;
    if plan.lists > 1 || plan.has_verdicts {
        print(
            "what is asked later depends on earlier answers, which a dry run does not have: it may come to more or to \
             less",
        )?;
    }
    reporter.say(&format!("nothing was asked and nothing was written; the model would run with {}", in_force(options)));
    Ok(())
}
