//! Chat templates: a conversation as the text that the model was trained on.

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use probity_lm::Message;
use serde::Serialize;

/// Templates of real models have a few thousand bytes.
const MAX_TEMPLATE: usize = 1 << 20;
/// Instructions of the template engine; real templates need some hundreds a message.
const FUEL: u64 = 20_000_000;
const NAME: &str = "chat template";

/// Why a chat could not be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The model brings no template.
    #[error(
        "the model has no chat template\n\nhint: give a plain `prompt` in place of `messages`, or put a `chat_template.jinja` beside the model's tokenizer"
    )]
    Missing,
    /// The template is no valid Jinja, or too large.
    #[error("the model's chat template cannot be read: {0}\n\nhint: give a plain `prompt` in place of `messages`")]
    Invalid(String),
    /// The template itself refuses the conversation.
    #[error(
        "the model's chat template refuses these messages: {0}\n\nhint: some models take no system message, or want user and assistant in turn, user first"
    )]
    Refused(String),
    /// The template fails, or does not end.
    #[error("the model's chat template failed: {0}")]
    Failed(String),
}

/// A compiled chat template in the environment that transformers gives it: blocks trimmed, `raise_exception`, `tojson`, loop controls,
/// Python's string and mapping methods.
///
/// Rendering is deterministic: there is no clock. `strftime_now` is not defined, so that a template which asks for it takes its own
/// fallback date; one that calls it regardless fails.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    named_tokens: Vec<(String, String)>,
}

#[derive(Serialize)]
struct TemplateMessage<'a> {
    role: &'a str,
    content: &'a str,
}

impl ChatTemplate {
    /// Compiles `source`; `named_tokens` are the variables `bos_token`, `eos_token` and the like.
    pub fn new(source: &str, named_tokens: &[(String, String)]) -> Result<Self, ChatError> {
        if source.len() > MAX_TEMPLATE {
            return Err(ChatError::Invalid(format!("it has {} bytes, more than {MAX_TEMPLATE}", source.len())));
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(64);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", tojson);
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|e| ChatError::Invalid(describe(&e)))?;
        Ok(Self { environment, source: source.to_owned(), named_tokens: named_tokens.to_vec() })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The conversation as text, up to where the assistant's next message begins if `add_generation_prompt`.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ChatError> {
        self.render_contents(messages.iter().map(|m| (m.role.as_str(), m.content.as_str())), add_generation_prompt)
    }

    /// [`render`](Self::render) of roles and contents.
    pub(crate) fn render_contents<'a>(
        &self,
        messages: impl Iterator<Item = (&'a str, &'a str)>,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let template = self.environment.get_template(NAME).map_err(|e| ChatError::Invalid(describe(&e)))?;
        let messages: Vec<TemplateMessage<'_>> = messages.map(|(role, content)| TemplateMessage { role, content }).collect();
        let given = [
            ("messages", Value::from_serialize(&messages)),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        let context: Value = given
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain(self.named_tokens.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))))
            .collect();
        template.render(context).map_err(|error| failure(&error))
    }
}

/// Marks an error as the template's own.
const REFUSED: &str = "\u{1}refused\u{1}";

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{message}")))
}

fn failure(error: &Error) -> ChatError {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(current) = source {
        let detail = current.downcast_ref::<Error>().and_then(Error::detail);
        if let Some(message) = detail.and_then(|detail| detail.strip_prefix(REFUSED)) {
            return ChatError::Refused(message.to_owned());
        }
        source = current.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return ChatError::Failed("it takes too long; a loop in it may not end".to_owned());
    }
    ChatError::Failed(describe(error))
}

fn describe(error: &Error) -> String {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    match error.detail() {
        Some(detail) => format!("{}: {detail}{line}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}

/// transformers lets templates mark the assistant's part with `{% generation %}`; for rendering the marks mean nothing.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + len + 2];
        let word = tag.trim_start_matches(['{', '%', '-', '+']).trim_end_matches(['}', '%', '-', '+']).trim();
        text.push_str(&rest[..start]);
        match word {
            "generation" => text.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => text.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => text.push_str(tag),
        }
        rest = &rest[start + len + 2..];
    }
    text.push_str(rest);
    text
}

/// JSON as Python's `json.dumps(…, ensure_ascii=False)` writes it: a space after commas and colons unless indented. Nothing is escaped
/// for HTML.
#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let mut text = String::new();
    write_json(&json, indent.map(|indent| indent.min(16)), 0, &mut text);
    Ok(Value::from_safe_string(text))
}

fn write_json(json: &serde_json::Value, indent: Option<usize>, depth: usize, text: &mut String) {
    use serde_json::Value as Json;
    let line = |depth: usize, text: &mut String| {
        if let Some(indent) = indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    let (open, close, count) = match json {
        Json::Array(items) => ('[', ']', items.len()),
        Json::Object(fields) => ('{', '}', fields.len()),
        scalar => return text.push_str(&scalar.to_string()),
    };
    text.push(open);
    let keys: Vec<Option<&String>> = json.as_object().map_or_else(|| vec![None; count], |fields| fields.keys().map(Some).collect());
    let values: Vec<&Json> = match json {
        Json::Object(fields) => fields.values().collect(),
        other => other.as_array().into_iter().flatten().collect(),
    };
    for (index, (key, value)) in keys.into_iter().zip(values).enumerate() {
        if index > 0 {
            text.push_str(separator);
        }
        line(depth + 1, text);
        if let Some(key) = key {
            text.push_str(&Json::String(key.clone()).to_string());
            text.push_str(": ");
        }
        write_json(value, indent, depth + 1, text);
    }
    if count > 0 {
        line(depth, text);
    }
    text.push(close);
}

#[cfg(test)]
mod tests {
    use probity_lm::Role;

    use super::*;

    fn render(source: &str, messages: &[(Role, &str)]) -> Result<String, ChatError> {
        let messages: Vec<Message> = messages.iter().map(|(role, content)| Message::new(*role, *content)).collect();
        let names = [("bos_token".to_owned(), "<s>".to_owned())];
        ChatTemplate::new(source, &names)?.render(&messages, true)
    }

    #[test]
    fn blocks_are_trimmed_and_python_methods_work() {
        let source = "{{ bos_token }}\n{% for m in messages %}\n    {% if loop.first %}\n{{ m['content'].strip() | trim }}|{{ m.role.upper() }}\n    {% endif %}\n{% endfor %}\n{{ tools is none }}{{ missing }}";
        assert_eq!(render(source, &[(Role::User, "  hi ")]).as_deref(), Ok("<s>\nhi|USER\nTrue"));
    }

    #[test]
    fn what_the_template_raises_is_the_message() {
        let source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok";
        let refused = render(source, &[(Role::System, "be kind")]);
        assert_eq!(refused, Err(ChatError::Refused("System role not supported".into())));
        assert_eq!(render(source, &[(Role::User, "x")]).as_deref(), Ok("ok"));
    }

    #[test]
    fn endless_huge_and_broken_templates_are_errors() {
        let nested =
            "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(matches!(render(nested, &[]), Err(ChatError::Failed(why)) if why.contains("too long")));
        assert!(matches!(render(&" ".repeat(MAX_TEMPLATE + 1), &[]), Err(ChatError::Invalid(_))));
        assert!(matches!(render("{% for %}", &[]), Err(ChatError::Invalid(_))));
        assert!(matches!(render("{{ strftime_now('%d') }}", &[]), Err(ChatError::Failed(_))));
        assert_eq!(render("{% if strftime_now is defined %}now{% else %}then{% endif %}", &[]).as_deref(), Ok("then"));
    }

    #[test]
    fn json_is_written_as_python_does() {
        let source = "{{ {'b': [1, 'é<'], 'a': none, 'e': {}} | tojson }}{{ [1] | tojson(indent=2) }}";
        assert_eq!(render(source, &[]).as_deref(), Ok("{\"b\": [1, \"é<\"], \"a\": null, \"e\": {}}[\n  1\n]"));
    }

    #[test]
    fn generation_marks_and_loop_controls_are_understood() {
        let source = "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{%- generation -%} {{ m.content }} {%- endgeneration -%}{% endfor %}";
        assert_eq!(render(source, &[(Role::System, "s"), (Role::User, "u")]).as_deref(), Ok("u"));
    }
}
