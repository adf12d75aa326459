//! `probity demo`: a first example.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use probity_data::{Sample, read_from};
use probity_lm::SinkError;
use probity_runtime::hub::known_model;
use probity_session::{ComputingOptions, Context, Events, GivenSamples, Notice, Plan, PlannedRun, SessionReport};
use probity_store::{Existing, RunFolder};
use probity_studies::method;
use serde_json::{Value, json};

use crate::error::{FileError, JsonError, OutputError};
use crate::events::{Terminal, verdict_text};
use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::method::typed;
use crate::model::{SourceArg, get};
use crate::options::Typed;
use crate::terminal::{print, table, wrapped};

const SAMPLE: &str = include_str!("../../../samples/demo.jsonl");
const DEFAULT_MODEL: &str = "smollm2-135m-instruct";
/// The attribute with scores in the built-in samples.
const ATTRIBUTE: &str = "quality";
/// Subfolders for the comparison and the learnt head.
const PAIRS: &str = "pairs";
const LEARNT: &str = "learnt";

/// Options of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The judge; a known model is fetched where it is not here
    #[arg(long, value_name = "NAME|PATH", default_value = DEFAULT_MODEL)]
    model: String,
    /// Where to fetch from
    #[arg(long, value_enum, default_value_t)]
    source: SourceArg,
    /// The folder for the results; an earlier demo's are replaced
    #[arg(long, value_name = "DIR", default_value = "probity-demo")]
    out: PathBuf,
    #[command(flatten)]
    computing: Typed<ComputingOptions>,
}

impl DemoArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        // Reports an output folder that is not writable before downloading a model.
        RunFolder::look(&self.out, Existing::Replace)?;
        if let Some(known) = known_model(&self.model) {
            get(known, self.source, global)?;
        }
        let samples: Arc<[Sample]> = samples()?.into();
        let events = Arc::new(Demo { terminal: Terminal::new(global), found: Mutex::default() });
        let context = Context::new(events.clone(), interrupt::catch(global.progress));
        say(&format!(
            "1. Likelihood: {} texts, four candidate summaries each (good, ok, poor, and good with its words shuffled; \
             gold follows this order)\n",
            samples.len()
        ))?;
        self.judge("gpt-score", &self.out, &samples, typed(arguments), &context)?;
        print(&ranking(&samples, &rows(&self.out, "scores")?))?;
        say("Scores: mean log P per token, best first. A likely text need not be true or complete.\n")?;
        say("2. Comparison: which of two summaries is better? The same model, each pair in both orders\n")?;
        self.judge("compare", &self.out.join(PAIRS), &samples, typed(arguments), &context)?;
        let found = events.found.lock().unwrap_or_else(PoisonError::into_inner).take();
        let asked = found.expect("a plan that came to its end has a summary");
        say(&format!("{}\n", self.about_the_judge(&asked["prompts"][0])))?;
        let scores = rows(&self.out, "scores")?;
        if scores.iter().all(|row| row["score"].is_null()) {
            return self.where_things_are().map(|()| Completed::Success);
        }
        say("3. Learning: a linear head on the model's hidden states, cross-validated on the gold scores\n")?;
        self.judge("learn", &self.out.join(LEARNT), &samples, typed(arguments), &context)?;
        self.where_things_are()?;
        Ok(Completed::Success)
    }

    /// Runs a method into `out`, as its command would.
    fn judge(
        &self,
        name: &str,
        out: &Path,
        samples: &Arc<[Sample]>,
        arguments: Vec<String>,
        context: &Context,
    ) -> miette::Result<()> {
        let method = method(name).expect("the demo's methods are registered");
        let given = json!({
            "attribute": [ATTRIBUTE], "data": "samples/demo.jsonl", "model": self.model, "out": out, "overwrite": true,
        });
        let mut stage = PlannedRun::new(method, given.as_object().expect("it is one"), None)?;
        stage.model.computing = self.computing.0.clone();
        // Only the manifest has this path; the file does not exist in the user's folder.
        let described = json!({"path": "samples/demo.jsonl, built in", "samples": samples.len()});
        stage.samples = Some(GivenSamples { samples: samples.clone(), described });
        let plan = Plan::single_stage(stage, arguments);
        plan.run(plan.check()?, context)?;
        Ok(())
    }

    /// Explains in three lines why comparisons by a tiny model mean little.
    fn about_the_judge(&self, prompt: &Value) -> String {
        let percent =
            |share: &Value| share.as_f64().map_or_else(|| "–".to_owned(), |share| format!("{:.0}%", 100.0 * share));
        let first = percent(&prompt["before"]["p_a"]);
        let same = percent(&prompt["order_agreement"]);
        let judge = if self.model == DEFAULT_MODEL {
            "It picks a position, not a text. Larger models are useful on some texts, for example (1.12 GB):\n  \
             probity \
             demo --model qwen2.5-coder-1.5b-instruct"
        } else {
            "A judge without position bias has 50% and 100%. Five texts are too few to measure a judge."
        };
        format!(
            "The first text wins {first} of the comparisons; {same} of the pairs have the same winner in both \
             orders.\n{judge}"
        )
    }

    fn where_things_are(&self) -> miette::Result<()> {
        let out = self.out.display();
        print(&format!(
            "Results are in {out}. Next: a report page, and scores of your own texts\n  probity report {out} \
             {out}/{PAIRS} --html \
             report.html\n  probity gpt-score --model {} --data FILE.jsonl --attribute coherence",
            self.model
        ))?;
        Ok(())
    }
}

/// Prints the verdicts, and keeps the last summary.
struct Demo {
    terminal: Terminal,
    found: Mutex<Option<Value>>,
}

impl Events for Demo {
    fn notice(&self, notice: Notice<'_>) {
        // The demo prints all folders at the end.
        if !matches!(notice, Notice::Message(_)) {
            self.terminal.notice(notice);
        }
    }

    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError> {
        if let SessionReport::Summary(summary) = report {
            print(&verdict_text(&summary.verdict))?;
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(summary.values.clone());
        }
        Ok(())
    }
}

/// The rows of a table of a finished run.
fn rows(folder: &Path, table: &str) -> miette::Result<Vec<Value>> {
    let path = folder.join(format!("{table}.jsonl"));
    let text =
        std::fs::read_to_string(&path).map_err(FileError::context(format!("{} could not be read", path.display())))?;
    let row = |line| serde_json::from_str(line).map_err(JsonError::context(format!("{} is no table", path.display())));
    text.lines().map(|line| Ok(row(line)?)).collect()
}

/// Prints a paragraph wrapped to the terminal.
fn say(text: &str) -> Result<(), OutputError> {
    print(&wrapped(text, 0))
}

/// The built-in samples.
fn samples() -> miette::Result<Vec<Sample>> {
    let report = read_from::<Sample>(SAMPLE.as_bytes(), "samples/demo.jsonl".into(), None)?;
    Ok(report.records.into_iter().map(|(_, sample)| sample).collect())
}

/// One row per text: its candidates with their scores, best first.
fn ranking(samples: &[Sample], scores: &[Value]) -> String {
    let widest = samples.iter().map(|sample| sample.candidates.len()).max().unwrap_or(0);
    let mut columns = vec!["text".to_owned()];
    columns.extend((1..=widest).map(|place| place.to_string()));
    let row = |sample: &Sample| {
        let mut of_item: Vec<(f64, String)> = scores
            .iter()
            .filter(|score| score["item"] == sample.id.as_str())
            .map(|score| {
                let candidate = score["candidate"].as_str().unwrap_or_default();
                match score["score"].as_f64() {
                    Some(value) => (-value, format!("{candidate} {value:.2}")),
                    None => (f64::INFINITY, format!("{candidate} unscored")),
                }
            })
            .collect();
        of_item.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut cells = vec![sample.id.clone()];
        cells.extend(of_item.into_iter().map(|(_, cell)| cell));
        cells.resize(widest + 1, String::new());
        cells
    };
    table(&columns, &samples.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_sample_is_what_the_texts_say_it_is() {
        let samples = samples().expect("valid");
        for sample in &samples {
            let mut ids: Vec<&str> = sample.candidates.iter().map(|candidate| candidate.id.as_str()).collect();
            ids.sort_unstable();
            assert_eq!(ids, ["good", "ok", "poor", "shuffled"]);
            assert!(sample.candidates.iter().all(|candidate| candidate.scores.contains_key(ATTRIBUTE)));
        }
        assert_eq!(samples.len(), 5);
    }

    #[test]
    fn the_ranking_is_by_score_and_names_what_has_no_score() {
        let samples = samples().expect("valid");
        let id = samples[0].id.clone();
        let rows = [
            json!({"item": id, "candidate": "ok", "score": 0.25}),
            json!({"item": id, "candidate": "good", "score": 0.75}),
            json!({"item": id, "candidate": "poor", "score": null}),
        ];
        let shown = ranking(&samples[..1], &rows);
        let (good, ok) = (shown.find("good 0.75").expect("shown"), shown.find("ok 0.25").expect("shown"));
        assert!(good < ok && shown.contains("poor unscored"), "{shown}");
    }
}
