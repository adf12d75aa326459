//! Lines of a file that are requests to a model.

use probity_data::{LineError, Record};
use probity_lm::{LanguageModel, LmError, Message, Outcome, Precision, Prompt, Requests, Sink, Usage};
use probity_runtime::Model;
use serde_json::{Map, Value};

/// A line that is a request to a model, and how its answer is written.
pub trait RequestLine: Record + Send + 'static {
    /// The request to the model.
    type Request: Send;
    /// The model's result.
    type Result: Send;

    /// Converts a line that passed [`Record::check`].
    fn into_request(self) -> Self::Request;

    /// Checks a request beforehand: an invalid one would end the whole batch with the same error.
    fn fits(model: &Model, request: &Self::Request) -> Result<(), LmError>;

    /// Queries the model with all requests.
    fn ask(
        model: &dyn LanguageModel,
        requests: &mut Requests<'_, Self::Request>,
        sink: &mut Sink<'_, Self::Result>,
    ) -> Result<Usage, LmError>;

    /// The outcome of a result.
    fn outcome(result: &Self::Result) -> &Outcome;

    /// Tokens of the prompt.
    fn prompt_tokens(result: &Self::Result) -> usize;

    /// The outcome's fields; empty if there are none.
    fn fields(result: &Self::Result) -> Map<String, Value>;
}

/// Problems with a line's prompt, which has one of three forms.
pub(super) fn check_prompt(
    prompt: Option<&String>,
    messages: Option<&Vec<Message>>,
    tokens: Option<&Vec<u32>>,
    answer_prefix: Option<&String>,
) -> Vec<LineError> {
    let given = [("prompt", prompt.is_some()), ("messages", messages.is_some()), ("tokens", tokens.is_some())];
    let mut wrong: Vec<LineError> = exactly_one(&given).into_iter().collect();
    if messages.is_some_and(Vec::is_empty) {
        wrong.push(LineError::content("messages", "the list is empty"));
    }
    if answer_prefix.is_some() && messages.is_none() {
        wrong.push(LineError::content("answer_prefix", "requires `messages`; append it to the prompt instead"));
    }
    wrong
}

/// The prompt of a checked line.
pub(super) fn prompt(
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    answer_prefix: Option<String>,
) -> Prompt {
    match (prompt, messages) {
        (Some(text), _) => Prompt::Text(text),
        (_, Some(messages)) => Prompt::chat(messages, answer_prefix.unwrap_or_default()),
        _ => Prompt::Tokens(tokens.unwrap_or_default()),
    }
}

/// A problem unless exactly one of the fields is set.
pub(super) fn exactly_one(fields: &[(&str, bool)]) -> Option<LineError> {
    if fields.iter().any(|(_, given)| *given) {
        return at_most_one(fields);
    }
    Some(LineError::content("", format!("one of {} is required", names(fields))))
}

/// A problem if more than one of the fields is set.
pub(super) fn at_most_one(fields: &[(&str, bool)]) -> Option<LineError> {
    let (second, _) = fields.iter().filter(|(_, given)| *given).nth(1)?;
    Some(LineError::content(*second, format!("only one of {} is allowed", names(fields))))
}

fn names(fields: &[(&str, bool)]) -> String {
    fields.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The output line of an answer.
pub fn answer<L: RequestLine>(id: &str, result: &L::Result, precision: Precision) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("id".into(), id.into());
    // The outcome's reason, if any, is a field beside it.
    if let Ok(Value::Object(outcome)) = serde_json::to_value(L::outcome(result)) {
        line.extend(outcome);
    }
    line.insert("precision".into(), precision.as_str().into());
    line.insert("prompt_tokens".into(), L::prompt_tokens(result).into());
    line.extend(L::fields(result));
    line
}
