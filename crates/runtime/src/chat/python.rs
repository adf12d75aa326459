//! Features of Jinja2 and Python that the engine lacks or implements differently: tests, filters, functions, methods,
//! and the text form of values. `tests/goldens/chat_templates.json` has an expression for each with Python's result.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, FormatStyle, State, Value, format_filter};
use minijinja_contrib::{globals, pycompat};

use super::json::tojson;
use super::methods;
use super::source::{MODULO, NAMESPACE};

/// A fixed date instead of today, for deterministic rendering. Llama's templates use it without a clock.
const TODAY: jiff::civil::DateTime = jiff::civil::date(2024, 7, 26).at(0, 0, 0, 0);

/// Adds the features of transformers' environment.
pub(super) fn extend(environment: &mut Environment<'static>) {
    environment.set_formatter(|output, _, value| match value.as_str() {
        Some(text) => output.write_str(text).map_err(Error::from),
        None => output.write_str(&string(value)).map_err(Error::from),
    });
    environment.set_unknown_method_callback(|state, value, method, args| {
        methods::call(state, value, method, args)
            .unwrap_or_else(|| pycompat::unknown_method_callback(state, value, method, args))
    });
    environment.add_test("iterable", is_iterable);
    environment
        .add_test("sequence", |value: &Value| is_iterable(value) && (value.is_undefined() || value.len().is_some()));
    environment.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("int", int);
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
    environment.add_filter("attr", attribute);
    environment.add_function("raise_exception", super::raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("cycler", cycler);
    environment.add_function("joiner", globals::joiner);
    environment.add_function(MODULO, modulo);
    environment.add_function(NAMESPACE, minijinja::functions::namespace);
    environment.add_function("namespace", |_: Rest<Value>| -> Result<Value, Error> {
        Err(invalid("a namespace that is not created with `set NAME = namespace(…)` could contain itself"))
    });
    // They indent nested values without a limit.
    environment.remove_filter("pprint");
    environment.remove_global("debug");
}

pub(super) fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}

fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// A value as written by Python's `str`.
pub(super) fn string(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::Undefined => String::new(),
        _ => {
            let mut text = String::new();
            write_value(value, &mut text);
            text
        }
    }
}

/// A value as written by Python's `repr`. The engine has no tuples; they are lists.
fn write_value(value: &Value, text: &mut String) {
    match value.kind() {
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), text),
        ValueKind::Number if !value.is_integer() => {
            text.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
        }
        ValueKind::Seq | ValueKind::Iterable => {
            text.push('[');
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_value(&item, text);
            }
            text.push(']');
        }
        ValueKind::Map => {
            text.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_value(&key, text);
                text.push_str(": ");
                write_value(&value.get_item(&key).unwrap_or_default(), text);
            }
            text.push('}');
        }
        ValueKind::Undefined => text.push_str("Undefined"),
        _ => text.push_str(&value.to_string()),
    }
}

fn write_quoted(content: &str, text: &mut String) {
    let quote = if content.contains('\'') && !content.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for c in content.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c == quote => text.extend(['\\', c]),
            c if c < ' ' || c == '\x7f' => {
                let _ = write!(text, "\\x{:02x}", c as u32);
            }
            c => text.push(c),
        }
    }
    text.push(quote);
}

/// A number as written by Python, also in JSON.
pub(super) fn float(x: f64) -> String {
    let scientific = format!("{x:e}");
    match scientific.split_once('e').and_then(|(mantissa, exponent)| Some((mantissa, exponent.parse::<i32>().ok()?))) {
        Some((mantissa, exponent)) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        Some(_) => format!("{x:?}"),
        None if x.is_nan() => "nan".to_owned(),
        None => scientific,
    }
}

/// Python's `%`: string formatting, or the remainder with the sign of the divisor.
fn modulo(left: &Value, right: &Value, is_tuple: Option<bool>) -> Result<Value, Error> {
    if let Some(form) = left.as_str() {
        let fields = form.replace("%%", "").matches('%').count();
        let is_list = right.kind() == ValueKind::Seq;
        let args: Vec<Value> = if is_list && (is_tuple == Some(true) || fields != 1) {
            right.try_iter()?.collect()
        } else {
            vec![right.clone()]
        };
        let written = |value: Value| match value.kind() {
            ValueKind::Seq | ValueKind::Iterable | ValueKind::None => Value::from(string(&value)),
            ValueKind::Number if !value.is_integer() && form.contains("%s") => Value::from(string(&value)),
            _ => value,
        };
        let args: Vec<Value> = args.into_iter().map(written).collect();
        return format_filter(FormatStyle::Printf, form, &args).map(Value::from);
    }
    if let (Ok(a), Ok(b)) = (i128::try_from(left.clone()), i128::try_from(right.clone())) {
        let remainder = a.checked_rem(b).ok_or_else(|| invalid("a remainder by zero"))?;
        let has_other_sign = remainder != 0 && (remainder < 0) != (b < 0);
        return Ok(Value::from(if has_other_sign { remainder + b } else { remainder }));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(_), Ok(0.0)) => Err(invalid("a remainder by zero")),
        (Ok(a), Ok(b)) => {
            let remainder = a % b;
            let has_other_sign = remainder != 0.0 && (remainder < 0.0) != (b < 0.0);
            Ok(Value::from(if has_other_sign { remainder + b } else { remainder }))
        }
        _ => Err(invalid(format!("no remainder of types {} and {}", left.kind(), right.kind()))),
    }
}

fn strftime_now(form: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(form, TODAY).map_err(|error| invalid(error.to_string()))
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| invalid(format!("a value of type {} has no length", value.kind())))
}

fn int(state: &State<'_, '_>, value: &Value, default: Option<i64>) -> Value {
    let number = minijinja::filters::int(state, value);
    number.unwrap_or_else(|_| Value::from(default.unwrap_or(0)))
}

fn replace(value: &Value, old: &str, new: &str, count: Option<usize>) -> String {
    let text = string(value);
    count.map_or_else(|| text.replace(old, new), |count| text.replacen(old, new, count))
}

#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
fn indent(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let mut positional = positional.0.into_iter();
    let mut option = |name: &str| positional.next().map_or_else(|| named.get::<Option<Value>>(name), |v| Ok(Some(v)));
    let [width, first, blank] = [option("width")?, option("first")?, option("blank")?];
    named.assert_all_used()?;
    let is_set = |option: Option<Value>| option.is_some_and(|value| value.is_true());
    let (first, blank) = (is_set(first), is_set(blank));
    let by = match width.as_ref().map(|width| (width.as_str(), width)) {
        Some((Some(text), _)) => text.to_owned(),
        Some((None, width)) => " ".repeat(usize::try_from(width.clone())?),
        None => " ".repeat(4),
    };
    let text = string(value);
    let line = |(number, line): (usize, &str)| {
        let is_indented = if number == 0 { first } else { blank || !line.is_empty() };
        format!("{}{line}", if is_indented { &*by } else { "" })
    };
    Ok(text.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n"))
}

/// In Python, an item of a mapping is not an attribute.
fn attribute(value: &Value, name: &str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Map { Ok(Value::UNDEFINED) } else { value.get_attr(name) }
}

/// Jinja2's `cycler`.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.items[self.at.load(Ordering::Relaxed)].clone())
    }

    fn call_method(self: &Arc<Self>, _: &State<'_, '_>, method: &str, args: &[Value]) -> Result<Value, Error> {
        let () = from_args(args)?;
        let at = self.at.load(Ordering::Relaxed);
        match method {
            "next" => {
                self.at.store((at + 1) % self.items.len(), Ordering::Relaxed);
                Ok(self.items[at].clone())
            }
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    if items.0.is_empty() {
        return Err(invalid("`cycler` needs a value"));
    }
    Ok(Value::from_object(Cycler { items: items.0, at: AtomicUsize::new(0) }))
}
