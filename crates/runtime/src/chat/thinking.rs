//! How a model thinks, found by rendering its chat template.

use probity_lm::{OpenedBy, ThinkingStyle, ThoughtState, thought_state};
use serde_json::{Value, json};

use super::{ChatTemplate, TemplateMessage, TemplateVariables};

/// Texts of the probing messages. No template contains them.
const QUESTION: &str = "qvestion";
const REASONS: &str = "reazons";
const ANSWER: &str = "anzwer";
/// Fields of a message for its thought.
const THOUGHT_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Variables that turn thoughts off, in the order in which they are tried.
fn switches_off() -> [(&'static str, Value); 7] {
    [
        ("enable_thinking", json!(false)),
        ("thinking", json!(false)),
        ("thinking_mode", json!("disabled")),
        ("thinking_budget", json!(0)),
        ("reasoning", json!(false)),
        ("reasoning_effort", json!("none")),
        ("reasoning_effort", json!("no_think")),
    ]
}

/// Variables that turn thoughts on.
fn switches_on() -> [(&'static str, Value); 3] {
    [("enable_thinking", json!(true)), ("thinking", json!(true)), ("reasoning_effort", json!("high"))]
}

/// Families by a mark in the template or the vocabulary, with the texts before and after a thought. For templates that
/// do not render thoughts.
const FAMILIES: [(&str, &str, &str); 8] = [
    ("<channel|>", "<|channel>thought\n", "<channel|>"),
    ("<|channel|>", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<seed:think>", "<seed:think>", "</seed:think>"),
    ("</mm:think>", "<mm:think>", "</mm:think>"),
    ("[THINK]", "[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁think▷", "◁/think▷"),
    ("</think>", "<think>\n", "\n</think>\n\n"),
];

/// How the answer of a chat begins: variables of the template, and the text after its generation prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ChatStart {
    pub(crate) variables: TemplateVariables,
    pub(crate) after: String,
}

/// How a chat template opens, closes and prevents thoughts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ThinkingTemplate {
    pub(crate) style: ThinkingStyle,
    /// Without a thought.
    pub(crate) closed: ChatStart,
    /// With an open thought; absent if the template prevents it.
    pub(crate) open: Option<ChatStart>,
}

/// A template with its renderings of the probing messages.
struct Probe<'a> {
    template: &'a ChatTemplate,
    /// Text after the question.
    usual: String,
    /// The same before and after a thought, if the template renders thoughts.
    shown: Option<(String, String)>,
}

impl ThinkingTemplate {
    /// Probes a template. `has_token` looks up the vocabulary. `None` if the model does not think.
    pub(crate) fn find(template: &ChatTemplate, has_token: impl Fn(&str) -> bool) -> Option<Self> {
        let probe = Probe::new(template)?;
        let all = probe.rendered(&TemplateVariables::new())?;
        let in_template = FAMILIES.iter().find(|(mark, ..)| template.source().contains(mark) || all.contains(mark));
        let in_vocabulary = FAMILIES.iter().find(|(mark, open, _)| has_token(mark) && has_token(open.trim()));
        let family = in_template.or(in_vocabulary);
        let (open, close) = probe.marks(family).filter(|(_, close)| !close.trim().is_empty())?;
        let off = switches_off().into_iter().find(|(name, value)| {
            probe.after(name, value).is_some_and(|text| probe.state(&text) == ThoughtState::Closed)
        });
        let on = switches_on().into_iter().find(|(name, value)| {
            *name != "reasoning_effort" && probe.rendered(&one(name, value)).is_some_and(|text| text != all)
                || probe.after(name, value).is_some_and(|text| probe.state(&text) == ThoughtState::Open)
        });
        let state = probe.state(&probe.usual);
        let opened_by = match state {
            ThoughtState::Open => OpenedBy::Template,
            ThoughtState::Closed => OpenedBy::Off,
            ThoughtState::None if off.is_some() => OpenedBy::Model,
            ThoughtState::None if on.is_some() => OpenedBy::Off,
            ThoughtState::None if probe.shown.is_some() || probe.closes_itself() || says_how(&all, family) => {
                OpenedBy::Model
            }
            ThoughtState::None if in_vocabulary.is_some() => OpenedBy::Unclear,
            ThoughtState::None => return None,
        };
        let off = off.filter(|_| matches!(opened_by, OpenedBy::Template | OpenedBy::Model));
        let on = on.filter(|_| opened_by == OpenedBy::Off);
        let closed = probe.closed(off.as_ref(), opened_by, (&open, &close));
        let thinking = probe.open(on.as_ref(), &open);
        let named = |switch: Option<(&str, Value)>| switch.map(|(name, value)| (name.to_owned(), value));
        let style = ThinkingStyle { opened_by, open, close, off: named(off), on: named(on) };
        Some(Self { style, closed, open: thinking })
    }
}

impl ThinkingTemplate {
    /// Whether the template opens a thought with these variables.
    pub(crate) fn opens(&self, template: &ChatTemplate, variables: &TemplateVariables) -> bool {
        if variables.is_empty() {
            return self.style.opened_by == OpenedBy::Template;
        }
        let Some(probe) = Probe::new(template) else { return false };
        let start = probe.rendered(variables).and_then(|text| after_question(&text));
        start.is_some_and(|start| probe.state(&start) == ThoughtState::Open)
    }
}

/// Whether a prompt explains both marks of a thought to the model.
fn says_how(prompt: &str, family: Option<&(&str, &str, &str)>) -> bool {
    family.is_some_and(|(_, open, close)| prompt.contains(open.trim()) && prompt.contains(close.trim()))
}

fn one(name: &str, value: &Value) -> TemplateVariables {
    TemplateVariables::from([(name.to_owned(), value.clone())])
}

impl<'a> Probe<'a> {
    fn new(template: &'a ChatTemplate) -> Option<Self> {
        let mut probe = Self { template, usual: String::new(), shown: None };
        probe.usual = after_question(&probe.rendered(&TemplateVariables::new())?)?;
        probe.shown = THOUGHT_FIELDS.iter().find_map(|field| {
            let text = probe.answered(Some(field), &TemplateVariables::new())?;
            let (before, rest) = text.split_once(REASONS)?;
            let (between, _) = rest.split_once(ANSWER)?;
            Some((before.to_owned(), between.to_owned()))
        });
        Some(probe)
    }

    /// The question up to the start of the answer.
    fn rendered(&self, variables: &TemplateVariables) -> Option<String> {
        let messages = vec![message("user", QUESTION, None)];
        self.template.render_messages(messages, variables, true).ok()
    }

    /// The text after the question, up to the start of the answer, with a variable.
    fn after(&self, name: &str, value: &Value) -> Option<String> {
        after_question(&self.rendered(&one(name, value))?)
    }

    /// The text after the question with an answer, and a thought in this field.
    fn answered(&self, field: Option<&'static str>, variables: &TemplateVariables) -> Option<String> {
        let answer = message("assistant", ANSWER, field.map(|field| (field, REASONS.to_owned())));
        let text =
            self.template.render_messages(vec![message("user", QUESTION, None), answer], variables, false).ok()?;
        after_question(&text)
    }

    /// The texts before and after a thought.
    fn marks(&self, family: Option<&(&str, &str, &str)>) -> Option<(String, String)> {
        if let Some((before, close)) = &self.shown {
            // The template may have written the mark already.
            let open = before.strip_prefix(self.usual.as_str()).filter(|open| !open.is_empty());
            let open = open.map(str::to_owned).or_else(|| family.map(|(_, open, _)| (*open).to_owned()));
            return Some((open.unwrap_or_default(), close.clone()));
        }
        let (_, open, close) = family?;
        // A template that closes an empty thought shows the closing mark.
        let closes = thought_state(&self.usual) == ThoughtState::Closed;
        let own = self.usual.rfind(close.trim()).filter(|_| closes).map(|at| &self.usual[at..]);
        Some(((*open).to_owned(), own.unwrap_or(close).to_owned()))
    }

    /// The state of thoughts at the end of a text that follows the question.
    fn state(&self, text: &str) -> ThoughtState {
        let Some((before, close)) = &self.shown else { return thought_state(text) };
        match text.strip_prefix(before.as_str()) {
            // The template renders the beginning of a thought.
            Some(rest) if rest.contains(close.trim()) || thought_state(text) == ThoughtState::Closed => {
                ThoughtState::Closed
            }
            Some(_) => ThoughtState::Open,
            None if before.starts_with(text) => ThoughtState::None,
            None => match thought_state(text) {
                ThoughtState::None => ThoughtState::Closed,
                state => state,
            },
        }
    }

    /// Whether the template puts an empty thought before an answer without one.
    fn closes_itself(&self) -> bool {
        let text = self.answered(None, &TemplateVariables::new());
        let before = text.as_ref().and_then(|text| text.split_once(ANSWER));
        before.is_some_and(|(before, _)| thought_state(before) == ThoughtState::Closed)
    }

    /// How an answer begins without a thought.
    fn closed(&self, off: Option<&(&str, Value)>, opened_by: OpenedBy, (open, close): (&str, &str)) -> ChatStart {
        let variables = off.map(|(name, value)| one(name, value)).unwrap_or_default();
        let start = self.rendered(&variables).and_then(|text| after_question(&text)).unwrap_or_default();
        // As the template writes an answer without a thought.
        let answered = self.answered(None, &variables);
        let before = answered.as_ref().and_then(|text| Some(text.split_once(ANSWER)?.0));
        let after = before.and_then(|before| before.strip_prefix(start.as_str()));
        let is_closed = before.is_some_and(|before| self.state(before) == ThoughtState::Closed);
        let after = match (after, self.state(&start)) {
            _ if opened_by == OpenedBy::Off => String::new(),
            (Some(after), _) if is_closed => after.to_owned(),
            (_, ThoughtState::Closed) => {
                let rest = rest_of(close.trim_start(), &start);
                // The family's white space may not be this model's.
                if self.shown.is_none() && rest.trim().is_empty() { String::new() } else { rest.to_owned() }
            }
            (_, ThoughtState::Open) => close.to_owned(),
            (_, ThoughtState::None) => format!("{open}{close}"),
        };
        ChatStart { variables, after }
    }

    /// How an answer begins with an open thought.
    fn open(&self, on: Option<&(&str, Value)>, open: &str) -> Option<ChatStart> {
        let variables = on.map(|(name, value)| one(name, value)).unwrap_or_default();
        let start = after_question(&self.rendered(&variables)?)?;
        let after = match self.state(&start) {
            ThoughtState::Closed => return None,
            _ if thought_state(&start) == ThoughtState::Open => String::new(),
            ThoughtState::Open => String::new(),
            ThoughtState::None => open.to_owned(),
        };
        Some(ChatStart { variables, after })
    }
}

/// The part of `close` that a text that ends with its beginning lacks.
fn rest_of<'c>(close: &'c str, text: &str) -> &'c str {
    let ends = close.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
    let found = ends.into_iter().find(|&end| text.ends_with(&close[..end]));
    found.map_or("", |end| &close[end..])
}

fn message(role: &str, content: &str, thought: Option<(&'static str, String)>) -> TemplateMessage {
    TemplateMessage { role: role.to_owned(), content: content.to_owned(), thought: thought.into_iter().collect() }
}

fn after_question(text: &str) -> Option<String> {
    text.rsplit_once(QUESTION).map(|(_, after)| after.to_owned())
}
