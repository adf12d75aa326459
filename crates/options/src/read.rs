//! Conversion of options from the user to their type.

use probity_lm::{did_you_mean, nearest};
use serde_json::{Map, Value};

use crate::pair::{PairProblem, read_pair};
use crate::spec::{OptionKind, OptionSpec, Options, specs};

/// Options from the user, by field.
pub type GivenOptions = Map<String, Value>;

/// An invalid option. Its message does not name the option.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{cause}")]
pub struct OptionError {
    /// The field; empty if no single option is at fault.
    pub field: String,
    /// What is wrong.
    #[source]
    #[diagnostic_source]
    pub cause: OptionCause,
}

/// What is wrong with an option.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum OptionCause {
    /// There is no such option.
    #[error("unknown option `{}`{}", name.escape_debug(), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// Name.
        name: String,
        /// Most similar name.
        nearest: Option<String>,
    },
    /// A required option is missing.
    #[error("it is missing")]
    Missing,
    /// It excludes another option that is set.
    #[error("it cannot be used with `{other}`")]
    Conflict {
        /// Name of the other option.
        other: String,
    },
    /// It requires another option that is not set.
    #[error("it requires `{other}`")]
    Alone {
        /// Name of the other option.
        other: String,
    },
    /// It sets a key that an option already sets to another value.
    #[error("it has another value in `{option}`: {value}")]
    #[diagnostic(help("set it once"))]
    Twice {
        /// Name of the option.
        option: String,
        /// Value there.
        value: String,
    },
    /// The value is invalid.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Value(#[from] ValueError),
}

/// Why a value is invalid.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ValueError {
    /// The text does not parse.
    #[error("expected {expected}")]
    Form {
        /// Expected form.
        expected: &'static str,
    },
    /// The value has the wrong type.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// Expected type.
        expected: &'static str,
        /// Actual type.
        found: &'static str,
    },
    /// It is none of the choices.
    #[error("`{}` is none of {known}{}", name.escape_debug(), did_you_mean(nearest.as_deref()))]
    Choice {
        /// Value.
        name: String,
        /// All choices.
        known: String,
        /// Most similar choice.
        nearest: Option<String>,
    },
    /// An integer out of range.
    #[error("{number} {}", out_of_range(number, *min, *max))]
    OutOfRange {
        /// Number.
        number: String,
        /// Minimum.
        min: i64,
        /// Maximum.
        max: i64,
    },
    /// A number out of range, or not finite.
    #[error("expected a number{bounds}")]
    Bounds {
        /// Bounds as text, each preceded by a space.
        bounds: String,
    },
    /// An empty text.
    #[error("it must not be empty")]
    Empty,
    /// An empty list.
    #[error("at least one value is required")]
    NoItem,
    /// It is no valid `KEY=VALUE`.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pair(#[from] PairProblem),
    /// The type's deserialiser rejects it.
    #[error("{source}")]
    Refused {
        /// Error of the deserialiser.
        source: serde_json::Error,
        /// Hint of the option: `#[schemars(extend("hint" = "…"))]`.
        #[help]
        hint: Option<String>,
    },
}

/// Message for a number out of range. Without a maximum, a number that is too small only needs the minimum. Unsigned
/// options without a maximum reach `u64::MAX`, above the `max` of the specification.
fn out_of_range(number: &str, min: i64, max: i64) -> String {
    if max == i64::MAX && number.parse::<i128>().is_ok_and(|number| number < i128::from(min)) {
        return format!("is below {min}");
    }
    format!("is not in {min}..={}", largest(min, max))
}

fn largest(min: i64, max: i64) -> u64 {
    if max == i64::MAX && min >= 0 { u64::MAX } else { max.unsigned_abs() }
}

/// Whether a text is an integer of any size.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Builds the options, with defaults for the rest.
///
/// # Errors
/// The first option that is unknown, missing, out of range, or rejected by its type.
pub fn read<P: Options>(given: &GivenOptions) -> Result<P, OptionError> {
    let specs = specs::<P>();
    let given = &with_objects(given, &specs)?;
    for field in given.keys() {
        if specs.iter().all(|spec| spec.field != *field) {
            let near = nearest(field, specs.iter().map(|spec| spec.field.as_str())).map(str::to_owned);
            return Err(wrong(field, OptionCause::Unknown { name: field.clone(), nearest: near }));
        }
    }
    for spec in &specs {
        match given.get(&spec.field) {
            Some(value) if spec.keys.is_empty() => spec.check(value).map_err(|why| wrong(&spec.field, why.into()))?,
            None if spec.is_required => return Err(wrong(&spec.field, OptionCause::Missing)),
            _ => {}
        }
    }
    for spec in &specs {
        if let Some(other) = spec.conflicts().find(|other| is_on(given, &spec.field) && is_on(given, other)) {
            return Err(wrong(&spec.field, OptionCause::Conflict { other: other.replace('_', "-") }));
        }
        // A resumed run passes all its options, including defaults.
        let is_told = is_on(given, &spec.field) && given.get(&spec.field) != Some(&spec.default);
        if let Some(other) = spec.needs().find(|other| is_told && !is_on(given, other)) {
            return Err(wrong(&spec.field, OptionCause::Alone { other: other.replace('_', "-") }));
        }
    }
    // Each value was checked before, so the error has no single field.
    let refused = |source| wrong("", ValueError::Refused { source, hint: None }.into());
    P::deserialize(Value::Object(given.clone())).map_err(refused)
}

/// Merges `KEY=VALUE` pairs and options for single keys into one object per option.
fn with_objects(given: &GivenOptions, specs: &[OptionSpec]) -> Result<GivenOptions, OptionError> {
    let mut given = given.clone();
    for spec in specs.iter().filter(|spec| !spec.keys.is_empty()) {
        let pairs = given.remove(&spec.field).unwrap_or_default();
        let mut object = spec.object(&pairs).map_err(|why| wrong(&spec.field, why.into()))?;
        for key in &spec.keys {
            let Some(value) = given.remove(&key.field) else { continue };
            key.check(&value).map_err(|why| wrong(&key.field, why.into()))?;
            match object.insert(key.field.clone(), value.clone()) {
                Some(other) if other != value => {
                    return Err(wrong(
                        &key.field,
                        OptionCause::Twice { option: spec.name(), value: other.to_string() },
                    ));
                }
                _ => {}
            }
        }
        given.insert(spec.field.clone(), Value::Object(object));
    }
    Ok(given)
}

fn wrong(field: &str, cause: OptionCause) -> OptionError {
    OptionError { field: field.to_owned(), cause }
}

/// Whether an option is set, and not to false.
fn is_on(given: &GivenOptions, field: &str) -> bool {
    given.get(field).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
}

impl OptionSpec {
    /// Parses the text of a value; of one value if the option is repeatable.
    ///
    /// # Errors
    /// If the text is no such value.
    pub fn parse(&self, text: &str) -> Result<Value, ValueError> {
        let form = |expected| ValueError::Form { expected };
        let value = match &self.kind {
            OptionKind::Flag => match text {
                "yes" | "true" => Value::Bool(true),
                "no" | "false" => Value::Bool(false),
                _ => return Err(form("yes or no")),
            },
            OptionKind::Integer { min, max } => match (text.parse::<u64>(), text.parse::<i64>()) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ if is_whole(text) => {
                    return Err(ValueError::OutOfRange { number: text.to_owned(), min: *min, max: *max });
                }
                _ => return Err(form("a whole number")),
            },
            OptionKind::Number => text.parse::<f64>().map_err(|_| form("a number"))?.into(),
            OptionKind::Choice(_) | OptionKind::Text => text.into(),
        };
        self.check(&if self.is_list { Value::Array(vec![value.clone()]) } else { value.clone() })?;
        Ok(value)
    }

    /// Checks a value, or a list if the option is repeatable.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn check(&self, value: &Value) -> Result<(), ValueError> {
        if !self.keys.is_empty() {
            return self.object(value).map(drop);
        }
        check::kind(self, value)?;
        check::bounds(self, value)?;
        let hint = || self.extension("hint").and_then(Value::as_str).map(str::to_owned);
        self.accepts(value).map_err(|source| ValueError::Refused { source, hint: hint() })
    }

    /// Parses a list of `KEY=VALUE` into an object; the last value of a key counts.
    fn object(&self, pairs: &Value) -> Result<GivenOptions, ValueError> {
        let pairs = match pairs {
            Value::Null => &[],
            Value::Array(pairs) => pairs.as_slice(),
            _ => return Err(ValueError::Form { expected: "a list of KEY=VALUE" }),
        };
        let read = |pair: &Value| {
            let pair = pair.as_str().ok_or(ValueError::Form { expected: "a list of KEY=VALUE" })?;
            Ok(read_pair(&self.name(), &self.keys, pair)?)
        };
        pairs.iter().map(read).collect()
    }
}

pub(crate) mod check {
    use probity_lm::nearest;
    use serde_json::Value;

    use super::ValueError;
    use crate::spec::{OptionKind, OptionSpec};

    fn each<'v>(spec: &OptionSpec, value: &'v Value) -> &'v [Value] {
        match value {
            Value::Array(items) if spec.is_list => items,
            one => std::slice::from_ref(one),
        }
    }

    pub(crate) fn kind(spec: &OptionSpec, value: &Value) -> Result<(), ValueError> {
        each(spec, value).iter().try_for_each(|one| match (&spec.kind, one) {
            (_, Value::Null) if spec.default.is_null() => Ok(()),
            (OptionKind::Flag, Value::Bool(_))
            | (OptionKind::Number, Value::Number(_))
            | (OptionKind::Text, Value::String(_)) => Ok(()),
            (OptionKind::Integer { .. }, Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (OptionKind::Choice(known), Value::String(name)) => {
                let names = || known.iter().map(|choice| choice.name.as_str());
                if names().any(|known| known == name) {
                    return Ok(());
                }
                let nearest = nearest(name, names()).map(str::to_owned);
                Err(ValueError::Choice { name: name.clone(), known: names().collect::<Vec<_>>().join(", "), nearest })
            }
            (kind, found) => Err(ValueError::Kind { expected: expected(kind), found: found_text(found) }),
        })
    }

    /// Checks bounds that the type does not enforce: of numbers, and of the lengths of lists and texts.
    pub(crate) fn bounds(spec: &OptionSpec, value: &Value) -> Result<(), ValueError> {
        let least = |schema: &Value, key: &str| schema.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        if spec.is_list && each(spec, value).len() < least(&spec.schema, "minItems") {
            return Err(ValueError::NoItem);
        }
        let schema = if spec.is_list { &spec.schema["items"] } else { &spec.schema };
        each(spec, value).iter().try_for_each(|one| match (&spec.kind, one) {
            (OptionKind::Integer { min, max }, Value::Number(number)) => {
                let is_within =
                    number.as_i64().map_or(number.is_u64() && *max == i64::MAX, |n| (*min..=*max).contains(&n));
                let out = || ValueError::OutOfRange { number: number.to_string(), min: *min, max: *max };
                if is_within { Ok(()) } else { Err(out()) }
            }
            (_, Value::Number(number)) => number_bounds(schema, number.as_f64().unwrap_or(f64::NAN)),
            (_, Value::String(text)) if text.trim().is_empty() && least(schema, "minLength") > 0 => {
                Err(ValueError::Empty)
            }
            _ => Ok(()),
        })
    }

    fn number_bounds(schema: &Value, number: f64) -> Result<(), ValueError> {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (from, above, to) = (bound("minimum"), bound("exclusiveMinimum"), bound("maximum"));
        let is_within = from.is_none_or(|from| number >= from)
            && above.is_none_or(|above| number > above)
            && to.is_none_or(|to| number <= to);
        if is_within && number.is_finite() {
            return Ok(());
        }
        let told = [("from", from), ("above", above), ("to", to)];
        let told = told.into_iter().filter_map(|(word, bound)| Some(format!(" {word} {}", bound?)));
        Err(ValueError::Bounds { bounds: told.collect() })
    }

    fn expected(kind: &OptionKind) -> &'static str {
        match kind {
            OptionKind::Flag => "true or false",
            OptionKind::Integer { .. } => "a whole number",
            OptionKind::Number => "a number",
            OptionKind::Choice(_) | OptionKind::Text => "a string",
        }
    }

    fn found_text(value: &Value) -> &'static str {
        match value {
            Value::Null => "nothing",
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Number(number) if number.is_f64() => "a number with a fraction",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "a table",
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Numbers {
        seed: u64,
        #[schemars(range(min = 1, max = 9))]
        few: u32,
        short: u16,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Keyed {
        seed: u64,
        /// How.
        compute: Keys,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Keys {
        /// Many.
        #[schemars(range(min = 1), extend("form" = "N"))]
        thread_count: Option<u32>,
        off: bool,
    }

    #[test]
    fn the_keys_of_an_option_are_pairs_or_options() {
        let given = |text: &str| serde_json::from_str::<GivenOptions>(text).expect("an object");
        let expected = Keyed { seed: 1, compute: Keys { thread_count: Some(2), off: true } };
        for text in [
            r#"{"seed": 1, "compute": ["thread-count=2", "off=yes"]}"#,
            r#"{"seed": 1, "compute": ["off=no", "thread-count=2", "off=yes"]}"#,
            r#"{"seed": 1, "thread_count": 2, "off": true}"#,
            r#"{"seed": 1, "thread_count": 2, "compute": ["thread-count=2", "off=yes"]}"#,
        ] {
            assert_eq!(read::<Keyed>(&given(text)).expect(text), expected, "{text}");
        }
        for (text, field, told) in [
            (r#"{"compute": ["threads=2"]}"#, "compute", "unknown option `threads`"),
            (r#"{"compute": ["thread-count=0"]}"#, "compute", "`thread-count` cannot be `0`: 0 is not in 1..="),
            (r#"{"compute": "off=yes"}"#, "compute", "expected a list of KEY=VALUE"),
            (r#"{"thread_count": 0}"#, "thread_count", "0 is not in 1..="),
            (r#"{"thread_count": 3, "compute": ["thread-count=2"]}"#, "thread_count", "another value in `compute`: 2"),
        ] {
            let error = read::<Keyed>(&given(text)).expect_err(text);
            assert!(error.field == field && error.to_string().contains(told), "{text}: {}: {error}", error.field);
        }
        let help = "How.\n\nKeys:\n- thread-count=N: Many\n- off=yes: ";
        assert_eq!(specs::<Keyed>()[1].help, help);
    }

    #[test]
    fn a_whole_number_that_is_too_large_is_told_with_the_largest() {
        let specs = specs::<Numbers>();
        let told = |field: &str, text: &str| {
            let spec = specs.iter().find(|spec| spec.field == field).expect("an option");
            spec.parse(text).expect_err(text).to_string()
        };
        let huge = "99999999999999999999";
        assert_eq!(told("seed", huge), format!("{huge} is not in 0..=18446744073709551615"));
        assert_eq!(told("few", huge), format!("{huge} is not in 1..=9"));
        assert_eq!(told("short", "65536"), "65536 is not in 0..=65535");
        assert_eq!(told("seed", "-1"), "-1 is below 0");
        assert_eq!(told("seed", "many"), "expected a whole number");
    }
}
