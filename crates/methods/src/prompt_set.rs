//! The prompts of a method with many templates, prepared for a model.

use std::collections::BTreeMap;

use probity_lm::Prompt;

use crate::builtin::Builtin;
use crate::template::{PromptLayout, Rendered, Template};
use crate::{MethodError, Signature};

/// Slot names with their texts.
pub type Slots<'a> = Vec<(&'static str, &'a str)>;

/// A template with its layout.
pub struct ReadyPrompt {
    template: Template,
    layout: PromptLayout,
}

impl ReadyPrompt {
    /// A prompt from a template and its layout.
    pub fn new(template: Template, layout: PromptLayout) -> Self {
        Self { template, layout }
    }

    /// The name of its template.
    pub fn name(&self) -> &str {
        self.template.name()
    }

    /// Renders the prompt with these texts and lists.
    pub fn render(
        &self,
        sample: &str,
        slots: &[(&'static str, &str)],
        lists: &[(&'static str, &[&str])],
    ) -> Result<Rendered, MethodError> {
        Ok(self.template.render_with(sample, slots, lists)?)
    }

    /// Applies the layout to a rendered prompt.
    pub fn lay_out(&self, rendered: Rendered) -> Prompt {
        rendered.prompt(&self.layout)
    }

    /// Its template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Adds the template and layout to a signature.
    pub fn sign(&self, signature: Signature) -> Signature {
        signature.with_layout(&self.layout).with_templates([&self.template])
    }
}

/// All prompts of a method, by name.
pub struct PromptSet {
    prompts: BTreeMap<&'static str, ReadyPrompt>,
    /// The user's files for prompts that are loaded elsewhere.
    files: BTreeMap<&'static str, String>,
}

impl PromptSet {
    /// Loads the prompts with the user's files (`NAME=FILE`) replacing built-in ones. Layout and settings are looked up
    /// by name.
    pub fn load(
        builtins: &[Builtin],
        own: &[String],
        layout: impl Fn(&str) -> Result<PromptLayout, MethodError>,
        settings: impl Fn(&str) -> BTreeMap<&'static str, String>,
    ) -> Result<Self, MethodError> {
        Self::load_beside(builtins, &[], own, layout, settings)
    }

    /// Like [`load`](Self::load), with `others` as further prompts that files may replace but that are loaded
    /// elsewhere.
    pub fn load_beside(
        builtins: &[Builtin],
        others: &[&'static str],
        own: &[String],
        layout: impl Fn(&str) -> Result<PromptLayout, MethodError>,
        settings: impl Fn(&str) -> BTreeMap<&'static str, String>,
    ) -> Result<Self, MethodError> {
        let names: Vec<&'static str> =
            builtins.iter().map(|builtin| builtin.name).chain(others.iter().copied()).collect();
        let own = own_prompts(&names, own)?;
        let load = |builtin: &Builtin| -> Result<(&'static str, ReadyPrompt), MethodError> {
            let choice = own.get(builtin.name).copied().unwrap_or(builtin.name);
            let layout = layout(builtin.name)?;
            let template = Template::load(choice, std::slice::from_ref(builtin), settings(builtin.name), &layout)?;
            Ok((builtin.name, ReadyPrompt { template, layout }))
        };
        let prompts = builtins.iter().map(load).collect::<Result<_, _>>()?;
        let files = others.iter().filter_map(|name| Some((*name, (*own.get(name)?).to_owned()))).collect();
        Ok(Self { prompts, files })
    }

    /// The user's file for a prompt that is loaded elsewhere.
    pub fn file(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(String::as_str)
    }

    /// The prompt with this name.
    pub fn get(&self, name: &str) -> &ReadyPrompt {
        &self.prompts[name]
    }
}

/// The files that replace built-in prompts.
fn own_prompts<'o>(names: &[&'static str], own: &'o [String]) -> Result<BTreeMap<&'static str, &'o str>, MethodError> {
    let mut files = BTreeMap::new();
    for given in own {
        let named = given.split_once('=').filter(|(_, file)| !file.is_empty());
        let known = named.and_then(|(name, _)| names.iter().find(|known| **known == name));
        let (Some((_, file)), Some(known)) = (named, known) else {
            let hint = format!("expected NAME=FILE with NAME one of {}", names.join(", "));
            return MethodError::refuse(format!("--prompt {given}"), "not a known NAME=FILE", hint);
        };
        if files.insert(*known, file).is_some() {
            return MethodError::refuse(format!("--prompt {given}"), "repeated prompt", "pass one file per prompt");
        }
    }
    Ok(files)
}
