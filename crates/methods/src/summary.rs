//! What a method concludes: values for machines and tables for people.

use std::borrow::Cow;
use std::collections::BTreeMap;

use probity_lm::{LanguageModel, ModelDescription, Outcome, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::defence::signed;
use crate::template::{PromptLayout, Template};
use crate::{Conclusion, Headline, RunScores, Table};

/// What the questions of a run cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Questions put to the model.
    pub requests: usize,
    /// Wall-clock seconds from the start of the run to its summary.
    pub seconds: f64,
    /// Tokens and memory. What was drafted depends on how the work was done; what was written does not.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Cost {
    /// The share of drafted tokens that the model would have said; absent where nothing was drafted.
    pub fn acceptance(&self) -> Option<f64> {
        let Usage { tokens_drafted, drafts_accepted, .. } = self.usage;
        (tokens_drafted > 0).then(|| drafts_accepted as f64 / tokens_drafted as f64)
    }
}

/// What a number depends on, carried with it wherever it goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Signature {
    /// The method's name.
    pub method: &'static str,
    /// The version of probity.
    pub version: &'static str,
    /// The settings that change scores (attribute, template hashes, label words, pairs, ranking, seed …), by name.
    pub settings: BTreeMap<Cow<'static, str>, String>,
    /// The prompt templates.
    pub templates: Vec<TemplateMark>,
    /// The model and its arithmetic; absent where none was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelDescription>,
    /// Further models that were asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<ModelDescription>,
}

/// A prompt template in a [`Signature`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateMark {
    /// The built-in name, or the path given.
    pub name: String,
    /// SHA-256 of its source, in hex.
    pub sha256: String,
}

impl Signature {
    /// Of a method that asks this model, without settings yet.
    pub fn new(method: &'static str, model: &dyn LanguageModel) -> Self {
        Self { model: Some(model.description().clone()), ..Self::without_model(method) }
    }

    /// Of somebody that asks no model, without settings yet.
    pub fn without_model(method: &'static str) -> Self {
        Self {
            method,
            version: env!("CARGO_PKG_VERSION"),
            settings: BTreeMap::new(),
            templates: Vec::new(),
            model: None,
            other_models: Vec::new(),
        }
    }

    /// The same with further models.
    #[must_use]
    pub fn with_other_models(self, others: &[&dyn LanguageModel]) -> Self {
        Self { other_models: others.iter().map(|model| model.description().clone()).collect(), ..self }
    }

    /// The same with a setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &(impl ToString + ?Sized)) -> Self {
        self.settings.insert(name.into(), value.to_string());
        self
    }

    /// The same with how prompts are laid out.
    #[must_use]
    pub fn with_layout(self, layout: &PromptLayout) -> Self {
        let signature = self.with("format", layout.name()).with("answer-prefix", &layout.answer_prefix);
        if layout.defences.is_empty() { signature } else { signature.with("defence", &signed(&layout.defences)) }
    }

    /// The same with these templates.
    #[must_use]
    pub fn with_templates<'t>(self, templates: impl IntoIterator<Item = &'t Template>) -> Self {
        templates.into_iter().fold(self, |signature, one| signature.with_template(one.name(), one.sha256()))
    }

    /// A template by name and by the hash of its source; each once.
    #[must_use]
    pub fn with_template(mut self, name: &str, sha256: &str) -> Self {
        let template = TemplateMark { name: name.to_owned(), sha256: sha256.to_owned() };
        // Attributes share templates; the signature names files, not uses.
        if !self.templates.contains(&template) {
            self.templates.push(template);
        }
        self
    }
}

/// One line: `compare|version:0.1.0|model:…|…`, hashes shortened to 12 digits.
impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}|version:{}", self.method, self.version)?;
        for model in self.model.iter().chain(&self.other_models) {
            let fingerprint = model.fingerprint.get(..12).unwrap_or(&model.fingerprint);
            write!(f, "|model:{}@{fingerprint}", model.name)?;
            write!(f, "|precision:{}|weights:{}|device:{}", model.precision.as_str(), model.weights, model.device)?;
            model.platform.iter().try_for_each(|platform| write!(f, "|platform:{platform}"))?;
        }
        for TemplateMark { name, sha256 } in &self.templates {
            write!(f, "|template:{name}@{}", sha256.get(..12).unwrap_or(sha256))?;
        }
        self.settings.iter().try_for_each(|(name, value)| write!(f, "|{name}:{}", one_field(value)))
    }
}

/// A value that ends neither its field nor the line.
fn one_field(value: &str) -> String {
    value.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "\\n").replace('\r', "\\r")
}

/// What [`Method::run`](crate::Method::run) returns.
#[derive(Debug, Clone)]
pub struct MethodReport {
    /// The method's own figures.
    pub values: Value,
    /// The same as tables, the main one first.
    pub tables: Vec<Table>,
    /// Whether the terminal shows all tables with their notes.
    pub details: bool,
    /// What the scores depend on.
    pub signature: Signature,
    /// How many answers ended how, by [`Outcome::name`].
    pub outcomes: Outcomes,
    /// Agreement with gold, or what there is instead: a figure for each attribute.
    pub headline: Vec<Headline>,
    /// What it says of each attribute, or of what it made, and how far to trust it.
    pub verdict: Vec<Conclusion>,
    /// The scores, where it gives candidates some.
    pub scores: RunScores,
    /// Those of its own figures that its users look for first, by name: they are at the head of `summary.json`.
    pub first_figures: BTreeMap<&'static str, Value>,
}

impl MethodReport {
    /// Without figures yet.
    pub fn new(signature: Signature) -> Self {
        Self {
            values: Value::Null,
            tables: Vec::new(),
            details: false,
            signature,
            outcomes: Outcomes::default(),
            headline: Vec::new(),
            verdict: Vec::new(),
            scores: RunScores::default(),
            first_figures: BTreeMap::new(),
        }
    }
}

/// A report with the run's cost. Serialised it is `summary.json`, the same for the same questions.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// The method's name.
    pub method: &'static str,
    /// What the run says, and how far to trust it.
    pub verdict: Vec<Conclusion>,
    /// The signature on one line.
    pub signature_line: String,
    /// What the scores depend on.
    pub signature: Signature,
    /// How many answers ended how. All is well where only `scored` and `tie` occur.
    pub outcomes: Outcomes,
    /// Agreement with gold, or what there is instead: a figure for each attribute.
    pub headline: Vec<Headline>,
    /// [`MethodReport::scores`].
    #[serde(flatten)]
    pub scores: RunScores,
    /// [`MethodReport::first_figures`].
    #[serde(flatten)]
    pub first_figures: BTreeMap<&'static str, Value>,
    /// The method's own figures.
    pub values: Value,
    /// Tokens and time, which differ when a run is repeated or resumed: they belong into the manifest.
    #[serde(skip)]
    pub cost: Cost,
    /// The same figures as tables.
    #[serde(rename = "sections")]
    pub tables: Vec<Table>,
    /// [`MethodReport::details`].
    #[serde(skip)]
    pub details: bool,
}

impl RunSummary {
    /// Of what a method or the like returned.
    pub fn new(method: &'static str, report: MethodReport, cost: Cost) -> Self {
        let MethodReport { values, mut tables, details, signature, outcomes, headline, verdict, scores, first_figures } =
            report;
        if let Some(first) = tables.first_mut()
            && signature.model.is_some()
        {
            first.note(format!("outcomes: {}", outcomes.line()));
            first.notes.extend(outcomes.notes(signature.model.as_ref()));
        }
        Self {
            method,
            verdict,
            signature_line: signature.to_string(),
            signature,
            outcomes,
            headline,
            scores,
            first_figures,
            values,
            cost,
            tables,
            details,
        }
    }
}

/// Counts of outcomes by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcomes {
    counts: BTreeMap<Cow<'static, str>, usize>,
    /// Why answers have a low label mass, where that is known.
    #[serde(skip)]
    low_mass: BTreeMap<String, usize>,
}

/// So many reasons of a low label mass are named.
const NAMED_REASONS: usize = 3;

impl Outcomes {
    /// Counts one.
    pub fn add(&mut self, outcome: &Outcome) {
        self.add_named(outcome.name());
        if let Outcome::LowMass { why: Some(why) } = outcome {
            *self.low_mass.entry(why.clone()).or_default() += 1;
        }
    }

    /// Counts one that only this method knows.
    pub fn add_named(&mut self, name: &'static str) {
        self.add_several(name, 1);
    }

    /// Counts several that ended alike.
    pub fn add_several(&mut self, name: &'static str, count: usize) {
        if count > 0 {
            *self.counts.entry(name.into()).or_default() += count;
        }
    }

    /// Counts all of another's.
    pub fn extend(&mut self, more: &Self) {
        for (name, count) in &more.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        for (why, count) in &more.low_mass {
            *self.low_mass.entry(why.clone()).or_default() += count;
        }
    }

    /// What models would rather say where the label mass is low, the most frequent first.
    fn low_mass_note(&self) -> Option<String> {
        let mut reasons: Vec<(&String, &usize)> = self.low_mass.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let total = self.get("low_mass");
        let reasons: Vec<String> =
            reasons.iter().take(NAMED_REASONS).map(|(why, count)| format!("{why} ({count} of {total})")).collect();
        (!reasons.is_empty()).then(|| format!("low_mass: {}", reasons.join("; ")))
    }

    /// How many answers ended so.
    pub fn get(&self, name: &str) -> usize {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Answers that gave neither number nor text: everything but `scored`, `low_mass`, `tie`, `revised`,
    /// `written` and `truncated_used`.
    pub fn unscored(&self) -> usize {
        let answered =
            |name: &str| matches!(name, "scored" | "low_mass" | "tie" | "revised" | "written" | "truncated_used");
        self.counts.iter().filter(|(name, _)| !answered(name)).map(|(_, count)| count).sum()
    }

    /// For each outcome that leaves a question open, what it means and what helps.
    pub fn notes(&self, model: Option<&ModelDescription>) -> Vec<String> {
        let mut notes: Vec<String> = self.low_mass_note().into_iter().collect();
        for name in self.counts.keys() {
            let hint = match name.as_ref() {
                "too_long" => match model.and_then(|model| model.context_length) {
                    Some(tokens) => &format!(
                        "the prompt with its answer does not fit the model's context of {tokens} tokens, or where a \
                         row's \
                         `limit` is less, the memory for keys and values (--compute cache-budget); shorten the \
                         context or use a \
                         model with a longer one"
                    ),
                    None => {
                        "the prompt's keys and values do not fit the memory set aside for them; raise --compute \
                         cache-budget"
                    }
                },
                "altered" => {
                    "the model's chat template leaves out or changes what a text says, so it was not shown; put a \
                     `chat_template.jinja` that writes messages as they are beside the model's tokenizer"
                }
                "empty" => "a candidate without text, or without a text to hold it against, is not shown to the model",
                "one_candidate" => "there is nothing to compare it with",
                "no_reference" => "the sample has no reference that could be shown; its candidates are not judged",
                "not_a_pair" => "a sample that has not two candidates; --mode pointwise takes each by itself",
                "truncated_used" => {
                    "a text that reached its limit of tokens, and is used as far as it goes (in revise and reviseval \
                     since \
                     --use-truncated says so)"
                }
                "no_aius" => {
                    "a critique in which no claim was found has no precision; its row in `aius` has what was written"
                }
                "truncated" => {
                    "a text that reached its limit of tokens is no reference unless --use-truncated is given; raise \
                     --max-tokens, in reviseval --revision-tokens"
                }
                "unparsed" => {
                    "no generated answer holds what was asked for, or the limit of tokens cut it off (--max-tokens); \
                     the \
                     row's `why` says which. Label probabilities need no parsing (--verdict label, compare --decide \
                     prob, g-eval)"
                }
                "not_finite" => "the model's arithmetic gave no usable number; the row's `why` says where",
                _ => continue,
            };
            notes.push(format!("{name}: {hint}"));
        }
        notes
    }

    /// `4 scored, 1 too_long`; `none` where nothing was asked.
    pub fn line(&self) -> String {
        if self.counts.is_empty() {
            return "none".to_owned();
        }
        self.counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}
