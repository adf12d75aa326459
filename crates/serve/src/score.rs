//! `POST /v1/score`: exact probabilities of labels and continuations, and outputs of a class head.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use probity_lm::{Ask, AskedTokens, LabelSet, OneOrMany, Outcome, Prompt, ScoreAnswer, ScoreRequest, ScoreResult};
use tokio::sync::oneshot;

use crate::answers::{self, hand_over};
use crate::api_error::{ApiError, boxed_error_text, error_text};
use crate::app::App;
use crate::asks::{encode, refuse_long};
use crate::body::aside;
use crate::json;
use crate::queue::ScoreJob;
use crate::wire::chat::{ChatMessage, ChatRequest};
use crate::wire::forms::{PlainPrompt, TextOrIds, UsageBody};
use crate::wire::score::{ClassEntry, LabelEntry, ScoreBatch, ScoreBody, ScoreEntry, ScoreItem, TokensEntry, finite};
use crate::wire::text::TextFormat as _;

/// Maximum number of queries per request.
const MOST_ITEMS: usize = 4096;

/// A validated query.
struct Question {
    id: Option<String>,
    request: ScoreRequest,
    tokens: Vec<u32>,
}

/// Handles a request.
pub(crate) async fn score(State(app): State<Arc<App>>, request: Request) -> Result<Json<ScoreBody>, ApiError> {
    let deadline = app.deadline();
    let body = app.bodies.read(request).await?;
    let header = app.header("score", "list", &body);
    let questions = aside(&app, move |app| questions(app, &body)).await?;
    let (mut jobs, mut open) = (Vec::new(), Vec::new());
    for Question { id, request, tokens } in questions {
        let (reply, receiver) = oneshot::channel();
        jobs.push(ScoreJob { request, tokens, reply });
        open.push((id, receiver));
    }
    hand_over(&app, jobs, Vec::new())?;
    let (mut data, mut prompts) = (Vec::new(), 0);
    for (index, (id, receiver)) in open.into_iter().enumerate() {
        let result = answers::score(receiver, deadline).await?;
        prompts += result.prompt_tokens;
        data.push(entry(index, id, &result));
    }
    Ok(Json(ScoreBody { header, data, usage: UsageBody::new(prompts, 0) }))
}

fn questions(app: &App, body: &Bytes) -> Result<Vec<Question>, ApiError> {
    let ScoreBatch { model, items: OneOrMany(items) } = json::read(body)?;
    app.check_model(model.as_ref())?;
    if items.is_empty() {
        return Err(ApiError::field("items", "the list is empty"));
    }
    if items.len() > MOST_ITEMS {
        return Err(ApiError::field("items", format!("at most {MOST_ITEMS} per request")));
    }
    items.into_iter().enumerate().map(|(index, item)| question(app, &format!("items[{index}]"), item)).collect()
}

fn question(app: &App, at: &str, item: ScoreItem) -> Result<Question, ApiError> {
    let field = |name: &str| format!("{at}.{name}");
    let (prompt, of) = match (item.prompt, item.messages) {
        (Some(_), Some(_)) => {
            return Err(ApiError::field(field("messages"), "only one of `prompt`, `messages` is allowed"));
        }
        (None, None) => return Err(ApiError::field(at, "one of `prompt`, `messages` is required")),
        (Some(_), _) if item.answer_prefix.is_some() => {
            let why = "requires `messages`; append it to the prompt instead";
            return Err(ApiError::field(field("answer_prefix"), why));
        }
        (Some(TextOrIds(prompt)), _) => (prompt.into(), field("prompt")),
        (_, Some(chat)) => {
            let messages = ChatMessage::all(chat);
            let messages = messages.ok_or_else(|| ApiError::field(field("messages"), ChatRequest::NAMES.prompts.1))?;
            // A class head reads the chat unchanged.
            let is_free = item.classes == Some(true);
            let chat = Prompt::chat(messages, item.answer_prefix.unwrap_or_default());
            (app.formatted(chat, is_free), field("messages"))
        }
    };
    if item.classes == Some(true) {
        let others = [item.labels.is_some(), item.continuation.is_some(), item.termination.is_some()];
        if others.contains(&true) {
            let why = "only one of `labels`, `continuation`, `classes` is allowed";
            return Err(ApiError::field(field("classes"), why));
        }
        return class_question(app, at, item.id, (prompt, of));
    }
    let (ask, asked) = match (item.labels, item.continuation) {
        (Some(_), Some(_)) => {
            return Err(ApiError::field(field("continuation"), "only one of `labels`, `continuation` is allowed"));
        }
        (None, None) => return Err(ApiError::field(at, "one of `labels`, `continuation`, `classes` is required")),
        (None, _) if item.termination.is_some() => {
            return Err(ApiError::field(field("termination"), "requires `labels`"));
        }
        (Some(labels), _) => {
            let set = LabelSet::new(labels.0).map_err(|error| ApiError::field(field("labels"), error_text(&error)))?;
            (Ask::Labels(set.with_termination(item.termination.unwrap_or_default())), field("labels"))
        }
        (_, Some(TextOrIds(PlainPrompt::Text(text)))) if text.is_empty() => {
            return Err(ApiError::field(field("continuation"), "empty"));
        }
        (_, Some(TextOrIds(PlainPrompt::Text(text)))) => (Ask::Continuation(text), field("continuation")),
        (_, Some(TextOrIds(PlainPrompt::Ids(ids)))) => {
            (Ask::Tokens(AskedTokens { ids, alternatives: 0, next: false }), field("continuation"))
        }
    };
    if let Ask::Continuation(text) = &ask {
        refuse_long(app, &asked, &prompt, text)?;
    }
    let tokens = encode(app, &of, &prompt)?;
    let request = ScoreRequest { id: at.to_owned(), prompt, ask };
    app.model.check_score(&request).map_err(|error| ApiError::unasked(&asked, &error))?;
    Ok(Question { id: item.id, request, tokens })
}

/// Creates a query to a class head; `of` is the field of the prompt.
fn class_question(
    app: &App,
    at: &str,
    id: Option<String>,
    (prompt, of): (Prompt, String),
) -> Result<Question, ApiError> {
    if matches!(&prompt, Prompt::Chat { answer_prefix, .. } if !answer_prefix.is_empty()) {
        let why = "requires `labels` or `continuation`; a class head reads the last message unchanged";
        return Err(ApiError::field(format!("{at}.answer_prefix"), why));
    }
    refuse_long(app, &of, &prompt, "")?;
    let tokens = app.model.encode_whole(&prompt).map_err(|error| ApiError::field(&of, boxed_error_text(&error)))?;
    let request = ScoreRequest { id: at.to_owned(), prompt, ask: Ask::Classes };
    app.model.check_score(&request).map_err(|error| ApiError::unasked(&of, &error))?;
    Ok(Question { id, request, tokens })
}

fn entry(index: usize, id: Option<String>, result: &ScoreResult) -> ScoreEntry {
    let (why, room) = match &result.outcome {
        Outcome::Altered { why } | Outcome::Unparsed { why } | Outcome::NotFinite { why } => (Some(why.clone()), None),
        Outcome::TooLong { tokens_needed, limit } => (None, Some((*tokens_needed, *limit))),
        Outcome::LowMass { why } => (why.clone(), None),
        Outcome::Scored | Outcome::Tie | Outcome::Empty => (None, None),
    };
    let label = |label: &probity_lm::LabelScore| LabelEntry {
        name: label.name.clone(),
        logprob: finite(label.logprob),
        probability: libm::exp(label.logprob),
        prob: label.prob,
        variants: label.variants.iter().map(TokensEntry::from).collect(),
    };
    let (labels, mass, continuation) = match &result.answer {
        Some(ScoreAnswer::Labels(answer)) => (Some(answer.labels.iter().map(label).collect()), Some(answer.mass), None),
        _ => (None, None, result.continuation().map(TokensEntry::from)),
    };
    ScoreEntry {
        object: "score",
        index,
        id,
        outcome: result.outcome.name(),
        why,
        tokens_needed: room.map(|(needed, _)| needed),
        limit: room.map(|(_, limit)| limit),
        prompt_tokens: result.prompt_tokens,
        labels,
        mass,
        continuation,
        classes: result.classes().map(ClassEntry::all),
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::{ClassAnswer, ClassKind, ClassScore, LabelAnswer};
    use serde_json::{Value, json};

    use super::*;

    fn entry_json(outcome: Outcome, answer: Option<ScoreAnswer>) -> Value {
        serde_json::to_value(entry(3, None, &ScoreResult { outcome, prompt_tokens: 9, answer })).expect("JSON")
    }

    #[test]
    fn what_has_no_answer_says_why_and_has_no_numbers() {
        let nothing = entry_json(Outcome::NotFinite { why: "an overflow".into() }, None);
        let expected =
            json!({"object": "score", "index": 3, "outcome": "not_finite", "why": "an overflow", "prompt_tokens": 9});
        assert_eq!(nothing, expected);
        let too_long = entry_json(Outcome::TooLong { tokens_needed: 12, limit: 8 }, None);
        assert_eq!(
            (&too_long["tokens_needed"], &too_long["limit"], too_long.get("labels")),
            (&json!(12), &json!(8), None)
        );
    }

    #[test]
    fn classes_have_probabilities_and_a_reward_has_none() {
        let answer = |kind, logits: &[f64]| {
            let class = |(at, logit): (usize, &f64)| ClassScore { name: format!("c{at}"), logit: *logit };
            Some(ScoreAnswer::Classes(ClassAnswer { kind, classes: logits.iter().enumerate().map(class).collect() }))
        };
        let two = entry_json(Outcome::Scored, answer(ClassKind::SingleLabel, &[0.0, 0.0]));
        let half = |name: &str| json!({"name": name, "logit": 0.0, "logprob": -std::f64::consts::LN_2, "prob": 0.5});
        assert_eq!(two["classes"], json!([half("c0"), half("c1")]));
        let reward = entry_json(Outcome::Scored, answer(ClassKind::SingleLabel, &[1.5]));
        assert_eq!(reward["classes"], json!([{"name": "c0", "logit": 1.5}]));
    }

    #[test]
    fn an_impossible_label_has_a_probability_of_zero_and_no_logarithm() {
        let answer = LabelAnswer::from_logprobs([("A", f64::NEG_INFINITY), ("B", -1.0)]).expect("some probability");
        let labels = entry_json(Outcome::Scored, Some(ScoreAnswer::Labels(answer)));
        let first = &labels["labels"][0];
        assert_eq!(
            (&first["logprob"], &first["probability"], &first["prob"]),
            (&Value::Null, &json!(0.0), &json!(0.0))
        );
        assert_eq!(labels["labels"][1]["prob"], 1.0);
    }
}
