//! The result of a method: values for programs and tables for people.

use std::borrow::Cow;
use std::collections::BTreeMap;

use probity_lm::{ChatOptions, LanguageModel, ModelDescription, Outcome, Usage};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::defence::signed;
use crate::template::{PromptLayout, Template};
use crate::{Conclusion, Headline, RunScores, Table};

/// The cost of a run's queries.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Queries to the model.
    pub requests: usize,
    /// Wall-clock seconds from the start of the run to its summary.
    pub seconds: f64,
    /// Tokens and memory. Drafted tokens depend on scheduling; generated tokens do not.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Everything that a score depends on, published with the score.
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
    /// The model and its precision; absent if none was queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelDescription>,
    /// Further models that were queried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<ModelDescription>,
}

/// A prompt template in a [`Signature`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateMark {
    /// The built-in name, or the user's path.
    pub name: String,
    /// SHA-256 of its source, in hex.
    pub sha256: String,
}

impl Signature {
    /// The signature of a method with this model, without settings.
    pub fn new(method: &'static str, model: &dyn LanguageModel) -> Self {
        Self { model: Some(model.description().clone()), ..Self::without_model(method) }
    }

    /// The signature of a method without a model, without settings.
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

    /// Adds further models.
    #[must_use]
    pub fn with_other_models(self, others: &[&dyn LanguageModel]) -> Self {
        Self { other_models: others.iter().map(|model| model.description().clone()).collect(), ..self }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &(impl ToString + ?Sized)) -> Self {
        self.settings.insert(name.into(), value.to_string());
        self
    }

    /// Adds the prompt layout.
    #[must_use]
    pub fn with_layout(self, layout: &PromptLayout) -> Self {
        let signature = self.with("format", layout.name()).with("answer-prefix", &layout.answer_prefix);
        if layout.defences.is_empty() { signature } else { signature.with("defence", &signed(&layout.defences)) }
    }

    /// Adds these templates.
    #[must_use]
    pub fn with_templates<'t>(self, templates: impl IntoIterator<Item = &'t Template>) -> Self {
        templates.into_iter().fold(self, |signature, one| signature.with_template(one.name(), one.sha256()))
    }

    /// Adds a template by name and hash, once.
    #[must_use]
    pub fn with_template(mut self, name: &str, sha256: &str) -> Self {
        let template = TemplateMark { name: name.to_owned(), sha256: sha256.to_owned() };
        // Attributes share templates; the signature lists each file once.
        if !self.templates.contains(&template) {
            self.templates.push(template);
        }
        self
    }
}

/// One line: `compare|version:0.1.0|model:…|…`, with hashes shortened to 12 digits.
impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}|version:{}", self.method, self.version)?;
        for model in self.model.iter().chain(&self.other_models) {
            let fingerprint = model.fingerprint.get(..12).unwrap_or(&model.fingerprint);
            write!(f, "|model:{}@{fingerprint}", model.name)?;
            write!(f, "|precision:{}|weights:{}|device:{}", model.precision.as_str(), model.weights, model.device)?;
            model.platform.iter().try_for_each(|platform| write!(f, "|platform:{platform}"))?;
            let ChatOptions { think, thoughts, variables } = &model.chat;
            if model.thinking.is_some() {
                write!(f, "|think:{think}")?;
            }
            thoughts.iter().try_for_each(|thoughts| write!(f, "|thoughts:{thoughts}"))?;
            for (name, value) in variables {
                write!(f, "|template-var:{name}={}", one_field(&value.to_string()))?;
            }
        }
        for TemplateMark { name, sha256 } in &self.templates {
            write!(f, "|template:{name}@{}", sha256.get(..12).unwrap_or(sha256))?;
        }
        self.settings.iter().try_for_each(|(name, value)| write!(f, "|{name}:{}", one_field(value)))
    }
}

/// A value with characters escaped that would end its field or the line.
fn one_field(value: &str) -> String {
    value.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "\\n").replace('\r', "\\r")
}

/// What [`Method::run`](crate::Method::run) returns. Its serialised form is `summary.json` and is the same for equal
/// queries.
#[derive(Debug, Clone, Serialize)]
pub struct MethodReport {
    /// The method's name.
    pub method: &'static str,
    /// The conclusions, one per attribute or product, with their trust.
    pub verdict: Vec<Conclusion>,
    /// The signature of the scores; serialised also as one line.
    #[serde(flatten, serialize_with = "with_line")]
    pub signature: Signature,
    /// The number of answers by outcome, see [`Outcome::name`]. All is well if only `scored` and `tie` occur.
    pub outcomes: Outcomes,
    /// Agreement with gold, or a substitute without gold: one figure for each attribute.
    pub headline: Vec<Headline>,
    /// The candidates' scores, if the method assigns any.
    #[serde(flatten)]
    pub scores: RunScores,
    /// The most important figures by name; they come first in `summary.json`.
    #[serde(flatten)]
    pub first_figures: BTreeMap<&'static str, Value>,
    /// The method's own figures.
    pub values: Value,
    /// The figures as tables, the main one first.
    #[serde(rename = "sections")]
    pub tables: Vec<Table>,
    /// Tokens and time. They differ between repeated and resumed runs, so they belong in the manifest.
    #[serde(skip)]
    pub cost: Cost,
    /// Whether the terminal shows all tables with their notes.
    #[serde(skip)]
    pub details: bool,
}

fn with_line<S: Serializer>(signature: &Signature, serializer: S) -> Result<S::Ok, S::Error> {
    json!({ "signature_line": signature.to_string(), "signature": signature }).serialize(serializer)
}

impl MethodReport {
    /// A report without figures.
    pub fn new(signature: Signature) -> Self {
        Self {
            method: signature.method,
            verdict: Vec::new(),
            signature,
            outcomes: Outcomes::default(),
            headline: Vec::new(),
            scores: RunScores::default(),
            first_figures: BTreeMap::new(),
            values: Value::Null,
            tables: Vec::new(),
            cost: Cost::default(),
            details: false,
        }
    }

    /// The report of a finished run: with its cost, and notes about its outcomes.
    pub(crate) fn finished(mut self, cost: Cost) -> Self {
        if let Some(first) = self.tables.first_mut()
            && self.signature.model.is_some()
        {
            first.note(format!("outcomes: {}", self.outcomes.line()));
            first.notes.extend(self.outcomes.notes(self.signature.model.as_ref()));
        }
        Self { cost, ..self }
    }
}

/// Counts of outcomes by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcomes {
    counts: BTreeMap<Cow<'static, str>, usize>,
    /// The reasons for low label mass, if known.
    #[serde(skip)]
    low_mass: BTreeMap<String, usize>,
}

/// The maximum number of reasons for low label mass that are listed.
const NAMED_REASONS: usize = 3;

impl Outcomes {
    /// Counts an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        self.add_named(outcome.name());
        if let Outcome::LowMass { why: Some(why) } = outcome {
            *self.low_mass.entry(why.clone()).or_default() += 1;
        }
    }

    /// Counts an outcome specific to this method.
    pub fn add_named(&mut self, name: &'static str) {
        self.add_several(name, 1);
    }

    /// Counts an outcome `count` times.
    pub fn add_several(&mut self, name: &'static str, count: usize) {
        if count > 0 {
            *self.counts.entry(name.into()).or_default() += count;
        }
    }

    /// Adds other counts.
    pub fn extend(&mut self, more: &Self) {
        for (name, count) in &more.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        for (why, count) in &more.low_mass {
            *self.low_mass.entry(why.clone()).or_default() += count;
        }
    }

    /// The answers that models prefer when label mass is low, most frequent first.
    fn low_mass_note(&self) -> Option<String> {
        let mut reasons: Vec<(&String, &usize)> = self.low_mass.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let total = self.get("low_mass");
        let reasons: Vec<String> =
            reasons.iter().take(NAMED_REASONS).map(|(why, count)| format!("{why} ({count} of {total})")).collect();
        (!reasons.is_empty()).then(|| format!("low_mass: {}", reasons.join("; ")))
    }

    /// The number of answers with this outcome.
    pub fn get(&self, name: &str) -> usize {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Answers without a number or a text: all outcomes except `scored`, `low_mass`, `tie`, `revised`, `written` and
    /// `truncated_used`.
    pub fn unscored(&self) -> usize {
        let answered =
            |name: &str| matches!(name, "scored" | "low_mass" | "tie" | "revised" | "written" | "truncated_used");
        self.counts.iter().filter(|(name, _)| !answered(name)).map(|(_, count)| count).sum()
    }

    /// For each outcome without an answer, its meaning and a fix.
    pub fn notes(&self, model: Option<&ModelDescription>) -> Vec<String> {
        let mut notes: Vec<String> = self.low_mass_note().into_iter().collect();
        for name in self.counts.keys() {
            let hint = match name.as_ref() {
                "too_long" => match model.and_then(|model| model.context_length) {
                    Some(tokens) => &format!(
                        "prompt and answer exceed the model's context of {tokens} tokens or, if a row's `limit` is \
                         lower, the cache budget (--compute cache-budget); shorten the context or use a model with a \
                         longer one"
                    ),
                    None => "the prompt's keys and values exceed the cache budget; raise --compute cache-budget",
                },
                "altered" => {
                    "the model's chat template would omit or alter part of a text, so the model was not queried; add a \
                     `chat_template.jinja` that leaves messages unchanged next to the model's tokenizer"
                }
                "empty" => "the candidate or the text to compare with is empty, so the model was not queried",
                "one_candidate" => "the sample has a single candidate and nothing to compare it with",
                "no_reference" => "the sample has no reference to show, so its candidates are not judged",
                "not_a_pair" => {
                    "the sample does not have two candidates; --mode pointwise judges each candidate \
                                 alone"
                }
                "truncated_used" => {
                    "the text was truncated by the token limit and is used truncated (in revise and reviseval because \
                     of --use-truncated)"
                }
                "no_aius" => {
                    "the critique contains no claims and has no precision; its row in `aius` has the generated text"
                }
                "truncated" => {
                    "the text was truncated by the token limit and not used as a reference (allow it with \
                     --use-truncated); raise --max-tokens, in reviseval --revision-tokens"
                }
                "unparsed" => {
                    "the generated answer has no readable verdict or was truncated (--max-tokens); the row's `why` has \
                     the reason. Label probabilities need no parsing (--verdict label, compare --decide prob, g-eval)"
                }
                "not_finite" => "the model computed no finite number; the row's `why` has the place",
                _ => continue,
            };
            notes.push(format!("{name}: {hint}"));
        }
        notes
    }

    /// `4 scored, 1 too_long`, or `none`.
    pub fn line(&self) -> String {
        if self.counts.is_empty() {
            return "none".to_owned();
        }
        self.counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}
