//! A chat template with arbitrary bytes, or with arbitrary Jinja expressions, is rendered or rejected within its
//! limits, with the same result each time.
#![no_main]

use std::fmt::{self, Display};
use std::path::Path;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_fuzz::{Input, Word, count_stopped, show};
use probity_lm::{Message, Role};
use probity_runtime::chat::ChatTemplate;

#[global_allocator]
static ALLOCATOR: probity_runtime::CountingAllocator = probity_runtime::CountingAllocator;

#[derive(Arbitrary)]
enum Name {
    Messages,
    Message,
    Space,
    Set,
    Bos,
    Loop,
    Prompt,
}

#[derive(Arbitrary)]
enum Filter {
    Trim,
    ToJson,
    Indent(Box<Expression>),
    Join(Box<Expression>),
    Batch(Box<Expression>, Word),
    Slice(Box<Expression>),
    Replace(Word, Box<Expression>),
    List,
    Sort,
    Unique,
    Upper,
    Length,
    First,
    Items,
    Map(Word),
    SelectAttr(Word),
    Format(Box<Expression>),
    Round,
    Reverse,
    String,
    Default(Box<Expression>),
}

#[derive(Arbitrary)]
enum Method {
    Strip,
    Split(Word),
    Replace(Word, Word),
    StartsWith(Word),
    Format(Box<Expression>),
    Items,
    Get(Word),
    Count(Word),
    Join(Box<Expression>),
    Ljust(Box<Expression>),
}

#[derive(Arbitrary)]
enum Expression {
    Number(i64),
    Float(f32),
    Text(Word),
    Name(Name),
    List(Vec<Expression>),
    Map(Vec<(Word, Expression)>),
    Binary(Box<Expression>, u8, Box<Expression>),
    Filtered(Box<Expression>, Filter),
    Called(Box<Expression>, Method),
    Field(Box<Expression>),
    Item(Box<Expression>, Box<Expression>),
    Slice(Box<Expression>, Box<Expression>, Box<Expression>),
    Range(Box<Expression>, Box<Expression>),
    Namespace(Vec<(u8, Expression)>),
    Macro(Box<Expression>),
    Not(Box<Expression>),
    If(Box<Expression>, Box<Expression>, Box<Expression>),
    Refuse(Word),
}

#[derive(Arbitrary)]
enum Statement {
    Text(Word),
    Print(Expression),
    Set(Name, Expression),
    SetField(u8, Expression),
    For(Name, Expression, Vec<Statement>, bool),
    If(Expression, Vec<Statement>, Vec<Statement>),
    Macro(Vec<Statement>),
    Filter(Filter, Vec<Statement>),
    Capture(Vec<Statement>),
    Break,
    Continue,
    Call(Vec<Statement>),
}

const OPERATORS: [&str; 16] =
    ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "and", "or", "is"];

fn quoted(word: &Word) -> String {
    format!("'{}'", word.0.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\0', ""))
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Messages => "messages",
            Self::Message => "message",
            Self::Space => "ns",
            Self::Set => "x",
            Self::Bos => "bos_token",
            Self::Loop => "loop",
            Self::Prompt => "add_generation_prompt",
        })
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trim => f.write_str("trim"),
            Self::ToJson => f.write_str("tojson"),
            Self::Indent(by) => write!(f, "indent({by})"),
            Self::Join(by) => write!(f, "join({by})"),
            Self::Batch(by, fill) => write!(f, "batch({by}, {})", quoted(fill)),
            Self::Slice(by) => write!(f, "slice({by})"),
            Self::Replace(from, to) => write!(f, "replace({}, {to})", quoted(from)),
            Self::List => f.write_str("list"),
            Self::Sort => f.write_str("sort"),
            Self::Unique => f.write_str("unique"),
            Self::Upper => f.write_str("upper"),
            Self::Length => f.write_str("length"),
            Self::First => f.write_str("first"),
            Self::Items => f.write_str("items"),
            Self::Map(word) => write!(f, "map(attribute={})", quoted(word)),
            Self::SelectAttr(word) => write!(f, "selectattr({})", quoted(word)),
            Self::Format(with) => write!(f, "format({with})"),
            Self::Round => f.write_str("round"),
            Self::Reverse => f.write_str("reverse"),
            Self::String => f.write_str("string"),
            Self::Default(to) => write!(f, "default({to})"),
        }
    }
}

impl Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strip => f.write_str("strip()"),
            Self::Split(by) => write!(f, "split({})", quoted(by)),
            Self::Replace(from, to) => write!(f, "replace({}, {})", quoted(from), quoted(to)),
            Self::StartsWith(word) => write!(f, "startswith({})", quoted(word)),
            Self::Format(with) => write!(f, "format({with})"),
            Self::Items => f.write_str("items()"),
            Self::Get(word) => write!(f, "get({})", quoted(word)),
            Self::Count(word) => write!(f, "count({})", quoted(word)),
            Self::Join(list) => write!(f, "join({list})"),
            Self::Ljust(by) => write!(f, "ljust({by})"),
        }
    }
}

struct Joined<'a>(&'a [Expression]);

impl Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|one| write!(f, "{one}, "))
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(word) => f.write_str(&quoted(word)),
            Self::Name(name) => write!(f, "{name}"),
            Self::List(list) => write!(f, "[{}]", Joined(list)),
            Self::Map(entries) => {
                f.write_str("{")?;
                entries.iter().try_for_each(|(key, value)| write!(f, "{}: {value}, ", quoted(key)))?;
                f.write_str("}")
            }
            Self::Binary(left, operator, right) => {
                write!(f, "({left} {} {right})", OPERATORS[usize::from(*operator) % OPERATORS.len()])
            }
            Self::Filtered(value, filter) => write!(f, "({value}|{filter})"),
            Self::Called(value, method) => write!(f, "({value}).{method}"),
            Self::Field(value) => write!(f, "({value}).content"),
            Self::Item(value, at) => write!(f, "({value})[{at}]"),
            Self::Slice(value, from, to) => write!(f, "({value})[{from}:{to}]"),
            Self::Range(from, to) => write!(f, "range({from}, {to})"),
            Self::Namespace(entries) => {
                f.write_str("namespace(")?;
                entries.iter().try_for_each(|(key, value)| write!(f, "a{}={value}, ", key % 3))?;
                f.write_str(")")
            }
            Self::Macro(with) => write!(f, "m({with})"),
            Self::Not(value) => write!(f, "(not {value})"),
            Self::If(value, test, other) => write!(f, "({value} if {test} else {other})"),
            Self::Refuse(word) => write!(f, "raise_exception({})", quoted(word)),
        }
    }
}

struct Block<'a>(&'a [Statement]);

impl Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|one| write!(f, "{one}"))
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(word) => write!(f, "{word}"),
            Self::Print(value) => write!(f, "{{{{ {value} }}}}"),
            Self::Set(name, value) => write!(f, "{{%- set {name} = {value} %}}"),
            Self::SetField(key, value) => write!(f, "{{%- set ns.a{} = {value} %}}", key % 3),
            Self::For(name, list, body, recursive) => {
                let recursive = if *recursive { " recursive" } else { "" };
                write!(f, "{{% for {name} in {list}{recursive} %}}{}{{% endfor %}}", Block(body))
            }
            Self::If(test, body, other) => {
                write!(f, "{{% if {test} %}}{}{{% else %}}{}{{% endif %}}", Block(body), Block(other))
            }
            Self::Macro(body) => write!(f, "{{% macro m(x) %}}{}{{% endmacro %}}", Block(body)),
            Self::Filter(filter, body) => write!(f, "{{% filter {filter} %}}{}{{% endfilter %}}", Block(body)),
            Self::Capture(body) => write!(f, "{{% set x %}}{}{{% endset %}}", Block(body)),
            Self::Break => f.write_str("{% break %}"),
            Self::Continue => f.write_str("{% continue %}"),
            Self::Call(body) => write!(f, "{{% call m(1) %}}{}{{% endcall %}}", Block(body)),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let source = match Input::<Vec<Statement>>::new(data) {
        Some(Input::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Input::Made(statements)) => Block(&statements).to_string(),
        None => return,
    };
    show(&source);
    let names = [("bos_token".to_owned(), "<s>".to_owned()), ("eos_token".to_owned(), "</s>".to_owned())];
    let template = match ChatTemplate::new(&source, &names, Path::new("chat_template.jinja")) {
        Ok(template) => template,
        Err(error) => return count_stopped(&error),
    };
    let messages = [Message::new(Role::System, "Be <s> brief."), Message::new(Role::User, "a\nb {{ x }}")];
    let [once, again] = [(); 2].map(|()| template.render(&messages, true));
    if let Err(error) = &once {
        count_stopped(error);
    }
    // A time limit may be reached in one run and not in the next.
    if ![&once, &again]
        .iter()
        .any(|text| text.as_ref().is_err_and(|error| error.to_string().contains("is not finished after")))
    {
        assert_eq!(once, again);
    }
});
