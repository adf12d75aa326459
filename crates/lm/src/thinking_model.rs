//! A language model that thinks before it answers.

use crate::thinking::without_cut_mark;
use crate::{
    Ask, ChatFormat, ChatOptions, GenerateRequest, GenerateResult, LabelAnswer, LanguageModel, LmError,
    ModelDescription, Outcome, Prompt, Requests, Sampling, SamplingLimits, ScoreAnswer, ScoreRequest, ScoreResult,
    Sink, ThinkMode, ThinkingStyle, Thought, Usage,
};

/// Requests whose thoughts are generated together.
const TOGETHER: usize = 1_024;

/// The model has no thoughts to write.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("the model does not think before it answers: neither its chat template nor its vocabulary marks thoughts")]
#[diagnostic(help(
    "omit --think and --thoughts; to let it give reasons first, use a method whose answers are written"
))]
struct NoThoughts;

/// The prompt is no chat.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("a thought is written only in a chat, and this prompt is plain text")]
#[diagnostic(help("omit --think and --thoughts, or use --format chat or `messages`"))]
struct NoChat;

/// The thoughts before an answer; an `Err` says why one is missing.
type Thoughts = Vec<Result<String, Box<GenerateResult>>>;

/// A language model with [`ChatOptions`].
///
/// - Thoughts are closed ([`Thought::Closed`]) for questions about labels and texts, for constrained answers, and with
///   [`ThinkMode::Off`] for all others.
/// - With [`ThinkMode::AtMost`], the model first writes its thought. Labels are queried and answers are written after
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

    fn thought_before(&self, is_free_text: bool) -> Thought {
        self.options().thought_before(self.description.thinking.as_ref(), is_free_text)
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
        let thought =
            if matches!(request.ask, Ask::Classes) { Thought::AsTemplate } else { self.thought_before(false) };
        ScoreRequest { prompt: self.formatted(request.prompt, thought), ..request }
    }

    fn generate_request(&self, request: GenerateRequest) -> GenerateRequest {
        let thought = self.thought_before(request.constraint.is_none());
        GenerateRequest { prompt: self.formatted(request.prompt, thought), ..request }
    }

    /// Whether a prompt is answered after a thought that the model writes.
    fn thinks(&self, id: &str, prompt: &Prompt) -> Result<bool, LmError> {
        let refuse = |source| Err(LmError::Request { id: id.to_owned(), source });
        match prompt {
            Prompt::Chat { format, .. } if !format.is_usual() => Ok(false),
            _ if self.description.thinking.is_none() => refuse(Box::new(NoThoughts)),
            Prompt::Chat { .. } => Ok(true),
            _ => refuse(Box::new(NoChat)),
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
            // The answer begins after the thought.
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
        let positions: Vec<(usize, u32)> = thoughts
            .iter()
            .enumerate()
            .flat_map(|(index, prompt_thoughts)| (0..prompt_thoughts.len() as u32).map(move |number| (index, number)))
            .collect();
        let stops = self.description.thinking.as_ref().map(ThinkingStyle::stops).unwrap_or_default();
        let mut requests = positions.iter().filter_map(|&(index, number)| {
            let (id, prompt) = prompts[index]?;
            Some(self.thought_request(id, prompt, number + 1, max_tokens))
        });
        *usage += self.model.generate(&mut requests, &mut |index, result: GenerateResult| {
            let (index, number) = positions[index];
            thoughts[index][number as usize] = match result.outcome {
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

    /// Answers requests after thoughts; results in their order.
    fn score_chunk(
        &self,
        chunk: Vec<ScoreRequest>,
        max_tokens: u32,
        usage: &mut Usage,
    ) -> Result<Vec<ScoreResult>, LmError> {
        let mut prompts = Vec::with_capacity(chunk.len());
        for ScoreRequest { id, prompt, ask } in &chunk {
            // Only label distributions can be averaged; other questions are asked after a closed thought.
            let thinks = matches!(ask, Ask::Labels(_)) && self.thinks(id, prompt)?;
            prompts.push(thinks.then_some((id.as_str(), prompt)));
        }
        let thoughts = self.think(&prompts, (max_tokens, self.options().thoughts.unwrap_or(1)), usage)?;
        let (mut queries, mut positions) = (Vec::new(), Vec::new());
        let mut results: Vec<Vec<Option<ScoreResult>>> = vec![Vec::new(); chunk.len()];
        for (index, (request, thoughts)) in chunk.into_iter().zip(thoughts).enumerate() {
            if thoughts.is_empty() {
                positions.push((index, 0));
                results[index].push(None);
                queries.push(self.score_request(request));
                continue;
            }
            for (number, thought) in thoughts.into_iter().enumerate() {
                results[index].push(match thought {
                    Ok(text) => {
                        let prompt = self.formatted(request.prompt.clone(), Thought::Text(text));
                        positions.push((index, number));
                        queries.push(ScoreRequest { prompt, ..request.clone() });
                        None
                    }
                    Err(failed) => {
                        let GenerateResult { outcome, prompt_tokens, .. } = *failed;
                        Some(ScoreResult { outcome, prompt_tokens, answer: None })
                    }
                });
            }
        }
        *usage += self.model.score(&mut queries.into_iter(), &mut |index, result| {
            let (index, number) = positions[index];
            results[index][number] = Some(result);
            Ok(())
        })?;
        let all = |results: Vec<Option<ScoreResult>>| -> Vec<ScoreResult> { results.into_iter().flatten().collect() };
        Ok(results.into_iter().map(|results| mean(all(results), self.min_mass)).collect())
    }

    /// Writes answers after thoughts; results in the order of the requests.
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
        let (mut queries, mut positions) = (Vec::new(), Vec::new());
        let mut results: Vec<Option<GenerateResult>> = vec![None; chunk.len()];
        for (index, (request, mut thoughts)) in chunk.into_iter().zip(thoughts).enumerate() {
            let thought = match thoughts.pop() {
                Some(Err(failed)) => {
                    results[index] = Some(*failed);
                    continue;
                }
                Some(Ok(text)) => Thought::Text(text),
                None => Thought::AsTemplate,
            };
            positions.push(index);
            queries.push(GenerateRequest { prompt: self.formatted(request.prompt, thought), ..request });
        }
        *usage += self.model.generate(&mut queries.into_iter(), &mut |index, result| {
            results[positions[index]] = Some(result);
            Ok(())
        })?;
        Ok(results.into_iter().flatten().collect())
    }
}

/// Answers requests in chunks, each after its thoughts.
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
        for (index, result) in results.into_iter().enumerate() {
            sink(first + index, result).map_err(LmError::Sink)?;
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
    let prompt_tokens = first.prompt_tokens;
    if let Some(mut answer) = LabelAnswer::mean(&labels) {
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
