//! `probity metrics`: candidates against references, by the metrics of the registry.

mod material;
mod models;
mod summary;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use probity_data::write_samples;
use probity_metrics::{Choice, DynDefinition, Item, Metric, MetricError, Score, Scores, choose, metrics};
use probity_options::{Kind, OptionSpec};
use probity_session::{Context, Interrupt, Notice, Work, close, probity_version};
use probity_store::{Existing, RunFolder, RunInfo, SAMPLES};
use serde_json::{Value, json};

use crate::events::{Terminal, section_text};
use crate::exit::Done;
use crate::global::Global;
use crate::interrupt;
use crate::method::typed;
use crate::terminal::{print, thousands};
use material::{Material, MaterialArgs};
use miette::IntoDiagnostic as _;
use models::ModelsArgs;
use summary::{Entry, Summary};

pub(crate) const LONG_ABOUT: &str = "\
Score candidates against references by BLEU, chrF, TER, ROUGE and others

Each candidate of each sample is held against the sample's references, or against the text that it was made from, \
which is the sample's
context. Scores of single candidates and of all together are those of the tools that a metric names, on the tools' \
scales. Where candidates of
several samples have the same id, a system's name say, each id also has a score of its own.

Options of a metric follow its name: --metric bleu:tok=intl,smooth=floor,chrf:word-order=2,rouge-l. They are told by \
--list. bert-score, mover-score and blanc read texts with an encoder,
--encoder; bart-score asks a sequence-to-sequence model, --model. Their scores are comparable where the model is the \
same, which signatures name.

In --out are scores.jsonl (a row for each candidate and metric: item, candidate, index, metric, score, outcome), \
summary.json (scores of all
candidates and of each system, with their signatures), samples.jsonl and manifest.json. Text metrics are cheap: a run \
that was interrupted keeps
the metrics that were finished and begins anew with --overwrite.";

/// Options of `metrics`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct MetricsArgs {
    /// The metrics, with commas between them, each with its options where it has any: bleu:tok=intl,rouge-l
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", required_unless_present = "list")]
    metric: Vec<String>,
    /// List all metrics with their options, and do nothing else
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    material: MaterialArgs,
    #[command(flatten)]
    models: ModelsArgs,
    /// The folder for scores, summary and manifest; made where it is not there. Left out, only the table is printed
    #[arg(long, value_name = "DIR", help_heading = "Data and output")]
    out: Option<PathBuf>,
    /// Replace an earlier run in that folder
    #[arg(long, requires = "out", help_heading = "Data and output")]
    overwrite: bool,
    /// Print the summary as JSON in place of the table
    #[arg(long, help_heading = "Data and output")]
    json: bool,
    /// Exit with 1 where a score is undefined
    #[arg(long, help_heading = "Data and output")]
    strict: bool,
}

/// The registry, a line for each metric.
pub(crate) fn after_help() -> String {
    let width = metrics().iter().map(|metric| metric.name().len()).max().unwrap_or(0);
    let lines: Vec<String> =
        metrics().iter().map(|metric| format!("  {:width$}  {}", metric.name(), metric.about())).collect();
    format!(
        "Metrics (--list has their options):\n{}\n\nExamples:\n  probity metrics --metric bleu,rouge-l --data \
         samples.jsonl --out scores\n  probity metrics \
         --metric bleu,chrf:word-order=2,ter --hypotheses out.txt --references ref.txt\n  probity metrics --metric \
         bert-score:layer=5 --encoder \
         all-minilm-l6-v2 --data samples.jsonl",
        lines.join("\n")
    )
}

impl MetricsArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> miette::Result<Done> {
        if self.list {
            print(&metrics().iter().map(|metric| described(*metric)).collect::<Vec<_>>().join("\n\n"))?;
            return Ok(Done::Success);
        }
        let terminal = Terminal::new(global);
        let existing = if self.overwrite { Existing::Replace } else { Existing::Refuse };
        // Before a model is loaded.
        if let Some(out) = &self.out {
            RunFolder::look(out, existing)?;
        }
        let choices = choose(&self.metric.join(","))?;
        let material = self.material.read(&choices)?;
        let context = Context::new(terminal.clone(), interrupt::catch(global.progress));
        let models = self.models.load(&choices, &context)?;
        let ready: Vec<(Choice, Box<dyn Metric>)> = choices
            .into_iter()
            .map(|choice| Ok((choice.clone(), choice.build(&models)?)))
            .collect::<Result<_, MetricError>>()?;
        let summary = match &self.out {
            None => score(&ready, &material, &context, &mut |_, _, _| Ok(()))?,
            Some(out) => {
                // Only now goes an earlier run in that folder: metrics, data and models have been found.
                let mut folder = RunFolder::create(
                    out,
                    existing,
                    info(&ready, &material, &self.models.described(&models), typed(arguments)),
                )?;
                let result = into_folder(&ready, &material, &context, &mut folder);
                close(folder, result.as_ref().map(drop).map_err(AsRef::as_ref))?;
                result?
            }
        };
        if self.json {
            print(&serde_json::to_string_pretty(&summary).into_diagnostic()?)?;
        } else {
            let sections: Vec<String> = summary.sections.iter().map(section_text).collect();
            print(sections.join("\n").trim_end())?;
        }
        if let Some(out) = &self.out {
            terminal.reporter().say(&format!("results are in {}", out.display()));
        }
        let undefined = summary.undefined();
        if undefined > 0 {
            terminal
                .reporter()
                .warn(&format!("{} scores are undefined; the rows say why", thousands(undefined as u64)));
        }
        Ok(if self.strict && undefined > 0 { Done::Unscored } else { Done::Success })
    }
}

/// A metric's documentation and options.
fn described(metric: &dyn DynDefinition) -> String {
    let option = |option: OptionSpec| {
        let form = match &option.kind {
            Kind::Flag => "yes|no".to_owned(),
            Kind::Choice(choices) => choices.iter().map(|choice| choice.name.as_str()).collect::<Vec<_>>().join("|"),
            _ => "N".to_owned(),
        };
        let default = option.typed_defaults().join(",");
        let default =
            if default.is_empty() || option.kind == Kind::Flag { String::new() } else { format!(" [{default}]") };
        format!("\n    {}={form}{default}  {}", option.name(), option.description())
    };
    let options: String = metric.options().into_iter().map(option).collect();
    let parts = metric.parts();
    let parts = if parts.is_empty() { String::new() } else { format!("\n  also tells: {}", parts.join(", ")) };
    let text = metric.long_about().replace("\n\n", "\n  ");
    format!("{}\n  {text}{parts}{options}", metric.name())
}

fn info(
    ready: &[(Choice, Box<dyn Metric>)],
    material: &Material,
    models: &Value,
    arguments_given: Vec<String>,
) -> RunInfo {
    let options: serde_json::Map<String, Value> =
        ready.iter().map(|(choice, _)| (choice.label().to_owned(), choice.options_in_force())).collect();
    RunInfo {
        command: "metrics".to_owned(),
        arguments_given,
        arguments_in_force: json!({"metrics": options, "data": material.described, "models": models}),
        versions: probity_version(),
        model: Value::Null,
        other_models: Vec::new(),
        seeds: BTreeMap::new(),
        recipe: None,
    }
}

/// Scores, with a row for each number in the folder as soon as its metric is finished.
fn into_folder(
    ready: &[(Choice, Box<dyn Metric>)],
    material: &Material,
    context: &Context,
    folder: &mut RunFolder,
) -> miette::Result<Summary> {
    folder.write_file(SAMPLES, |writer| -> miette::Result<()> { Ok(write_samples(writer, &material.samples)?) })?;
    let mut table = folder.table("scores.jsonl")?.with_flush_every(ROWS_AT_ONCE);
    let mut written = 0;
    let summary = score(ready, material, context, &mut |labels, places, rows| {
        for (place, row) in places.iter().zip(rows) {
            for (label, score) in labels.iter().zip(row) {
                table.put(written, &material.row(*place, label, *score))?;
                written += 1;
            }
        }
        // An interrupted run keeps the metrics that it finished.
        table.flush()?;
        Ok(())
    })?;
    table.finish()?;
    folder.write_summary(&summary)?;
    Ok(summary)
}

/// So many rows go to the system together; those of a metric come all at once anyway.
const ROWS_AT_ONCE: usize = 1024;

/// Where a candidate stands: the positions of its sample and of itself.
type Place = (usize, usize);

/// Gets the labels of a metric's numbers, the places of all candidates and a row for each.
type Keep<'a> = dyn FnMut(&[String], &[Place], &[Vec<Score>]) -> miette::Result<()> + 'a;

/// Scores by one metric after another.
fn score(
    ready: &[(Choice, Box<dyn Metric>)],
    material: &Material,
    context: &Context,
    keep: &mut Keep<'_>,
) -> miette::Result<Summary> {
    let (places, items) = (material.places(), material.items());
    let systems = material.systems(&places);
    let mut entries = Vec::new();
    for (choice, metric) in ready {
        let scores = run(choice, metric.as_ref(), &items, context)?;
        let labels = choice.components();
        keep(&labels, &places, &scores.items)?;
        let of_systems = of_systems(choice, metric.as_ref(), &items, &scores, &systems, &context.interrupt)?;
        let signatures = [metric.settings(), metric.item_settings()].map(|settings| choice.signature(settings, &items));
        entries.extend(
            labels
                .into_iter()
                .enumerate()
                .map(|(part, label)| Entry::new(label, &signatures, part, &scores, &of_systems)),
        );
    }
    Ok(Summary::new(material.samples.len(), items.len(), entries))
}

/// One metric over all items, with progress.
fn run(choice: &Choice, metric: &dyn Metric, items: &[Item<'_>], context: &Context) -> miette::Result<Scores> {
    choice.check(items)?;
    let (what, total) = (choice.label(), items.len());
    let tell = |done| {
        context.events.notice(Notice::Progress { what, work: Work::Candidates, done, total: Some(total) });
    };
    tell(0);
    // Counted and told under one lock: parts of the work end side by side, and what is told must not go back.
    let done = Mutex::new(0);
    let watch = |more: usize| {
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += more;
        tell(*done);
        Ok(context.interrupt.check()?)
    };
    let scores = metric.score(items, &watch)?;
    context.events.notice(Notice::StepEnded);
    Ok(scores)
}

/// The scores of each system by itself: the means of its items' where the metric takes means, else scored anew.
fn of_systems(
    choice: &Choice,
    metric: &dyn Metric,
    items: &[Item<'_>],
    scores: &Scores,
    systems: &[(String, Vec<usize>)],
    interrupt: &Interrupt,
) -> miette::Result<Vec<(String, Vec<Score>)>> {
    let of = |positions: &[usize]| -> miette::Result<Vec<Score>> {
        if choice.definition().is_mean() {
            let rows = positions.iter().map(|position| scores.items[*position].clone()).collect();
            return Ok(Scores::with_means(rows).corpus);
        }
        let own: Vec<Item<'_>> = positions.iter().map(|position| items[*position].clone()).collect();
        // An interrupt ends it; progress is not told, since all candidates have been counted.
        Ok(metric.score(&own, &|_| Ok(interrupt.check()?))?.corpus)
    };
    systems.iter().map(|(name, positions)| Ok((name.clone(), of(positions)?))).collect()
}
