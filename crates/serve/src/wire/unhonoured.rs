//! Unsupported fields of `OpenAI`'s API: accepted with a value that has no effect, otherwise rejected by name.

use serde_json::Value;

use crate::api_error::ApiError;

/// A field, its value, and its accepted values.
pub(crate) type Unhonoured<'a> = (&'static str, &'a Option<Value>, Value);

/// Rejects the first field with an unsupported value; null is accepted.
pub(crate) fn refuse_others(fields: &[Unhonoured<'_>]) -> Result<(), ApiError> {
    let wrong = fields.iter().find(|(_, given, neutral)| {
        let Some(given) = given else { return false };
        let is_equal =
            |value: &Value| value == given || matches!((value.as_f64(), given.as_f64()), (Some(a), Some(b)) if a == b);
        !neutral.as_array().is_some_and(|values| values.iter().any(is_equal))
    });
    let Some((name, _, neutral)) = wrong else { return Ok(()) };
    let may = neutral.as_array().map(|values| values.iter().map(Value::to_string).collect::<Vec<_>>().join(" or "));
    let may = may
        .filter(|values| !values.is_empty())
        .map(|values| {
            format!(
                ", or set it to \
                                                                            {values}"
            )
        })
        .unwrap_or_default();
    Err(ApiError::field(*name, format!("is not supported; omit it{may}")).with_code("unsupported_parameter"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neutral_values_are_taken_and_others_refused_by_name() {
        let zero = Some(json!(0.0));
        assert_eq!(refuse_others(&[("presence_penalty", &zero, json!([0])), ("tools", &None, json!([]))]), Ok(()));
        let error = refuse_others(&[("presence_penalty", &Some(json!(1)), json!([0]))]).expect_err("not neutral");
        assert!(error.detail.message.contains("`presence_penalty`") && error.detail.message.contains("or set it to 0"));
        let error = refuse_others(&[("tools", &Some(json!([1])), json!([]))]).expect_err("not neutral");
        assert!(error.detail.message.ends_with("omit it"), "{}", error.detail.message);
    }
}
