//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use probity_lm::{Constraint, Message, OneOrMany, Prompt};
use serde_json::json;
use tokio::time::Instant;

use crate::answers::{self, OpenPrompt, Written, prompt_tokens, submit};
use crate::api_error::ApiError;
use crate::app::App;
use crate::asks::{PromptAsk, Writing, encode, room};
use crate::body::aside;
use crate::json;
use crate::logprobs::of_chat;
use crate::stream::{Streamed, stream};
use crate::wire::chat::{
    AnswerMessage, ChatBody, ChatChoice, ChatChunk, ChatMessage, ChatRequest, ChunkChoice, Delta, ResponseFormat,
};
use crate::wire::forms::{FinishReason, UsageBody};
use crate::wire::unhonoured::refuse_others;

/// A request, ready to be asked.
struct Plan {
    ask: PromptAsk,
    /// Absent where no log-probabilities are wanted.
    alternatives: Option<usize>,
    stops: Vec<String>,
    is_streamed: bool,
    include_usage: bool,
    header: Header,
}

/// What all parts of an answer say.
#[derive(Clone)]
struct Header {
    id: String,
    created: u64,
    model: String,
    system_fingerprint: String,
}

impl Header {
    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<UsageBody>) -> Result<String, serde_json::Error> {
        let Self { id, created, model, system_fingerprint } = self.clone();
        let object = "chat.completion.chunk";
        serde_json::to_string(&ChatChunk { id, object, created, model, system_fingerprint, choices, usage })
    }
}

/// Answers a request.
pub(crate) async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let deadline = app.deadline();
    let body = app.bodies.read(request).await?;
    let plan = aside(&app, move |app| plan(app, &body)).await?;
    let in_pieces = plan.is_streamed && plan.alternatives.is_none();
    let open = submit(&app, std::slice::from_ref(&plan.ask), in_pieces)?;
    let Some(open) = open.into_iter().next() else { return Err(ApiError::gone()) };
    if plan.is_streamed {
        return Ok(streamed(&app, plan, open, deadline));
    }
    let written = written(&app, &plan, open, deadline).await?;
    let usage = UsageBody::new(plan.ask.tokens.len(), written.iter().map(|written| written.ids.len()).sum());
    let choice = |(index, written): (usize, Written)| ChatChoice {
        index,
        logprobs: plan.alternatives.and_then(|count| of_chat(&*app.model, &written, count)),
        finish_reason: written.finish,
        message: AnswerMessage { role: "assistant", content: written.text, refusal: None },
    };
    let choices = written.into_iter().enumerate().map(choice).collect();
    let Header { id, created, model, system_fingerprint } = plan.header.clone();
    let body = ChatBody { id, object: "chat.completion", created, model, system_fingerprint, choices, usage };
    Ok(Json(body).into_response())
}

fn plan(app: &App, body: &Bytes) -> Result<Plan, ApiError> {
    let request: ChatRequest = json::read(body)?;
    app.check_model(request.model.as_ref())?;
    refuse_others(&request.unhonoured())?;
    let is_streamed = request.stream.unwrap_or(false);
    if request.stream_options.is_some() && !is_streamed {
        return Err(ApiError::field("stream_options", "goes with `stream` only"));
    }
    let wants_logprobs = request.logprobs.unwrap_or(false);
    if request.top_logprobs.is_some() && !wants_logprobs {
        return Err(ApiError::field("top_logprobs", "goes with `logprobs` only"));
    }
    let alternatives = wants_logprobs.then(|| request.top_logprobs.unwrap_or(0));
    let max_tokens = match (request.max_completion_tokens, request.max_tokens) {
        (Some(new), Some(old)) if new != old => {
            return Err(ApiError::field("max_tokens", "differs from `max_completion_tokens`, which means the same"));
        }
        (Some(tokens), _) => ("max_completion_tokens", Some(tokens)),
        (None, tokens) => ("max_tokens", tokens),
    };
    if max_tokens.1 == Some(0) {
        return Err(ApiError::field(max_tokens.0, "must be at least 1"));
    }
    let writing = Writing {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        seed: request.seed,
        choices: request.n,
        stop: request.stop.map(|OneOrMany(stops)| stops).unwrap_or_default(),
        constraint: request.response_format.and_then(constraint),
        alternatives,
        echo: false,
    };
    writing.check("top_logprobs")?;
    let tokens = encode(
        app,
        "messages",
        &Prompt::Chat { messages: messages("messages", request.messages)?, answer_prefix: String::new() },
    )?;
    let most = room(app, "messages", tokens.len(), max_tokens, app.options.max_tokens)?;
    let ask = writing.ask(app, "messages", tokens, most)?;
    let header = Header {
        id: App::answer_id("chatcmpl", body),
        created: app.created,
        model: app.options.name.clone(),
        system_fingerprint: app.system_fingerprint.clone(),
    };
    let include_usage = request.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
    Ok(Plan { ask, alternatives, stops: writing.stop, is_streamed, include_usage, header })
}

/// The messages of a chat, at least one.
pub(crate) fn messages(param: &str, messages: Vec<ChatMessage>) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field(param, "there is no message"));
    }
    Ok(messages.into_iter().map(|message| Message::new(message.role.into(), message.content.0)).collect())
}

fn constraint(format: ResponseFormat) -> Option<Constraint> {
    match format {
        ResponseFormat::Text {} => None,
        ResponseFormat::JsonObject {} => Some(Constraint::JsonSchema(json!({"type": "object"}))),
        ResponseFormat::JsonSchema { json_schema } => Some(Constraint::JsonSchema(json_schema.schema)),
    }
}

/// All choices, when they are done.
async fn written(app: &App, plan: &Plan, open: OpenPrompt, deadline: Instant) -> Result<Vec<Written>, ApiError> {
    if let Some(score) = open.score {
        let told = prompt_tokens(answers::score(score, deadline).await?, "messages")?;
        return Ok(vec![Written::next(app, &told)?; plan.ask.choices]);
    }
    let mut written = Vec::with_capacity(plan.ask.choices);
    for mut events in open.texts {
        written.push(answers::text(&mut events, deadline, "messages").await?);
    }
    Ok(written)
}

/// The same as events.
fn streamed(app: &Arc<App>, plan: Plan, open: OpenPrompt, deadline: Instant) -> Response {
    let prompt = plan.ask.tokens.len();
    let of_stream = app.clone();
    stream(app, plan.include_usage, move |out| async move {
        let (app, header) = (of_stream, plan.header.clone());
        let chunk = |index, delta, logprobs, finish_reason| {
            header.chunk(vec![ChunkChoice { index, delta, logprobs, finish_reason }], None)
        };
        for index in 0..plan.ask.choices {
            let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
            out.send(chunk(index, delta, None, None)).await?;
        }
        let text = |content: String| Delta { role: None, content: (!content.is_empty()).then_some(content) };
        let mut completion = 0;
        if plan.alternatives.is_none() {
            let texts = open.texts.into_iter().map(|events| (String::new(), events)).collect();
            let piece = |index, content, finish: Option<FinishReason>| chunk(index, text(content), None, finish);
            completion = Streamed { app: &app, out: &out, stops: &plan.stops, deadline }.all(texts, &piece).await?;
        } else {
            for (index, written) in written(&app, &plan, open, deadline).await?.into_iter().enumerate() {
                completion += written.ids.len();
                let logprobs = plan.alternatives.and_then(|count| of_chat(&*app.model, &written, count));
                out.send(chunk(index, text(written.text), logprobs, Some(written.finish))).await?;
            }
        }
        Ok(header.chunk(Vec::new(), Some(UsageBody::new(prompt, completion))))
    })
}
