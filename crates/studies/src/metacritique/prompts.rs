//! The prompts of `MetaCritique`, prepared for a model.

use probity_lm::ModelDescription;

use super::options::{ClaimMode, MetaCritiqueParams};
use crate::MethodError;
use crate::builtin::{Builtin, DataSlot};
use crate::prompt_set::PromptSet;

const QUESTION: DataSlot = DataSlot::required("question");
const ANSWER: DataSlot = DataSlot::required("answer");
const REFERENCE_ANSWER: DataSlot = DataSlot::optional("reference_answer");
const CRITIQUE: DataSlot = DataSlot::required("critique");
const CLAIM: DataSlot = DataSlot::required("claim");

/// The prompts, by name.
pub(super) const TEMPLATES: &[Builtin] = &[
    Builtin { name: "answer", source: include_str!("../prompts/metacritique_answer.j2"), data: &[QUESTION] },
    Builtin {
        name: "critique",
        source: include_str!("../prompts/metacritique_critique.j2"),
        data: &[QUESTION, ANSWER],
    },
    Builtin { name: "aius", source: include_str!("../prompts/metacritique_aius.j2"), data: &[CRITIQUE] },
    Builtin {
        name: "precision",
        source: include_str!("../prompts/metacritique_precision.j2"),
        data: &[QUESTION, ANSWER, REFERENCE_ANSWER, CLAIM],
    },
    Builtin { name: "recall", source: include_str!("../prompts/metacritique_recall.j2"), data: &[CRITIQUE, CLAIM] },
    Builtin {
        name: "refined",
        source: include_str!("../prompts/metacritique_refined.j2"),
        data: &[QUESTION, ANSWER, CRITIQUE],
    },
];

/// The prompts of judges of whole texts: baselines and refined answers. They have the slots of `judge`.
pub(super) const JUDGED: [&str; 3] = ["single", "pairwise", "refined-pairs"];

/// The labels of a claim.
pub(super) const LABELS: [&str; 2] = ["true", "false"];

/// All prompts of the method.
pub(super) fn load(params: &MetaCritiqueParams, model: &ModelDescription) -> Result<PromptSet, MethodError> {
    let layout = params.layout.layout(model, "Answer:")?;
    let rationale = if params.verdict == ClaimMode::Label { "" } else { "yes" };
    let reference = if params.without_reference_answer { "" } else { "yes" };
    let settings = |prompt: &str| {
        let settings: &[(&'static str, &str)] = match prompt {
            "precision" => &[("rationale", rationale), ("reference", reference), ("yes", LABELS[0]), ("no", LABELS[1])],
            "recall" => &[("rationale", rationale), ("yes", LABELS[0]), ("no", LABELS[1])],
            _ => &[],
        };
        settings.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
    };
    PromptSet::load_beside(TEMPLATES, &JUDGED, &params.prompt, |_| Ok(layout.clone()), settings)
}
