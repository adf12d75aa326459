//! Models that think before they answer.
//!
//! Label probabilities are meaningful only at the position where the model would write its answer. A model that thinks
//! first writes the mark of a thought there, and label mass is near 0. [`ThinkingModel`] therefore closes the thought,
//! or lets the model write it and queries the labels behind it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Ask, ChatFormat, GenerateRequest, GenerateResult, LabelAnswer, LanguageModel, LmError, ModelDescription, Outcome,
    Prompt, Requests, Sampling, SamplingLimits, ScoreAnswer, ScoreRequest, ScoreResult, Sink, Thought, Usage,
};

/// Requests whose thoughts are generated together.
const TOGETHER: usize = 1_024;

/// Who opens a thought when the template has its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenedBy {
    /// The template: a thought is open where the answer begins.
    Template,
    /// The model, with the first token that it writes.
    Model,
    /// No thoughts by default; a variable of the template may turn them on.
    Off,
    /// Unknown: the vocabulary has marks of thoughts, but the template does not mention them.
    Unclear,
}

/// How a model thinks, read from its chat template and vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingStyle {
    /// Who opens a thought.
    pub opened_by: OpenedBy,
    /// The text before a thought.
    pub open: String,
    /// The text between a thought and the answer.
    pub close: String,
    /// The variable of the template that turns thoughts off, with its value. Without one, an empty thought is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<(String, Value)>,
    /// The variable that turns thoughts on, if they are off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<(String, Value)>,
}

impl ThinkingStyle {
    /// The variable of the template that turns thoughts on or off.
    pub fn switch(&self) -> Option<&str> {
        self.off.as_ref().or(self.on.as_ref()).map(|(name, _)| name.as_str())
    }

    /// Texts that end a thought: the first mark of the closing text, or its first line that is not blank.
    pub fn stops(&self) -> Vec<String> {
        let close = self.close.trim_start();
        let end = ['>', ']', '▷'].into_iter().filter_map(|mark| Some(close.find(mark)? + mark.len_utf8())).min();
        let end = end.unwrap_or_else(|| close.find('\n').unwrap_or(close.len()));
        let mut stops = vec![close[..end].to_owned()];
        // Control tokens are not part of a text, so the role behind one is a second end.
        if let Some((_, role)) = close[end..].split_once("<|start|>") {
            stops.push(role.trim_end().to_owned());
        }
        stops
    }
}

/// A text without the beginning of a mark at its end, where the text was cut off.
pub(crate) fn without_cut_mark<'t>(text: &'t str, marks: &[String]) -> &'t str {
    let cut = |mark: &String| {
        // A role before a mark counts as a whole: its first letters may end a word.
        let least = mark.find(['<', '[', '◁']).unwrap_or(0).max(1);
        (least..mark.len()).rev().find(|&end| mark.is_char_boundary(end) && text.ends_with(&mark[..end])).unwrap_or(0)
    };
    &text[..text.len() - marks.iter().map(cut).max().unwrap_or(0)]
}

/// One line for display.
impl fmt::Display for ThinkingStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opened_by, open, close, off, on } = self;
        match opened_by {
            OpenedBy::Template => write!(f, "the chat template opens a thought"),
            OpenedBy::Model => write!(f, "the model opens a thought with {open:?}"),
            OpenedBy::Off => write!(f, "off by default"),
            OpenedBy::Unclear => write!(f, "perhaps, between {open:?} and {close:?}: the chat template does not say"),
        }?;
        if matches!(opened_by, OpenedBy::Template | OpenedBy::Model) {
            match off {
                Some((name, value)) => write!(f, "; {name}={value} turns it off"),
                None => write!(f, "; closed with {close:?}"),
            }?;
        }
        on.iter().try_for_each(|(name, value)| write!(f, "; {name}={value} turns it on"))
    }
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkMode {
    /// Thoughts are closed for questions about labels and for constrained answers. Other texts begin as the template
    /// has it.
    #[default]
    Auto,
    /// Thoughts are closed everywhere.
    Off,
    /// The model writes a thought of at most this many tokens, which is then closed.
    AtMost(u32),
}

impl ThinkMode {
    /// Whether it is the default.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Why a text is no [`ThinkMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("expected auto, off, or the maximum number of tokens of a thought, from 1 to {}", MOST_THOUGHT_TOKENS)]
pub struct ThinkModeError;

const MOST_THOUGHT_TOKENS: u32 = 1 << 20;

impl FromStr for ThinkMode {
    type Err = ThinkModeError;

    fn from_str(text: &str) -> Result<Self, ThinkModeError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => {
                let tokens = text.parse().ok().filter(|tokens| (1..=MOST_THOUGHT_TOKENS).contains(tokens));
                tokens.map(Self::AtMost).ok_or(ThinkModeError)
            }
        }
    }
}

impl fmt::Display for ThinkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::AtMost(tokens) => tokens.fmt(f),
        }
    }
}

/// How chats are formatted and whether the model thinks. Part of every result's signature.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatOptions {
    /// Thoughts before answers.
    #[serde(with = "mode", skip_serializing_if = "ThinkMode::is_auto")]
    pub think: ThinkMode,
    /// Number of thoughts over which label probabilities are averaged; absent for one greedy thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<u32>,
    /// Variables of the chat template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Value>,
}

impl ChatOptions {
    /// Whether all have their defaults.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

mod mode {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use super::ThinkMode;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(mode: &ThinkMode, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mode)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ThinkMode, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The model has no thoughts to write.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("the model does not think before it answers: neither its chat template nor its vocabulary marks thoughts")]
#[diagnostic(help(
    "omit --think and --thoughts; to let it give reasons first, use a method whose answers are written"
))]
struct NoThoughts;

/// The thoughts before an answer; an `Err` says why one is missing.
type Thoughts = Vec<Result<String, Box<GenerateResult>>>;

/// A language model with [`ChatOptions`].
///
/// - Thoughts are closed ([`Thought::Closed`]) for questions about labels and texts, for constrained answers, and with
///   [`ThinkMode::Off`] for all others.
/// - With [`ThinkMode::AtMost`], the model first writes its thought. Labels are queried and answers are written behind
///   it. With several thoughts, drawn at temperature 1, the label distributions are averaged: Σ P(label | thought) / K
///   (Wang et al. 2025, arXiv 2503.03064, find the mean of the distribution better than its mode).
///
/// A thought is the answer to a request with the id `ID/thought`, or `ID/thought-2` and so on. A model that does not
/// think receives its requests unchanged, except for the variables. So does a chat with a format of its own.
pub struct ThinkingModel<M> {
    model: M,
    description: ModelDescription,
    min_mass: f64,
}

impl<M: LanguageModel> ThinkingModel<M> {
    /// Wraps a model. `min_mass` is the label mass below which averaged answers are flagged.
    pub fn new(model: M, options: ChatOptions, min_mass: f64) -> Self {
        let description = ModelDescription { chat: options, ..model.description().clone() };
        Self { model, description, min_mass }
    }

    fn options(&self) -> &ChatOptions {
        &self.description.chat
    }

    /// The chat with this thought and the variables.
    fn formatted(&self, prompt: Prompt, thought: Thought) -> Prompt {
        match prompt {
            Prompt::Chat { messages, answer_prefix, format } if format.is_usual() => {
                let format = ChatFormat { thought, variables: self.options().variables.clone() };
                Prompt::Chat { messages, answer_prefix, format }
            }
            other => other,
        }
    }

    fn score_request(&self, request: ScoreRequest) -> ScoreRequest {
        // A class head reads the chat as it was trained, without an answer.
        let thought = if matches!(request.ask, Ask::Classes) {
            Thought::AsTemplate
        } else {
            self.description.thought_before(false)
        };
        ScoreRequest { prompt: self.formatted(request.prompt, thought), ..request }
    }

    fn generate_request(&self, request: GenerateRequest) -> GenerateRequest {
        let thought = self.description.thought_before(request.constraint.is_none());
        GenerateRequest { prompt: self.formatted(request.prompt, thought), ..request }
    }

    /// Whether a prompt is answered behind a thought that the model writes.
    fn thinks(&self, id: &str, prompt: &Prompt) -> Result<bool, LmError> {
        match prompt {
            Prompt::Chat { format, .. } if format.is_usual() => match self.description.thinking {
                Some(_) => Ok(true),
                None => Err(LmError::Request { id: id.to_owned(), source: Box::new(NoThoughts) }),
            },
            _ => Ok(false),
        }
    }

    /// The request for a thought.
    fn thought_request(&self, id: &str, prompt: &Prompt, number: u32, max_tokens: u32) -> GenerateRequest {
        let id = if number == 1 { format!("{id}/thought") } else { format!("{id}/thought-{number}") };
        let sampling = match self.options().thoughts {
            None => Sampling::Greedy,
            Some(_) => Sampling::Random { temperature: 1.0, limits: SamplingLimits::default(), seed: seed_of(&id) },
        };
        let prompt = match self.formatted(prompt.clone(), Thought::Open) {
            // The answer begins behind the thought.
            Prompt::Chat { messages, format, .. } => Prompt::Chat { messages, answer_prefix: String::new(), format },
            other => other,
        };
        let stop = self.description.thinking.as_ref().map(ThinkingStyle::stops).unwrap_or_default();
        GenerateRequest { stop, sampling, ..GenerateRequest::greedy(id, prompt, max_tokens as usize) }
    }

    /// Writes `count` thoughts for each prompt that is to have one, and returns them by prompt. An `Err` says why the
    /// prompt has no thought.
    fn think(
        &self,
        prompts: &[Option<(&str, &Prompt)>],
        (max_tokens, count): (u32, u32),
        usage: &mut Usage,
    ) -> Result<Vec<Thoughts>, LmError> {
        let mut thoughts: Vec<Thoughts> = prompts
            .iter()
            .map(|prompt| prompt.iter().flat_map(|_| (0..count).map(|_| Ok(String::new()))).collect())
            .collect();
        let places: Vec<(usize, u32)> = thoughts
            .iter()
            .enumerate()
            .flat_map(|(place, of_prompt)| (0..of_prompt.len() as u32).map(move |number| (place, number)))
            .collect();
        let stops = self.description.thinking.as_ref().map(ThinkingStyle::stops).unwrap_or_default();
        let mut requests = places.iter().filter_map(|&(place, number)| {
            let (id, prompt) = prompts[place]?;
            Some(self.thought_request(id, prompt, number + 1, max_tokens))
        });
        *usage += self.model.generate(&mut requests, &mut |index, result: GenerateResult| {
            let (place, number) = places[index];
            thoughts[place][number as usize] = match result.outcome {
                Outcome::Scored => Ok(without_cut_mark(&result.text, &stops).to_owned()),
                // A dry run: a thought of the maximum length that fits, so that no cost is missed.
                Outcome::Empty => {
                    let room = self.description.context_length.unwrap_or(1 << 15).saturating_sub(result.prompt_tokens);
                    Ok(" a".repeat(room.min(max_tokens as usize)))
                }
                _ => Err(Box::new(result)),
            };
            Ok(())
        })?;
        Ok(thoughts)
    }

    /// Answers requests behind thoughts; results in their order.
    fn score_chunk(
        &self,
        chunk: Vec<ScoreRequest>,
        max_tokens: u32,
        usage: &mut Usage,
    ) -> Result<Vec<ScoreResult>, LmError> {
        let mut prompts = Vec::with_capacity(chunk.len());
        for ScoreRequest { id, prompt, ask } in &chunk {
            // Only label distributions can be averaged; other questions are asked behind a closed thought.
            let thinks = matches!(ask, Ask::Labels(_)) && self.thinks(id, prompt)?;
            prompts.push(thinks.then_some((id.as_str(), prompt)));
        }
        let thoughts = self.think(&prompts, (max_tokens, self.options().thoughts.unwrap_or(1)), usage)?;
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        let mut results: Vec<Vec<Option<ScoreResult>>> = vec![Vec::new(); chunk.len()];
        for (place, (request, thoughts)) in chunk.into_iter().zip(thoughts).enumerate() {
            if thoughts.is_empty() {
                places.push((place, 0));
                results[place].push(None);
                asked.push(self.score_request(request));
                continue;
            }
            for (number, thought) in thoughts.into_iter().enumerate() {
                results[place].push(match thought {
                    Ok(text) => {
                        let prompt = self.formatted(request.prompt.clone(), Thought::Text(text));
                        places.push((place, number));
                        asked.push(ScoreRequest { prompt, ..request.clone() });
                        None
                    }
                    Err(failed) => {
                        let GenerateResult { outcome, prompt_tokens, .. } = *failed;
                        Some(ScoreResult { outcome, prompt_tokens, answer: None })
                    }
                });
            }
        }
        *usage += self.model.score(&mut asked.into_iter(), &mut |index, result| {
            let (place, number) = places[index];
            results[place][number] = Some(result);
            Ok(())
        })?;
        let all = |results: Vec<Option<ScoreResult>>| -> Vec<ScoreResult> { results.into_iter().flatten().collect() };
        Ok(results.into_iter().map(|results| mean(all(results), self.min_mass)).collect())
    }

    /// Writes answers behind thoughts; results in the order of the requests.
    fn generate_chunk(
        &self,
        chunk: Vec<GenerateRequest>,
        max_tokens: u32,
        usage: &mut Usage,
    ) -> Result<Vec<GenerateResult>, LmError> {
        let mut prompts = Vec::with_capacity(chunk.len());
        for GenerateRequest { id, prompt, .. } in &chunk {
            prompts.push(self.thinks(id, prompt)?.then_some((id.as_str(), prompt)));
        }
        let thoughts = self.think(&prompts, (max_tokens, 1), usage)?;
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        let mut results: Vec<Option<GenerateResult>> = vec![None; chunk.len()];
        for (place, (request, mut thoughts)) in chunk.into_iter().zip(thoughts).enumerate() {
            let thought = match thoughts.pop() {
                Some(Err(failed)) => {
                    results[place] = Some(*failed);
                    continue;
                }
                Some(Ok(text)) => Thought::Text(text),
                None => Thought::AsTemplate,
            };
            places.push(place);
            asked.push(GenerateRequest { prompt: self.formatted(request.prompt, thought), ..request });
        }
        *usage += self.model.generate(&mut asked.into_iter(), &mut |index, result| {
            results[places[index]] = Some(result);
            Ok(())
        })?;
        Ok(results.into_iter().flatten().collect())
    }
}

/// Answers requests in chunks, each behind its thoughts.
fn in_chunks<Q, A>(
    requests: &mut Requests<'_, Q>,
    sink: &mut Sink<'_, A>,
    answer: impl Fn(Vec<Q>, &mut Usage) -> Result<Vec<A>, LmError>,
) -> Result<Usage, LmError> {
    let (mut usage, mut first) = (Usage::default(), 0);
    loop {
        let chunk: Vec<Q> = (&mut *requests).take(TOGETHER).collect();
        if chunk.is_empty() {
            return Ok(usage);
        }
        let results = answer(chunk, &mut usage)?;
        let count = results.len();
        for (place, result) in results.into_iter().enumerate() {
            sink(first + place, result).map_err(LmError::Sink)?;
        }
        first += count;
    }
}

/// The mean of label distributions under the full vocabulary. A result without an answer takes precedence.
fn mean(mut results: Vec<ScoreResult>, min_mass: f64) -> ScoreResult {
    let labels: Option<Vec<&LabelAnswer>> = results.iter().map(ScoreResult::labels).collect();
    let failed = results.iter().position(|result| result.labels().is_none());
    let (Some(labels), None, [first, _, ..]) = (labels, failed, &results[..]) else {
        return results.swap_remove(failed.unwrap_or(0));
    };
    let share = libm::log(labels.len() as f64);
    let of_label = |place: usize| {
        let logprobs: Vec<f64> = labels.iter().map(|answer| answer.labels[place].logprob).collect();
        let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logprobs.iter().map(|logprob| libm::exp(logprob - most)).sum();
        if most.is_finite() { most + libm::log(sum) - share } else { most }
    };
    let names = labels[0].labels.iter().map(|label| label.name.clone());
    let answer = LabelAnswer::from_logprobs(names.enumerate().map(|(place, name)| (name, of_label(place))));
    let prompt_tokens = first.prompt_tokens;
    if let Some(mut answer) = answer {
        answer.likeliest = labels[0].likeliest.clone().filter(|_| answer.mass < min_mass);
        let outcome = answer.outcome(min_mass);
        return ScoreResult { outcome, prompt_tokens, answer: Some(ScoreAnswer::Labels(answer)) };
    }
    let outcome = Outcome::NotFinite { why: "no label has any probability".into() };
    ScoreResult { outcome, prompt_tokens, answer: None }
}

/// A seed from a request's id: FNV-1a.
fn seed_of(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl<M: LanguageModel> LanguageModel for ThinkingModel<M> {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        match self.options().think {
            ThinkMode::AtMost(most) => in_chunks(requests, sink, |chunk, usage| self.score_chunk(chunk, most, usage)),
            _ => self.model.score(&mut requests.map(|request| self.score_request(request)), sink),
        }
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        match self.options().think {
            ThinkMode::AtMost(most) => {
                in_chunks(requests, sink, |chunk, usage| self.generate_chunk(chunk, most, usage))
            }
            _ => self.model.generate(&mut requests.map(|request| self.generate_request(request)), sink),
        }
    }
}
