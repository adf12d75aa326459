//! `MetaCritique` (Sun et al., 2024, "The Critique of Critique"): critiques of answers, judged claim by claim.

mod accuracy;
mod aius;
mod claims;
mod comparing;
mod conclusion;
mod leaderboard;
mod options;
mod preferences;
mod prompts;
mod report;
mod tally;
#[cfg(test)]
mod tests;
mod work;
mod writing;

use probity_data::{LabelledCritiques, LineError, Sample, labelled_critiques};
use probity_options::name;

pub(crate) use options::{Baseline, MetaCritiqueParams};

use aius::AIUS;
use claims::{PRECISION, RECALL};
use comparing::{PAIRWISE, REFINED_PAIRS, SINGLE};
use prompts::TEMPLATES;
use report::CritiqueFindings;
use tally::{CritiqueTally, Tally};
use work::MetaCritiqueWork;
use writing::{REFERENCES, REFINED};

use crate::builtin::Builtin;
use crate::question::{LayoutOptions, first_duplicate, short_hash};
use crate::{LabelledFile, Method, MethodError, MethodReport, Needs, Run, Signature, StageSpec};

/// The field of a sample with the question.
const QUESTION: &str = "question";
const ANSWER: &str = "answer";
const REFERENCE_ANSWER: &str = "reference_answer";

/// `MetaCritique`; see [`Method::LONG_ABOUT`].
pub(crate) struct MetaCritique;

impl Method for MetaCritique {
    type Params = MetaCritiqueParams;
    const NAME: &'static str = "metacritique";
    const ABOUT: &'static str = "Judge critiques claim by claim: precision, recall and F1";
    const LONG_ABOUT: &'static str = "\
Judge critiques claim by claim: precision, recall and F1.

A sample is an answer to a question, and its candidates are critiques of the answer (MetaCritique). Each critique is \
split into claims (atomic information units, AIUs). Precision is the share of its claims that are true, given \
question, answer and reference answer. Recall is the share of a reference critique's claims that it makes. F1 is their \
harmonic mean (Sun et al. 2024, equations 1 to 5). A claim without a readable label counts as false, or is omitted \
with --unread left-out; the summary has the scores under both rules.

Stages: `references` (reference answers and critiques that the data lack, by the model), `aius` (the claims), \
`precision` and `recall` (a label for each claim); with --baseline `single` and `pairwise` (whole critiques, rated \
from 1 to 7 or compared); with --refine `refined` and `refined_pairs` (answers rewritten as critiques ask, and which \
is better).

Data: samples with the texts `question` and `answer`, and `reference_answer` if it exists (--map \
text.question=COLUMN). Candidates are critiques; the first reference is the reference critique. --labels reads the \
public file of MetaCritique instead: its claims are judged and compared with human labels, or, without --model, the \
labels are aggregated.

Files: a table for each stage, `scores.jsonl` (the three scores of each critique) and `summary.json`.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    const STAGES: &'static [StageSpec] = &[
        StageSpec { name: REFERENCES, roles: &["model"] },
        StageSpec { name: AIUS, roles: &["model"] },
        StageSpec { name: PRECISION, roles: &["model"] },
        StageSpec { name: RECALL, roles: &["model"] },
        StageSpec { name: SINGLE.name, roles: &["model"] },
        StageSpec { name: PAIRWISE.name, roles: &["model"] },
        StageSpec { name: REFINED, roles: &["model"] },
        StageSpec { name: REFINED_PAIRS.name, roles: &["model"] },
    ];

    fn has_stage(params: &MetaCritiqueParams, name: &str) -> bool {
        match name {
            "aius" => params.labels.is_none(),
            "single" => params.has(Baseline::Single),
            "pairwise" => params.has(Baseline::Pairwise),
            "refined" | "refined_pairs" => params.refine,
            _ => true,
        }
    }

    const NEEDS: Needs =
        Needs { labels: Some(LabelledFile { option: "labels", importer: "metacritique" }), ..Needs::MODEL_AND_SAMPLES };

    fn lacks(_: &MetaCritiqueParams, sample: &Sample) -> Vec<LineError> {
        let missing = [QUESTION, ANSWER].into_iter().filter(|name| sample.text(name).is_none());
        let error = |name: &str| {
            LineError::content(format!("texts.{name}"), "missing; a critique needs a question and an answer")
                .with_hint(format!("add it to the sample's \"texts\", or name its column: --map text.{name}=COLUMN"))
        };
        missing.map(error).collect()
    }

    fn layout(params: &MetaCritiqueParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &MetaCritiqueParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        if let Some(twice) = first_duplicate(&params.baseline) {
            return MethodError::refuse(format!("--baseline {}", name(twice)), "repeated", "name each once");
        }
        let labelled = labels(params, samples)?;
        let Some(model) = run.model_if_any() else {
            let labelled = labelled.unwrap_or_default();
            refuse_what_asks(params)?;
            if run.is_rehearsal() {
                return Err(MethodError::Rehearsed);
            }
            let signature = with_labels(Signature::without_model(Self::NAME), Some(&labelled));
            let mut findings = CritiqueFindings::new(params, samples);
            findings.tallies = people(&labelled);
            return findings.report(signature, run);
        };
        let prompts = prompts::load(params, model.description())?;
        let work = MetaCritiqueWork { params, samples, prompts: &prompts, labelled: labelled.as_deref(), model };
        work.run(run)
    }
}

/// The human labels by sample, from the file of labels; `None` without one.
fn labels(params: &MetaCritiqueParams, samples: &[Sample]) -> Result<Option<Vec<LabelledCritiques>>, MethodError> {
    let Some(path) = &params.labels else { return Ok(None) };
    let read = labelled_critiques(path);
    let mut labelled =
        read.map_err(|source| MethodError::Other { option: Some("labels"), source: Box::new(source) })?;
    labelled.truncate(samples.len());
    Ok(Some(labelled))
}

/// The human labels as tallies, by critique.
fn people(labelled: &[LabelledCritiques]) -> Vec<CritiqueTally> {
    let tally = |labels: &[bool]| Tally::from_labels(labels.iter().map(|label| Some(*label)));
    let critiques = labelled.iter().flat_map(|one| &one.critiques);
    critiques.map(|one| CritiqueTally { precision: tally(&one.precision), recall: tally(&one.recall) }).collect()
}

/// Refuses options that query a model if there is none.
fn refuse_what_asks(params: &MetaCritiqueParams) -> Result<(), MethodError> {
    let asks = [("--baseline", !params.baseline.is_empty()), ("--refine", params.refine)];
    match asks.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => MethodError::refuse(
            option,
            "requires a model; without one labels are only aggregated",
            "pass one with \
                                                                                                     --model",
        ),
        None => Ok(()),
    }
}

/// Adds a hash of the human labels to a signature, if there are any.
fn with_labels(signature: Signature, labelled: Option<&[LabelledCritiques]>) -> Signature {
    let hash = |labelled: &[LabelledCritiques]| short_hash([format!("{labelled:?}").as_str()]);
    labelled.iter().fold(signature, |signature, labelled| signature.with("labels", &hash(labelled)))
}
