//! Converts requests for text, of either endpoint, into queries to the model.

use probity_lm::{Ask, AskedTokens, GenerateRequest, Prompt, Sampling, SamplingLimits, ScoreRequest};

use crate::api_error::{ApiError, boxed_error_text};
use crate::app::App;
use crate::wire::forms::{MOST_ALTERNATIVES, MOST_CHOICES, MOST_STOPS};
use crate::wire::text::Writing;

/// A prompt in tokens, and its queries to the model.
#[derive(Debug, Clone)]
pub(crate) struct PromptAsk {
    pub(crate) tokens: Vec<u32>,
    /// Query for the log-probabilities of its tokens, of the next token, or both.
    pub(crate) score: Option<ScoreRequest>,
    /// One per choice, unless [`next_is_text`](Self::next_is_text).
    pub(crate) texts: Vec<GenerateRequest>,
    /// Whether the text is the most likely next token, which the score contains.
    pub(crate) next_is_text: bool,
    /// Number of choices.
    pub(crate) choices: usize,
}

impl Writing {
    /// Validates the settings. `alternatives` is the name of that field.
    pub(crate) fn check(&self, alternatives: &str) -> Result<(), ApiError> {
        let must =
            |field: &str, holds: bool, what: &str| if holds { Ok(()) } else { Err(ApiError::field(field, what)) };
        must("temperature", self.temperature.is_none_or(|t| (0.0..=2.0).contains(&t)), "must be from 0 to 2")?;
        must("top_p", self.top_p.is_none_or(|p| p > 0.0 && p <= 1.0), "must be above 0 and at most 1")?;
        must("top_k", self.top_k != Some(0), "must be at least 1")?;
        must("min_p", self.min_p.is_none_or(|p| (0.0..=1.0).contains(&p)), "must be from 0 to 1")?;
        must("n", (1..=MOST_CHOICES).contains(&self.choice_count()), "must be from 1 to 128")?;
        must("stop", self.stop.len() <= MOST_STOPS, "must have at most 16 stop sequences")?;
        must("stop", self.stop.iter().all(|stop| !stop.is_empty()), "a stop sequence is empty")?;
        must(alternatives, self.alternatives.unwrap_or(0) <= MOST_ALTERNATIVES, "must be at most 20")
    }

    pub(crate) fn choice_count(&self) -> usize {
        self.choices.unwrap_or(1)
    }

    fn sampling(&self, choice: usize) -> Sampling {
        let Some(temperature) = self.temperature.filter(|temperature| *temperature > 0.0) else {
            return Sampling::Greedy;
        };
        // A limit of 1 is no limit.
        let top_p = self.top_p.filter(|p| *p < 1.0);
        let limits = SamplingLimits { top_k: self.top_k, top_p, min_p: self.min_p };
        let seed = (self.seed.unwrap_or(0) as u64).wrapping_add(choice as u64);
        Sampling::Random { temperature, limits, seed }
    }

    /// The queries for a prompt with a limit on new tokens.
    pub(crate) fn ask(
        &self,
        app: &App,
        param: &str,
        tokens: Vec<u32>,
        max_tokens: usize,
    ) -> Result<PromptAsk, ApiError> {
        if tokens.is_empty() {
            return Err(ApiError::field(param, "the prompt has no tokens"));
        }
        let is_greedy = self.sampling(0) == Sampling::Greedy;
        let wants_prompt = self.echo && self.alternatives.is_some() && tokens.len() > 1;
        // For a single greedy token with log-probabilities, the score already determines the text.
        let next_is_text = max_tokens == 1
            && is_greedy
            && self.alternatives.is_some()
            && self.stop.is_empty()
            && self.constraint.is_none();
        let score = (wants_prompt || next_is_text).then(|| self.score_of(&tokens, wants_prompt, next_is_text));
        let choices = self.choice_count();
        let text = |choice: usize| GenerateRequest {
            stop: self.stop.clone(),
            sampling: self.sampling(choice),
            constraint: self.constraint.clone(),
            alternatives: self.alternatives,
            ..GenerateRequest::greedy("text", Prompt::Tokens(tokens.clone()), max_tokens)
        };
        let texts: Vec<_> = if next_is_text || max_tokens == 0 { Vec::new() } else { (0..choices).map(text).collect() };
        if let Some(score) = &score {
            app.model.check_score(score).map_err(|error| ApiError::unasked(param, &error))?;
        }
        // Choices differ only in their seed, so checking the first suffices.
        if let Some(text) = texts.first() {
            let param = if self.constraint.is_some() { "response_format" } else { param };
            app.model.check_text(text).map_err(|error| ApiError::unasked(param, &error))?;
        }
        Ok(PromptAsk { tokens, score, texts, next_is_text, choices })
    }

    fn score_of(&self, tokens: &[u32], wants_prompt: bool, next: bool) -> ScoreRequest {
        let given = if wants_prompt { 1 } else { tokens.len() };
        let (before, ids) = tokens.split_at(given);
        let alternatives = self.alternatives.unwrap_or(0).max(usize::from(next));
        let ask = Ask::Tokens(AskedTokens { ids: ids.to_vec(), alternatives, next });
        ScoreRequest { id: "prompt".to_owned(), prompt: Prompt::Tokens(before.to_vec()), ask }
    }
}

/// Rejects a text that is too long before it is tokenised, which would take hundreds of times its memory.
pub(crate) fn refuse_long(app: &App, param: &str, prompt: &Prompt, text: &str) -> Result<(), ApiError> {
    let needed = app.model.surely_too_long(prompt, text);
    needed.map_or(Ok(()), |needed| Err(ApiError::too_long(param, needed, app.model.token_limit())))
}

/// Tokenises a prompt.
pub(crate) fn encode(app: &App, param: &str, prompt: &Prompt) -> Result<Vec<u32>, ApiError> {
    refuse_long(app, param, prompt, "")?;
    app.model.encode(prompt).map_err(|error| ApiError::field(param, boxed_error_text(&error)))
}

/// Maximum number of new tokens: the requested one, or else `usual` (by default the server's limit) as far as the
/// context allows.
pub(crate) fn room(
    app: &App,
    param: &str,
    prompt: usize,
    (wanted_by, wanted): (&str, Option<u32>),
    usual: Option<usize>,
) -> Result<usize, ApiError> {
    let (most, limit) = (app.options.max_tokens, app.model.token_limit());
    let wanted = wanted.map(|tokens| tokens as usize);
    if wanted.is_some_and(|wanted| wanted > most) {
        return Err(ApiError::field(wanted_by, format!("must be at most {most} on this server")));
    }
    let needed = prompt + wanted.unwrap_or(1);
    if needed > limit {
        return Err(ApiError::too_long(param, needed, limit));
    }
    Ok(wanted.unwrap_or_else(|| usual.unwrap_or(most).min(most).min(limit - prompt)))
}
