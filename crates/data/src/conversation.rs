//! Converts lists of chat messages to text.

use serde_json::Value;

use crate::line_error::excerpt;
use crate::values::kind;

/// Messages as one text: the text of the only message, or of the last one if `last_alone`; otherwise each turn with its
/// role. `None` if the value is no list of messages; an error if a message has no text form.
pub(crate) fn conversation(value: &Value, last_alone: bool) -> Option<Result<String, String>> {
    let messages = messages(value)?;
    let first = if last_alone { messages.len() - 1 } else { 0 };
    let text = |index: usize| message_text(&messages[index]).map_err(|why| format!("message {}: {why}", index + 1));
    // A single turn needs no role prefix.
    if first == messages.len() - 1 {
        return Some(text(first));
    }
    let turn = |index: usize| Ok(format!("{}: {}", messages[index]["role"].as_str().unwrap_or_default(), text(index)?));
    let turns: Result<Vec<String>, String> = (first..messages.len()).map(turn).collect();
    Some(turns.map(|turns| turns.join("\n\n")))
}

/// The role of the last message, if that message is not an answer.
pub(crate) fn role_without_answer(value: &Value) -> Option<&str> {
    messages(value)?.last()?["role"].as_str().filter(|role| matches!(*role, "user" | "tool"))
}

/// The messages before the final answer.
pub(crate) fn before_the_answer(value: &Value) -> Option<Result<String, String>> {
    let (_, before) = messages(value)?.split_last()?;
    conversation(&Value::Array(before.to_vec()), false)
}

fn messages(value: &Value) -> Option<&[Value]> {
    let has_content = |message: &Value| CONTENTS.iter().any(|key| message.get(key).is_some());
    let is_message = |message: &Value| message["role"].is_string() && has_content(message);
    let messages = value.as_array().filter(|messages| !messages.is_empty())?;
    messages.iter().all(is_message).then_some(messages)
}

const CONTENTS: [&str; 3] = ["content", "tool_calls", "function_call"];

/// The text of a message, followed by its tool calls as `NAME(ARGUMENTS)`.
fn message_text(message: &Value) -> Result<String, String> {
    let mut lines = content_lines(&message["content"])?;
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    for call in calls.iter().chain(message.get("function_call").filter(|call| !call.is_null())) {
        let function = if call["function"].is_object() { &call["function"] } else { call };
        lines.push(tool_call(function, "arguments")?);
    }
    if lines.is_empty() { Err("it has neither text nor a tool call".to_owned()) } else { Ok(lines.join("\n")) }
}

fn content_lines(content: &Value) -> Result<Vec<String>, String> {
    match content {
        Value::Null => Ok(Vec::new()),
        // Assistants send an empty text with their tool calls.
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(parts) => {
            let lines = parts.iter().map(part_lines).collect::<Result<Vec<_>, _>>()?;
            Ok(lines.concat())
        }
        other => Err(format!("its content is {}, not text", kind(other))),
    }
}

fn part_lines(part: &Value) -> Result<Vec<String>, String> {
    if let Value::String(text) = part {
        return Ok(vec![text.clone()]);
    }
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("tool_use"), _) => Ok(vec![tool_call(part, "input")?]),
        (Some("tool_result"), _) => content_lines(&part["content"]),
        (Some("text" | "input_text" | "output_text") | None, Some(text)) => Ok(vec![text.to_owned()]),
        (Some(other), _) => Err(format!("its content has a part of type `{}`, which is not text", excerpt(other))),
        (None, None) => Err("its content has a part without text".to_owned()),
    }
}

fn tool_call(call: &Value, arguments: &str) -> Result<String, String> {
    let name = call["name"].as_str().ok_or("a tool call has no name")?;
    let arguments = match &call[arguments] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Ok(format!("{name}({arguments})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call() -> Value {
        json!({"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}})
    }

    #[test]
    fn tool_calls_and_parts_are_written_as_text() {
        let chat = json!([
            {"role": "user", "content": [{"type": "text", "text": "Rain in Paris?"}]},
            {"role": "assistant", "content": null, "tool_calls": [call()]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            {"role": "assistant", "content": "No."},
        ]);
        assert_eq!(conversation(&chat, true), Some(Ok("No.".to_owned())));
        let before = before_the_answer(&chat).expect("messages").expect("text");
        assert_eq!(before, "user: Rain in Paris?\n\nassistant: weather({\"city\": \"Paris\"})\n\ntool: sunny");
        let blocks = json!([
            {"role": "assistant", "content": [{"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "2", "name": "weather", "input": {"city": "Paris"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2",
                "content": [{"type": "text", "text": "sunny"}]}]},
        ]);
        let text = conversation(&blocks, false).expect("messages").expect("text");
        assert_eq!(text, "assistant: Let me look.\nweather({\"city\":\"Paris\"})\n\nuser: sunny");
        let missing = json!([{"role": "assistant", "tool_calls": [{"name": "stop", "arguments": {}}]}]);
        assert_eq!(conversation(&missing, false), Some(Ok("stop({})".to_owned())));
    }

    #[test]
    fn what_is_not_text_is_named_with_its_message() {
        let of = |content: Value| {
            let chat = json!([{"role": "user", "content": "a"}, {"role": "user", "content": content}]);
            conversation(&chat, false).expect("messages").expect_err("not text")
        };
        assert_eq!(
            of(json!([{"type": "image_url"}])),
            "message 2: its content has a part of type `image_url`, which is not text"
        );
        assert_eq!(of(json!(3)), "message 2: its content is a number, not text");
        assert_eq!(of(json!(null)), "message 2: it has neither text nor a tool call");
        for other in [json!([]), json!("a"), json!([{"role": "user"}]), json!([{"text": "a"}])] {
            assert_eq!(conversation(&other, false), None, "{other}");
        }
    }
}
