//! The description of the endpoints, made of the types that they read and write.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api_error::ErrorBody;
use crate::options::ServeOptions;
use crate::wire::chat::{ChatBody, ChatChunk, ChatRequest};
use crate::wire::completions::{CompletionBody, CompletionRequest};
use crate::wire::models::{HealthBody, ModelBody, ModelList};
use crate::wire::score::{ScoreBatch, ScoreBody};

const ABOUT: &str = "Exact probabilities, and texts, from one model on one machine. The endpoints for texts take and \
give what OpenAI's API does; fields that are not honoured are refused by name. The same request has the same answer, \
bit for bit, whatever else is asked beside it.";

/// What may go wrong with a request that has a body.
const WITH_BODY: [(u16, &str); 9] = [
    (400, "The request is wrong; `param` names the field."),
    (404, "Another model is asked for."),
    (408, "The body took too long to come."),
    (413, "The body is too large."),
    (415, "The body is not JSON, or packed."),
    (429, "Too many requests wait; `Retry-After` says when to try again."),
    (500, "The model could not answer."),
    (503, "The server is full or ending; `Retry-After` says when to try again."),
    (504, "It took longer than a request may take."),
];
/// What may go wrong with any request.
const ALWAYS: [(u16, &str); 2] = [
    (401, "The server asks for a token."),
    (403, "The server answers its own machine alone, and the request's Host is another."),
];

/// The description of a server with these limits.
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
        // A token, or none where the server asks for none.
        "security": [{"token": []}, {}],
    })
}

fn paths(generator: &mut SchemaGenerator) -> Value {
    let completions =
        Answers { body: schema::<CompletionBody>(generator), event: Some(schema::<CompletionBody>(generator)) };
    let chat = Answers { body: schema::<ChatBody>(generator), event: Some(schema::<ChatChunk>(generator)) };
    let score = Answers { body: schema::<ScoreBody>(generator), event: None };
    let [list, one, health] =
        [schema::<ModelList>(generator), schema::<ModelBody>(generator), schema::<HealthBody>(generator)];
    let id = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}});
    let mut of_one = get(generator, "The model of that id", &one);
    of_one["parameters"] = json!([id]);
    of_one["responses"]["404"] = error(generator, "Another model is asked for.");
    json!({
        "/v1/completions": {"post": post::<CompletionRequest>(generator, "Go on from prompts", &completions)},
        "/v1/chat/completions": {"post": post::<ChatRequest>(generator, "Answer a conversation", &chat)},
        "/v1/score": {"post": post::<ScoreBatch>(generator, "Exact probabilities of labels and continuations", &score)},
        "/v1/models": {"get": get(generator, "The model that is served", &list)},
        "/v1/models/{id}": {"get": of_one},
        "/health": {"get": get(generator, "Whether the server is there", &health)},
        "/openapi.json": {"get": get(generator, "This description", &json!({"type": "object"}))},
    })
}

/// What an endpoint answers: whole, and in events where it can be streamed.
struct Answers {
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

fn post<T: JsonSchema>(generator: &mut SchemaGenerator, summary: &str, answers: &Answers) -> Value {
    let mut content = json!({"application/json": {"schema": answers.body}});
    if let Some(event) = &answers.event {
        // Each event holds the JSON of a chunk; the last says `[DONE]`.
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
