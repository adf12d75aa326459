//! `ParaPLUIE` (Lemesle et al. 2025): is this a paraphrase, as a log-likelihood ratio of Yes against No.

use clap::ValueEnum;
use probity_data::Sample;
use probity_lm::{LabelAnswer, LabelSet, Outcome};
use serde::Serialize;

use crate::pointwise::{Other, Pointwise, Reading};
use crate::question::Format;
use crate::template::{Builtin, DataSlot, Template};
use crate::{Method, MethodError, Report, Run, Signature};

const TEMPLATES: &[Builtin] = &[
    Builtin { name: "direct", source: include_str!("prompts/pluie_direct.j2") },
    Builtin { name: "meaning", source: include_str!("prompts/pluie_meaning.j2") },
    Builtin { name: "indirect", source: include_str!("prompts/pluie_indirect.j2") },
    Builtin { name: "few-shot-direct", source: include_str!("prompts/pluie_few_shot_direct.j2") },
];

/// Options of `ParaPLUIE`.
#[derive(Debug, Clone, clap::Args, Serialize)]
pub struct ParaPluieParams {
    /// What each candidate is held against.
    #[arg(long, value_enum, default_value_t)]
    pub against: Against,
    /// The prompt: direct, meaning, indirect, few-shot-direct, or a file of your own. May be given several times; scores are averaged.
    #[arg(long, default_value = "few-shot-direct", value_name = "NAME|FILE")]
    pub template: Vec<String>,
    /// How the prompt is put to the model.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// What the answer begins with, put into the model's mouth. Empty for nothing.
    #[arg(long, default_value = "Answer:", value_name = "TEXT")]
    pub answer_prefix: String,
    /// The two answers. Each counts with and without a space before it.
    #[arg(long, default_value = "Yes,No", value_name = "YES,NO")]
    pub label_words: crate::LabelWords,
    /// Compare the scores with these gold scores. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub attribute: Vec<String>,
    /// Do not compare the result with gold scores even where --attribute is given.
    #[arg(long)]
    pub no_gold: bool,
}

/// What a candidate is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// The sample's context: the source, or the original before it was revised.
    #[default]
    Context,
    /// The sample's references; the best score counts where there are several.
    Reference,
}

/// `ParaPLUIE`; see [`Method::LONG_ABOUT`].
pub struct ParaPluie;

impl Method for ParaPluie {
    type Params = ParaPluieParams;
    const NAME: &'static str = "parapluie";
    const ABOUT: &'static str = "Score whether each candidate means the same as its source: log P(Yes) − log P(No)";
    const LONG_ABOUT: &'static str = "\
Score whether each candidate means the same as its source: log P(Yes) − log P(No).

The model is asked whether two texts are paraphrases of each other. The score is log P(Yes) − log P(No), in nats, under the full \
vocabulary: above 0 says paraphrase, and it has no bounds (Lemesle et al. 2025). Since everything before the answer is shared, this is the \
difference of the answers' perplexities.

The mass P(Yes) + P(No) is the probability that the model gives either answer. Where it is low the score is flagged `low_mass` and counted; \
where one of the answers is impossible to the model the score is not a number and the outcome says so.

Prompt families: direct, meaning, indirect and few-shot-direct (the published choice). Ours are worded by us; a file with \
other wording can be given.

Files: `scores.jsonl` (item, candidate, score, mass, outcome) and `summary.json`.";

    fn run(params: &ParaPluieParams, samples: &[Sample], run: &mut Run<'_>) -> Result<Report, MethodError> {
        let layout = params.format.layout(run.model().description(), &params.answer_prefix)?;
        let [yes, no] = params.label_words.0.clone();
        let labels = LabelSet::words([&yes, &no])?;
        let settings = std::collections::BTreeMap::from([("yes", yes), ("no", no)]);
        let slots = [DataSlot::required("candidate"), DataSlot::required("other")];
        let load = |choice: &String| Template::load(choice, TEMPLATES, settings.clone(), &slots, &layout);
        let templates = [params.template.iter().map(load).collect::<Result<Vec<_>, _>>()?];
        let other = match params.against {
            Against::Context => Other::Context,
            Against::Reference => Other::References,
        };
        let signature = Signature::new(Self::NAME, run.model())
            .with("against", &format!("{other:?}").to_lowercase())
            .with("labels", &params.label_words)
            .with("format", layout.name())
            .with("answer-prefix", &params.answer_prefix);
        let pointwise = Pointwise {
            samples,
            attributes: &params.attribute,
            templates: &templates,
            labels,
            layout,
            other: Some(other),
            read: &log_ratio,
            no_gold: params.no_gold,
            unit: "log P(Yes) − log P(No), nats",
        };
        pointwise.run(signature, run)
    }
}

/// log P(first) − log P(second); not a number where either is impossible.
fn log_ratio(answer: &LabelAnswer) -> Reading {
    let score = answer.labels[0].logprob - answer.labels[1].logprob;
    let score = if score.is_finite() {
        Ok(score)
    } else {
        let impossible = answer.labels.iter().find(|label| !label.logprob.is_finite()).map_or("", |label| &label.name);
        Err(Outcome::NotFinite { why: format!("the answer `{impossible}` has no probability at all") })
    };
    let probabilities = answer.labels.iter().map(|label| (label.name.clone(), label.prob)).collect();
    Reading { score, probabilities }
}
