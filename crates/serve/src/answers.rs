//! Submits jobs to the queue and waits for their answers.

use probity_lm::{Finish, GenerateResult, Outcome, ScoreAnswer, ScoreResult, TokensAnswer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::api_error::ApiError;
use crate::app::App;
use crate::asks::PromptAsk;
use crate::queue::{ScoreJob, TextEvent, TextJob};
use crate::wire::text::WrittenText;

/// Receivers of a prompt's answers.
pub(crate) struct OpenPrompt {
    pub(crate) score: Option<oneshot::Receiver<Result<ScoreResult, String>>>,
    pub(crate) texts: Vec<mpsc::UnboundedReceiver<TextEvent>>,
}

/// Submits all jobs of the prompts.
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

/// Adds jobs to the queue.
pub(crate) fn hand_over(app: &App, scores: Vec<ScoreJob>, texts: Vec<TextJob>) -> Result<(), ApiError> {
    app.queue.submit(scores, texts).map_err(|_| {
        let message = format!("{} requests are already waiting; try again later", app.options.max_waiting);
        ApiError::new(axum::http::StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full")
    })
}

/// Waits for the answer to a query.
pub(crate) async fn score(
    receiver: oneshot::Receiver<Result<ScoreResult, String>>,
    deadline: Instant,
) -> Result<ScoreResult, ApiError> {
    let reply = timeout_at(deadline, receiver).await.map_err(|_| too_late())?;
    reply.map_err(|_| ApiError::gone())?.map_err(ApiError::model)
}

/// Waits for the next event of a text.
async fn event(events: &mut mpsc::UnboundedReceiver<TextEvent>, deadline: Instant) -> Result<TextEvent, ApiError> {
    timeout_at(deadline, events.recv()).await.map_err(|_| too_late())?.ok_or_else(ApiError::gone)
}

/// The error for a request that exceeds its time limit.
pub(crate) fn too_late() -> ApiError {
    let message = "the request exceeded the time limit of this server";
    ApiError::new(axum::http::StatusCode::GATEWAY_TIMEOUT, message).with_code("timeout")
}

/// Waits until a text is finished.
pub(crate) async fn text(
    events: &mut mpsc::UnboundedReceiver<TextEvent>,
    deadline: Instant,
    param: &str,
) -> Result<WrittenText, ApiError> {
    loop {
        if let TextEvent::Done(result) = event(events, deadline).await? {
            return WrittenText::from_result(result.map_err(ApiError::model)?, param);
        }
    }
}

impl WrittenText {
    /// The generated text, or the error if there is none.
    pub(crate) fn from_result(result: GenerateResult, param: &str) -> Result<Self, ApiError> {
        let Some(finish) = result.finish else { return Err(ApiError::outcome(param, &result.outcome)) };
        let GenerateResult { text, token_ids: ids, tokens, .. } = result;
        Ok(Self { text, ids, tokens: tokens.map(|tokens| *tokens), finish })
    }

    /// An empty text, for a limit of 0 tokens.
    pub(crate) fn nothing() -> Self {
        Self { text: String::new(), ids: Vec::new(), tokens: None, finish: Finish::Length }
    }

    /// The most likely token after a prompt as a text.
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

/// Log-probabilities of a prompt's tokens, or why there are none.
pub(crate) fn prompt_tokens(result: ScoreResult, param: &str) -> Result<TokensAnswer, ApiError> {
    match result {
        ScoreResult { answer: Some(ScoreAnswer::Tokens(tokens)), outcome: Outcome::Scored, .. } => Ok(tokens),
        ScoreResult { outcome, .. } => Err(ApiError::outcome(param, &outcome)),
    }
}
