//! `OpenAPI` description of the endpoints, generated from their types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api_error::ErrorBody;
use crate::options::ServeOptions;
use crate::wire::chat::{ChatBody, ChatChunk, ChatRequest};
use crate::wire::completions::{CompletionBody, CompletionRequest};
use crate::wire::models::{HealthBody, ModelBody, ModelList};
use crate::wire::score::{ScoreBatch, ScoreBody};

const ABOUT: &str = "Exact probabilities and texts from one model on one machine. The endpoints for texts follow \
OpenAI's API; unsupported fields are rejected by name. The same request has the same answer, bit for bit, whatever \
other requests run at the same time.";

/// Errors of requests with a body.
const WITH_BODY: [(u16, &str); 9] = [
    (400, "The request is invalid; `param` names the field."),
    (404, "Unknown model."),
    (408, "The body took too long to arrive."),
    (413, "The body is too large."),
    (415, "The body is not JSON, or is compressed."),
    (429, "Too many requests are waiting; retry after `Retry-After` seconds."),
    (500, "The model failed."),
    (503, "The server is full or stopping; retry after `Retry-After` seconds."),
    (504, "The request exceeded the time limit."),
];
/// Errors of any request.
const ALWAYS: [(u16, &str); 2] = [
    (401, "The server requires a token."),
    (403, "The server accepts only requests from its own machine, and the request's Host is another."),
];

/// The description for a server with these options.
pub(crate) fn description(options: &ServeOptions) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = settings.into_generator();
    let paths = paths(&mut generator);
    let mut schemas = generator.take_definitions(true);
    for (name, field) in
        [("CompletionRequest", "max_tokens"), ("ChatRequest", "max_tokens"), ("ChatRequest", "max_completion_tokens")]
    {
        if let Some(property) =
            schemas.get_mut(name).and_then(|schema| schema.pointer_mut(&format!("/properties/{field}")))
        {
            property["maximum"] = options.max_tokens.into();
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "probity serve", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        // A token, or none if the server needs none.
        "security": [{"token": []}, {}],
    })
}

fn paths(generator: &mut SchemaGenerator) -> Value {
    let completions =
        Responses { body: schema::<CompletionBody>(generator), event: Some(schema::<CompletionBody>(generator)) };
    let chat = Responses { body: schema::<ChatBody>(generator), event: Some(schema::<ChatChunk>(generator)) };
    let score = Responses { body: schema::<ScoreBody>(generator), event: None };
    let [list, one, health] =
        [schema::<ModelList>(generator), schema::<ModelBody>(generator), schema::<HealthBody>(generator)];
    let id = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}});
    let mut of_one = get(generator, "The model with this id", &one);
    of_one["parameters"] = json!([id]);
    of_one["responses"]["404"] = error(generator, "Unknown model.");
    json!({
        "/v1/completions": {"post": post::<CompletionRequest>(generator, "Continue prompts", &completions)},
        "/v1/chat/completions": {"post": post::<ChatRequest>(generator, "Answer a conversation", &chat)},
        "/v1/score": {"post": post::<ScoreBatch>(generator, "Exact probabilities of labels and continuations", &score)},
        "/v1/models": {"get": get(generator, "The served model", &list)},
        "/v1/models/{id}": {"get": of_one},
        "/health": {"get": get(generator, "Health check", &health)},
        "/openapi.json": {"get": get(generator, "This description", &json!({"type": "object"}))},
    })
}

/// Response of an endpoint: complete, and as events if it can be streamed.
struct Responses {
    body: Value,
    event: Option<Value>,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn error(generator: &mut SchemaGenerator, what: &str) -> Value {
    json!({"description": what, "content": {"application/json": {"schema": schema::<ErrorBody>(generator)}}})
}

fn errors(generator: &mut SchemaGenerator, of: &[(u16, &str)]) -> Map<String, Value> {
    of.iter().map(|(status, what)| (status.to_string(), error(generator, what))).collect()
}

fn post<T: JsonSchema>(generator: &mut SchemaGenerator, summary: &str, answers: &Responses) -> Value {
    let mut content = json!({"application/json": {"schema": answers.body}});
    if let Some(event) = &answers.event {
        // Each event holds the JSON of a chunk; the last is `[DONE]`.
        let schema = json!({"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]});
        content["text/event-stream"] = json!({"schema": schema, "x-data": event});
    }
    let mut responses = Map::from_iter([("200".to_owned(), json!({"description": "The answer.", "content": content}))]);
    responses.extend(errors(generator, &WITH_BODY));
    responses.extend(errors(generator, &ALWAYS));
    let request = schema::<T>(generator);
    json!({
        "summary": summary,
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    })
}

fn get(generator: &mut SchemaGenerator, summary: &str, body: &Value) -> Value {
    let answer = json!({"description": "The answer.", "content": {"application/json": {"schema": body}}});
    let mut responses = Map::from_iter([("200".to_owned(), answer)]);
    responses.extend(errors(generator, &ALWAYS));
    json!({"summary": summary, "responses": responses})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, each: &mut dyn FnMut(&str)) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        each(reference);
                    }
                    map.values().for_each(|value| walk(value, each));
                }
                Value::Array(list) => list.iter().for_each(|value| walk(value, each)),
                _ => {}
            }
        }
        let description = description(&ServeOptions::default());
        let mut count = 0;
        walk(&description, &mut |reference| {
            let path = reference.strip_prefix('#').expect("in the document");
            assert!(description.pointer(path).is_some(), "{reference}");
            count += 1;
        });
        assert!(count > 20, "{count} references");
        assert_eq!(description["components"]["schemas"]["ChatRequest"]["properties"]["max_tokens"]["maximum"], 2048);
        assert!(!description.to_string().contains("$defs"));
    }
}
