//! The options of `revision`.

use probity_data::Sample;
use probity_metrics::{ChosenMetric, choose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::metrics::{MetricModelOptions, check_needs, item, references};
use crate::question::{LayoutOptions, first_duplicate};

/// How a language model judges revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RevisionJudge {
    /// LLM-Choice: questions about both revisions
    Choice,
    /// LLM-Choice with the author's revision first
    ChoiceGold,
    /// LLM-Likert: statements about each, graded 1 to 5
    Likert,
    /// LLM-Likert with the author's revision first
    LikertGold,
    /// `ParaPLUIE` of each revision and the original
    Parapluie,
}

/// Options of `revision`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RevisionParams {
    /// Judges to use, separated by commas
    #[schemars(length(min = 1), extend("form" = "JUDGE,…"))]
    #[default(vec![RevisionJudge::Choice, RevisionJudge::Likert, RevisionJudge::Parapluie])]
    pub judge: Vec<RevisionJudge>,
    /// Use metrics only, without a judge or a model
    #[schemars(extend("conflicts" = ["judge"]))]
    pub no_judge: bool,
    /// Metrics to score with, separated by commas
    ///
    /// As in `probity metrics`: bleu,rouge-l:stem=yes. Omitted: bleu, rouge-l, meteor, gleu-napoles, gleu-google,
    /// sari-hf, levenshtein and levenshtein-source. Only the last needs no references.
    #[schemars(extend("form" = "NAME[:KEY=VALUE,…]"))]
    pub metric: Vec<String>,
    /// The models for metrics.
    #[serde(flatten)]
    pub models: MetricModelOptions,
    /// Another model for `ParaPLUIE`
    ///
    /// A causal model or an encoder-decoder.
    #[schemars(extend("form" = "NAME|PATH", "signed" = "method"))]
    pub parapluie_model: Option<String>,
    /// Prompt of `ParaPLUIE`: NAME or FILE; repeatable
    ///
    /// Built in: direct, meaning, indirect and few-shot-direct. Each is a separate evaluator.
    #[schemars(extend("form" = "NAME|FILE", "signed" = "method"))]
    #[default(vec!["few-shot-direct".to_owned()])]
    pub template: Vec<String>,
    /// Show each pair in the order of the data only
    ///
    /// As published. Otherwise both orders are shown, and the verdict over both counts.
    pub one_order: bool,
    /// Skip the probabilities of answers in forms
    pub no_labels: bool,
    /// Evaluators of the hybrid, separated by commas
    ///
    /// Named as in the first table. The first evaluator decides if it sees a large enough difference, else the next.
    /// Omitted: those available of choice-labels/related (or choice/related), parapluie, sari-hf and gleu-napoles.
    #[schemars(extend("form" = "NAME,…"))]
    pub hybrid: Vec<String>,
    /// Folds of the cross-validation
    ///
    /// Thresholds are fitted on all other folds. Pairs of one paragraph are in the same fold.
    #[schemars(range(min = 2, max = 1000), extend("form" = "N"))]
    #[default(10)]
    pub folds: u32,
    /// Prompt to replace a built-in one; repeatable
    ///
    /// Names: choice and likert.
    #[schemars(extend("form" = "NAME=FILE", "signed" = "method"))]
    pub prompt: Vec<String>,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
}

/// The paper's metrics that need no further model, and edit distances for comparison.
const USUAL: &str = "bleu,rouge-l,meteor,gleu-napoles,gleu-google,sari-hf,levenshtein,levenshtein-source";
/// The metrics among them that use no reference.
const WITHOUT_REFERENCES: &str = "levenshtein-source";

/// The maximum number of steps of a hybrid: their thresholds are tried in all combinations.
const MOST_STEPS: usize = 4;

impl RevisionParams {
    pub(super) fn has(&self, judge: RevisionJudge) -> bool {
        !self.no_judge && self.judge.contains(&judge)
    }

    /// Which forms are filled in: without the author's own revision, and with it.
    pub(super) fn golds(&self, without: RevisionJudge, with: RevisionJudge) -> Vec<bool> {
        [(without, false), (with, true)]
            .into_iter()
            .filter(|(judge, _)| self.has(*judge))
            .map(|(_, gold)| gold)
            .collect()
    }

    /// Parses the metrics, and refuses options that contradict each other or the samples.
    pub(super) fn check(&self, samples: &[Sample]) -> Result<Vec<ChosenMetric>, MethodError> {
        if let Some(twice) = first_duplicate(&self.judge) {
            let twice = probity_options::name(twice);
            return MethodError::refuse(format!("--judge {twice}"), "repeated", "name each once");
        }
        if let Some(twice) = first_duplicate(&self.template) {
            return MethodError::refuse(format!("--template {twice}"), "repeated", "name each once");
        }
        if samples.iter().all(|sample| sample.candidates.len() < 2) {
            let why = "no sample has two candidates";
            return MethodError::refuse("--data", why, "use samples with at least two revisions");
        }
        let with_gold = [RevisionJudge::ChoiceGold, RevisionJudge::LikertGold].into_iter().find(|one| self.has(*one));
        let has_reference = |sample: &Sample| sample.references.iter().any(|text| !text.trim().is_empty());
        if let Some(judge) = with_gold.filter(|_| !samples.iter().any(has_reference)) {
            let option = format!("--judge {}", probity_options::name(&judge));
            let hint = "add \"references\" (the author's own revision) to the samples, or omit it";
            return MethodError::refuse(option, "no sample has references", hint);
        }
        if let [alone] = self.hybrid.as_slice() {
            let hint = "add a second step, or omit --hybrid";
            return MethodError::refuse(format!("--hybrid {alone}"), "a hybrid has at least two steps", hint);
        }
        if self.metric.iter().any(|metric| metric.trim().is_empty()) {
            let hint = "name a metric, or omit --metric for the default ones";
            return MethodError::refuse("--metric", "an empty name", hint);
        }
        if self.template != Self::default().template && !self.has(RevisionJudge::Parapluie) {
            let hint = "add `parapluie` to --judge, or omit --template";
            return MethodError::refuse("--template", "it applies to ParaPLUIE, which is not among the judges", hint);
        }
        if self.hybrid.len() > MOST_STEPS {
            let why = format!("it has {} steps", self.hybrid.len());
            return MethodError::refuse("--hybrid", why, format!("use at most {MOST_STEPS}"));
        }
        if let Some(twice) = first_duplicate(&self.hybrid) {
            return MethodError::refuse(format!("--hybrid {twice}"), "repeated", "name each step once");
        }
        let own: Vec<Sample> = samples.iter().filter(|sample| sample.candidates.len() > 1).cloned().collect();
        let usual = if own.iter().any(|sample| sample.references.is_empty()) { WITHOUT_REFERENCES } else { USUAL };
        let named = self.metric.join(",");
        let metrics = choose(if named.is_empty() { usual } else { &named })?;
        check_needs(&metrics, &self.models, &own, |sample| item(sample, "", references(sample)))?;
        let known = self.evaluators(&metrics);
        if let Some(unknown) = self.hybrid.iter().find(|step| !known.contains(step)) {
            let hint = format!("choose from {}", known.join(", "));
            return MethodError::refuse(format!("--hybrid {unknown}"), "this run has no such evaluator", hint);
        }
        Ok(metrics)
    }

    /// The names of a run's evaluators, in table order.
    pub(super) fn evaluators(&self, metrics: &[ChosenMetric]) -> Vec<String> {
        let mut names = Vec::new();
        let by_labels: &[bool] = if self.no_labels { &[false] } else { &[false, true] };
        for gold in self.golds(RevisionJudge::Choice, RevisionJudge::ChoiceGold) {
            for by_labels in by_labels {
                let parts: &[&str] = if *by_labels { &["", "/related", "/best"] } else { &["", "/related"] };
                names.extend(parts.iter().map(|part| evaluator_name("choice", gold, *by_labels, part)));
            }
        }
        for gold in self.golds(RevisionJudge::Likert, RevisionJudge::LikertGold) {
            names.extend(by_labels.iter().map(|by_labels| evaluator_name("likert", gold, *by_labels, "")));
        }
        if self.has(RevisionJudge::Parapluie) {
            match self.template.as_slice() {
                [_] => names.push("parapluie".to_owned()),
                all => names.extend(all.iter().map(|template| format!("parapluie/{template}"))),
            }
        }
        names.extend(metrics.iter().map(|metric| metric.label().to_owned()));
        names
    }
}

/// `choice`, `choice-gold-labels/related`.
pub(super) fn evaluator_name(kind: &str, gold: bool, by_labels: bool, part: &str) -> String {
    let gold = if gold { "-gold" } else { "" };
    let labels = if by_labels { "-labels" } else { "" };
    format!("{kind}{gold}{labels}{part}")
}
