//! Jobs handed to the queue, and their answers waited for.

use probity_lm::{Finish, GenerateResult, Outcome, ScoreAnswer, ScoreResult, TokensAnswer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::api_error::ApiError;
use crate::app::App;
use crate::asks::PromptAsk;
use crate::queue::{ScoreJob, TextEvent, TextJob};
use crate::wire::text::Written;

/// Where a prompt's answers come.
pub(crate) struct OpenPrompt {
    pub(crate) score: Option<oneshot::Receiver<Result<ScoreResult, String>>>,
    pub(crate) texts: Vec<mpsc::UnboundedReceiver<TextEvent>>,
}

/// Hands over all that prompts need.
pub(crate) fn submit(app: &App, asks: &[PromptAsk], is_streamed: bool) -> Result<Vec<OpenPrompt>, ApiError> {
    let (mut scores, mut texts, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for ask in asks {
        let score = ask.score.clone().map(|request| {
            let (reply, receiver) = oneshot::channel();
            scores.push(ScoreJob { request, tokens: ask.tokens.clone(), reply });
            receiver
        });
        let text = |request: &probity_lm::GenerateRequest| {
            let (events, receiver) = mpsc::unbounded_channel();
            texts.push(TextJob { request: request.clone(), is_streamed, events });
            receiver
        };
        open.push(OpenPrompt { score, texts: ask.texts.iter().map(text).collect() });
    }
    hand_over(app, scores, texts)?;
    Ok(open)
}

/// Puts jobs into the queue.
pub(crate) fn hand_over(app: &App, scores: Vec<ScoreJob>, texts: Vec<TextJob>) -> Result<(), ApiError> {
    app.queue.submit(scores, texts).map_err(|_| {
        let message = format!("{} requests wait already; try again", app.options.max_waiting);
        ApiError::new(axum::http::StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full")
    })
}

/// The answer to a question.
pub(crate) async fn score(
    receiver: oneshot::Receiver<Result<ScoreResult, String>>,
    deadline: Instant,
) -> Result<ScoreResult, ApiError> {
    let reply = timeout_at(deadline, receiver).await.map_err(|_| too_late())?;
    reply.map_err(|_| ApiError::gone())?.map_err(ApiError::model)
}

/// What happens next to a text.
async fn event(events: &mut mpsc::UnboundedReceiver<TextEvent>, deadline: Instant) -> Result<TextEvent, ApiError> {
    timeout_at(deadline, events.recv()).await.map_err(|_| too_late())?.ok_or_else(ApiError::gone)
}

/// That a request took too long.
pub(crate) fn too_late() -> ApiError {
    let message = "it took longer than this server lets a request take";
    ApiError::new(axum::http::StatusCode::GATEWAY_TIMEOUT, message).with_code("timeout")
}

/// A text when it is done.
pub(crate) async fn text(
    events: &mut mpsc::UnboundedReceiver<TextEvent>,
    deadline: Instant,
    param: &str,
) -> Result<Written, ApiError> {
    loop {
        if let TextEvent::Done(result) = event(events, deadline).await? {
            return Written::of(result.map_err(ApiError::model)?, param);
        }
    }
}

impl Written {
    /// What was generated, or why nothing can be answered.
    pub(crate) fn of(result: GenerateResult, param: &str) -> Result<Self, ApiError> {
        let Some(finish) = result.finish else { return Err(ApiError::outcome(param, &result.outcome)) };
        let GenerateResult { text, token_ids: ids, tokens, .. } = result;
        Ok(Self { text, ids, tokens: tokens.map(|tokens| *tokens), finish })
    }

    /// Nothing, where nothing was to be written.
    pub(crate) fn nothing() -> Self {
        Self { text: String::new(), ids: Vec::new(), tokens: None, finish: Finish::Length }
    }

    /// The one token that is likeliest behind a prompt, from what was told of that place.
    pub(crate) fn next(app: &App, told: &TokensAnswer) -> Result<Self, ApiError> {
        let place = told.alternatives.last().and_then(|place| Some((place, place.first()?)));
        let Some((place, likeliest)) = place else { return Err(ApiError::model("the model told no token")) };
        let (ids, finish) = if app.model.is_end(likeliest.id) {
            (Vec::new(), Finish::EndOfTurn)
        } else {
            (vec![likeliest.id], Finish::Length)
        };
        let text = app.model.decode(&ids).map_err(|error| ApiError::model(error.to_string()))?;
        let continuation = probity_lm::ContinuationAnswer {
            logprob: likeliest.logprob,
            token_logprobs: vec![likeliest.logprob],
            tokens: vec![likeliest.token.clone()],
            token_ids: vec![likeliest.id],
            is_greedy: true,
        };
        let tokens = Some(TokensAnswer { continuation, alternatives: vec![place.clone()] });
        Ok(Self { text, ids, tokens, finish })
    }
}

/// What was told of a prompt's tokens, or why nothing was.
pub(crate) fn prompt_tokens(result: ScoreResult, param: &str) -> Result<TokensAnswer, ApiError> {
    match result {
        ScoreResult { answer: Some(ScoreAnswer::Tokens(tokens)), outcome: Outcome::Scored, .. } => Ok(tokens),
        ScoreResult { outcome, .. } => Err(ApiError::outcome(param, &outcome)),
    }
}
