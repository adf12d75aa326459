//! Methods of Python's strings, lists and mappings that the engine lacks or implements differently.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::python::invalid;

type Called = Result<Value, Error>;

/// The method's result. `None` if the engine's implementation is correct.
pub(super) fn call(state: &State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Option<Called> {
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str()?;
            check_characters(text, method)
                .or_else(|| find(text, method, args))
                .or_else(|| part(text, method, args))
                .or_else(|| padded(text, method, args))
                .or_else(|| split(state, text, method, args))
                .or_else(|| ends(state, text, method, args))
        }
        ValueKind::Map if method == "copy" => Some(Ok(value.clone())),
        ValueKind::Seq => match method {
            "copy" => Some(Ok(value.clone())),
            "index" => Some(index(value, args)),
            _ => None,
        },
        _ => None,
    }
}

fn index(list: &Value, args: &[Value]) -> Called {
    let (item,): (&Value,) = from_args(args)?;
    let at = list.try_iter()?.position(|other| other == *item);
    at.map(Value::from).ok_or_else(|| invalid("item not in list"))
}

/// Whether all characters are of a kind; false for an empty string.
fn check_characters(text: &str, method: &str) -> Option<Called> {
    let all = |is: fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    // Letters without case are ignored, but at least one letter with case is required.
    let cased = |is: fn(char) -> bool, is_other: fn(char) -> bool| text.chars().any(is) && !text.chars().any(is_other);
    Some(Ok(Value::from(match method {
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isspace" => all(char::is_whitespace),
        "isdigit" | "isdecimal" | "isnumeric" => all(char::is_numeric),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        _ => return None,
    })))
}

/// The byte offset and text of the characters from `start` to `end`; negative positions count from the end.
fn slice(text: &str, start: Option<i64>, end: Option<i64>) -> (usize, &str) {
    let count = text.chars().count();
    let clamped = |at: i64| {
        let at = if at < 0 { at.saturating_add_unsigned(count as u64).max(0) } else { at };
        usize::try_from(at).unwrap_or(count).min(count)
    };
    let (start, end) = (start.map_or(0, clamped), end.map_or(count, clamped));
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    (start, if start < end { &text[byte(start)..byte(end)] } else { "" })
}

/// Position of a string in another, in characters.
fn find(text: &str, method: &str, args: &[Value]) -> Option<Called> {
    if !["find", "rfind", "index", "rindex", "count"].contains(&method) {
        return None;
    }
    Some(from_args(args).and_then(|(what, start, end): (&str, Option<i64>, Option<i64>)| {
        let (first, within) = slice(text, start, end);
        if method == "count" {
            return Ok(Value::from(within.matches(what).count()));
        }
        let byte = if method.starts_with('r') { within.rfind(what) } else { within.find(what) };
        match byte {
            Some(byte) => Ok(Value::from(first + within[..byte].chars().count())),
            None if method.ends_with("find") => Ok(Value::from(-1)),
            None => Err(invalid("substring not found")),
        }
    }))
}

fn part(text: &str, method: &str, args: &[Value]) -> Option<Called> {
    let one = || from_args::<(&str,)>(args).map(|(one,)| one);
    let parts = |parts: Option<(&str, &str)>, separator: &str, last: bool| {
        let found = parts.map(|(before, after)| [before, separator, after]);
        Value::from(found.unwrap_or(if last { ["", "", text] } else { [text, "", ""] }).map(Value::from).to_vec())
    };
    Some(match method {
        "partition" => one().map(|separator| parts(text.split_once(separator), separator, false)),
        "rpartition" => one().map(|separator| parts(text.rsplit_once(separator), separator, true)),
        "removeprefix" => one().map(|prefix| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => one().map(|suffix| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        "casefold" => Ok(Value::from(text.to_lowercase().replace('ß', "ss"))),
        "swapcase" => Ok(Value::from(text.chars().map(swapped).collect::<String>())),
        _ => return None,
    })
}

fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

fn padded(text: &str, method: &str, args: &[Value]) -> Option<Called> {
    if !["ljust", "rjust", "center", "zfill"].contains(&method) {
        return None;
    }
    Some(from_args(args).map(|(width, fill): (usize, Option<char>)| {
        let missing = width.saturating_sub(text.chars().count());
        let filled = |count: usize, fill: char| String::from(fill).repeat(count);
        let fill = fill.unwrap_or(' ');
        Value::from(match method {
            "ljust" => format!("{text}{}", filled(missing, fill)),
            "rjust" => format!("{}{text}", filled(missing, fill)),
            "zfill" => {
                let digits = text.trim_start_matches(['+', '-']);
                let sign = if text.len() - digits.len() == 1 { &text[..1] } else { "" };
                format!("{sign}{}{}", filled(missing, '0'), &text[sign.len()..])
            }
            _ => {
                // For an odd width, Python puts the extra space first.
                let before = missing / 2 + (missing & width & 1);
                format!("{}{text}{}", filled(before, fill), filled(missing - before, fill))
            }
        })
    }))
}

/// `split` including keyword arguments, `rsplit`, and `splitlines` with all of Python's line ends.
fn split(state: &State<'_, '_>, text: &str, method: &str, args: &[Value]) -> Option<Called> {
    if !["split", "rsplit", "splitlines"].contains(&method) {
        return None;
    }
    let options = || -> Result<(Option<Value>, Option<Value>), Error> {
        let (positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
        let mut positional = positional.0.into_iter();
        let mut option =
            |name: &str| positional.next().map_or_else(|| named.get::<Option<Value>>(name), |v| Ok(Some(v)));
        let options = match method {
            "splitlines" => (option("keepends")?, None),
            _ => (option("sep")?, option("maxsplit")?),
        };
        named.assert_all_used()?;
        Ok(options)
    };
    Some(options().and_then(|(first, most)| match method {
        "splitlines" => Ok(lines(text, first.is_some_and(|keep| keep.is_true()))),
        "split" => {
            let args = [first.unwrap_or_default(), most.unwrap_or_default()]
                .map(|arg| if arg.is_undefined() { Value::from(()) } else { arg });
            unknown_method_callback(state, &Value::from(text), "split", &args)
        }
        _ => {
            let most = most.filter(|most| !most.is_none()).map(i64::try_from).transpose()?.unwrap_or(-1);
            let separator = first.filter(|first| !first.is_none());
            Ok(split_from_end(text, separator.as_ref().and_then(Value::as_str), usize::try_from(most).ok()))
        }
    }))
}

fn split_from_end(text: &str, separator: Option<&str>, most: Option<usize>) -> Value {
    let most = most.unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = if let Some(separator) = separator {
        text.rsplitn(most.saturating_add(1), separator).collect()
    } else {
        let (mut rest, mut parts) = (text.trim_end(), Vec::new());
        while !rest.is_empty() {
            let cut = if parts.len() < most { rest.rfind(char::is_whitespace) } else { None };
            let from = cut.map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
            parts.push(&rest[from..]);
            rest = rest[..from].trim_end();
        }
        parts
    };
    parts.reverse();
    parts.into_iter().map(Value::from).collect()
}

fn lines(text: &str, keep_ends: bool) -> Value {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut rest, mut lines) = (text, Vec::new());
    while !rest.is_empty() {
        let line = rest.find(is_end).unwrap_or(rest.len());
        let after = &rest[line..];
        let end = if after.starts_with("\r\n") { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        lines.push(Value::from(&rest[..if keep_ends { line + end } else { line }]));
        rest = &rest[line + end..];
    }
    Value::from(lines)
}

/// `startswith` and `endswith` on a slice of the string.
fn ends(state: &State<'_, '_>, text: &str, method: &str, args: &[Value]) -> Option<Called> {
    if !["startswith", "endswith"].contains(&method) || args.len() < 2 {
        return None;
    }
    Some(from_args(args).and_then(|(what, start, end): (&Value, Option<i64>, Option<i64>)| {
        let within = Value::from(slice(text, start, end).1);
        unknown_method_callback(state, &within, method, std::slice::from_ref(what))
    }))
}
