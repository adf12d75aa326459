//! The prompts of `MetaCritique`, made ready for a model.

use std::collections::BTreeMap;

use probity_lm::{GenerateRequest, ModelDescription};

use super::options::MetaCritiqueParams;
use crate::builtin::{Builtin, DataSlot};
use crate::judge::VerdictMode;
use crate::template::{PromptLayout, Rendered, Template};
use crate::{MethodError, Signature};

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
        data: &[QUESTION, ANSWER, REFERENCE_ANSWER],
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

/// The labels of a claim.
pub(super) const LABELS: [&str; 2] = ["true", "false"];

/// What is filled into a prompt: the slots and their texts.
pub(super) type Slots<'a> = Vec<(&'static str, &'a str)>;

/// A prompt with how it is laid out.
pub(super) struct ReadyPrompt {
    template: Template,
    layout: PromptLayout,
}

impl ReadyPrompt {
    pub(super) fn render(&self, sample: &str, slots: &[(&'static str, &str)]) -> Result<Rendered, MethodError> {
        Ok(self.template.render(sample, slots)?)
    }

    /// A request to write on; that the prompt can be rendered has been found out.
    pub(super) fn request(
        &self,
        id: String,
        sample: &str,
        slots: &[(&'static str, &str)],
        tokens: u32,
    ) -> GenerateRequest {
        GenerateRequest::greedy(id, self.prompt(sample, slots), tokens as usize)
    }

    /// The prompt; that it can be rendered has been found out.
    pub(super) fn prompt(&self, sample: &str, slots: &[(&'static str, &str)]) -> probity_lm::Prompt {
        self.template.render(sample, slots).expect("it could be rendered before").prompt(&self.layout)
    }

    /// What texts written by it depend on.
    pub(super) fn sign(&self, signature: Signature) -> Signature {
        signature.with_layout(&self.layout).with_templates([&self.template])
    }
}

/// All prompts.
pub(super) struct Prompts(BTreeMap<&'static str, ReadyPrompt>);

impl Prompts {
    /// Loads them, own files in the place of built-in ones.
    pub(super) fn load(params: &MetaCritiqueParams, model: &ModelDescription) -> Result<Self, MethodError> {
        let layout = params.layout.layout(model, "Answer:")?;
        let mut own: BTreeMap<&'static str, &str> = BTreeMap::new();
        for given in &params.prompt {
            let named = given.split_once('=').filter(|(_, file)| !file.is_empty());
            let builtin = named.and_then(|(name, _)| TEMPLATES.iter().find(|builtin| builtin.name == name));
            let (Some((_, file)), Some(builtin)) = (named, builtin) else {
                let names: Vec<&str> = TEMPLATES.iter().map(|builtin| builtin.name).collect();
                let hint = format!("write NAME=FILE, NAME being one of {}", names.join(", "));
                return MethodError::refuse(format!("--prompt {given}"), "it names no prompt and file", hint);
            };
            if own.insert(builtin.name, file).is_some() {
                return MethodError::refuse(format!("--prompt {given}"), "this prompt is given twice", "give one file");
            }
        }
        let rationale = if params.verdict == VerdictMode::Label { "" } else { "yes" };
        let reference = if params.without_reference_answer { "" } else { "yes" };
        let load = |builtin: &Builtin| -> Result<(&'static str, ReadyPrompt), MethodError> {
            let settings: &[(&'static str, &str)] = match builtin.name {
                "precision" => {
                    &[("rationale", rationale), ("reference", reference), ("yes", LABELS[0]), ("no", LABELS[1])]
                }
                "recall" => &[("rationale", rationale), ("yes", LABELS[0]), ("no", LABELS[1])],
                _ => &[],
            };
            let settings = settings.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
            let choice = own.get(builtin.name).copied().unwrap_or(builtin.name);
            let template = Template::load(choice, std::slice::from_ref(builtin), settings, &layout)?;
            Ok((builtin.name, ReadyPrompt { template, layout: layout.clone() }))
        };
        Ok(Self(TEMPLATES.iter().map(load).collect::<Result<_, _>>()?))
    }

    /// The prompt of that name.
    pub(super) fn get(&self, name: &str) -> &ReadyPrompt {
        &self.0[name]
    }
}
