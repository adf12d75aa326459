//! Generation requests: converted to token prompts one window at a time, and results with verdicts from the generated
//! texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use probity_lm::{
    Ask, AskedTokens, Constraint, GenerateRequest, GenerateResult, LiveTexts, LmError, Outcome, Prompt, Sampling,
    SamplingLimits, ScoreRequest, Sink, SinkError, Usage,
};

use crate::Model;
use crate::encoder::EncodedContinuation;
use crate::engine::behind::BehindText;
use crate::engine::generate::{GeneratedText, GenerationVocabulary, Strayed, TextVisitor, TokenPrompt, generate};
use crate::engine::walk::WalkError;
use crate::model::walk_error;
use crate::replica::Replica;
use crate::request_encoder::RequestEncoder;
use crate::score::{request_error, unasked};
use crate::tokenizer::TokenizerError;
use crate::verdict::verdict_request;
use crate::window::Windowed;

/// A request to continue, in tokens.
pub(crate) struct TokenisedText {
    /// Position in the work list.
    pub(crate) index: usize,
    pub(crate) request: GenerateRequest,
    pub(crate) prompt: TokenPrompt,
}

impl Windowed for TokenisedText {
    fn tokens(&self) -> &[u32] {
        &self.prompt.tokens
    }

    fn held_tokens(&self) -> usize {
        self.prompt.tokens.len() + self.prompt.max_tokens
    }

    fn answer_tokens(&self) -> usize {
        self.prompt.max_tokens
    }
}

impl RequestEncoder {
    /// Tokenises the request, or returns its result if there is nothing to generate.
    pub(crate) fn begin(
        &self,
        index: usize,
        request: GenerateRequest,
    ) -> Result<Result<TokenisedText, GenerateResult>, LmError> {
        let wrong = |why| request_error(&request.id, why);
        // Checked before anything runs: an invalid constraint is an error of the request, not of one text among many.
        if let Some(constraint) = &request.constraint {
            self.constrain(constraint).map_err(|why| request_error(&request.id, why))?;
        }
        if request.max_tokens == 0 {
            return Err(wrong(WrongRequest::NoTokens));
        }
        if let Sampling::Random { temperature, limits, .. } = request.sampling {
            check_sampling(temperature, limits).map_err(wrong)?;
        }
        if request.stop.iter().any(String::is_empty) {
            return Err(wrong(WrongRequest::EmptyStop));
        }
        let nothing = |outcome, prompt_tokens| Ok(Err(GenerateResult::without_text(outcome, prompt_tokens)));
        if let Some(outcome) = self.surely_too_long(&request.prompt, "") {
            return nothing(outcome, 0);
        }
        let encoded = self.encoder.encode_continuation(&request.prompt, "");
        let EncodedContinuation { prefix: tokens, source, .. } = match encoded {
            Ok(encoded) => encoded,
            Err(error) => return nothing(unasked(&request.id, error)?, 0),
        };
        if tokens.is_empty() {
            return nothing(Outcome::Empty, 0);
        }
        let before = tokens.len() - source;
        let context = self.description.context_length.unwrap_or(usize::MAX);
        // The decoder's own context; an encoder's input does not count.
        let max_tokens = request.max_tokens.min(context.saturating_sub(before));
        // A text may be cut at the end of the context, but not at the end of memory: its length must not depend on the
        // machine.
        if let Some(outcome) = self.too_long(source, before + max_tokens.max(1)) {
            return nothing(outcome, tokens.len());
        }
        let (stop, sampling, constraint) = (request.stop.clone(), request.sampling, request.constraint.clone());
        let prompt = TokenPrompt { tokens, source, max_tokens, stop, sampling, constraint };
        Ok(Ok(TokenisedText { index, request, prompt }))
    }
}

impl Model {
    /// Checks whether the request is valid for this model; [`generate`](probity_lm::LanguageModel::generate) would
    /// return the same error.
    pub fn check_text(&self, request: &GenerateRequest) -> Result<(), LmError> {
        self.requests.begin(0, request.clone()).map(drop)
    }

    /// Continues the requests of a window's part on one device, and scores their verdicts.
    pub(crate) fn generate_part(
        &self,
        replica: &Replica,
        window: Vec<TokenisedText>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        let mut requests = Vec::with_capacity(window.len());
        let mut prompts = Vec::with_capacity(window.len());
        for TokenisedText { index, request, prompt } in window {
            requests.push((index, request));
            prompts.push(Arc::new(prompt));
        }
        let mut done = |prompt: usize,
                        generated: GeneratedText,
                        behind: &mut BehindText<'_>|
         -> Result<(), WalkError<SinkError>> {
            let (place, request) = &requests[prompt];
            sink(*place, self.text_result(request, &prompts[prompt], generated, behind)?).map_err(WalkError::Visitor)
        };
        self.continue_prompts(replica, &prompts, &mut done)
    }

    /// Continues texts that arrive one by one, on the first device.
    pub(crate) fn continue_live(&self, texts: &mut dyn LiveTexts) -> Result<Usage, LmError> {
        let mut visitor = LiveVisitor { model: self, texts, taken: 0, begun: 0, open: BTreeMap::new() };
        self.continue_prompts(self.first(), &[], &mut visitor)
    }

    fn continue_prompts(
        &self,
        replica: &Replica,
        prompts: &[Arc<TokenPrompt>],
        visitor: &mut dyn TextVisitor<SinkError>,
    ) -> Result<Usage, LmError> {
        let decode = |ids: &[u32]| self.text_of(ids);
        let constrain = |constraint: &Constraint| self.requests.constrain(constraint);
        let vocabulary =
            GenerationVocabulary { decode: &decode, ends: self.encoder().tokenizer().ends(), constrain: &constrain };
        generate(replica, prompts, &vocabulary, self.schedule(replica), visitor).map_err(walk_error)
    }

    fn text_of(&self, ids: &[u32]) -> Result<String, Strayed> {
        let no_text = |error: TokenizerError| Strayed::NoText { why: error.to_string() };
        self.encoder().tokenizer().decode(ids).map_err(no_text)
    }

    /// The result of a text, with the queries after it.
    fn text_result(
        &self,
        request: &GenerateRequest,
        prompt: &TokenPrompt,
        generated: GeneratedText,
        behind: &mut BehindText<'_>,
    ) -> candle_core::Result<GenerateResult> {
        let outcome = match (generated.finish, &generated.strayed) {
            (Some(_), _) => Outcome::Scored,
            (None, Some(why)) => Outcome::Unparsed { why: why.to_string() },
            (None, None) => Outcome::NotFinite { why: "the model computed logits that are not finite".into() },
        };
        let verdict = verdict_request(request, prompt, &generated, &|ids| self.text_of(ids));
        let verdict = verdict.map(|question| self.ask_behind(question, behind)).transpose()?;
        let ids: Vec<u32> = generated.token_ids.iter().copied().chain(generated.end).collect();
        let asked = request.alternatives.filter(|_| generated.finish.is_some() && !ids.is_empty());
        let asked = asked.map(|alternatives| tokens_request(request, prompt, ids, alternatives));
        let tokens = match asked.map(|question| self.ask_behind(question, behind)).transpose()? {
            Some(result) => result.tokens().cloned().map(Box::new),
            // No tokens, so no scores.
            None => None,
        };
        let GeneratedText { token_ids, text, finish, accepted: accepted_drafts, .. } = generated;
        let nothing = GenerateResult::without_text(outcome, prompt.tokens.len());
        Ok(GenerateResult { text, token_ids, finish, verdict, tokens, accepted_drafts, ..nothing })
    }
}

/// The query for the probabilities of a text's own tokens.
fn tokens_request(request: &GenerateRequest, prompt: &TokenPrompt, ids: Vec<u32>, alternatives: usize) -> ScoreRequest {
    let (source, before) = prompt.tokens.split_at(prompt.source);
    let before = if source.is_empty() {
        Prompt::Tokens(before.to_vec())
    } else {
        Prompt::Pair { source: source.to_vec(), answer: before.to_vec() }
    };
    let asked = AskedTokens { ids, alternatives, next: false };
    ScoreRequest { id: request.id.clone(), prompt: before, ask: Ask::Tokens(asked) }
}

/// Provides the texts of a growing list and reports their progress.
struct LiveVisitor<'a> {
    model: &'a Model,
    texts: &'a mut dyn LiveTexts,
    /// Number of requests taken, and of those with something to generate.
    taken: usize,
    begun: usize,
    /// Position in the list of each open request, by its number in the engine.
    open: BTreeMap<usize, (usize, GenerateRequest, Arc<TokenPrompt>)>,
}

impl TextVisitor<SinkError> for LiveVisitor<'_> {
    fn done(
        &mut self,
        index: usize,
        text: GeneratedText,
        behind: &mut BehindText<'_>,
    ) -> Result<(), WalkError<SinkError>> {
        let (place, request, prompt) = self.open.remove(&index).expect("each text ends once");
        let result = self.model.text_result(&request, &prompt, text, behind)?;
        self.texts.done(place, result).map_err(WalkError::Visitor)
    }

    fn grown(&mut self, index: usize, ids: &[u32]) -> bool {
        self.open.get(&index).is_none_or(|(place, ..)| self.texts.grown(*place, ids))
    }

    fn arrived(&mut self, room: usize) -> Result<Vec<Arc<TokenPrompt>>, WalkError<SinkError>> {
        self.texts.pause().map_err(WalkError::Visitor)?;
        let mut prompts = Vec::new();
        while prompts.len() < room {
            let Some(request) = self.texts.next() else { break };
            let place = self.taken;
            self.taken += 1;
            let begun = self.model.requests.begin(place, request);
            match begun.map_err(|error| WalkError::Visitor(Box::new(error) as SinkError))? {
                Ok(TokenisedText { request, prompt, .. }) => {
                    let prompt = Arc::new(prompt);
                    self.open.insert(self.begun, (place, request, prompt.clone()));
                    self.begun += 1;
                    prompts.push(prompt);
                }
                Err(result) => {
                    self.model.progress().pass();
                    self.texts.done(place, result).map_err(WalkError::Visitor)?;
                }
            }
        }
        Ok(prompts)
    }
}

/// An error in a generation request that does not depend on the model.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum WrongRequest {
    #[error("max_tokens is 0")]
    #[diagnostic(help("set max_tokens to at least 1"))]
    NoTokens,
    #[error("a stop sequence is empty")]
    EmptyStop,
    #[error("the temperature must be above 0")]
    #[diagnostic(help("use greedy decoding for a temperature of 0"))]
    Temperature,
    #[error("top_k is 0, which leaves no token")]
    #[diagnostic(help("omit it for all tokens"))]
    TopK,
    #[error("top_p must be above 0 and at most 1")]
    #[diagnostic(help("omit it for all tokens"))]
    TopP,
    #[error("min_p must be from 0 to 1")]
    #[diagnostic(help("omit it for all tokens"))]
    MinP,
}

/// Checks the sampling options.
fn check_sampling(
    temperature: f64,
    SamplingLimits { top_k, top_p, min_p }: SamplingLimits,
) -> Result<(), WrongRequest> {
    if !(temperature > 0.0 && temperature.is_finite()) {
        return Err(WrongRequest::Temperature);
    }
    if top_k == Some(0) {
        return Err(WrongRequest::TopK);
    }
    if top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) {
        return Err(WrongRequest::TopP);
    }
    if min_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return Err(WrongRequest::MinP);
    }
    Ok(())
}
