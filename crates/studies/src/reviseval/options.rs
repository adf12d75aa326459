//! The options of `reviseval`.

use std::fmt;

use probity_data::Sample;
use probity_metrics::{ChosenMetric, Need, choose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::evaluators::Evaluator;
use crate::MethodError;
use crate::judge::{JudgingOptions, Mode, VerdictMode};
use crate::metrics::{MetricModelOptions, check_needs, item};
use crate::question::first_duplicate;
use crate::revise::{ReviserOptions, RevisionKind};

/// The kinds of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reference {
    /// No reference: the judge alone
    None,
    /// The references in the data
    Given,
    /// The model's own answer to the task
    Direct,
    /// A revision of the candidates
    Adapted,
    /// A revision for each --aspect; the majority counts
    Aspects,
    /// One revision of both texts of a pair
    Both,
    /// A revision of each text of a pair; vote, or mean of metrics
    Each,
    /// Paraphrases of the references; scores are averaged
    Diversified,
}

impl Reference {
    /// How these references are generated; `None` if they are not.
    pub(super) fn kind(self) -> Option<RevisionKind> {
        match self {
            Self::None | Self::Given => None,
            Self::Direct => Some(RevisionKind::Direct),
            Self::Adapted => Some(RevisionKind::Adapted),
            Self::Aspects => Some(RevisionKind::Aspects),
            Self::Both => Some(RevisionKind::Both),
            Self::Each => Some(RevisionKind::Each),
            Self::Diversified => Some(RevisionKind::Diversified),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Given => "given",
            other => other.kind().expect("all others are made").as_str(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Options of `reviseval`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RevisEvalParams {
    /// Kinds of reference, separated by commas
    #[schemars(extend("form" = "KIND,…"))]
    #[default(vec![Reference::None, Reference::Direct, Reference::Adapted])]
    pub reference: Vec<Reference>,
    /// Options of the judge itself.
    #[serde(flatten)]
    pub judging: JudgingOptions,
    /// Another model as the judge
    ///
    /// --model then only generates the references.
    #[schemars(extend("form" = "NAME|PATH", "signed" = "method"))]
    pub judge_model: Option<String>,
    /// Use metrics only, without a judge
    #[schemars(extend("conflicts" = ["judge_model", "rate"]))]
    pub no_judge: bool,
    /// Metrics to score with, separated by commas
    ///
    /// As in `probity metrics`: bleu,rouge-l:stem=yes. In a pair the better score is preferred, and several metrics
    /// vote. `bart-score` defaults to recall, the direction of the paper.
    #[schemars(extend("form" = "NAME[:KEY=VALUE,…]"))]
    pub metric: Vec<String>,
    /// The models for metrics.
    #[serde(flatten)]
    pub models: MetricModelOptions,
    /// How references are generated.
    #[serde(flatten)]
    pub reviser: ReviserOptions,
    /// Longest reference, in tokens
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(1024)]
    pub revision_tokens: u32,
    /// Similarity metric for the table of effectiveness
    ///
    /// It compares references with candidates. Omitted: bert-score with --encoder, as in the paper, else rouge-l.
    #[schemars(extend("form" = "NAME[:KEY=VALUE,…]"))]
    pub similarity: Option<String>,
    /// Also spend the cost of a revision on the judge
    ///
    /// The judge decides without reference twice more, sampled at temperatures 0.3 and 0.7, and the vote of all three
    /// counts.
    #[schemars(extend("conflicts" = ["no_judge"]))]
    pub cost_match: bool,
    /// Also rate candidates and references by attribute
    ///
    /// The judge rates each text separately, without reference, by this attribute, such as correctness.
    #[schemars(length(min = 1), extend("form" = "NAME"))]
    pub rate: Option<String>,
    /// Skip comparison with gold scores and preferences
    #[schemars(extend("scores" = false))]
    pub no_gold: bool,
}

/// The parsed options.
pub(super) struct Chosen {
    pub(super) metrics: Vec<ChosenMetric>,
    pub(super) similarity: ChosenMetric,
}

impl RevisEvalParams {
    /// The kinds of references to generate.
    pub(super) fn kinds(&self) -> Vec<RevisionKind> {
        self.reference.iter().filter_map(|reference| reference.kind()).collect()
    }

    /// Parses the metrics, and refuses options that contradict each other or the samples.
    pub(super) fn check(&self, samples: &[Sample]) -> Result<Chosen, MethodError> {
        let references = &self.reference;
        if let Some(twice) = first_duplicate(references) {
            return MethodError::refuse(format!("--reference {twice}"), "repeated", "name each once");
        }
        self.reviser.check(&self.kinds(), "--reference")?;
        ReviserOptions::check_mode(&self.kinds(), self.judging.mode, "--reference")?;
        let has_reference = |sample: &Sample| sample.references.iter().any(|text| !text.trim().is_empty());
        let given = references.iter().find(|r| matches!(r, Reference::Given | Reference::Diversified));
        if let Some(given) = given.filter(|_| !samples.iter().any(has_reference)) {
            let why = "no sample has references";
            let hint = "add \"references\" to the samples, or omit it";
            return MethodError::refuse(format!("--reference {given}"), why, hint);
        }
        if self.judging.mode == Mode::Pairwise && samples.iter().all(|sample| sample.candidates.len() != 2) {
            let why = "no sample has two candidates";
            let hint = "use samples with two candidates, or --mode pointwise";
            return MethodError::refuse("--mode pairwise", why, hint);
        }
        self.check_judge()?;
        let chosen = self.choices()?;
        let metrics = chosen.metrics.iter().chain([&chosen.similarity]);
        let item = |sample| item(sample, "", vec![""]);
        check_needs(metrics, &self.models, samples, item)?;
        Ok(chosen)
    }

    fn check_judge(&self) -> Result<(), MethodError> {
        let references = &self.reference;
        if self.no_judge && (self.metric.is_empty() || self.kinds().is_empty()) {
            let (why, hint) = if self.metric.is_empty() {
                ("requires metrics", "name metrics with --metric")
            } else {
                (
                    "requires generated references",
                    "use --reference adapted; `probity metrics` scores with the \
                                                   references in the data",
                )
            };
            return MethodError::refuse("--no-judge", why, hint);
        }
        if self.reviser.export_sets && (self.no_judge || self.judging.verdict == VerdictMode::Label) {
            let why = "the sets need generated verdicts";
            let hint = "use a judge that writes; `probity revise --export-sets` exports revisions only";
            return MethodError::refuse("--export-sets", why, hint);
        }
        let paper = [Reference::None, Reference::Adapted].iter().all(|one| references.contains(one));
        if self.reviser.export_sets && !paper {
            let why = "the sets need verdicts without reference and with a revision";
            return MethodError::refuse("--export-sets", why, "use --reference none,adapted");
        }
        if self.cost_match && (!paper || self.judging.mode == Mode::Pointwise) {
            let why = "it compares verdicts on pairs without reference and with a revision";
            return MethodError::refuse("--cost-match", why, "use --mode pairwise --reference none,adapted");
        }
        if self.cost_match && (self.judging.verdict != VerdictMode::Generate || self.judging.cycles > 1) {
            let hint = "use --verdict generate, and omit --cycles";
            return MethodError::refuse("--cost-match", "its cycles need generated verdicts", hint);
        }
        Ok(())
    }

    /// Whether this evaluator is the run's main one: the judge, or without one the metrics' vote.
    pub(super) fn leads(&self, by: &Evaluator) -> bool {
        match by {
            Evaluator::Judge => true,
            Evaluator::Vote => self.no_judge && self.judging.mode == Mode::Pairwise,
            Evaluator::Metric(_) => self.no_judge && (self.metric.len() == 1 || self.judging.mode == Mode::Pointwise),
        }
    }

    /// The metric for the similarity of references and candidates.
    pub(super) fn similarity(&self) -> &str {
        self.similarity.as_deref().unwrap_or(if self.models.encoder.is_some() { "bert-score" } else { "rouge-l" })
    }

    fn choices(&self) -> Result<Chosen, MethodError> {
        let metrics = if self.metric.is_empty() { Vec::new() } else { choose(&self.metric.join(","))? };
        let metrics: Vec<ChosenMetric> = metrics.into_iter().map(as_in_the_paper).collect();
        let mut similarity = choose(self.similarity())?;
        if similarity.len() > 1 {
            let hint = "omit it for bert-score or rouge-l";
            return MethodError::refuse("--similarity", "expected a single metric", hint);
        }
        let similarity = similarity.remove(0);
        for choice in metrics.iter().chain([&similarity]) {
            if !choice.definition().needs().contains(&Need::References) {
                let (option, why) = (format!("--metric {}", choice.label()), "the metric uses no references");
                return MethodError::refuse(option, why, "use it with `probity metrics`");
            }
        }
        Ok(Chosen { metrics, similarity })
    }
}

/// `BARTScore` in the paper's direction (appendix E) unless the user sets one: the probability of the reference given
/// the text.
fn as_in_the_paper(metric: ChosenMetric) -> ChosenMetric {
    if metric.definition().name() == "bart-score" { metric.with_default("direction", "recall".into()) } else { metric }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bart_score_has_the_papers_direction_unless_one_is_given() {
        for (metric, direction) in [
            ("bart-score", "recall"),
            ("bart-score:several=mean", "recall"),
            ("bart-score:direction=precision", "precision"),
            ("bart-score:direction=f", "f"),
        ] {
            let params = RevisEvalParams { metric: vec![metric.to_owned()], ..RevisEvalParams::default() };
            let chosen = params.choices().expect("known");
            assert_eq!(chosen.metrics[0].options_in_force()["direction"], direction, "{metric}");
            assert_eq!(chosen.metrics[0].label(), metric);
        }
    }
}
