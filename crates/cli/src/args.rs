//! The command line.

use std::ffi::OsString;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use probity_methods::Meta;
use probity_methods::{DynMethod, Metrics};
use probity_session::{ErrorText, GenerateLine, PlannedRun, ScoreLine, UserConfig, UserConfigError};
use probity_studies::methods;

use crate::exit::Completed;
use crate::global::Global;
use crate::groups::{completing, grouped, listed, short};
use crate::options::Typed;
use crate::raw::RawArgs;
use crate::{
    config, data, demo, determinism, diff, gate, generate, import, label, logprobs, merge, meta, method, metrics,
    model, prompts, recipe, reference, report, serve, show, slurm, verify,
};

/// Judge generated text with a language model on your own machine.
///
/// Methods read the exact probability that a local model gives each verdict, not a sampled answer. Only `probity model
/// get` and `probity demo` use the network.
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

Likelihood (gpt-score) works with small models; comparing and rating need larger ones.

Exit codes: 0 success; 1 unscored samples with --strict, differences (diff,
verify-determinism), a damaged run (check), a worse run (gate); 2 error;
130 interrupted (finished work is kept).
Models are stored in $PROBITY_MODELS or the user's cache folder; see `probity config`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a recipe: data, models and methods in one file
    #[command(long_about = recipe::RUN_ABOUT)]
    Run(recipe::RunCommand),
    /// Create or check a recipe, or print its JSON schema
    #[command(subcommand)]
    Recipe(recipe::RecipeCommand),
    /// List, download, inspect and verify models
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// List, show and export the built-in prompts
    #[command(subcommand, long_about = prompts::LONG_ABOUT)]
    Prompts(prompts::PromptsCommand),
    /// Compute label or token log-probabilities (raw interface)
    #[command(long_about = logprobs::LONG_ABOUT)]
    Logprobs(RawArgs),
    /// Generate texts, optionally constrained (raw interface)
    #[command(long_about = generate::LONG_ABOUT, after_help = generate::AFTER_HELP)]
    Generate(RawArgs),
    /// Serve a model over HTTP
    #[command(long_about = serve::LONG_ABOUT, after_help = serve::AFTER_HELP)]
    Serve(serve::ServeArgs),
    /// Check that scores are bit-identical on this machine
    #[command(long_about = determinism::LONG_ABOUT)]
    VerifyDeterminism(Typed<determinism::DeterminismOptions>),
    /// Show samples, prompts and probabilities of a run
    #[command(long_about = show::LONG_ABOUT)]
    Show(show::RunShowArgs),
    /// Check that a run folder is undamaged
    #[command(long_about = verify::LONG_ABOUT)]
    Check(verify::RunCheckArgs),
    /// Compare two runs question by question
    #[command(long_about = diff::LONG_ABOUT)]
    Diff(diff::DiffArgs),
    /// Merge the run folders of all shards (--shard)
    #[command(long_about = merge::LONG_ABOUT)]
    Merge(merge::MergeArgs),
    /// Write or submit Slurm scripts for a recipe
    #[command(long_about = slurm::LONG_ABOUT)]
    Slurm(slurm::SlurmArgs),
    /// Score candidates with BLEU, chrF, ROUGE and others
    #[command(long_about = Metrics.long_about(), after_help = metrics::after_help())]
    Metrics(metrics::MetricsArgs),
    /// Label samples by hand in the browser
    #[command(long_about = label::LONG_ABOUT, after_help = label::AFTER_HELP)]
    Label(label::LabelArgs),
    /// Compare scores with human judgements
    #[command(long_about = Meta.long_about(), after_help = meta::AFTER_HELP)]
    Meta(meta::MetaArgs),
    /// Fail a build if a run is worse than a baseline
    #[command(long_about = gate::LONG_ABOUT)]
    Gate(gate::GateArgs),
    /// Convert a public data set to samples
    #[command(after_help = import::after_help())]
    Import(import::ImportArgs),
    /// Check and convert sample files
    #[command(subcommand, long_about = data::LONG_ABOUT)]
    Data(data::DataCommand),
    /// Write a report of runs: HTML page, tables, plots
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::ReportArgs),
    /// Download a small model and judge the built-in sample
    ///
    /// Downloads the model if it is missing (the only step that uses the network), checks its hash, and judges five
    /// short texts with four candidate summaries each: by likelihood (`gpt-score`), which works with small models, and
    /// by pairwise comparison (`compare`), which needs larger ones.
    Demo(demo::DemoArgs),
    /// Show the defaults in effect and their source
    #[command(long_about = config::LONG_ABOUT)]
    Config,
    /// Print a completion script for a shell
    ///
    /// For example: probity completions bash > ~/.local/share/bash-completion/completions/probity
    Completions(reference::CompletionsArgs),
    /// Print the manual page, or write one per command
    Man(reference::ManArgs),
}

/// A parsed command line.
pub(crate) enum Invocation {
    /// A fixed command.
    Command(Box<Cli>),
    /// A registered method.
    Method {
        /// The method.
        method: &'static dyn DynMethod,
        /// Its options and those of every run.
        matches: clap::ArgMatches,
    },
}

/// The whole command line: the fixed commands and a command for each registered method.
pub(crate) fn command() -> clap::Command {
    // Methods come first in the help, because they are the main use of probity.
    let mut order = methods().count();
    let mut command = Cli::command().mut_subcommands(|sub| {
        order += 1;
        sub.display_order(order)
    });
    for (order, method) in methods().enumerate() {
        command = command.subcommand(grouped(method::command(method)).display_order(order));
    }
    // `--seed -1` is an invalid number, not an unknown option.
    let negative = |argument: Arg| {
        let takes_value = !argument.is_positional() && argument.get_action().takes_values();
        if takes_value { argument.allow_negative_numbers(true) } else { argument }
    };
    let command = command.mut_subcommands(|sub| completing(sub.mut_args(negative)).mut_subcommands(completing));
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        listed(&command)
    );
    command.help_template(template)
}

/// Sets the default model of commands that require one.
fn with_model(command: clap::Command, model: Option<String>) -> clap::Command {
    let Some(model) = model else { return command };
    let model = clap::builder::OsStr::from(model);
    command.mut_subcommands(|sub| {
        let asks = methods().any(|method| method.name() == sub.get_name() && method.needs().model);
        sub.mut_args(|argument| {
            // Only for commands that require a model. An omitted optional --model has another meaning: `show` uses the
            // run's model, and `metrics` would warn of a model that no metric needs.
            let needed = argument.get_id() == "model" && (asks || argument.is_required_set());
            if needed { argument.required(false).default_value(model.clone()) } else { argument }
        })
    })
}

/// Parses a command line, the program's name first.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Invocation, clap::Error> {
    // `config` must show the defaults even if the file is invalid.
    let shows = arguments.get(1).is_some_and(|name| name == "config");
    let config = if shows { UserConfig::default() } else { UserConfig::load().map_err(|error| unreadable(&error))? };
    let command = with_model(command(), config.model);
    // The short help has one line per option, without its values.
    let is_short = arguments.iter().any(|argument| argument == "-h");
    let command = if is_short { command.mut_subcommands(short) } else { command };
    let matches = command.try_get_matches_from(arguments)?;
    // Methods first: the derived `Command` does not know them and would reject their names.
    if let Some((name, sub)) = matches.subcommand()
        && let Some(method) = methods().find(|method| method.name() == name)
    {
        return Ok(Invocation::Method { method, matches: sub.clone() });
    }
    Cli::from_arg_matches(&matches).map(|cli| Invocation::Command(Box::new(cli)))
}

fn unreadable(error: &UserConfigError) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::Io, format!("{}\n", ErrorText::from_error(error)))
}

impl Invocation {
    /// The options of every command.
    pub(crate) fn global(&self) -> Global {
        match self {
            Self::Command(cli) => cli.global,
            Self::Method { matches, .. } => Global::from_arg_matches(matches).unwrap_or_default(),
        }
    }

    /// Runs the command. `arguments` are as typed, for the manifest.
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
            Command::Merge(args) => args.run(global, planned_run),
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

/// The run that these arguments request; for a recipe, the run with this name.
fn planned_run(given: &[String], name: Option<&str>) -> miette::Result<PlannedRun> {
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
