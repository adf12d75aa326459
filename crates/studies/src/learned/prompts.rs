//! The prompts for reading candidates.

use probity_data::Sample;
use probity_lm::{ModelDescription, Prompt};

use super::features::{FeatureStage, WantedFeatures};
use super::head_file::HeadPrompt;
use crate::attributes::attribute_words;
use crate::question::{LayoutOptions, material, word_settings};
use crate::quote::Quoted;
use crate::template::{PromptLayout, Template, TemplateError};
use crate::{MethodError, Signature, comparative, gpt_score};

/// The labels of a comparison; the first one is read.
const LABELS: [&str; 2] = ["A", "B"];

/// The prompt of `gpt-score` that asks for a good text, and that of `compare` that asks for the better one.
pub(super) struct ReadingPrompts {
    noun: String,
    reading: Template,
    layout: PromptLayout,
    comparison: Template,
    comparison_layout: PromptLayout,
}

impl ReadingPrompts {
    pub(super) fn new(template: &str, noun: &str, model: &ModelDescription) -> Result<Self, MethodError> {
        let words = attribute_words("quality", None);
        // Never a chat prompt: the text must follow the prompt directly.
        let layout = PromptLayout { chat: false, answer_prefix: String::new(), guarded: "", defences: Vec::new() };
        let reading = Template::load(template, gpt_score::TEMPLATES, word_settings(&words, noun), &layout)?;
        let comparison_layout = LayoutOptions::default().layout(model, "Answer:")?;
        let settings = comparative::settings(&words, noun, &LABELS.map(str::to_owned));
        let comparison = Template::load("1", comparative::TEMPLATES, settings, &comparison_layout)?;
        Ok(Self { noun: noun.to_owned(), reading, layout, comparison, comparison_layout })
    }

    pub(super) fn sign(&self, signature: Signature, wanted: WantedFeatures) -> Signature {
        let signature = signature.with("noun", &self.noun).with_templates([&self.reading]);
        let layer = wanted.state.or(wanted.comparison);
        let signature = layer.iter().fold(signature, |signature, layer| signature.with("layer", layer));
        match wanted.comparison {
            Some(_) => {
                signature.with_layout(&self.comparison_layout).with_template("compare", self.comparison.sha256())
            }
            None => signature,
        }
    }

    pub(super) fn stage<'a>(
        &'a self,
        samples: &'a [Sample],
        wanted: WantedFeatures,
        signature: &Signature,
    ) -> FeatureStage<'a> {
        FeatureStage::new(samples, wanted, self, &signature.to_string())
    }

    pub(super) fn head_prompt(&self, layer: Option<usize>) -> HeadPrompt {
        HeadPrompt {
            template: self.reading.name().to_owned(),
            sha256: self.reading.sha256().to_owned(),
            comparison_sha256: self.comparison.sha256().to_owned(),
            noun: self.noun.clone(),
            layer,
        }
    }

    /// The texts of a sample that are quoted in these prompts.
    pub(super) fn quoted(&self, sample: &Sample, wanted: WantedFeatures) -> Result<Vec<Quoted>, TemplateError> {
        let mut quoted = Vec::new();
        if wanted.likelihood || wanted.state.is_some() {
            quoted.push(self.reading.render(&sample.id, &material(sample))?.quoted);
        }
        if wanted.comparison.is_some() && sample.candidates.len() == 2 {
            for first in 0..2 {
                quoted.push(self.comparison.render(&sample.id, &compared(sample, first))?.quoted);
            }
        }
        Ok(quoted)
    }

    /// The prompt before a candidate, already checked to render.
    pub(super) fn reading(&self, sample: &Sample) -> Prompt {
        let rendered = self.reading.render(&sample.id, &material(sample));
        rendered.expect("it could be rendered before").prompt(&self.layout)
    }

    /// The prompt without any context.
    pub(super) fn bare(&self) -> Prompt {
        Prompt::Text(format!("The {}:", self.noun))
    }

    /// A comparison that shows this candidate of two first, and the label that names it.
    pub(super) fn comparison(&self, sample: &Sample, first: usize) -> (Prompt, String) {
        let rendered = self.comparison.render(&sample.id, &compared(sample, first));
        let prompt = rendered.expect("it could be rendered before").prompt(&self.comparison_layout);
        let space = if self.comparison_layout.chat { "" } else { " " };
        (prompt, format!("{space}{}", LABELS[0]))
    }
}

fn compared(sample: &Sample, first: usize) -> [(&'static str, &str); 4] {
    let [context, instruction] = material(sample);
    let text = |place: usize| &*sample.candidates[place].text;
    [context, instruction, ("candidate_a", text(first)), ("candidate_b", text(1 - first))]
}
