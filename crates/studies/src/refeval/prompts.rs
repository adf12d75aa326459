//! The prompts of `Ref-Eval`, prepared for the evaluator and the evaluated model.

use probity_lm::{LanguageModel, ModelDescription};

use super::options::{JudgementMode, JudgementRule, RefEvalParams};
use crate::builtin::{Builtin, DataSlot};
use crate::prompt_set::PromptSet;
use crate::{MethodError, Signature};

const PASSAGE: DataSlot = DataSlot::required("passage");
const UNIT: DataSlot = DataSlot::required("unit");
const UNITS: DataSlot = DataSlot::list("units");
const QUESTION: DataSlot = DataSlot::required("question");
const ANSWER: DataSlot = DataSlot::required("answer");

/// The prompts, by name.
pub(super) const TEMPLATES: &[Builtin] = &[
    Builtin { name: "units", source: include_str!("../prompts/refeval_units.j2"), data: &[PASSAGE] },
    Builtin { name: "weight", source: include_str!("../prompts/refeval_weight.j2"), data: &[PASSAGE, UNIT] },
    Builtin { name: "name", source: include_str!("../prompts/refeval_name.j2"), data: &[UNITS] },
    Builtin {
        name: "question",
        source: include_str!("../prompts/refeval_question.j2"),
        data: &[UNITS, DataSlot::optional("earlier_question"), DataSlot::optional("earlier_answer")],
    },
    Builtin { name: "answer", source: include_str!("../prompts/refeval_answer.j2"), data: &[QUESTION] },
    Builtin {
        name: "judgement",
        source: include_str!("../prompts/refeval_judgement.j2"),
        data: &[QUESTION, ANSWER, UNIT],
    },
    Builtin {
        name: "no-reference",
        source: include_str!("../prompts/refeval_no_reference.j2"),
        data: &[QUESTION, ANSWER],
    },
];

/// The verdicts on an answer for one unit.
pub(super) const VERDICTS: [&str; 3] = ["correct", "incorrect", "unrelated"];

/// The weights of a unit.
pub(super) const WEIGHTS: [&str; 2] = ["vital", "okay"];

/// Loads all prompts: the answer prompt for the evaluated model, the others for the evaluator.
pub(super) fn load(
    params: &RefEvalParams,
    evaluator: &ModelDescription,
    evaluated: &ModelDescription,
) -> Result<PromptSet, MethodError> {
    let settings = |prompt: &str| {
        let words = |count: u32| vec![("words", count.to_string())];
        let labels = |labels: &[&'static str]| labels.iter().map(|label| (*label, (*label).to_owned())).collect();
        let mut settings: Vec<(&'static str, String)> = match prompt {
            "units" => words(params.unit_words),
            "question" => words(params.question_words),
            "answer" => words(params.answer_words),
            "weight" => labels(&WEIGHTS),
            "judgement" => labels(&VERDICTS),
            "no-reference" => labels(&VERDICTS[..2]),
            _ => Vec::new(),
        };
        let yes = |is_wanted: bool| if is_wanted { "yes" } else { "" }.to_owned();
        match prompt {
            "judgement" => settings.extend([
                ("reason", yes(params.verdict == JudgementMode::Generate)),
                ("strict", yes(params.rule == JudgementRule::Strict)),
            ]),
            "answer" => settings.push(("related", yes(!params.no_related))),
            _ => {}
        }
        if ["question", "answer", "judgement"].contains(&prompt) {
            settings.push(("domain", params.domain.clone().unwrap_or_default()));
        }
        settings.into_iter().collect()
    };
    let layout = |prompt: &str| {
        let model = if prompt == "answer" { evaluated } else { evaluator };
        params.layout.layout(model, "Answer:")
    };
    PromptSet::load(TEMPLATES, &params.prompt, layout, settings)
}

/// The inputs of a stage with this prompt: its options, prompt, model, and the key of its input.
pub(super) fn inputs(
    params: &RefEvalParams,
    prompts: &PromptSet,
    stage: &'static str,
    prompt: &str,
    model: &dyn LanguageModel,
    key: &str,
) -> Vec<String> {
    let read: &[&str] = match prompt {
        "units" => &["unit-words", "max-tokens"],
        "name" => &["cluster-units", "encoder"],
        "question" => &["question-words", "domain"],
        "answer" => &["answer-words", "answer-tokens", "no-related", "domain"],
        "judgement" => &["verdict", "rule", "domain"],
        _ => &[],
    };
    let signature = Signature::new(stage, model).with_some_options(params, read);
    vec![prompts.get(prompt).sign(signature).to_string(), key.to_owned()]
}
