//! From what was given to the type.

use probity_lm::nearest;
use serde_json::{Map, Value};

use crate::spec::{Kind, OptionSpec, Options, specs};

/// Options that were given, by field.
pub type Given = Map<String, Value>;

/// An option that cannot be as it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct OptionError {
    /// Its field.
    pub field: String,
    /// What is wrong with it, without its name.
    pub why: String,
}

impl OptionError {
    fn new(field: &str, why: impl Into<String>) -> Self {
        Self { field: field.to_owned(), why: why.into() }
    }
}

/// The options, with defaults for what was not given.
///
/// # Errors
/// The first option that is unknown, missing, out of its bounds, or refused by its type.
pub fn read<P: Options>(given: &Given) -> Result<P, OptionError> {
    let specs = specs::<P>();
    for field in given.keys() {
        if specs.iter().all(|spec| spec.field != *field) {
            let near = nearest(field, specs.iter().map(|spec| spec.field.as_str()));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(OptionError::new(field, format!("there is no option `{}`{near}", field.escape_debug())));
        }
    }
    for spec in &specs {
        match given.get(&spec.field) {
            Some(value) => spec.check(value).map_err(|why| OptionError::new(&spec.field, why))?,
            None if spec.is_required => return Err(OptionError::new(&spec.field, "it is missing")),
            None => {}
        }
    }
    for spec in &specs {
        if let Some(other) = spec.conflicts().find(|other| is_on(given, &spec.field) && is_on(given, other)) {
            let why = format!("it does not go with `{}`", other.replace('_', "-"));
            return Err(OptionError::new(&spec.field, why));
        }
    }
    // Each was read by itself before, so that what is left is nobody's in particular.
    P::deserialize(Value::Object(given.clone())).map_err(|error| OptionError::new("", error.to_string()))
}

/// Whether an option is given, and not as off.
fn is_on(given: &Given, field: &str) -> bool {
    given.get(field).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
}

impl OptionSpec {
    /// A value as it would be typed: the text of one, where the option takes several.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match &self.kind {
            Kind::Flag => match text {
                "yes" | "true" => Value::Bool(true),
                "no" | "false" => Value::Bool(false),
                _ => return Err("expected yes or no".to_owned()),
            },
            Kind::Integer { .. } => match text.parse::<u64>() {
                Ok(number) => number.into(),
                Err(_) => text.parse::<i64>().map_err(|_| "expected a whole number".to_owned())?.into(),
            },
            Kind::Number => text.parse::<f64>().map_err(|_| "expected a number".to_owned())?.into(),
            Kind::Choice(_) | Kind::Text => text.into(),
        };
        self.check(&if self.is_list { Value::Array(vec![value.clone()]) } else { value.clone() })?;
        Ok(value)
    }

    /// Whether the option may have this value; a list where it takes several.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        check::kind(self, value)?;
        check::bounds(self, value)?;
        (self.accepts)(&self.field, value)
    }
}

pub(crate) mod check {
    use probity_lm::nearest;
    use serde_json::Value;

    use crate::spec::{Kind, OptionSpec};

    fn each<'v>(spec: &OptionSpec, value: &'v Value) -> &'v [Value] {
        match value {
            Value::Array(items) if spec.is_list => items,
            one => std::slice::from_ref(one),
        }
    }

    pub(crate) fn kind(spec: &OptionSpec, value: &Value) -> Result<(), String> {
        each(spec, value).iter().try_for_each(|one| match (&spec.kind, one) {
            (_, Value::Null) if spec.default.is_null() => Ok(()),
            (Kind::Flag, Value::Bool(_)) | (Kind::Number, Value::Number(_)) | (Kind::Text, Value::String(_)) => Ok(()),
            (Kind::Integer { .. }, Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (Kind::Choice(known), Value::String(name)) => {
                let names = || known.iter().map(|choice| choice.name.as_str());
                if names().any(|known| known == name) {
                    return Ok(());
                }
                let near = nearest(name, names()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                Err(format!("`{}` is none of {}{near}", name.escape_debug(), names().collect::<Vec<_>>().join(", ")))
            }
            (kind, found) => Err(format!("expected {}, found {}", expected(kind), found_text(found))),
        })
    }

    /// Bounds that types do not hold themselves: of numbers, of a list's and a text's length.
    pub(crate) fn bounds(spec: &OptionSpec, value: &Value) -> Result<(), String> {
        let least = |schema: &Value, key: &str| schema.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        if spec.is_list && each(spec, value).len() < least(&spec.schema, "minItems") {
            return Err("there is none".to_owned());
        }
        let schema = if spec.is_list { &spec.schema["items"] } else { &spec.schema };
        each(spec, value).iter().try_for_each(|one| match (&spec.kind, one) {
            (Kind::Integer { min, max }, Value::Number(number)) => {
                let is_within =
                    number.as_i64().map_or(number.is_u64() && *max == i64::MAX, |n| (*min..=*max).contains(&n));
                let to = if *max == i64::MAX { String::new() } else { format!("={max}") };
                if is_within { Ok(()) } else { Err(format!("{number} is not in {min}..{to}")) }
            }
            (_, Value::Number(number)) => number_bounds(schema, number.as_f64().unwrap_or(f64::NAN)),
            (_, Value::String(text)) if text.trim().is_empty() && least(schema, "minLength") > 0 => {
                Err("it is empty, and there must be a text".to_owned())
            }
            _ => Ok(()),
        })
    }

    fn number_bounds(schema: &Value, number: f64) -> Result<(), String> {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (from, above, to) = (bound("minimum"), bound("exclusiveMinimum"), bound("maximum"));
        let is_within = from.is_none_or(|from| number >= from)
            && above.is_none_or(|above| number > above)
            && to.is_none_or(|to| number <= to);
        if is_within && number.is_finite() {
            return Ok(());
        }
        let mut told = vec!["expected a number".to_owned()];
        told.extend(from.map(|from| format!("from {from}")));
        told.extend(above.map(|above| format!("above {above}")));
        told.extend(to.map(|to| format!("to {to}")));
        Err(told.join(" "))
    }

    fn expected(kind: &Kind) -> &'static str {
        match kind {
            Kind::Flag => "true or false",
            Kind::Integer { .. } => "a whole number",
            Kind::Number => "a number",
            Kind::Choice(_) | Kind::Text => "a text",
        }
    }

    fn found_text(value: &Value) -> &'static str {
        match value {
            Value::Null => "nothing",
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Number(number) if number.is_f64() => "a number with a fraction",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "a table",
        }
    }
}
