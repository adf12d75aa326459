//! All kinds of stages and their options.

use probity_methods::{DynMethod, Meta, Metrics};
use probity_options::{OptionSpec, specs};
use probity_studies::methods;

use crate::options::{ComputingOptions, DataOptions, ModelOptions, RunOptions};

/// All kinds of stages: the methods, then stages that judge nothing.
pub fn stage_kinds() -> impl Iterator<Item = &'static dyn DynMethod> + Clone {
    let others: [&'static dyn DynMethod; 2] = [&Metrics, &Meta];
    methods().chain(others)
}

/// The kind with this name.
pub fn stage_kind(name: &str) -> Option<&'static dyn DynMethod> {
    stage_kinds().find(|kind| kind.name() == name)
}

/// Options that only apply to models queried for labels.
const OF_LABELS: [&str; 4] = ["min_mass", "think", "thoughts", "template_var"];

/// Options that only apply to stages with a model of their own.
const OF_QUESTIONS: [&str; 1] = ["dry_run"];

/// Options that only apply to methods with stages.
const OF_STAGES: [&str; 2] = ["until", "from"];

/// Options that only apply to answers of models.
const OF_ANSWERS: [&str; 2] = ["cache", "no_store"];

/// All options of a kind: its own, then those of every run that have an effect.
pub fn stage_options(kind: &dyn DynMethod) -> Vec<OptionSpec> {
    let needs = kind.needs();
    let stages: Vec<&str> = kind.all_stages().iter().map(|stage| stage.name).collect();
    let computing = match (needs.model, needs.samples) {
        (true, _) => specs::<ModelOptions>(),
        // The models of its metrics compute as well, but are not queried for labels.
        (false, true) => {
            let of_metrics = |option: &OptionSpec| !OF_LABELS.contains(&option.field.as_str());
            specs::<ComputingOptions>().into_iter().filter(of_metrics).collect()
        }
        (false, false) => Vec::new(),
    };
    let of_data = specs::<DataOptions>();
    let has = |option: &OptionSpec| match option.field.as_str() {
        field if OF_QUESTIONS.contains(&field) => needs.model,
        field if OF_STAGES.contains(&field) => !stages.is_empty(),
        field if OF_ANSWERS.contains(&field) => needs.model || needs.samples,
        field if of_data.iter().any(|one| one.field == field) => needs.samples,
        _ => true,
    };
    let labels = needs.labels.map(|labels| labels.option);
    let with_names = |mut option: OptionSpec| {
        option.unless = match option.field.as_str() {
            "data" => labels.map(str::to_owned),
            "model" => labels.or(needs.without_model).map(str::to_owned),
            _ => option.unless,
        };
        if OF_STAGES.contains(&option.field.as_str()) {
            let stages = if stages.len() == 1 { "Only stage" } else { "Stages" }.to_owned() + ": " + &stages.join(", ");
            option.help = format!("{} {stages}.", option.help);
        }
        option
    };
    let of_runs = specs::<RunOptions>().into_iter().filter(has);
    kind.options().into_iter().chain(computing.into_iter().chain(of_runs).map(with_names)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_kinds_share_a_name_and_no_two_options_of_one_a_field() {
        let names: BTreeSet<&str> = stage_kinds().map(DynMethod::name).collect();
        assert_eq!(names.len(), stage_kinds().count());
        for kind in stage_kinds() {
            let options = stage_options(kind);
            let fields: BTreeSet<&str> = options.iter().map(|option| option.field.as_str()).collect();
            assert_eq!(fields.len(), options.len(), "{}", kind.name());
            assert!(options.iter().all(|option| !option.help.is_empty()), "{}", kind.name());
            assert!(kind.long_about().starts_with(kind.about()), "{}", kind.name());
        }
    }

    #[test]
    fn a_stage_has_the_options_that_mean_something_for_it() {
        let has = |name: &str, field: &str| {
            stage_options(stage_kind(name).expect("a kind")).iter().any(|option| option.field == field)
        };
        let fields = ["resume", "data", "cache", "adapter", "until", "dry_run", "min_mass", "compute"];
        assert_eq!(fields.map(|field| has("judge", field)), [true; 8]);
        assert_eq!(fields.map(|field| has("compare", field)), [true, true, true, true, false, true, true, true]);
        assert_eq!(fields.map(|field| has("metrics", field)), [true, true, true, false, false, false, false, true]);
        assert_eq!(fields.map(|field| has("meta", field)), [true, false, false, false, false, false, false, false]);
    }
}
