//! Runs metrics of the [`probity_metrics`] registry over samples, as a method without a judge.

mod conclusions;
mod figures;
mod material;

use probity_data::Sample;
use probity_metrics::{ChosenMetric, Metric, MetricError, MetricItem, MetricScores, Need, Score, choose};
use probity_options::{GivenOptions, OptionSpec, read, specs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Configured, DynMethod, MethodError, MethodReport, ModelKind, Needs, RoleModel, Run, Signature};
use conclusions::MetricConclusions;
use figures::{MetricEntry, report};
use material::MetricMaterial;
pub use material::MetricModelOptions;
pub use material::{check_needs, item, references};

/// The table of scores.
const SCORES: &str = "scores";

/// Metrics over samples.
#[derive(Debug, Clone, Copy)]
pub struct Metrics;

/// Options of `metrics`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MetricsParams {
    /// Metrics with their options, separated by commas
    ///
    /// Example: bleu:tok=intl,rouge-l.
    #[schemars(length(min = 1), extend("form" = "NAME[:KEY=VALUE,…]"))]
    pub metric: Vec<String>,
    /// Encoder for metrics, such as bert-score
    ///
    /// Used by bert-score, mover-score, blanc and bets. A known name (`probity model list`), a folder with config.json
    /// and safetensors, or a hub name (org/name) in the local cache.
    #[schemars(extend("form" = "NAME|PATH", "heading" = "Model", "signed" = "method"))]
    pub encoder: Option<String>,
    /// Sequence-to-sequence model of bart-score
    ///
    /// Also used by bart-score-source. Accepts the same forms as --encoder.
    #[schemars(extend("form" = "NAME|PATH", "heading" = "Model", "signed" = "method"))]
    pub model: Option<String>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}

/// The chosen metrics.
struct ChosenMetrics {
    params: MetricsParams,
    choices: Vec<ChosenMetric>,
}

impl DynMethod for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn about(&self) -> &'static str {
        "Score candidates with metrics such as BLEU, chrF and ROUGE"
    }

    fn long_about(&self) -> &'static str {
        "\
Score candidates with metrics such as BLEU, chrF and ROUGE.

Each candidate is compared with the references of its sample, or with its source, the sample's context. Scores of \
single candidates and of all candidates are those of the tools that each metric names, on their scales. If candidates \
of several samples share an id, such as the name of a system, each id has a score too.

Options of a metric follow its name: --metric bleu:tok=intl,smooth=floor,chrf:word-order=2,rouge-l. --list shows them. \
bert-score, mover-score, blanc and bets need an encoder (--encoder); bart-score needs a sequence-to-sequence model \
(--model). Their scores are comparable only under the same model, which signatures name.

Files in --out: `scores.jsonl` (a row for each candidate and metric: item, candidate, index, metric, score, outcome), \
`summary.json` (scores of all candidates and of each system, with signatures), `samples.jsonl` and `manifest.json`. \
--resume continues an interrupted run: results of models are kept, and the rest is recomputed."
    }

    fn needs(&self) -> Needs {
        Needs { samples: true, ..Needs::NOTHING }
    }

    fn options(&self) -> Vec<OptionSpec> {
        specs::<MetricsParams>()
    }

    fn with(&self, given: &GivenOptions) -> Result<Box<dyn Configured>, MethodError> {
        let params: MetricsParams = read(given)?;
        Ok(Box::new(ChosenMetrics { choices: choose(&params.metric.join(","))?, params }))
    }
}

impl Configured for ChosenMetrics {
    /// Each metric's options with defaults; only those models that a metric needs.
    fn options_in_force(&self) -> Value {
        let labels: Vec<&str> = self.choices.iter().map(ChosenMetric::label).collect();
        let options: Map<String, Value> =
            self.choices.iter().map(|choice| (choice.label().to_owned(), choice.options_in_force())).collect();
        json!({"metric": labels, "metrics": options, "encoder": self.encoder(), "model": self.model(),
               "no_gold": self.params.no_gold})
    }

    fn models(&self) -> Vec<RoleModel> {
        let of = |role, name: &str, kind| RoleModel { role, name: name.to_owned(), kind };
        let encoder = self.encoder().map(|name| of("encoder", name, ModelKind::Encoder));
        let model = self.model().map(|name| of("model", name, ModelKind::Seq2Seq));
        encoder.into_iter().chain(model).collect()
    }

    fn needs_context(&self) -> bool {
        self.needs(Need::Source)
    }

    fn run(&self, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        let material = MetricMaterial::new(samples);
        let ready: Vec<BuiltMetric<'_>> =
            self.choices.iter().map(|choice| BuiltMetric::new(choice, &material, run)).collect::<Result<_, _>>()?;
        if run.is_rehearsal() {
            return Err(MethodError::Rehearsed);
        }
        let columns: usize = self.choices.iter().map(|choice| choice.components().len()).sum();
        run.table(SCORES, columns * material.items.len())?;
        let (systems, mut written, mut entries) = (material.systems(), 0, Vec::new());
        let mut concluded = MetricConclusions::new(samples, self.params.no_gold);
        for one in &ready {
            // All rows of a metric are written before the next begins.
            let scores = one.score(&material, &mut written, run)?;
            let of_systems = systems
                .iter()
                .map(|(name, positions)| Ok((*name, one.corpus(&material, &scores, positions, run)?)))
                .collect::<Result<Vec<_>, MethodError>>()?;
            concluded.add(one.choice, &material, &scores);
            entries.extend(MetricEntry::all(one.choice, &one.signatures(&material), &scores, &of_systems));
        }
        let report =
            report(samples.len(), material.items.len(), &entries, concluded.conclusions(), self.signature(run));
        Ok(report.finished(run.cost()))
    }
}

impl ChosenMetrics {
    fn encoder(&self) -> Option<&str> {
        self.params.encoder.as_deref().filter(|_| self.needs(Need::Encoder))
    }

    fn model(&self) -> Option<&str> {
        self.params.model.as_deref().filter(|_| self.needs(Need::LanguageModel))
    }

    fn needs(&self, need: Need) -> bool {
        self.choices.iter().any(|choice| choice.definition().needs().contains(&need))
    }

    fn signature(&self, run: &Run<'_>) -> Signature {
        let models = run.metric_models();
        let encoder = models.encoder.iter().map(|encoder| encoder.config().description.clone());
        let model = models.language_model.iter().map(|model| model.description().clone());
        let other_models = encoder.chain(model).collect();
        Signature { other_models, ..Signature::without_model("metrics").with_options(&self.params) }
    }
}

/// A metric whose requirements are met for at least some items.
struct BuiltMetric<'c> {
    choice: &'c ChosenMetric,
    metric: Box<dyn Metric>,
    /// The missing requirement of each item. Such items are undefined; the others are scored.
    lacking: Vec<Option<Need>>,
}

impl<'c> BuiltMetric<'c> {
    fn new(choice: &'c ChosenMetric, material: &MetricMaterial<'_>, run: &Run<'_>) -> Result<Self, MetricError> {
        let lacking: Vec<Option<Need>> = material.items.iter().map(|item| choice.lacking(item)).collect();
        match lacking.first() {
            None => return Err(MetricError::NoItems),
            Some(Some(need)) if lacking.iter().all(Option::is_some) => {
                return Err(choice.missing(*need, material.sample_name(0)));
            }
            Some(_) => {}
        }
        Ok(Self { choice, metric: choice.build(run.metric_models())?, lacking })
    }

    /// The scorable items at these positions.
    fn scorable<'s>(
        &self,
        material: &MetricMaterial<'s>,
        positions: impl IntoIterator<Item = usize>,
    ) -> Vec<MetricItem<'s>> {
        let whole = positions.into_iter().filter(|position| self.lacking[*position].is_none());
        whole.map(|position| material.items[position].clone()).collect()
    }

    /// Scores all candidates and writes their rows; `written` counts rows over all metrics.
    fn score(
        &self,
        material: &MetricMaterial<'_>,
        written: &mut usize,
        run: &mut Run<'_>,
    ) -> Result<MetricScores, MethodError> {
        let labels = self.choice.components();
        let items = self.scorable(material, 0..material.items.len());
        let mut scores = run.measure(Some(self.choice.label()), self.metric.as_ref(), &items)?;
        let mut measured = std::mem::take(&mut scores.items).into_iter();
        let row = |lacking: &Option<Need>| match lacking {
            Some(need) => vec![Score::Undefined(need.why_undefined()); labels.len()],
            None => measured.next().expect("a row for each item"),
        };
        scores.items = self.lacking.iter().map(row).collect();
        for (item, row) in scores.items.iter().enumerate() {
            for (label, score) in labels.iter().zip(row) {
                run.row(SCORES, *written, &material.row(item, label, *score))?;
                *written += 1;
            }
        }
        Ok(scores)
    }

    /// The corpus score of some items: the mean of their scores if the metric is a mean, else recomputed.
    fn corpus(
        &self,
        material: &MetricMaterial<'_>,
        scores: &MetricScores,
        positions: &[usize],
        run: &mut Run<'_>,
    ) -> Result<Vec<Score>, MethodError> {
        if self.choice.definition().is_mean() {
            let rows = positions.iter().map(|position| scores.items[*position].clone()).collect();
            return Ok(MetricScores::with_means(rows).corpus);
        }
        let own = self.scorable(material, positions.iter().copied());
        if own.is_empty() {
            return Ok(scores.items[positions[0]].clone());
        }
        // Without progress: all candidates have been counted already.
        Ok(run.measure(None, self.metric.as_ref(), &own)?.corpus)
    }

    /// The signatures of the corpus score and of candidate scores.
    fn signatures(&self, material: &MetricMaterial<'_>) -> [String; 2] {
        let items = self.scorable(material, 0..material.items.len());
        [self.metric.settings(), self.metric.item_settings()].map(|settings| self.choice.signature(settings, &items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryOutput, Staging};

    fn sample(id: &str, references: &[&str]) -> Sample {
        let text = json!({"id": id, "context": "c", "references": references,
            "candidates": [{"id": "x", "text": "the cat sat"}, {"id": "y", "text": "a dog"}]});
        serde_json::from_value(text).expect("a sample")
    }

    fn configured(metric: &str) -> Box<dyn Configured> {
        let given = json!({"metric": [metric]});
        Metrics.with(given.as_object().expect("one")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn rows_stand_metric_by_metric_and_figures_below_values() {
        let samples = [sample("a", &["the cat sat"]), sample("b", &["the dog"])];
        let mut output = MemoryOutput::default();
        let summary = configured("ter,rouge-l").run(&samples, &mut Run::without_model(&mut output)).expect("scored");
        let metrics: Vec<&str> = output.rows(SCORES).iter().filter_map(|row| row["metric"].as_str()).collect();
        assert_eq!((metrics.len(), metrics[3], metrics[4], metrics[5]), (16, "ter", "rouge-l", "rouge-l.precision"));
        // No edits in three words, two edits in two words.
        assert_eq!(summary.values["metrics"][0]["systems"]["x"], json!(40.0), "{:#}", summary.values);
        assert_eq!((summary.outcomes.get("scored"), summary.signature.model.is_none()), (16, true));
    }

    fn verdict(metric: &str, samples: &[Sample]) -> Vec<crate::Conclusion> {
        let mut output = MemoryOutput::default();
        configured(metric).run(samples, &mut Run::without_model(&mut output)).expect("scored").verdict
    }

    #[test]
    fn without_people_each_metric_says_which_candidates_are_best_in_its_direction() {
        let samples = [sample("a", &["the cat sat"]), sample("b", &["the cat sat down"])];
        let found = verdict("ter,rouge-l", &samples);
        let about: Vec<_> = found.iter().filter_map(|one| one.about.as_deref()).collect();
        assert_eq!(about, ["ter", "rouge-l"], "parts have no verdict");
        for one in &found {
            assert!(one.says.starts_with("No clear winner: x beats y in 2 of 2 samples (100.0%"), "{}", one.says);
        }
        assert_eq!(found[0].figures["head_to_head"]["means"][0], json!(12.5), "edits, as they are");
        assert!(found[0].because.starts_with("the difference may be chance"), "{}", found[0].because);
        let one = verdict("ter", &samples[..1]);
        assert!(one[0].says.starts_with("No clear winner: x beats y"), "{}", one[0].says);
    }

    #[test]
    fn people_say_which_metric_agrees_best_with_them_attribute_by_attribute() {
        let mut samples: Vec<Sample> = (0..12).map(|k| sample(&format!("s{k}"), &["the cat sat"])).collect();
        for sample in &mut samples {
            for (candidate, gold) in sample.candidates.iter_mut().zip([2.0, 1.0]) {
                candidate.scores = [("q".to_owned(), gold), ("r".to_owned(), -gold)].into();
            }
        }
        let found = verdict("levenshtein,rouge-l", &samples);
        assert_eq!(found.iter().map(|one| one.about.as_deref()).collect::<Vec<_>>(), [Some("q"), Some("r")]);
        let agreement = |found: &[crate::Conclusion], k: usize| found[k].agreement.clone().expect("there are labels");
        let best = "Best agreement with people of 2 metrics: levenshtein, rouge-l (tied). levenshtein: Agrees with";
        assert!(agreement(&found, 0).starts_with(best), "{}", agreement(&found, 0));
        assert!(found[0].says.starts_with("By levenshtein: x beats y in 12 of 12 samples"), "{}", found[0].says);
        let none = agreement(&found, 1);
        assert!(none.starts_with("None of 2 metrics agrees with people beyond chance"), "{none}");
        let level = verdict("rouge-2,levenshtein,rouge-l", &samples);
        let level = agreement(&level, 0);
        let best = "Best agreement with people of 3 metrics: levenshtein, rouge-2, rouge-l (tied)";
        assert!(level.starts_with(best), "{level}");
        for sample in &mut samples {
            sample.candidates.iter_mut().for_each(|candidate| candidate.scores.clear());
            sample.preference = Some(probity_data::Preference::Candidate("x".to_owned()));
        }
        let found = verdict("ter", &samples);
        assert_eq!((found.len(), found[0].about.as_deref()), (1, Some("ter")));
        let says = agreement(&found, 0);
        assert!(says.starts_with("The metric is right on 12 of your 12 labels: 100.0%"), "{says}");
    }

    #[test]
    fn gold_is_not_looked_at_where_it_is_not_wanted() {
        let mut gold = sample("a", &["the cat sat"]);
        gold.candidates[0].scores.insert("q".to_owned(), 1.0);
        gold.preference = Some(probity_data::Preference::Candidate("x".to_owned()));
        let blind = json!({"metric": ["ter,rouge-l"], "no_gold": true});
        let metrics = Metrics.with(blind.as_object().expect("options")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(metrics.options_in_force()["no_gold"], json!(true));
        let mut output = MemoryOutput::default();
        let summary = metrics.run(&[gold.clone()], &mut Run::without_model(&mut output)).expect("scored");
        let about: Vec<_> = summary.verdict.iter().filter_map(|one| one.about.as_deref()).collect();
        assert_eq!(about, ["ter", "rouge-l"]);
        assert!(summary.verdict.iter().all(|one| one.agreement.is_none()), "{:?}", summary.verdict);
        assert!(verdict("ter,rouge-l", &[gold]).iter().any(|one| one.agreement.is_some()));
    }

    #[test]
    fn a_rehearsal_finds_what_is_missing_and_scores_nothing() {
        let rehearse = |metric: &str, sample: Sample| {
            let mut output = MemoryOutput::default();
            let staging = Staging { stands_in: true, ..Staging::default() };
            configured(metric).run(&[sample], &mut Run::without_model(&mut output).with_staging(staging))
        };
        assert!(matches!(rehearse("bleu", sample("a", &["r"])), Err(MethodError::Rehearsed)));
        let lacks = rehearse("bleu", sample("a", &[])).expect_err("no reference").to_string();
        assert_eq!(lacks, "bleu needs a reference for each item; sample `a` has none");
        let lacks = rehearse("bert-score", sample("a", &["r"])).expect_err("no encoder").to_string();
        assert_eq!(lacks, "bert-score needs an encoder");
        assert!(configured("bleu,sari-hf").needs_context() && !configured("bleu").needs_context());
    }

    #[test]
    fn a_sample_that_lacks_what_a_metric_needs_is_undefined_and_the_others_are_scored() {
        let mut samples = [sample("a", &["the cat sat"]), sample("b", &["the cat sat"]), sample("c", &[])];
        samples[1].context = " ".into();
        let mut output = MemoryOutput::default();
        let summary = configured("sari-hf,ter").run(&samples, &mut Run::without_model(&mut output)).expect("scored");
        let rows = output.rows(SCORES);
        let why: Vec<Option<&str>> = rows.iter().step_by(4).take(6).map(|row| row["why"].as_str()).collect();
        let [none, source, reference] = [None, Some("the sample has no source"), Some("the sample has no reference")];
        assert_eq!(why, [none, none, source, source, reference, reference]);
        let of = |metric: &str| {
            let all = summary.values["metrics"].as_array().expect("metrics");
            all.iter().find(|one| one["metric"] == metric).expect("there").clone()
        };
        assert_eq!((&of("sari-hf")["undefined"], &of("ter")["undefined"]), (&json!(4), &json!(2)));
        assert_eq!(of("ter")["systems"]["x"], json!(0.0));
        assert!(of("ter")["signature"].as_str().is_some_and(|signature| signature.starts_with("nrefs:1|")));
    }

    #[test]
    fn notes_stand_beside_the_numbers() {
        let samples = [sample("a", &["the cat sat"]), sample("b", &[""])];
        let mut output = MemoryOutput::default();
        let summary = configured("bleu").run(&samples, &mut Run::without_model(&mut output)).expect("scored");
        let rows = output.rows(SCORES);
        assert!(rows[0]["score"].as_f64().is_some_and(|score| (score - 100.0).abs() < 1e-9), "{rows:?}");
        assert_eq!(rows[0]["outcome"], json!("scored"));
        assert!(rows[0]["why"].as_str().is_some_and(|why| why.contains("counts only the shorter ones")), "{rows:?}");
        let notes = summary.tables[0].notes.join("\n");
        assert!(notes.contains("bleu, all: no candidate has as many words as the longest n-grams"), "{notes}");
        assert!(notes.contains("bleu, 1 candidate: the candidate has fewer words"), "{notes}");
        assert!(notes.contains("bleu, 2 candidates: all references are blank"), "{notes}");
        assert!(summary.values["metrics"][0]["corpus_note"].as_str().is_some_and(|note| note.contains("score is 0")));
    }
}
