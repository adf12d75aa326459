//! Chat templates: format a conversation as the text that the model was trained on.

mod json;
mod methods;
mod python;
mod source;
mod thinking;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use probity_lm::{Message, Role};
use serde::Serialize;

pub(crate) use self::thinking::{ChatStart, ThinkingTemplate};
use crate::contained::{NotContained, WorkLimits, within};

/// Maximum template size in bytes; real templates have a few thousand.
const MAX_TEMPLATE: usize = 64 << 10;
/// Template engine instructions per chat, per message, and in total. Real templates need a few hundred per message.
const FUEL: u64 = 100_000;
const MESSAGE_FUEL: u64 = 2_000;
const MAX_FUEL: u64 = 500_000;
/// Maximum output in bytes beyond the messages. The output is tokenised; real templates write a few thousand.
const MAX_WRITTEN: usize = 1 << 20;
/// Memory limit of the engine in bytes, and extra per byte of the messages. Real templates hold a few copies of them.
const MAX_HELD: usize = 256 << 20;
const MAX_HELD_PER_BYTE: usize = 32;
/// Time limit: steps are counted, but a single step may iterate over everything held. Real templates take a
/// millisecond.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Time limit for all chats together: a base plus a share per chat.
const TIME_OF_ALL: Duration = Duration::from_secs(10);
const TIME_OF_EACH: Duration = Duration::from_millis(50);
/// Maximum number of characters quoted from a template's error.
const MAX_TOLD: usize = 1_000;
/// The engine recurses over expressions and nested values. A byte of a template adds at most one level of expressions,
/// an instruction at most one level of values. The deepest recursion takes less than 2 KiB per level in an unoptimised
/// build. Untouched pages cost nothing.
const COMPILE_STACK: usize = MAX_TEMPLATE * STACK_LEVEL;
const STACK_LEVEL: usize = 4 << 10;
const NAME: &str = "chat template";

/// Why a chat could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum ChatError {
    /// The model has no template.
    #[error("the model has no chat template")]
    #[diagnostic(help(
        "use a plain `prompt` instead of `messages`, or add a `chat_template.jinja` next to the model's tokenizer"
    ))]
    Missing,
    /// The template is invalid Jinja or too large.
    #[error("the model's chat template cannot be read: {0}")]
    #[diagnostic(help("use a plain `prompt` instead of `messages`"))]
    Invalid(String),
    /// The system has no memory or threads to read the template with.
    #[error("the model's chat template cannot be read now: {0}")]
    #[diagnostic(help("free some memory, or raise the limits of memory and threads of this process"))]
    NoThread(String),
    /// The template rejects the conversation.
    #[error("the model's chat template refuses these messages: {0}")]
    #[diagnostic(help("omit the system message, or alternate user and assistant, user first"))]
    Refused(String),
    /// The template fails or exceeds a limit.
    #[error("the model's chat template failed: {0}")]
    Failed(String),
    /// A message does not appear unchanged in the chat.
    #[error("the model's chat template omits or changes the message of `{0}`")]
    #[diagnostic(help("add a `chat_template.jinja` that writes messages unchanged next to the model's tokenizer"))]
    Altered(String),
}

impl ChatError {
    /// Adds the template's path to the error.
    fn with_path(self, path: &Path) -> Self {
        let told = |why: String| {
            let end = why.char_indices().nth(MAX_TOLD).map(|(end, _)| end);
            let why = end.map_or(why.clone(), |end| format!("{}…", &why[..end]));
            format!("{why}, in {}", path.display())
        };
        match self {
            Self::Missing => Self::Missing,
            Self::Invalid(why) => Self::Invalid(told(why)),
            Self::Refused(why) => Self::Refused(told(why)),
            Self::Failed(why) => Self::Failed(told(why)),
            Self::NoThread(why) => Self::NoThread(why),
            Self::Altered(role) => Self::Altered(role),
        }
    }
}

/// Variables that the engine sets.
const OWN_VARIABLES: [&str; 4] = ["messages", "add_generation_prompt", "tools", "documents"];

/// Whether a variable of templates comes from the prompt or the tokenizer, so that it cannot be set.
pub fn is_reserved_variable(name: &str) -> bool {
    OWN_VARIABLES.contains(&name) || name.ends_with("_token")
}

/// Variables of a template besides the messages, by name.
pub(crate) type TemplateVariables = BTreeMap<String, serde_json::Value>;

/// A compiled chat template with the environment of transformers: trimmed blocks, `raise_exception`, `tojson`, loop
/// controls, Python's string and mapping methods.
///
/// Rendering is deterministic: there is no clock. `strftime_now` returns 26 July 2024, the fallback date of Llama's
/// templates.
///
/// Templates come with models and are untrusted: template size, steps, time, depth of values, memory and output are
/// bounded. Self-referential values cannot be created.
pub struct ChatTemplate {
    parts: Arc<TemplateParts>,
    spent: Mutex<TemplateSpent>,
}

/// Time spent on rendering chats so far.
#[derive(Default)]
struct TemplateSpent {
    chats: u32,
    time: Duration,
    /// Whether a time limit was exceeded; the template would exceed it again for every chat.
    over: bool,
}

struct TemplateParts {
    environment: Environment<'static>,
    /// See [`ChatTemplate::variables`].
    variables: BTreeSet<String>,
    source: String,
    named_tokens: Vec<(String, String)>,
    /// Path of the template, for errors.
    path: PathBuf,
}

/// A message as templates see it.
#[derive(Serialize)]
struct TemplateMessage {
    role: String,
    content: String,
    /// The thought before the content, under one of the names that templates use.
    #[serde(flatten)]
    thought: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// Compiles `source`. `named_tokens` are the variables `bos_token`, `eos_token` and the like; `path` is for errors.
    pub fn new(source: &str, named_tokens: &[(String, String)], path: &Path) -> Result<Self, ChatError> {
        Self::compile(source, named_tokens, path).map_err(|error| error.with_path(path))
    }

    fn compile(source: &str, named_tokens: &[(String, String)], path: &Path) -> Result<Self, ChatError> {
        if source.len() > MAX_TEMPLATE {
            return Err(ChatError::Invalid(format!("it has {} bytes, more than {MAX_TEMPLATE}", source.len())));
        }
        let limits = WorkLimits { memory: MAX_HELD, time: MAX_TIME, stack: COMPILE_STACK };
        let text = source.to_owned();
        let (environment, variables) =
            within(limits, move || compile(&text)).map_err(|limit| limit_error(&limit, ChatError::Invalid))??;
        Ok(Self {
            parts: Arc::new(TemplateParts {
                environment,
                variables,
                source: source.to_owned(),
                named_tokens: named_tokens.to_vec(),
                path: path.to_owned(),
            }),
            spent: Mutex::default(),
        })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.parts.source
    }

    /// The variables that can be set.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.parts.variables
    }

    /// The conversation as text, up to the start of the assistant's next message if `add_generation_prompt`.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, ChatError> {
        let messages = messages.iter().map(|m| (m.role.as_str(), m.content.as_str()));
        self.render_contents(messages, &TemplateVariables::new(), add_generation_prompt)
    }

    /// [`render`](Self::render) with roles, contents and variables.
    pub(crate) fn render_contents<'a>(
        &self,
        messages: impl Iterator<Item = (&'a str, &'a str)>,
        variables: &TemplateVariables,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let owned = |(role, content): (&str, &str)| TemplateMessage {
            role: role.to_owned(),
            content: content.to_owned(),
            thought: BTreeMap::new(),
        };
        self.render_messages(messages.map(owned).collect(), variables, add_generation_prompt)
    }

    fn render_messages(
        &self,
        messages: Vec<TemplateMessage>,
        variables: &TemplateVariables,
        add_generation_prompt: bool,
    ) -> Result<String, ChatError> {
        let variables = variables.clone();
        let given: usize = messages.iter().map(|message| message.content.len()).sum();
        let fuel = MAX_FUEL.min(FUEL + MESSAGE_FUEL * messages.len() as u64);
        let memory = MAX_HELD + MAX_HELD_PER_BYTE * given;
        // Without these limits, nested lists overflowed the stack and endless output exhausted memory, which ended the
        // process.
        let limits = WorkLimits { memory, time: MAX_TIME, stack: fuel as usize * STACK_LEVEL };
        let parts = Arc::clone(&self.parts);
        let fail = |why: String| Err(ChatError::Failed(why).with_path(&self.parts.path));
        let spent = || self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock is not held while rendering, so chats render concurrently.
        if spent().over {
            return fail("it exceeded its time limit and is not used again".to_owned());
        }
        let begun = Instant::now();
        let rendered = within(limits, move || {
            parts.render((&messages, &variables), add_generation_prompt, fuel, given + MAX_WRITTEN)
        });
        let mut spent = spent();
        spent.chats += 1;
        spent.time += begun.elapsed();
        // A template that compares two lists of 2⁶⁰ items hits its limit on every chat, and there are many chats.
        spent.over =
            matches!(rendered, Err(NotContained::Time(_))) || spent.time > TIME_OF_ALL + TIME_OF_EACH * spent.chats;
        rendered.map_or_else(
            |limit| Err(limit_error(&limit, ChatError::Failed).with_path(&self.parts.path)),
            |done| done.map_err(|error| error.with_path(&self.parts.path)),
        )
    }
}

/// A limit as an error: `kind`, unless the system lacks memory or threads, which says nothing about the template.
fn limit_error(limit: &NotContained, kind: fn(String) -> ChatError) -> ChatError {
    match limit {
        NotContained::NoThread { .. } => ChatError::NoThread(limit.to_string()),
        _ => kind(limit.to_string()),
    }
}

impl TemplateParts {
    fn render(
        &self,
        (messages, variables): (&[TemplateMessage], &TemplateVariables),
        add_generation_prompt: bool,
        fuel: u64,
        limit: usize,
    ) -> Result<String, ChatError> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let template = environment.get_template(NAME).map_err(|e| ChatError::Invalid(describe(&e)))?;
        let messages = Value::from_serialize(messages);
        // Tools and documents are defined as in transformers without them, so that templates can test for them.
        let own = OWN_VARIABLES.into_iter().zip([messages, add_generation_prompt.into(), ().into(), ().into()]);
        let context: Value = variables
            .iter()
            .map(|(name, value)| (name.clone(), Value::from_serialize(value)))
            .chain(own.map(|(name, value)| (name.to_owned(), value)))
            .chain(self.named_tokens.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))))
            .collect();
        let mut written = Bounded { bytes: Vec::new(), limit };
        template.render_captured_to(context, &mut written).map(drop).map_err(|error| failure(&error))?;
        String::from_utf8(written.bytes).map_err(|error| ChatError::Failed(error.to_string()))
    }
}

/// The compiled template and the variables that can be set.
fn compile(source: &str) -> Result<(Environment<'static>, BTreeSet<String>), ChatError> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    // As in transformers, undefined values are empty text; templates rely on that.
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(64);
    python::extend(&mut environment);
    environment.add_template_owned(NAME, source::rewritten(source)?).map_err(|e| ChatError::Invalid(describe(&e)))?;
    let used =
        environment.get_template(NAME).map_err(|e| ChatError::Invalid(describe(&e)))?.undeclared_variables(false);
    let is_function = |name: &str| environment.globals().any(|(global, _)| global == name);
    let variables = used.into_iter().filter(|name| !is_reserved_variable(name) && !is_function(name)).collect();
    Ok((environment, variables))
}

/// A writer that accepts at most `limit` bytes.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if text.len() > self.limit - self.bytes.len() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Marks an error raised by the template itself.
const REFUSED: &str = "\u{1}refused\u{1}";

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{REFUSED}{message}")))
}

/// An answer, or the part after its reasoning if `chat` contains only that.
pub(crate) fn behind_thought<'a>(answer: &'a str, chat: &str) -> &'a str {
    let behind = answer.rsplit_once("</think>").map_or(answer, |(_, behind)| behind);
    if chat.contains(answer.trim()) { answer } else { behind }
}

/// The first message that does not appear in `chat` at its own position, ignoring surrounding white space. Messages
/// must be in order, except that some templates move the system message down.
pub(crate) fn first_altered(messages: &[(Role, &str)], chat: &str) -> Option<usize> {
    let out_of_order = |chat: &str, with_system: bool| {
        let mut rest = chat;
        messages.iter().position(|(role, content)| {
            if *role == Role::System && !with_system {
                return false;
            }
            let behind = rest.split_once(content.trim()).map(|(_, behind)| behind);
            rest = behind.unwrap_or_default();
            behind.is_none()
        })
    };
    out_of_order(chat, true)?;
    let mut others = chat.to_owned();
    for (at, (_, content)) in messages.iter().enumerate().filter(|(_, (role, _))| *role == Role::System) {
        let Some((before, behind)) = others.split_once(content.trim()) else { return Some(at) };
        others = format!("{before}\0{behind}");
    }
    out_of_order(&others, false)
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
        return ChatError::Failed("it takes too long; a loop in it may be endless".to_owned());
    }
    if error.kind() == ErrorKind::WriteFailure {
        return ChatError::Failed(format!("it writes over {} MiB more than the messages", MAX_WRITTEN >> 20));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[(Role, &str)]) -> Result<String, ChatError> {
        let messages: Vec<Message> = messages.iter().map(|(role, content)| Message::new(*role, *content)).collect();
        let names = [("bos_token".to_owned(), "<s>".to_owned())];
        ChatTemplate::new(source, &names, Path::new("chat_template.jinja"))?.render(&messages, true)
    }

    #[test]
    fn blocks_are_trimmed_and_python_methods_work() {
        let source = "{{ bos_token }}\n{% for m in messages %}\n    \
                      {% if loop.first %}\n{{ m['content'].strip() | trim }}|{{ m.role.upper() }}\n    \
                      {% endif %}\n{% endfor %}\n{{ tools is none }}{{ missing }}";
        assert_eq!(render(source, &[(Role::User, "  hi ")]).as_deref(), Ok("<s>\nhi|USER\nTrue"));
    }

    #[test]
    fn what_the_template_raises_is_the_message() {
        let source =
            "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok";
        let refused = render(source, &[(Role::System, "be kind")]);
        assert_eq!(refused, Err(ChatError::Refused("System role not supported, in chat_template.jinja".into())));
        assert_eq!(render(source, &[(Role::User, "x")]).as_deref(), Ok("ok"));
    }

    #[test]
    fn endless_huge_and_broken_templates_are_errors() {
        let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% \
                      endfor %}{% endfor %}";
        assert!(matches!(render(nested, &[]), Err(ChatError::Failed(why)) if why.contains("too long")));
        assert!(matches!(render(&" ".repeat(MAX_TEMPLATE + 1), &[]), Err(ChatError::Invalid(_))));
        assert!(matches!(render("{% for %}", &[]), Err(ChatError::Invalid(_))));
        assert_eq!(render("{{ strftime_now('%d %b %Y') }}", &[]).as_deref(), Ok("26 Jul 2024"));
        assert!(matches!(render("{{ strftime_now('%!') }}", &[]), Err(ChatError::Failed(_))));
    }

    #[test]
    fn texts_that_are_left_out_cut_or_changed_are_found() {
        use Role::{Assistant, System, User};
        let altered = |messages: &[(Role, &str)], chat| first_altered(messages, chat);
        assert_eq!(altered(&[(System, "be kind"), (User, " a text\n")], "<s>be kind</s><u>a text</u>"), None);
        assert_eq!(altered(&[(User, ""), (Assistant, "x")], "x"), None);
        let moved = [(System, "be kind"), (User, "a"), (Assistant, "b"), (User, "c")];
        assert_eq!(altered(&moved, "<u>a</u>b<u>be kind\n\nc</u>"), None);
        for (messages, chat, first) in [
            ([(System, "be kind"), (User, "a text")], "<u>a text</u>", 0),
            ([(System, "be kind"), (User, "a text")], "be kind<u>a</u>", 1),
            ([(User, "why?"), (Assistant, "<|End|>")], "why?<u><|end|></u>", 1),
            // Text inside another message does not count.
            ([(System, "be kind"), (User, "kind")], "<u>be kind</u>", 1),
            ([(User, "same"), (Assistant, "same")], "<u>same</u>", 1),
            ([(User, "a"), (Assistant, "b")], "ba", 1),
        ] {
            assert_eq!(altered(&messages, chat), Some(first), "{messages:?} in {chat}");
        }
        // Each is searched once, so the time is linear.
        let many = vec![(User, "a"); 100_000];
        assert_eq!(altered(&many, &"a".repeat(99_999)), Some(99_999));
        assert_eq!(behind_thought("<think>a</think>\nb", "<s>b</s>"), "\nb");
        assert_eq!(behind_thought("a</think>b", "<s>a</think>b</s>"), "a</think>b");
    }

    /// Attacks on a process without limits: memory in one step or many, self-referential values, output kept in a
    /// variable.
    #[test]
    fn templates_that_take_all_memory_or_recurse_for_ever_are_errors() {
        let doubled = |step: &str| {
            format!("{{% set ns = namespace(a='ab', l=[1]) %}}{{% for i in range(60) %}}{step}{{% endfor %}}")
        };
        let too_much = [
            "{{ 'a\nb' | indent(10000000000) }}".to_owned(),
            "{{ [1] | batch(10000000000, 'x') | list | length }}".to_owned(),
            doubled("{% set ns.a = ns.a ~ ns.a %}"),
            doubled("{% set ns.a = ns.a + ns.a %}"),
            doubled("{% set ns.a = ns.a | replace('a', 'aaaa') %}"),
            doubled("{% set ns.a = [ns.a, ns.a] | join %}"),
            doubled("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | string | length }}",
            doubled("{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | tojson }}",
            doubled("{% set b %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = b %}"),
        ];
        for source in too_much {
            let error = render(&source, &[]).expect_err("too much").to_string();
            // On a busy machine the time limit may come before the memory limit.
            let limits = ["it needs more than 256 MiB of memory", "it is not finished after 5 s"];
            let told = |limit: &str| error.contains(&format!("chat template failed: {limit}"));
            assert!(limits.into_iter().any(told), "{source}: {error}");
        }
        // One value repeated at many positions: no memory, but unbounded time.
        let sliced =
            render("{{ [1, 2] | slice(10000000000) | list | length }}", &[]).expect_err("too much").to_string();
        assert!(sliced.contains("it needs more than") || sliced.contains("too long"), "{sliced}");
        let cycles = [
            "{% set ns=namespace(a=1) %}{% set ns.a=ns %}{{ ns }}",
            "{% set ns=namespace(a=1) %}{% set ns.a=[ns] %}{{ ns.a|tojson }}",
            "{% set ns=namespace(a=1) %}{% set x=ns %}{% set x.a=x %}{{ x }}",
            "{% set x=dict(a=namespace()) %}{{ x }}",
            "{% with ns=namespace(a=1) %}{% set ns.a=ns %}{{ ns }}{% endwith %}",
            "{% macro m(x) %}{% set x.a=x %}{{ x }}{% endmacro %}{{ m(namespace()) }}",
            "{% set ns=namespace(a=1) %}{% set ns.b=namespace(c=ns) %}{{ ns.b }}",
            "{% set n=namespace %}{% set ns=n() %}{% set ns.a=ns %}{{ ns }}",
        ];
        for source in cycles {
            let error = render(source, &[]).expect_err("a cycle").to_string();
            assert!(error.contains("could contain itself"), "{source}: {error}");
        }
        let ordinary = "{% set ns = namespace(found=false, n=1) %}{% for m in messages %}{% if ns is defined and not \
                        ns.found %}\
                        {% set ns.found = true %}{% set ns.n = ns['n'] + 1 %}{% endif %}{% endfor %}{{ ns.n }}";
        assert_eq!(render(ordinary, &[(Role::User, "x")]).as_deref(), Ok("2"));
    }

    #[test]
    fn values_nested_as_deep_as_the_steps_allow_are_no_overflow() {
        let nested = |depth: &str, end: &str| {
            let loops = format!(
                "{{% for a in range(9) %}}{{% for b in range({depth}) \
                 %}}{{% set ns.x = [ns.x] %}}{{% endfor %}}{{% endfor %}}"
            );
            render(&format!("{{% set ns = namespace(x=1) %}}{loops}{end}"), &[])
        };
        assert!(matches!(nested("99999", ""), Err(ChatError::Failed(why)) if why.contains("too long")));
        assert_eq!(nested("1000", "{{ ns.x | string | length }}").as_deref(), Ok("18001"));
        assert!(matches!(
            nested("1000", "{{ ns.x | tojson(indent=16) }}"),
            Err(ChatError::Failed(why)) if why.contains("levels of nesting")
        ));
        let lists = format!(
            "{{% for a in range(9999) %}}{{% set ns.x = {}ns.x{} %}}{{% endfor %}}",
            "[".repeat(50),
            "]".repeat(50)
        );
        let written = lists.replacen("9999", "1500", 1) + "{{ ns.x }}";
        let written = render(&format!("{{% set ns = namespace(x=1) %}}{written}"), &[]);
        assert_eq!(written.map(|text| text.len()), Ok(2 * 50 * 1500 + 1));
        let deepest = render(&format!("{{% set ns = namespace(x=1) %}}{lists}"), &[]);
        assert!(matches!(&deepest, Err(ChatError::Failed(why)) if why.contains("too long")), "{deepest:?}");
    }

    #[test]
    fn expressions_as_deep_as_the_size_allows_are_no_overflow() {
        let chain = |link: &str| render(&format!("{{{{ a{} }}}}", link.repeat((MAX_TEMPLATE - 16) / link.len())), &[]);
        assert_eq!(chain("|e").as_deref(), Ok(""));
        for link in ["()", ".a"] {
            assert!(matches!(chain(link), Err(ChatError::Failed(_))), "{link}");
        }
    }

    #[test]
    fn a_template_that_took_too_long_once_is_not_asked_again() {
        let source = "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% \
                      set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}";
        let template = ChatTemplate::new(source, &[], Path::new("chat_template.jinja")).expect("compiles");
        let first = template.render(&[], true).expect_err("2^60 comparisons").to_string();
        assert!(first.contains("it is not finished after 5 s, in chat_template.jinja"), "{first}");
        let begun = Instant::now();
        let second = template.render(&[], true).expect_err("not asked").to_string();
        assert!(second.contains("is not used again") && begun.elapsed() < MAX_TIME / 2, "{second}");
    }

    #[test]
    fn what_a_template_raises_is_told_as_far_as_anyone_reads() {
        let raised = render("{{ raise_exception('x' * 900000) }}", &[]).expect_err("raised").to_string();
        assert!(raised.len() < 2 * MAX_TOLD && raised.contains("xx…, in chat_template.jinja"), "{raised}");
    }

    #[test]
    fn what_a_template_writes_is_bounded() {
        let endless = render("{% for i in range(6000) %}{{ 'x' * 1000000 }}{% endfor %}", &[]);
        assert!(matches!(endless, Err(ChatError::Failed(why)) if why.contains("1 MiB")));
        let long = "y".repeat(MAX_WRITTEN + 1);
        assert_eq!(render("{{ messages[0].content }}", &[(Role::User, &long)]), Ok(long));
    }

    #[test]
    fn json_is_written_as_python_does() {
        let source = "{{ {'b': [1, 'é<'], 'a': none, 'e': {}} | tojson }}{{ [1] | tojson(indent=2) }}";
        assert_eq!(render(source, &[]).as_deref(), Ok("{\"b\": [1, \"é<\"], \"a\": null, \"e\": {}}[\n  1\n]"));
    }

    #[test]
    fn json_in_ascii_keeps_the_marks_that_part_special_tokens() {
        let source = "{{ messages[0].content | tojson(ensure_ascii=true) }}";
        assert_eq!(render(source, &[(Role::User, "é<\u{fdd0}s>")]).as_deref(), Ok("\"\\u00e9<\u{fdd0}s>\""));
    }

    #[test]
    fn generation_marks_and_loop_controls_are_understood() {
        let source = "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{%- generation -%} \
                      {{ m.content }} {%- endgeneration -%}{% endfor %}";
        assert_eq!(render(source, &[(Role::System, "s"), (Role::User, "u")]).as_deref(), Ok("u"));
    }
}
