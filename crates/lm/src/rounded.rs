//! Detects numbers in JSON that change when parsed as floating point.

use serde_json::Value;

/// A number that changes when parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundedNumber {
    /// Path below the searched value: `#/enum/0`.
    pub path: String,
    /// Source text of the number.
    pub literal: String,
}

/// A container on the way to a value.
enum Level {
    Object { key: String, awaits_key: bool },
    List { index: usize },
}

/// The first number that changes when parsed, within the value at the keys `within`. Invalid JSON is ignored; the
/// parser reports it.
pub fn rounded_number(json: &[u8], within: &[&str]) -> Option<RoundedNumber> {
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let mut end = at + 1;
        match (byte, levels.last_mut()) {
            (b'{', _) => levels.push(Level::Object { key: String::new(), awaits_key: true }),
            (b'[', _) => levels.push(Level::List { index: 0 }),
            (b'}' | b']', _) => drop(levels.pop()),
            (b',', Some(Level::Object { awaits_key, .. })) => *awaits_key = true,
            (b',', Some(Level::List { index })) => *index += 1,
            (b'"', level) => {
                end = string_end(json, at);
                if let Some(Level::Object { key, awaits_key }) = level
                    && std::mem::replace(awaits_key, false)
                {
                    *key = serde_json::from_slice(&json[at..end]).unwrap_or_default();
                }
            }
            (b'-' | b'0'..=b'9', _) => {
                let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                end = at + json[at..].iter().take_while(is_part).count();
                let literal = std::str::from_utf8(&json[at..end]).unwrap_or_default();
                if let Some(path) = below(&levels, within)
                    && !is_kept(literal)
                {
                    return Some(RoundedNumber { path, literal: literal.to_owned() });
                }
            }
            _ => {}
        }
        at = end;
    }
    None
}

/// End of the string that starts here.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    json.len()
}

/// JSON path of a value below the keys `within`.
fn below(levels: &[Level], within: &[&str]) -> Option<String> {
    let is_key = |(level, name): (&Level, &&str)| matches!(level, Level::Object { key, .. } if key == name);
    if levels.len() < within.len() || !levels.iter().zip(within).all(is_key) {
        return None;
    }
    let step = |level: &Level| match level {
        Level::Object { key, .. } => format!("/{key}"),
        Level::List { index } => format!("/{index}"),
    };
    Some(format!("#{}", levels[within.len()..].iter().map(step).collect::<String>()))
}

/// Whether the parsed number has the written digits.
fn is_kept(literal: &str) -> bool {
    match serde_json::from_str(literal) {
        Ok(Value::Number(number)) if number.is_i64() || number.is_u64() => true,
        Ok(Value::Number(number)) => {
            number.as_f64().is_some_and(|value| digits(literal) == digits(&format!("{value:e}")))
        }
        _ => false,
    }
}

/// Digits of a number without leading and trailing zeros, and the power of ten of the last digit. `None` for zero.
fn digits(literal: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (whole, fraction) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let all = format!("{whole}{fraction}");
    let kept = all.trim_end_matches('0');
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
    let zeros = i64::try_from(all.len() - kept.len()).unwrap_or(0);
    let last = exponent - i64::try_from(fraction.len()).unwrap_or(0) + zeros;
    let kept = kept.trim_start_matches('0');
    (!kept.is_empty()).then(|| (kept.to_owned(), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_reading_changes_is_found_with_its_path() {
        for (json, found) in [
            (r#"{"schema": {"enum": ["1e400", 1e400]}}"#, Some(("#/enum/1", "1e400"))),
            (
                r#"{"schema": {"const": 0.1000000000000000055511151231257827}}"#,
                Some(("#/const", "0.1000000000000000055511151231257827")),
            ),
            (
                r#"{"id": 1e400, "schema": {"a\"b": [{"x": 18446744073709551617}]}}"#,
                Some(("#/a\"b/0/x", "18446744073709551617")),
            ),
            (r#"{"schema": {"minimum": 9007199254740993.0}}"#, Some(("#/minimum", "9007199254740993.0"))),
            (r#"{"schema": {"minimum": 1e-400}}"#, Some(("#/minimum", "1e-400"))),
            (r#"{"schema": {"a": [0.1, 1e3, -0.0, 100, 0.50, 1E+2, 9007199254740993, 0e5, 1.5e-7, 123456.7]}}"#, None),
            (r#"{"id": 1e400}"#, None),
            (r#"{"schema"#, None),
        ] {
            let told = rounded_number(json.as_bytes(), &["schema"]);
            let told = told.as_ref().map(|number| (number.path.as_str(), number.literal.as_str()));
            assert_eq!(told, found, "{json}");
        }
    }
}
