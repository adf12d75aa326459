//! Score requests: converted to token queries one window at a time, and answers from their scores.

use std::sync::Arc;

use probity_lm::{
    Ask, AskedTokens, ClassAnswer, ClassScore, ContinuationAnswer, LabelAnswer, LanguageModel, LmError, Outcome,
    PooledState, Reading, ReadingAnswer, ScoreAnswer, ScoreRequest, ScoreResult, Sink, SinkError, TokenAlternative,
    TokensAnswer, Usage,
};

use crate::Model;
use crate::chat::ChatError;
use crate::encoder::{EncodeError, EncodedContinuation, EncodedLabels, PromptEncoder};
use crate::engine::behind::BehindText;
use crate::engine::rows::LikelyToken;
use crate::engine::token_scores::{QueryAnswer, TokenQuery, TokenScore, score_tokens};
use crate::model::walk_error;
use crate::replica::Replica;
use crate::request_encoder::RequestEncoder;
use crate::window::Windowed;

/// A request to compute, in tokens.
pub(crate) struct TokenisedRequest {
    /// Position in the work list.
    pub(crate) index: usize,
    request: ScoreRequest,
    pub(crate) prompt_tokens: usize,
    is_whole: bool,
    queries: Vec<TokenQuery>,
    variants: Vec<usize>,
}

impl Windowed for TokenisedRequest {
    fn tokens(&self) -> &[u32] {
        &self.queries[0].seen[..self.prompt_tokens]
    }

    fn held_tokens(&self) -> usize {
        // Queries for one token share the prompt's tokens.
        let own = |query: &TokenQuery| query.asked.len() + if query.asked.len() > 1 { query.seen.len() } else { 0 };
        self.prompt_tokens + self.queries.iter().map(own).sum::<usize>()
    }

    fn answer_tokens(&self) -> usize {
        self.queries.iter().map(|query| query.asked.len()).sum()
    }
}

/// Takes the token queries out of a window. Returns all of them and where those of each request begin.
pub(crate) fn queries_of(window: &mut [TokenisedRequest]) -> (Vec<TokenQuery>, Vec<usize>) {
    let mut queries = Vec::new();
    let mut first = Vec::with_capacity(window.len());
    for (place, asked) in window.iter_mut().enumerate() {
        first.push(queries.len());
        queries.extend(asked.queries.drain(..).map(|query| TokenQuery { request: place, ..query }));
    }
    (queries, first)
}

impl RequestEncoder {
    /// Tokenises the request, or returns its result if there is nothing to compute.
    pub(crate) fn ask(
        &self,
        index: usize,
        request: ScoreRequest,
    ) -> Result<Result<TokenisedRequest, ScoreResult>, LmError> {
        let nothing = |outcome, prompt_tokens| Ok(Err(ScoreResult { outcome, prompt_tokens, answer: None }));
        if let Some(outcome) = self.surely_too_long(&request.prompt, text_behind(&request.ask)) {
            return nothing(outcome, 0);
        }
        let RequestSequences { prefix, source, is_whole, labels } = match sequences(&self.encoder, &request) {
            Ok(sequences) => sequences,
            Err(error) => return nothing(unasked(&request.id, error)?, 0),
        };
        let layers = self.layers_of(&request)?;
        let longest = labels.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let prompt_tokens = prefix.len();
        if prompt_tokens == 0 || longest == 0 {
            return nothing(Outcome::Empty, prompt_tokens);
        }
        // Class queries have no answer tokens.
        let answer = if matches!(request.ask, Ask::Classes) { 0 } else { longest };
        if let Some(outcome) = self.too_long(source, prompt_tokens - source + answer) {
            return nothing(outcome, prompt_tokens);
        }
        let alternatives = if let Ask::Tokens(asked) = &request.ask { asked.alternatives } else { 0 };
        let prefix: Arc<[u32]> = prefix.into();
        let (mut queries, mut variants) = (Vec::new(), Vec::new());
        for (label, sequences) in labels.into_iter().enumerate() {
            for asked in sequences {
                // States include the last token of the text.
                let read = if layers.is_empty() { asked.len().saturating_sub(1) } else { asked.len() };
                let before_last = &asked[..read];
                // Labels of one token are scored after the prompt itself and share its tokens.
                let seen = if before_last.is_empty() { prefix.clone() } else { [&prefix, before_last].concat().into() };
                queries.push(TokenQuery { seen, source, asked, layers: layers.clone(), alternatives, request: 0 });
                variants.push(label);
            }
        }
        Ok(Ok(TokenisedRequest { index, request, prompt_tokens, is_whole, queries, variants }))
    }

    /// The requested layers, checked to exist.
    fn layers_of(&self, request: &ScoreRequest) -> Result<Vec<usize>, LmError> {
        let Ask::Reading(reading) = &request.ask else { return Ok(Vec::new()) };
        let layers = self.description.layers.unwrap_or(0);
        match reading.layers.iter().find(|layer| **layer >= layers) {
            Some(layer) => Err(request_error(&request.id, NoLayer { layer: *layer, layers })),
            None => Ok(reading.layers.clone()),
        }
    }
}

impl Model {
    /// Answers the requests of a window's part on one device.
    pub(crate) fn score_part(
        &self,
        replica: &Replica,
        mut window: Vec<TokenisedRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        let (queries, first) = queries_of(&mut window);
        let mut scores: Vec<Option<QueryAnswer>> = vec![None; queries.len()];
        let mut done = |query: usize, result: QueryAnswer| -> Result<(), SinkError> {
            scores[query] = Some(result);
            let place = queries[query].request;
            let asked = &window[place];
            let range = first[place]..first[place] + asked.variants.len();
            if scores[range.clone()].iter().any(Option::is_none) {
                return Ok(());
            }
            // Taken, not copied: a window holds as many scores as queries.
            let complete: Vec<QueryAnswer> = scores[range.clone()].iter_mut().filter_map(Option::take).collect();
            sink(asked.index, self.answer(asked, &complete, &queries[range]))
        };
        score_tokens(replica, &queries, self.schedule(replica), &mut done).map_err(walk_error)
    }

    /// Answers a query about the tokens after a text that was just generated. Whether the labels can be told apart
    /// depends on the text, so a failure is an outcome.
    pub(crate) fn ask_behind(
        &self,
        request: ScoreRequest,
        behind: &mut BehindText<'_>,
    ) -> candle_core::Result<ScoreResult> {
        Ok(match self.requests.ask(0, request) {
            Ok(Ok(asked)) => {
                let scores = behind.score(&asked.queries)?;
                self.answer(&asked, &scores, &asked.queries)
            }
            Ok(Err(result)) => result,
            Err(error) => {
                ScoreResult { outcome: Outcome::Unparsed { why: error.to_string() }, prompt_tokens: 0, answer: None }
            }
        })
    }

    /// Checks whether the request is valid for this model; [`score`](probity_lm::LanguageModel::score) would return the
    /// same error.
    pub fn check(&self, request: &ScoreRequest) -> Result<(), LmError> {
        self.requests.ask(0, request.clone()).map(drop)
    }

    /// Builds the answer from the scores of a request's queries.
    fn answer(&self, asked: &TokenisedRequest, scores: &[QueryAnswer], queries: &[TokenQuery]) -> ScoreResult {
        let finite = scores.iter().all(QueryAnswer::is_finite);
        let answer = finite.then(|| match &asked.request.ask {
            Ask::Labels(set) => {
                let sums: Vec<f64> = scores.iter().map(|query| query.scores.iter().map(|t| t.logprob).sum()).collect();
                let of_label =
                    |label| sums.iter().zip(&asked.variants).filter(move |(_, l)| **l == label).map(|(sum, _)| *sum);
                let logprobs = set
                    .labels()
                    .iter()
                    .enumerate()
                    .map(|(index, label)| (label.name.clone(), add_logs(of_label(index))));
                let mut answer = LabelAnswer::from_logprobs(logprobs)?;
                for (label, (query, scores)) in asked.variants.iter().zip(queries.iter().zip(scores)) {
                    answer.labels[*label].variants.push(self.continuation(query, &scores.scores));
                }
                // All labels are scored at the same position. If the prompt is not whole, the next token belongs to the
                // prompt.
                let first = scores.first().filter(|_| asked.is_whole);
                let likeliest = first.and_then(|query| query.scores.first()).map(|score| score.greedy);
                answer.likeliest = likeliest.map(|id| self.encoder().tokenizer().token_text(id));
                Some(ScoreAnswer::Labels(answer))
            }
            Ask::Continuation(_) => Some(ScoreAnswer::Continuation(self.continuation(&queries[0], &scores[0].scores))),
            Ask::Tokens(asked) => Some(ScoreAnswer::Tokens(self.tokens(asked, &queries[0], &scores[0]))),
            Ask::Classes => {
                let classes = self.encoder().classes().iter().zip(scores);
                let of = |(name, query): (&String, &QueryAnswer)| ClassScore {
                    name: name.clone(),
                    logit: f64::from(query.scores[0].logit),
                };
                Some(ScoreAnswer::Classes(ClassAnswer {
                    kind: self.description().class_kind,
                    classes: classes.map(of).collect(),
                }))
            }
            Ask::Reading(reading) => {
                let states = reading.layers.iter().zip(scores[0].states.clone());
                Some(ScoreAnswer::Reading(ReadingAnswer {
                    continuation: self.continuation(&queries[0], &scores[0].scores),
                    states: states.map(|(layer, values)| PooledState { layer: *layer, values }).collect(),
                }))
            }
        });
        let outcome = match answer.as_ref().and_then(Option::as_ref) {
            None => Outcome::NotFinite { why: "the model computed values that are not finite".into() },
            Some(ScoreAnswer::Labels(labels)) => labels.outcome(self.options().min_mass),
            Some(_) => Outcome::Scored,
        };
        ScoreResult { outcome, prompt_tokens: asked.prompt_tokens, answer: answer.flatten() }
    }

    /// Token scores and alternatives; for the position after the last token, alternatives only.
    fn tokens(&self, asked: &AskedTokens, query: &TokenQuery, answer: &QueryAnswer) -> TokensAnswer {
        let alternative = |likely: &LikelyToken| {
            let LikelyToken { id, logprob } = *likely;
            TokenAlternative { id, token: self.encoder().tokenizer().token_text(id), logprob }
        };
        let alternatives = answer.alternatives.iter().map(|likely| likely.iter().map(alternative).collect());
        let places = asked.ids.len() + usize::from(asked.next);
        let continuation = self.continuation(query, &answer.scores[..asked.ids.len()]);
        TokensAnswer {
            continuation,
            alternatives: alternatives.chain(std::iter::repeat(Vec::new())).take(places).collect(),
        }
    }

    fn continuation(&self, query: &TokenQuery, scores: &[TokenScore]) -> ContinuationAnswer {
        let token_ids = query.asked[..scores.len()].to_vec();
        ContinuationAnswer {
            logprob: scores.iter().map(|s| s.logprob).sum(),
            token_logprobs: scores.iter().map(|s| s.logprob).collect(),
            tokens: token_ids.iter().map(|id| self.encoder().tokenizer().token_text(*id)).collect(),
            token_ids,
            is_greedy: scores.iter().all(|s| s.is_greedy),
        }
    }
}

/// The text scored after a prompt, to estimate length; empty for labels, which are short.
pub(crate) fn text_behind(ask: &Ask) -> &str {
    match ask {
        Ask::Continuation(text) | Ask::Reading(Reading { text, .. }) => text,
        Ask::Labels(_) | Ask::Tokens(_) | Ask::Classes => "",
    }
}

/// log Σ eˣ.
fn add_logs(logs: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = logs.collect();
    let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_finite() { max + libm::log(logs.iter().map(|l| libm::exp(l - max)).sum()) } else { max }
}

/// Tokens of a request.
struct RequestSequences {
    /// Tokens to condition on, and the number of these that an encoder reads.
    prefix: Vec<u32>,
    source: usize,
    /// Whether the prefix is the whole prompt.
    is_whole: bool,
    /// Token sequences of each label's variants.
    labels: Vec<Vec<Vec<u32>>>,
}

fn sequences(encoder: &PromptEncoder, request: &ScoreRequest) -> Result<RequestSequences, EncodeError> {
    let sequences = match &request.ask {
        Ask::Labels(set) => {
            let EncodedLabels { prefix, source, is_whole, labels } = encoder.encode_labels(&request.prompt, set)?;
            RequestSequences { prefix, source, is_whole, labels }
        }
        Ask::Continuation(text) | Ask::Reading(Reading { text, .. }) => {
            let EncodedContinuation { prefix, source, continuation } =
                encoder.encode_continuation(&request.prompt, text)?;
            RequestSequences { prefix, source, is_whole: true, labels: vec![vec![continuation]] }
        }
        Ask::Tokens(AskedTokens { ids, next, .. }) => {
            let EncodedContinuation { prefix, source, .. } = encoder.encode_continuation(&request.prompt, "")?;
            // A placeholder token for the position after the last one; only its alternatives are reported.
            let asked = encoder.known(ids)?.into_iter().chain(next.then_some(0));
            RequestSequences { prefix, source, is_whole: true, labels: vec![vec![asked.collect()]] }
        }
        Ask::Classes => {
            // A class head has one output per class instead of per token, read after the last token.
            let prefix = encoder.encode_whole_prompt(&request.prompt)?;
            // A prompt that must be read as a whole is not split.
            let source = if encoder.reads_whole() { prefix.len() } else { 0 };
            let labels = (0..encoder.classes().len() as u32).map(|class| vec![vec![class]]).collect();
            return Ok(RequestSequences { prefix, source, is_whole: true, labels });
        }
    };
    // An empty prompt is an outcome. A prompt that merged into its labels is a mistake in the request and is an error.
    if sequences.prefix.is_empty() && !encoder.encode_prompt(&request.prompt)?.is_empty() {
        return Err(EncodeError::NoCondition);
    }
    Ok(sequences)
}

/// The result of a request that cannot be encoded: an outcome if the text is the cause, since other requests can still
/// run.
pub(crate) fn unasked(id: &str, error: EncodeError) -> Result<Outcome, LmError> {
    match error {
        EncodeError::Chat(altered @ ChatError::Altered(_)) => Ok(Outcome::Altered { why: altered.to_string() }),
        EncodeError::Labels(source) => Err(LmError::Labels { id: id.to_owned(), source }),
        other => Err(request_error(id, other)),
    }
}

/// Error for a request that is invalid for this model.
pub(crate) fn request_error(id: &str, source: impl miette::Diagnostic + Send + Sync + 'static) -> LmError {
    LmError::Request { id: id.to_owned(), source: Box::new(source) }
}

#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("the model has {layers} layers, and states are available before the last; {layer} is out of range")]
#[diagnostic(help("count layers from 0 (the input of the first) to one less than their number"))]
struct NoLayer {
    layer: usize,
    layers: usize,
}
