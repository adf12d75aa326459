//! Groups of commands and options in the help, and which options `-h` omits.

use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Arg, Command, builder::PossibleValue};
use probity_data::importers;
use probity_methods::DynMethod;
use probity_metrics::metrics;
use probity_runtime::hub::known_models;

/// Headings of `probity --help` with the commands below them. A command that is missing here fails a test.
const COMMANDS: [(&str, &[&str]); 6] = [
    ("Metrics and trust", &["metrics", "meta", "gate", "verify-determinism"]),
    ("Models", &["model", "prompts", "logprobs", "generate"]),
    ("Data and labels", &["import", "data", "label"]),
    ("Runs", &["run", "recipe", "show", "report", "diff", "check", "merge", "slurm"]),
    ("Server", &["serve"]),
    ("Setup", &["demo", "config", "completions", "man", "help"]),
];

/// All groups: judging methods and studies from the registry, then [`COMMANDS`].
fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let judging: Vec<&str> = probity_methods::methods().iter().map(|method| method.name()).collect();
    let studies = probity_studies::methods().map(DynMethod::name).filter(|name| !judging.contains(name)).collect();
    let others = COMMANDS.iter().map(|(heading, names)| (*heading, names.to_vec()));
    [("Judge", judging), ("Studies", studies)].into_iter().chain(others).collect()
}

/// The commands by group, one line each.
pub(crate) fn listed(command: &Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(*name).and_then(Command::get_about).map(ToString::to_string);
        let about = about.unwrap_or_else(|| "Print the help of a command".to_owned());
        format!("  {name:<18}  {about}\n")
    };
    let group =
        |(heading, names): (&str, Vec<&str>)| format!("{heading}:\n{}\n", names.iter().map(line).collect::<String>());
    groups().into_iter().map(group).collect()
}

/// The command as `-h` shows it: options without their values.
pub(crate) fn short(command: Command) -> Command {
    command.mut_args(|argument| {
        let takes_value = argument.get_action().takes_values();
        if takes_value { argument.hide_possible_values(true) } else { argument }
    })
}

/// Headings with the options below them; options in none keep their position.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Prompt",
        &[
            "template", "noun", "adjective", "criteria", "rubric", "format", "answer_prefix", "label_words",
            "prompt_words",
        ],
    ),
    (
        "Answers",
        &[
            "decide", "temperature", "max_tokens", "samples", "cycles", "steps", "steps_template", "steps_tokens",
            "revision_tokens", "seed",
        ],
    ),
    ("Reviser", &["aspect", "diversify", "good_draft", "reviser_template", "use_truncated", "export_sets"]),
];

/// Options that few users change: `-h` omits them.
const RARE: &[&str] = &[
    "adapter", "adjective", "answer_prefix", "analysis_runs", "cache", "compute", "cost_match", "cycles",
    "data_format", "device", "export_sets", "format", "good_draft", "label_words", "max_tokens", "min_mass",
    "no_store", "progress", "prompt_words", "rate", "revision_tokens", "reviser_template", "rubric", "seed",
    "similarity", "steps_template", "steps_tokens", "strict", "temperature", "ties", "use_truncated", "diversify",
    "aspect", "seq2seq", "choose", "stop", "sure", "analyses", "text_flags", "defence", "shard", "overwrite", "until",
    "from", "scale", "rationale_tokens", "most_aius", "passage_tokens", "overlap", "unit_words", "answer_tokens",
    "question_words", "answer_words", "no_related", "no_weights", "follow_ups", "think", "thoughts", "template_var",
];

/// The command of a method: its options in groups, `-h` with the frequent ones.
pub(crate) fn grouped(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let id = argument.get_id().as_str().to_owned();
            let group = GROUPS.iter().find(|(_, ids)| ids.contains(&id.as_str()));
            let argument = match group {
                Some((heading, _)) => argument.help_heading(*heading),
                None => argument,
            };
            argument.hide_short_help(RARE.contains(&id.as_str()))
        })
        .after_help("-h lists frequent options, --help all.")
}

/// Values that a shell may complete; other values are valid too.
#[derive(Clone)]
struct Suggested(Vec<&'static str>);

impl TypedValueParser for Suggested {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// Lets a shell complete models, metrics and importers.
pub(crate) fn completing(command: Command) -> Command {
    let imports = command.get_name() == "import";
    let of = |id: &str| -> Option<Vec<&'static str>> {
        match id {
            "model" | "judge_model" | "names" => Some(known_models().iter().map(|model| model.name).collect()),
            "metric" => Some(metrics().iter().map(|metric| metric.name()).collect()),
            "name" if imports => Some(importers().iter().map(|importer| importer.name).collect()),
            _ => None,
        }
    };
    let is_text =
        |argument: &Arg| argument.get_value_parser().type_id() == clap::builder::ValueParser::string().type_id();
    // Only for text values: clap panics if a value is read as another type than its parser's.
    command.mut_args(|argument| match of(argument.get_id().as_str()).filter(|_| is_text(&argument)) {
        Some(values) => argument.value_parser(Suggested(values)).hide_possible_values(true),
        None => argument,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = groups().into_iter().flat_map(|(_, names)| names).collect();
        let command = crate::args::command();
        let commands: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        assert_eq!(listed.len(), commands.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), commands);
    }

    #[test]
    fn the_short_help_of_a_method_has_at_most_twenty_options_and_short_lines() {
        for method in probity_studies::methods() {
            let mut command = crate::args::command();
            let command = command.find_subcommand_mut(method.name()).expect("a command");
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_short_help_set());
            let shown: Vec<String> =
                shown.filter(|one| !one.is_hide_set()).map(|one| one.get_id().to_string()).collect();
            assert!(shown.len() <= 20, "{}: {} {shown:?}", method.name(), shown.len());
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.chars().count() <= 58, "{}: {about}", method.name());
        }
    }
}
