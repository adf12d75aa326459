//! Which options stand together in `--help`, and which are left out of `-h`.

use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Arg, Command, builder::PossibleValue};
use probity_data::importers;
use probity_metrics::metrics;
use probity_runtime::hub::known_models;

/// Headings with the options below them; options that are in none stay where they are.
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

/// What few people change: shown by `--help` alone.
const RARE: [&str; 34] = [
    "adapter", "adjective", "answer_prefix", "analysis_runs", "cache", "compute", "cost_match", "cycles",
    "data_format", "device", "export_sets", "format", "good_draft", "label_words", "max_tokens", "min_mass",
    "no_store", "progress", "prompt_words", "rate", "revision_tokens", "reviser_template", "rubric", "seed",
    "similarity", "steps_template", "steps_tokens", "strict", "temperature", "ties", "use_truncated", "diversify",
    "aspect", "seq2seq",
];

/// The command of a method: its options in groups, and of those in `-h` what people choose.
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
        .after_help("-h shows what people choose, --help everything.")
}

/// Values that a shell may complete; others are as good.
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

/// The same command, whose models, metrics and importers a shell completes.
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
    // Only where the value is a text anyway: clap panics where a value is taken out as another type than its parser's.
    command.mut_args(|argument| match of(argument.get_id().as_str()).filter(|_| is_text(&argument)) {
        Some(values) => argument.value_parser(Suggested(values)).hide_possible_values(true),
        None => argument,
    })
}
