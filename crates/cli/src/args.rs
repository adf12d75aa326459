//! What can be typed, and what it means.

use std::ffi::OsString;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use probity_methods::Meta;
use probity_methods::{DynMethod, Metrics};
use probity_session::{ErrorText, GenerateLine, ScoreLine, Stage, UserConfig, UserConfigError};
use probity_studies::methods;

use crate::exit::Completed;
use crate::global::Global;
use crate::groups::{completing, grouped};
use crate::options::Typed;
use crate::raw::RawArgs;
use crate::{
    config, data, demo, determinism, diff, gate, generate, import, label, logprobs, merge, meta, method, metrics,
    model, prompts, recipe, reference, report, serve, show, slurm, verify,
};

/// Judge generated text with a language model on your own machine.
///
/// Methods ask a local model how probable each verdict is and read the probabilities themselves, not a sampled answer.
/// Nothing goes over the network but what `probity model get` and `probity demo` fetch when you say so.
#[derive(Debug, Parser)]
#[command(name = "probity", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  probity demo
  probity import summeval summeval.json --out summeval.jsonl
  probity gpt-score --model smollm2-135m-instruct --data summeval.jsonl \\
      --attribute coherence --out likelihood-run
  probity model get qwen2.5-coder-1.5b-instruct
  probity compare --model qwen2.5-coder-1.5b-instruct --data summeval.jsonl \\
      --attribute coherence --out compare-run

A small model says how likely a text is (gpt-score); to compare and to rate takes a larger one.

Exit codes: 0 done; 1 done, but with --strict some samples are unscored, runs or bits
differ (diff, verify-determinism), a run is damaged (check), or something is worse (gate);
2 an error; 130 interrupted (finished work is kept).
Models are kept in $PROBITY_MODELS, or else in the user's cache folder; `probity config` shows defaults.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Do what a recipe says: data, models, methods and folders in one file
    #[command(long_about = recipe::RUN_ABOUT)]
    Run(recipe::RunCommand),
    /// Write a recipe, check one, or describe them to an editor
    #[command(subcommand)]
    Recipe(recipe::RecipeCommand),
    /// List, get, inspect and verify models
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// List, show and export the prompts that ship with probity
    #[command(subcommand, long_about = prompts::LONG_ABOUT)]
    Prompts(prompts::PromptsCommand),
    /// Ask for label or token log-probabilities: the raw interface
    #[command(long_about = logprobs::LONG_ABOUT)]
    Logprobs(RawArgs),
    /// Continue prompts, freely or as a JSON schema, a list or a regular expression allows: the raw interface
    #[command(long_about = generate::LONG_ABOUT, after_help = generate::AFTER_HELP)]
    Generate(RawArgs),
    /// Answer over HTTP: texts and chats as clients of language models ask for them, and exact probabilities
    #[command(long_about = serve::LONG_ABOUT, after_help = serve::AFTER_HELP)]
    Serve(serve::ServeArgs),
    /// Check that scores have the same bits however they are computed
    #[command(long_about = determinism::LONG_ABOUT)]
    VerifyDeterminism(Typed<determinism::DeterminismOptions>),
    /// Print a sample of a run: texts, the prompt as the model saw it, probabilities token by token
    #[command(long_about = show::LONG_ABOUT)]
    Show(show::RunShowArgs),
    /// Check that a run's folder is as it was written: files, and every answer
    #[command(long_about = verify::LONG_ABOUT)]
    Check(verify::RunCheckArgs),
    /// Compare two runs question by question
    #[command(long_about = diff::LONG_ABOUT)]
    Diff(diff::DiffArgs),
    /// Make of the folders of all parts (--shard) the folder of one run
    #[command(long_about = merge::LONG_ABOUT)]
    Merge(merge::MergeArgs),
    /// Write, or submit, the scripts by which Slurm does a recipe in parts
    #[command(long_about = slurm::LONG_ABOUT)]
    Slurm(slurm::SlurmArgs),
    /// Score candidates against references by BLEU, chrF, TER, ROUGE and others
    #[command(long_about = Metrics.long_about(), after_help = metrics::after_help())]
    Metrics(metrics::MetricsArgs),
    /// Label samples by hand: which of two texts is better, or how good one is, on a page in the browser
    #[command(long_about = label::LONG_ABOUT, after_help = label::AFTER_HELP)]
    Label(label::LabelArgs),
    /// Hold scores against gold: correlations, accuracy of pairs, tests between metrics
    #[command(long_about = Meta.long_about(), after_help = meta::AFTER_HELP)]
    Meta(meta::MetaArgs),
    /// Say whether a run is worse than a baseline, for a build to fail by
    #[command(long_about = gate::LONG_ABOUT)]
    Gate(gate::GateArgs),
    /// Turn a public data set's file into probity's JSONL
    #[command(after_help = import::after_help())]
    Import(import::ImportArgs),
    /// Check and convert files of samples
    #[command(subcommand, long_about = data::LONG_ABOUT)]
    Data(data::DataCommand),
    /// Make a report of runs: one HTML file, tables, plots
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::ReportArgs),
    /// See it work: fetch a small model, judge the sample that comes with probity, say how far to trust it
    ///
    /// Gets the model where it is not here yet (the only step that uses the network), checks its hash, and judges five
    /// short texts with four candidate summaries each: by likelihood (`gpt-score`), which small models can, and by
    /// asking which of two is better (`compare`), which they cannot.
    Demo(demo::DemoArgs),
    /// Show the defaults that are in force, and where they come from
    #[command(long_about = config::LONG_ABOUT)]
    Config,
    /// Print a completion script for a shell
    ///
    /// For example: probity completions bash > ~/.local/share/bash-completion/completions/probity
    Completions(reference::CompletionsArgs),
    /// Print the manual page, or write one page per command
    Man(reference::ManArgs),
}

/// A command line that was understood.
pub(crate) enum Invocation {
    /// A command of [`Command`].
    Command(Box<Cli>),
    /// A method of the registry.
    Method {
        /// Which one.
        method: &'static dyn DynMethod,
        /// Its options and those of every run.
        matches: clap::ArgMatches,
    },
}

/// The whole command line: the fixed commands and a command for each registered method.
pub(crate) fn command() -> clap::Command {
    // Methods come first in the help: they are what probity is for.
    let mut order = methods().count();
    let mut command = Cli::command().mut_subcommands(|sub| {
        order += 1;
        sub.display_order(order)
    });
    for (order, method) in methods().enumerate() {
        command = command.subcommand(grouped(method::command(method)).display_order(order));
    }
    // `--seed -1` is a wrong number, not an unknown option.
    let negative = |argument: Arg| {
        let takes_value = !argument.is_positional() && argument.get_action().takes_values();
        if takes_value { argument.allow_negative_numbers(true) } else { argument }
    };
    command.mut_subcommands(|sub| completing(sub.mut_args(negative)).mut_subcommands(completing))
}

/// The same with a model for those commands that name none.
fn with_model(command: clap::Command, model: Option<String>) -> clap::Command {
    let Some(model) = model else { return command };
    let model = clap::builder::OsStr::from(model);
    command.mut_subcommands(|sub| {
        let asks = methods().any(|method| method.name() == sub.get_name() && method.needs().model);
        sub.mut_args(|argument| {
            // Only where a model has to be named. Left out, an optional --model means something else: `show` takes the
            // run's own, and `metrics` would warn of a model that no metric needs.
            let needed = argument.get_id() == "model" && (asks || argument.is_required_set());
            if needed { argument.required(false).default_value(model.clone()) } else { argument }
        })
    })
}

/// Understands a command line, the program's name first.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Invocation, clap::Error> {
    // The defaults are shown, also where the file is wrong.
    let shows = arguments.get(1).is_some_and(|name| name == "config");
    let config = if shows { UserConfig::default() } else { UserConfig::load().map_err(|error| unreadable(&error))? };
    let matches = with_model(command(), config.model).try_get_matches_from(arguments)?;
    // Methods come first: what is derived from `Command` knows none of them and would refuse their names.
    if let Some((name, sub)) = matches.subcommand()
        && let Some(method) = methods().find(|method| method.name() == name)
    {
        return Ok(Invocation::Method { method, matches: sub.clone() });
    }
    Cli::from_arg_matches(&matches).map(|cli| Invocation::Command(Box::new(cli)))
}

fn unreadable(error: &UserConfigError) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::Io, format!("{}\n", ErrorText::of(error)))
}

impl Invocation {
    /// The options of every command.
    pub(crate) fn global(&self) -> Global {
        match self {
            Self::Command(cli) => cli.global,
            Self::Method { matches, .. } => Global::from_arg_matches(matches).unwrap_or_default(),
        }
    }

    /// Does it. `arguments` are as typed, for the manifest.
    pub(crate) fn run(self, arguments: &[OsString]) -> miette::Result<Completed> {
        let Cli { global, command } = match self {
            Self::Method { method, matches } => return method::run(method, &matches, arguments),
            Self::Command(cli) => *cli,
        };
        match command {
            Command::Run(command) => command.run(global, arguments),
            Command::Recipe(command) => command.run(global),
            Command::Model(command) => command.run(global),
            Command::Prompts(command) => command.run(global),
            Command::Logprobs(args) => args.run::<ScoreLine>(global, arguments),
            Command::Generate(args) => args.run::<GenerateLine>(global, arguments),
            Command::Serve(args) => args.run(global),
            Command::VerifyDeterminism(args) => args.0.run(global),
            Command::Show(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Diff(args) => args.run(),
            Command::Merge(args) => args.run(global, asked_for),
            Command::Slurm(args) => args.run(recipe::plan(&args.recipe)?, &arguments[0]),
            Command::Metrics(args) => args.run(global, arguments),
            Command::Label(args) => args.run(global),
            Command::Meta(args) => args.run(global, arguments),
            Command::Gate(args) => args.run(),
            Command::Import(args) => args.run(global),
            Command::Data(command) => command.run(global),
            Command::Report(args) => args.run(global),
            Command::Demo(args) => args.run(global, arguments),
            Command::Config => config::show(),
            Command::Completions(args) => args.run(&mut self::command()),
            Command::Man(args) => args.run(self::command()),
        }
    }
}

/// What these arguments ask for; of a recipe the run of that name.
fn asked_for(given: &[String], name: Option<&str>) -> miette::Result<Stage> {
    let command = given.join(" ");
    let none = |why: String| merge::NoRunCommand { command: command.clone(), why };
    let typed: Vec<OsString> = std::iter::once("probity".into()).chain(given.iter().map(Into::into)).collect();
    match parse(&typed).map_err(|error| none(error.to_string().trim_end().to_owned()))? {
        Invocation::Method { method, matches } => method::stage(method, &matches),
        Invocation::Command(cli) => match (cli.command, name) {
            (Command::Metrics(args), _) => args.stage(),
            (Command::Run(command), Some(name)) => {
                Ok(command.stage(name)?.ok_or_else(|| none(format!("the recipe has no run `{name}`")))?)
            }
            _ => Err(none("it judges no samples".to_owned()).into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_and_option_says_what_it_is_for() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for argument in command.get_arguments().filter(|a| !matches!(a.get_id().as_str(), "help" | "version")) {
                assert!(argument.get_help().is_some(), "{} {} has no help", command.get_name(), argument.get_id());
            }
            command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(walk);
        }
        let mut command = command();
        command.build();
        walk(&command);
    }

    #[test]
    fn every_method_is_a_command() {
        for method in methods() {
            assert!(
                command()
                    .find_subcommand(method.name())
                    .is_some_and(|sub| sub.get_arguments().any(|a| a.get_id() == "model"))
            );
        }
    }
}
