//! Numbers in a schema that change when converted to floating point, which llguidance uses.

use serde_json::{Map, Value};

use super::{ConstraintError, path_of};

/// The largest integer up to which floats distinguish all integers.
const MAX_INTEGER: f64 = 9_007_199_254_740_991.0;
/// Maximum digits for exact arithmetic.
const MAX_DIGITS: u32 = 18;
/// Up to this many multiples between two bounds are listed, because the library's rounding may miss them all.
const FEW: i128 = 3;
const BOUNDS: [&str; 4] = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"];

/// Rejects numbers beyond exactly representable integers, in bounds and in the values of `const` and `enum`.
pub(super) fn check_numbers(fields: &Map<String, Value>, place: &str) -> Result<(), ConstraintError> {
    let keywords = BOUNDS.into_iter().chain(["multipleOf", "const", "enum"]);
    keywords
        .filter_map(|keyword| Some((keyword, fields.get(keyword)?)))
        .try_for_each(|(keyword, value)| check_value(value, &format!("{place}/{keyword}")))
}

fn check_value(value: &Value, place: &str) -> Result<(), ConstraintError> {
    match value {
        Value::Number(number) if number.as_f64().is_none_or(|number| number.abs() > MAX_INTEGER) => {
            let why = format!("{number} is beyond ±{MAX_INTEGER}, where numbers are not exact");
            Err(ConstraintError::Part { place: place.to_owned(), why })
        }
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(at, item)| check_value(item, &format!("{place}/{at}")))
        }
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| check_value(value, &path_of(place, name))),
        _ => Ok(()),
    }
}

/// Replaces a step between two bounds by its multiples if they are few.
pub(super) fn list_few_multiples(fields: &mut Map<String, Value>, place: &str) -> Result<(), ConstraintError> {
    let part = |why: String| ConstraintError::Part { place: format!("{place}/multipleOf"), why };
    let Some(step) = fields.get("multipleOf") else { return Ok(()) };
    let Some(step) = Decimal::read(step) else { return Err(part(format!("{step} has too many digits"))) };
    if step.coefficient <= 0 {
        return Err(part("it must be above 0".to_owned()));
    }
    let kind = fields.get("type").and_then(Value::as_str);
    let step = if kind == Some("integer") { step.integer() } else { step };
    let Some((first, last)) = bounds(fields, &step) else { return Ok(()) };
    if first > last {
        return Err(part("no multiple is within the bounds".to_owned()));
    }
    if last - first >= FEW || fields.contains_key("enum") || fields.contains_key("const") {
        return Ok(());
    }
    if !matches!(kind, Some("integer" | "number")) {
        let why = "with bounds this close it is only supported if `type` is `integer` or `number`";
        return Err(part(why.to_owned()));
    }
    let multiples: Option<Vec<Value>> = (first..=last).map(|count| step.times(count)?.value()).collect();
    let multiples = multiples.ok_or_else(|| part("its multiples have too many digits".to_owned()))?;
    BOUNDS.into_iter().chain(["multipleOf"]).for_each(|keyword| drop(fields.remove(keyword)));
    fields.insert("enum".to_owned(), Value::Array(multiples));
    Ok(())
}

/// The first and last multiple of a step within a schema's bounds. `None` if a bound is missing.
fn bounds(fields: &Map<String, Value>, step: &Decimal) -> Option<(i128, i128)> {
    let number = |keyword: &str| fields.get(keyword).filter(|value| value.is_number()).and_then(Decimal::read);
    let is_flag = |keyword: &str| fields.get(keyword) == Some(&Value::Bool(true));
    let first = |bound: Decimal, excluded: bool| {
        let (bound, step) = bound.aligned(step)?;
        let at = bound.div_euclid(step);
        Some(if bound.rem_euclid(step) > 0 || excluded { at + 1 } else { at })
    };
    let last = |bound: Decimal, excluded: bool| {
        let (bound, step) = bound.aligned(step)?;
        let at = bound.div_euclid(step);
        Some(if bound.rem_euclid(step) == 0 && excluded { at - 1 } else { at })
    };
    let lower = [
        number("minimum").and_then(|bound| first(bound, is_flag("exclusiveMinimum"))),
        number("exclusiveMinimum").and_then(|bound| first(bound, true)),
    ];
    let upper = [
        number("maximum").and_then(|bound| last(bound, is_flag("exclusiveMaximum"))),
        number("exclusiveMaximum").and_then(|bound| last(bound, true)),
    ];
    Some((lower.into_iter().flatten().max()?, upper.into_iter().flatten().min()?))
}

/// An exact decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal {
    coefficient: i128,
    /// Digits after the decimal point.
    places: u32,
}

impl Decimal {
    /// `None` if it is not a number or has too many digits.
    fn read(number: &Value) -> Option<Self> {
        let text = number.as_number()?.to_string();
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let fraction = fraction.trim_end_matches('0');
        let places = i64::try_from(fraction.len()).ok()? - exponent.parse::<i64>().ok()?;
        let coefficient: i128 = format!("{whole}{fraction}").parse().ok()?;
        let shift = u32::try_from(-places.min(0)).ok()?;
        let read =
            Self { coefficient: coefficient.checked_mul(power(shift)?)?, places: u32::try_from(places.max(0)).ok()? };
        (read.places <= MAX_DIGITS && read.coefficient.abs() < power(MAX_DIGITS)?).then_some(read)
    }

    /// The smallest integer that is a multiple of it.
    fn integer(self) -> Self {
        let one = 10_i128.pow(self.places);
        Self { coefficient: self.coefficient / greatest_common_divisor(self.coefficient, one), places: 0 }
    }

    /// Both as integers in a common unit.
    fn aligned(self, other: &Self) -> Option<(i128, i128)> {
        let places = self.places.max(other.places);
        let scaled = |number: &Self| number.coefficient.checked_mul(power(places - number.places)?);
        Some((scaled(&self)?, scaled(other)?))
    }

    fn times(self, count: i128) -> Option<Self> {
        Some(Self { coefficient: self.coefficient.checked_mul(count)?, places: self.places })
    }

    fn value(self) -> Option<Value> {
        let (mut coefficient, mut places) = (self.coefficient, self.places);
        while places > 0 && coefficient % 10 == 0 {
            (coefficient, places) = (coefficient / 10, places - 1);
        }
        if places == 0 {
            return i64::try_from(coefficient).ok().map(Value::from);
        }
        serde_json::from_str(&format!("{coefficient}e-{places}")).ok()
    }
}

fn power(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn few_multiples_between_two_bounds_are_listed_exactly() {
        for (schema, listed) in [
            (json!({"type": "number", "multipleOf": 0.1, "minimum": 0.3, "maximum": 0.3}), Some(json!([0.3]))),
            (
                json!({"type": "number", "multipleOf": 0.1, "exclusiveMinimum": 0.3, "maximum": 0.5}),
                Some(json!([0.4, 0.5])),
            ),
            (
                json!({"type": "number", "multipleOf": 0.07, "minimum": -0.1, "exclusiveMaximum": 0.07}),
                Some(json!([-0.07, 0])),
            ),
            (json!({"type": "integer", "multipleOf": 1.5, "minimum": 1, "maximum": 8}), Some(json!([3, 6]))),
            (
                json!({"type": "number", "multipleOf": 1e-7, "minimum": 3e-7, "exclusiveMinimum": true, "maximum": 4e-7}),
                Some(json!([4e-7])),
            ),
            (json!({"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 1}), None),
            (json!({"type": "number", "multipleOf": 0.1, "minimum": 0.3}), None),
        ] {
            let mut fields = schema.as_object().expect("an object").clone();
            list_few_multiples(&mut fields, "#").expect("kept");
            assert_eq!(fields.get("enum"), listed.as_ref(), "{schema}");
            assert_eq!(fields.contains_key("multipleOf"), listed.is_none(), "{schema}");
        }
        for schema in [
            json!({"type": "number", "multipleOf": 0.2, "minimum": 0.3, "maximum": 0.3}),
            json!({"type": "integer", "multipleOf": 1.5, "minimum": 1, "maximum": 2}),
            json!({"multipleOf": 0.1, "minimum": 0.3, "maximum": 0.3}),
            json!({"type": "number", "multipleOf": 0}),
        ] {
            let mut fields = schema.as_object().expect("an object").clone();
            let refused = list_few_multiples(&mut fields, "#/items").expect_err("refused").to_string();
            assert!(refused.starts_with("schema #/items/multipleOf: "), "{refused}");
        }
    }
}
