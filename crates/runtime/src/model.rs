//! The language-model contract on candle.

use std::sync::Arc;

use candle_core::Tensor;
use probity_lm::{
    Ask, ContinuationAnswer, GenerateRequest, GenerateResult, LabelAnswer, LanguageModel, LmError, ModelDescription, Outcome, Precision,
    Sampling, ScoreAnswer, ScoreRequest, ScoreResult, Sink, SinkError, Usage,
};
use probity_models::{Arithmetic, Decoder, DeviceChoice, HeadRow, KvSpan, PackedOutput, PackedSegment, weight_types};
use rayon::ThreadPool;

use crate::checkpoint::{Checkpoint, LoadError};
use crate::encoder::{EncodeError, Encoder};
use crate::engine::generate::{Generated, TokenPrompt, Vocabulary, generate};
use crate::engine::scheduler::Limits;
use crate::engine::token_scores::{Schedule, TokenQuery, TokenScore, score_tokens};
use crate::engine::walk::WalkError;
use crate::hub::Located;
use crate::verdict::verdict_request;
use crate::weights::fingerprint;

/// How a model is loaded and run. Only `precision` and `device` change results.
///
/// Off [`DeviceChoice::Cpu`], what runs together may change their last bits too.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The arithmetic of quantised weights.
    pub precision: Precision,
    /// Where the model computes.
    pub device: DeviceChoice,
    /// Threads; all cores where absent.
    pub threads: Option<usize>,
    /// Label mass below which an answer is flagged.
    pub min_mass: f64,
    /// Whether prompts' shared beginnings are computed once.
    pub share_prefixes: bool,
    /// Tokens that run through the model at once.
    pub token_budget: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        let min_mass = probity_lm::DEFAULT_MIN_MASS;
        Self { precision: Precision::Exact, device: DeviceChoice::Cpu, threads: None, min_mass, share_prefixes: true, token_budget: 1024 }
    }
}

/// A loaded model.
pub struct Model {
    decoder: Pooled,
    encoder: Encoder,
    description: ModelDescription,
    options: LoadOptions,
}

/// A decoder whose work runs on the model's own threads.
struct Pooled {
    decoder: Box<dyn Decoder>,
    threads: ThreadPool,
}

impl Decoder for Pooled {
    fn forward(&self, segments: &[PackedSegment]) -> candle_core::Result<PackedOutput> {
        self.threads.install(|| self.decoder.forward(segments))
    }

    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor> {
        self.threads.install(|| self.decoder.logits(hidden))
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>> {
        self.threads.install(|| self.decoder.head(hidden, asked))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.decoder.cache_bytes(tokens)
    }

    fn normalisers(&self, logits: &Tensor) -> candle_core::Result<Vec<f64>> {
        self.threads.install(|| self.decoder.normalisers(logits))
    }

    fn join(&self, spans: &[Arc<KvSpan>]) -> candle_core::Result<Arc<KvSpan>> {
        self.decoder.join(spans)
    }
}

impl Model {
    /// Loads a model that lies on this machine.
    pub fn load(located: &Located, options: LoadOptions) -> Result<Self, LoadError> {
        let count = options.threads.unwrap_or(0);
        let threads = rayon::ThreadPoolBuilder::new().num_threads(count).build();
        let threads = threads.map_err(|error| LoadError::Threads { threads: count, why: error.to_string() })?;
        let checkpoint = Checkpoint::open(located)?;
        let arithmetic = match options.precision {
            Precision::Exact => Arithmetic::Exact,
            Precision::Fast => Arithmetic::fastest(),
            Precision::Dots => Arithmetic::Dots,
            Precision::Tiles => Arithmetic::Tiles,
        };
        let types: Vec<&str> = weight_types(&*checkpoint.source).iter().map(|(t, _)| t.name()).collect();
        let description = ModelDescription {
            name: located.name.clone(),
            architecture: checkpoint.config_json["model_type"].as_str().unwrap_or_default().to_owned(),
            fingerprint: fingerprint(&checkpoint.files)?,
            precision: in_force(options),
            device: options.device.to_string(),
            weights: types.join(", "),
            context_length: checkpoint.config.context_length,
            has_chat_template: checkpoint.encoder.chat().is_some(),
        };
        let decoder = threads.install(|| checkpoint.load(arithmetic, options.device))?;
        Ok(Self { decoder: Pooled { decoder, threads }, encoder: checkpoint.encoder, description, options })
    }

    /// The tokenizer and chat template.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Whether a request can be asked of this model; [`score`](LanguageModel::score) would fail with the same error.
    pub fn check(&self, request: &ScoreRequest) -> Result<(), LmError> {
        self.encode(request, 0).map(|_| ())
    }

    fn schedule(&self) -> Schedule {
        let limits = Limits { tokens: self.options.token_budget, cache: u64::MAX };
        Schedule { limits, share_prefixes: self.options.share_prefixes }
    }

    /// A request in tokens; `index` is its place in the work list.
    fn encode(&self, request: &ScoreRequest, index: usize) -> Result<Encoded, LmError> {
        let fail = |error| encode_error(&request.id, error);
        let (prefix, labels) = match &request.ask {
            Ask::Labels(set) => {
                let encoded = self.encoder.encode_labels(&request.prompt, set).map_err(fail)?;
                (encoded.prefix, encoded.labels)
            }
            Ask::Continuation(text) => {
                let encoded = self.encoder.encode_continuation(&request.prompt, text).map_err(fail)?;
                (encoded.prefix, vec![vec![encoded.continuation]])
            }
        };
        let longest = labels.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let prompt_tokens = prefix.len();
        if prompt_tokens == 0 && !self.encoder.encode_prompt(&request.prompt).map_err(fail)?.is_empty() {
            let why = "what is asked merges with the whole prompt, which leaves nothing to condition on\n\nhint: put some text before it";
            return Err(LmError::Request { id: request.id.clone(), why: why.into() });
        }
        let outcome = if prompt_tokens == 0 || longest == 0 {
            Some(Outcome::Empty)
        } else if prompt_tokens + longest > self.description.context_length {
            Some(Outcome::TooLong { tokens_needed: prompt_tokens + longest, limit: self.description.context_length })
        } else {
            None
        };
        let mut queries = Vec::new();
        let mut variants = Vec::new();
        for (label, sequences) in labels.iter().enumerate() {
            for sequence in sequences {
                queries.push(TokenQuery { tokens: [prefix.as_slice(), sequence].concat(), from: prompt_tokens, request: index });
                variants.push(label);
            }
        }
        Ok(Encoded { prompt_tokens, outcome, queries, variants })
    }

    /// The answer from the scores of a request's queries.
    fn answer(&self, request: &ScoreRequest, encoded: &Encoded, scores: &[Vec<TokenScore>], queries: &[TokenQuery]) -> ScoreResult {
        let prompt_tokens = encoded.prompt_tokens;
        let finite = scores.iter().flatten().all(|score| score.logprob.is_finite());
        let answer = finite.then(|| match &request.ask {
            Ask::Labels(set) => {
                let sums: Vec<f64> = scores.iter().map(|tokens| tokens.iter().map(|t| t.logprob).sum()).collect();
                let of_label = |label| sums.iter().zip(&encoded.variants).filter(move |(_, l)| **l == label).map(|(sum, _)| *sum);
                let logprobs = set.labels().iter().enumerate().map(|(index, label)| (label.name.clone(), add_logs(of_label(index))));
                LabelAnswer::from_logprobs(logprobs).map(ScoreAnswer::Labels)
            }
            Ask::Continuation(_) => Some(ScoreAnswer::Continuation(self.continuation(&queries[0], &scores[0]))),
        });
        let outcome = match answer.as_ref().and_then(Option::as_ref) {
            None => Outcome::NotFinite { why: "the model's logits are not finite numbers".into() },
            Some(ScoreAnswer::Labels(labels)) => labels.outcome(self.options.min_mass),
            Some(ScoreAnswer::Continuation(_)) => Outcome::Scored,
        };
        ScoreResult { outcome, prompt_tokens, answer: answer.flatten() }
    }

    fn continuation(&self, query: &TokenQuery, scores: &[TokenScore]) -> ContinuationAnswer {
        let token_ids = query.tokens[query.from..].to_vec();
        ContinuationAnswer {
            logprob: scores.iter().map(|s| s.logprob).sum(),
            token_logprobs: scores.iter().map(|s| s.logprob).collect(),
            tokens: token_ids.iter().map(|id| self.encoder.tokenizer().token_text(*id)).collect(),
            token_ids,
            is_greedy: scores.iter().all(|s| s.is_greedy),
        }
    }
}

/// The arithmetic that an option means on this machine.
fn in_force(options: LoadOptions) -> Precision {
    match (options.precision, Arithmetic::fastest()) {
        (Precision::Fast, Arithmetic::Tiles) if options.device == DeviceChoice::Cpu => Precision::Tiles,
        (Precision::Fast, _) if options.device == DeviceChoice::Cpu => Precision::Dots,
        (precision, _) => precision,
    }
}

/// A request in tokens.
struct Encoded {
    prompt_tokens: usize,
    /// Set where there is nothing to compute.
    outcome: Option<Outcome>,
    queries: Vec<TokenQuery>,
    /// The label of each query.
    variants: Vec<usize>,
}

/// log Σ eˣ.
fn add_logs(logs: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = logs.collect();
    let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_finite() { max + libm::log(logs.iter().map(|l| libm::exp(l - max)).sum()) } else { max }
}

fn encode_error(id: &str, error: EncodeError) -> LmError {
    match error {
        EncodeError::Labels(source) => LmError::Labels { id: id.to_owned(), source },
        other => LmError::Request { id: id.to_owned(), why: other.to_string() },
    }
}

fn walk_error(error: WalkError<SinkError>) -> LmError {
    match error {
        WalkError::Model(error) => LmError::Model(Box::new(error)),
        WalkError::Visitor(error) => LmError::Sink(error),
    }
}

impl LanguageModel for Model {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(&self, requests: &[ScoreRequest], sink: &mut Sink<'_, ScoreResult>) -> Result<Usage, LmError> {
        let mut encoded = requests.iter().enumerate().map(|(i, r)| self.encode(r, i)).collect::<Result<Vec<_>, _>>()?;
        let mut queries = Vec::new();
        // First query of each request.
        let mut first = Vec::with_capacity(requests.len());
        for (index, request) in encoded.iter_mut().enumerate() {
            first.push(queries.len());
            if let Some(outcome) = &request.outcome {
                let result = ScoreResult { outcome: outcome.clone(), prompt_tokens: request.prompt_tokens, answer: None };
                sink(index, result).map_err(LmError::Sink)?;
            } else {
                queries.append(&mut request.queries);
            }
        }
        let mut scores: Vec<Option<Vec<TokenScore>>> = vec![None; queries.len()];
        let mut done = |query: usize, result: Vec<TokenScore>| -> Result<(), SinkError> {
            scores[query] = Some(result);
            let index = queries[query].request;
            let range = first[index]..first[index] + encoded[index].variants.len();
            if scores[range.clone()].iter().any(Option::is_none) {
                return Ok(());
            }
            let complete: Vec<Vec<TokenScore>> = scores[range.clone()].iter_mut().filter_map(Option::take).collect();
            sink(index, self.answer(&requests[index], &encoded[index], &complete, &queries[range]))
        };
        score_tokens(&self.decoder, &queries, self.schedule(), &mut done).map_err(walk_error)
    }

    fn generate(&self, requests: &[GenerateRequest], sink: &mut Sink<'_, GenerateResult>) -> Result<Usage, LmError> {
        let mut prompts = Vec::new();
        let mut places = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let (prompt, outcome) = self.prompt(request)?;
            let prompt_tokens = prompt.tokens.len();
            if let Some(outcome) = outcome {
                let nothing = Generated { token_ids: Vec::new(), text: String::new(), finish: None };
                sink(index, result(outcome, prompt_tokens, nothing)).map_err(LmError::Sink)?;
            } else {
                prompts.push(prompt);
                places.push(index);
            }
        }
        let decode = |ids: &[u32]| self.encoder.tokenizer().decode(ids).unwrap_or_default();
        let vocabulary = Vocabulary { decode: &decode, ends: self.encoder.tokenizer().ends() };
        // Texts with a verdict wait for its probabilities.
        let mut waiting = Vec::new();
        let mut done = |prompt: usize, generated: Generated| -> Result<(), SinkError> {
            let request = &requests[places[prompt]];
            let outcome = match generated.finish {
                Some(_) => Outcome::Scored,
                None => Outcome::NotFinite { why: "the model's logits are not finite numbers".into() },
            };
            let verdict = verdict_request(request, &prompts[prompt].tokens, &generated, &decode);
            let result = result(outcome, prompts[prompt].tokens.len(), generated);
            match verdict {
                Some(verdict) => waiting.push((places[prompt], result, verdict)),
                None => sink(places[prompt], result)?,
            }
            Ok(())
        };
        let mut usage = generate(&self.decoder, &prompts, &vocabulary, self.schedule(), &mut done).map_err(walk_error)?;
        let mut questions = Vec::new();
        let mut asked = Vec::new();
        for (place, mut result, question) in waiting {
            match self.check(&question) {
                Ok(()) => {
                    questions.push(question);
                    asked.push((place, result));
                }
                // The text decides whether its labels can be told apart there; that is no reason to lose it.
                Err(error) => {
                    let outcome = Outcome::Unparsed { why: error.to_string() };
                    result.verdict = Some(ScoreResult { outcome, prompt_tokens: result.prompt_tokens, answer: None });
                    sink(place, result).map_err(LmError::Sink)?;
                }
            }
        }
        usage += self.score(&questions, &mut |index, answer| {
            let (place, mut result) = asked[index].clone();
            result.verdict = Some(answer);
            sink(place, result)
        })?;
        Ok(usage)
    }
}

fn result(outcome: Outcome, prompt_tokens: usize, generated: Generated) -> GenerateResult {
    let Generated { token_ids, text, finish } = generated;
    GenerateResult { outcome, prompt_tokens, text, token_ids, finish, verdict: None }
}

impl Model {
    /// A generation request in tokens, with its outcome where there is nothing to generate.
    fn prompt(&self, request: &GenerateRequest) -> Result<(TokenPrompt, Option<Outcome>), LmError> {
        let wrong = |why: &str| LmError::Request { id: request.id.clone(), why: why.to_owned() };
        if request.max_tokens == 0 {
            return Err(wrong("max_tokens is 0\n\nhint: ask for at least one token"));
        }
        if let Sampling::Random { temperature, .. } = request.sampling
            && !(temperature > 0.0 && temperature.is_finite())
        {
            return Err(wrong("the temperature must be above 0\n\nhint: greedy decoding is what temperature 0 means elsewhere"));
        }
        if request.stop.iter().any(String::is_empty) {
            return Err(wrong("a stop sequence is empty"));
        }
        let tokens = self.encoder.encode_prompt(&request.prompt).map_err(|error| encode_error(&request.id, error))?;
        let limit = self.description.context_length;
        let outcome = if tokens.is_empty() {
            Some(Outcome::Empty)
        } else if tokens.len() >= limit {
            Some(Outcome::TooLong { tokens_needed: tokens.len() + 1, limit })
        } else {
            None
        };
        let max_tokens = request.max_tokens.min(limit.saturating_sub(tokens.len()));
        Ok((TokenPrompt { tokens, max_tokens, stop: request.stop.clone(), sampling: request.sampling }, outcome))
    }
}
