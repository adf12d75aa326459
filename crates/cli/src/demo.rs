//! `probity demo`: the first thing a stranger runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use probity_data::{Sample, read_from};
use probity_lm::{Ask, LanguageModel, Prompt, ScoreRequest};
use probity_methods::{DynMethod, method};
use probity_metrics::Models;
use probity_runtime::hub::known_model;
use probity_store::{Existing, Recorded, RunFolder};
use serde_json::{Value, json};

use crate::args::Global;
use crate::compute::ModelOptions;
use crate::exit::Done;
use crate::interrupt;
use crate::method::{About, Asked, answer_settings, close, execute, rows, show, typed};
use crate::model::{SourceArg, get};
use crate::progress::Reporter;
use crate::terminal::{print, table};

const SAMPLE: &str = include_str!("../../../samples/demo.jsonl");
const DEFAULT_MODEL: &str = "smollm2-135m-instruct";
/// The attribute that the sample has scores for.
const ATTRIBUTE: &str = "quality";
/// The table of the second part.
const LIKELIHOODS: &str = "likelihoods";

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
    options: ModelOptions,
}

impl DemoArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> anyhow::Result<Done> {
        if let Some(known) = known_model(&self.model) {
            get(known, self.source, global)?;
        }
        let samples = samples()?;
        let reporter = RefCell::new(Reporter::new(global));
        let model = self.options.load(&self.model, &mut reporter.borrow_mut())?;
        let compare = method("compare").context("the method `compare` is not registered")?;
        let matches = compare.command().try_get_matches_from(["compare", "--attribute", ATTRIBUTE])?;
        let data = json!({"path": "samples/demo.jsonl, built in", "samples": samples.len()});
        let params = compare.params_in_force(&matches)?;
        let arguments = &typed(arguments);
        let about = About {
            command: "demo",
            arguments,
            params: &params,
            data: &data,
            model: model.description(),
            others: &[],
            options: model.options(),
        };
        let mut folder = RunFolder::create(&self.out, Existing::Replace, about.info())?;
        interrupt::catch(global.progress);
        let result = (|| {
            let answers = folder.answers()?;
            let recorded = Recorded::new(&model, &answer_settings(model.options()), Some(&answers), None)?;
            self.compare(compare, &matches, &samples, &recorded, &mut folder, &reporter)?;
            Self::likelihoods(&samples, &recorded, &mut folder, &mut reporter.borrow_mut())?;
            Ok(recorded.finish()?)
        })();
        close(folder, result)?;
        self.where_things_are()?;
        Ok(Done::Success)
    }

    /// The main job: candidates compared in pairs, and the ranking that follows.
    fn compare(
        &self,
        compare: &dyn DynMethod,
        matches: &clap::ArgMatches,
        samples: &[Sample],
        model: &dyn LanguageModel,
        folder: &mut RunFolder,
        reporter: &RefCell<Reporter>,
    ) -> anyhow::Result<()> {
        print(&format!(
            "1. Which summary is better? {} texts with four candidates each, every pair in both orders.\n\
             The sample was written for probity: the candidates are a good summary, one that leaves things out, one that is partly\n\
             wrong, and the good one with its words shuffled. The \"gold\" scores say just that; they are no human judgement.\n",
            samples.len()
        ))?;
        let summary = execute(compare, matches, samples, Asked { model, others: &[], for_metrics: Models::default() }, folder, reporter)?;
        show(&summary)?;
        let scores = rows(folder.path(), "scores")?;
        print(&format!("\nRanking, best first\n{}", ranking(samples, &scores)))?;
        print(&format!("\n{}\n", self.about_the_judge()))?;
        Ok(())
    }

    fn about_the_judge(&self) -> &'static str {
        if self.model == DEFAULT_MODEL {
            "What this means: nothing about the texts. SmolLM2-135M is at chance as a pairwise judge; any agreement with the intended\n\
             order is luck, and the figures for P(A) and the order gap show why: its answer depends on the place, not on the text. It is\n\
             here because it is small. For a judge that judges: probity demo --model qwen2.5-coder-1.5b-instruct"
        } else {
            "What this means: look at P(A) and the order gap first (a judge that answers by place says nothing), then at the ranking. Five\n\
             texts show that the machinery works; they measure no judge."
        }
    }

    /// What even a small model can tell: how likely each candidate's text is, given the source.
    fn likelihoods(samples: &[Sample], model: &dyn LanguageModel, folder: &mut RunFolder, reporter: &mut Reporter) -> anyhow::Result<()> {
        let request = |sample: &Sample, candidate: &probity_data::Candidate| ScoreRequest {
            id: format!("{}/{}", sample.id, candidate.id),
            prompt: Prompt::Text(format!("{}\n\nSummary:", sample.context)),
            ask: Ask::Continuation(format!(" {}", candidate.text)),
        };
        let places: Vec<(&Sample, &probity_data::Candidate)> =
            samples.iter().flat_map(|sample| sample.candidates.iter().map(move |candidate| (sample, candidate))).collect();
        let mut writer = folder.table(&format!("{LIKELIHOODS}.jsonl"))?;
        let precision = model.description().precision;
        let mut done = 0;
        model.score(&mut places.iter().map(|(sample, candidate)| request(sample, candidate)), &mut |index, result| {
            let (sample, candidate) = places[index];
            let tokens = result.continuation().map_or(0, |answer| answer.token_logprobs.len());
            let mean = result.continuation().map(|answer| answer.logprob / tokens.max(1) as f64);
            writer.put(
                index,
                &json!({"item": sample.id, "candidate": candidate.id, "outcome": result.outcome.name(), "precision": precision,
                    "tokens": tokens, "mean_logprob": mean}),
            )?;
            done += 1;
            reporter.questions("likelihoods", done, Some(places.len()));
            Ok(interrupt::check()?)
        })?;
        writer.finish()?;
        let rows = rows(folder.path(), LIKELIHOODS)?;
        print(&likelihood_text(samples, &rows))?;
        Ok(())
    }

    fn where_things_are(&self) -> anyhow::Result<()> {
        let folder = std::path::absolute(&self.out).unwrap_or_else(|_| self.out.clone());
        let files = [
            ("manifest.json", "what was run, with which model and settings"),
            ("comparisons.jsonl", "every comparison with its probabilities"),
            ("scores.jsonl", "every candidate's score and rank"),
            ("summary.json", "the figures above"),
            ("likelihoods.jsonl", "every candidate's mean log-probability"),
            ("answers.sqlite", "every question with its answer, token by token"),
        ];
        let lines: Vec<String> = files.iter().map(|(name, what)| format!("  {name:<18} {what}")).collect();
        print(&format!("Files in {}\n{}", folder.display(), lines.join("\n")))?;
        let out = self.out.display();
        print(&format!(
            "\nNext: probity report {out} --html report.html    (a page to look at)\n      \
             probity compare --model NAME --data FILE.jsonl --attribute coherence --out DIR    (probity help compare)"
        ))?;
        Ok(())
    }
}

/// The sample that is built in.
fn samples() -> anyhow::Result<Vec<Sample>> {
    let report = read_from::<Sample>(SAMPLE.as_bytes(), "samples/demo.jsonl".into(), None)?;
    Ok(report.records.into_iter().map(|(_, sample)| sample).collect())
}

/// A row per text: its candidates with their scores, best first.
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
                match (score["rank"].as_f64(), score["score"].as_f64()) {
                    (Some(rank), Some(value)) => (rank, format!("{candidate} {value:.2}")),
                    _ => (f64::INFINITY, format!("{candidate} unscored")),
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

/// Part 2 in words and numbers.
fn likelihood_text(samples: &[Sample], rows: &[Value]) -> String {
    let mean = |item: &str, candidate: &str| {
        rows.iter().find(|row| row["item"] == item && row["candidate"] == candidate).and_then(|row| row["mean_logprob"].as_f64())
    };
    let kinds: Vec<&str> = ["good", "ok", "poor", "shuffled"].to_vec();
    let mut columns = vec!["text".to_owned()];
    columns.extend(kinds.iter().map(|kind| (*kind).to_owned()));
    let cell = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
    let cells = |sample: &Sample| {
        let mut cells = vec![sample.id.clone()];
        cells.extend(kinds.iter().map(|kind| cell(mean(&sample.id, kind))));
        cells
    };
    let lowest = |sample: &&Sample| {
        let of_kind: BTreeMap<&str, f64> = kinds.iter().filter_map(|kind| Some((*kind, mean(&sample.id, kind)?))).collect();
        let shuffled = of_kind.get("shuffled").copied();
        shuffled.is_some_and(|shuffled| of_kind.iter().all(|(kind, value)| *kind == "shuffled" || shuffled < *value))
    };
    let found = samples.iter().filter(lowest).count();
    format!(
        "2. How likely is each text? Mean log-probability per token, given the source; nearer to 0 is more likely.\n{}\n\
         The shuffled text is the least likely one in {found} of {}. Likelihoods tell fluent text from shuffled; that a text is likely does\n\
         not make it true or complete.\n",
        table(&columns, &samples.iter().map(cells).collect::<Vec<_>>()),
        samples.len()
    )
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
    fn the_shuffled_text_counts_as_found_only_where_it_is_below_all_others() {
        let samples = samples().expect("valid");
        let row = |item: &str, candidate: &str, mean: f64| json!({"item": item, "candidate": candidate, "mean_logprob": mean});
        let mut rows = Vec::new();
        for (index, sample) in samples.iter().enumerate() {
            let means = [("good", -2.0), ("ok", -2.5), ("poor", -3.0), ("shuffled", if index == 0 { -2.9 } else { -6.0 })];
            rows.extend(means.iter().map(|(kind, mean)| row(&sample.id, kind, *mean)));
        }
        assert!(likelihood_text(&samples, &rows).contains("least likely one in 4 of 5"));
    }

    #[test]
    fn the_ranking_is_by_rank_and_names_what_has_no_score() {
        let samples = samples().expect("valid");
        let id = samples[0].id.clone();
        let rows = [
            json!({"item": id, "candidate": "ok", "score": 0.25, "rank": 2.0}),
            json!({"item": id, "candidate": "good", "score": 0.75, "rank": 1.0}),
            json!({"item": id, "candidate": "poor", "score": null, "rank": null}),
        ];
        let shown = ranking(&samples[..1], &rows);
        let (good, ok) = (shown.find("good 0.75").expect("shown"), shown.find("ok 0.25").expect("shown"));
        assert!(good < ok && shown.contains("poor unscored"), "{shown}");
    }
}
