//! Selects the options that belong in a signature or in the key of a stage.
//!
//! An option in force is signed by name and value, unless it requires an option that is off or conflicts with one that
//! is on. Attributes of its field change this:
//!
//! - `#[schemars(extend("scores" = false))]`: it changes no score and is not signed.
//! - `extend("signed" = "NAME")`: it is signed as NAME.
//! - `extend("signed" = "method")`: the method signs its own value, such as the hash of a template, or the option names
//!   data.
//! - `extend("signed_if" = ["FIELD=VALUE", "FIELD!=VALUE"])`: it is signed if all of these hold; fields that the method
//!   lacks are ignored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use probity_options::{OptionSpec, Options, specs};
use serde_json::Value;

use crate::summary::Signature;

impl Signature {
    /// Adds all options.
    #[must_use]
    pub fn with_options<P: Options>(mut self, params: &P) -> Self {
        self.settings.extend(signed_options(&specs::<P>(), &in_force(params)));
        self
    }

    /// Adds the options without a setting so far, for the signature of a run.
    pub(crate) fn with_other_options<P: Options>(mut self, params: &P) -> Self {
        for (name, value) in signed_options(&specs::<P>(), &in_force(params)) {
            self.settings.entry(name).or_insert(value);
        }
        self
    }

    /// Adds the options signed under these names: those that a stage depends on.
    #[must_use]
    pub fn with_some_options<P: Options>(mut self, params: &P, names: &[&str]) -> Self {
        let specs = specs::<P>();
        let is_option = |name: &&str| specs.iter().any(|spec| signed_name(spec).as_deref() == Some(*name));
        assert!(names.iter().all(is_option), "one of {names:?} is no option");
        let all = signed_options(&specs, &in_force(params)).into_iter();
        self.settings.extend(all.filter(|(name, _)| names.contains(&&**name)));
        self
    }
}

fn in_force(params: &impl Options) -> Value {
    serde_json::to_value(params).expect("options are plain values under string keys")
}

/// The name under which an option is signed; `None` if it is not.
pub fn signed_name(spec: &OptionSpec) -> Option<Cow<'static, str>> {
    match spec.extension("signed").and_then(Value::as_str) {
        _ if spec.extension("scores") == Some(&Value::Bool(false)) => None,
        Some("method") => None,
        Some(name) => Some(name.to_owned().into()),
        None => Some(spec.name().into()),
    }
}

/// The conditions for signing an option: a field, a value, and whether they must be equal.
pub fn conditions(spec: &OptionSpec) -> impl Iterator<Item = (&str, &str, bool)> {
    let all = spec.extension("signed_if").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    all.map(|condition| match condition.split_once("!=") {
        Some((field, value)) => (field, value, false),
        None => condition.split_once('=').map(|(field, value)| (field, value, true)).expect("FIELD=VALUE"),
    })
}

/// The values of options in force, by signed name.
pub fn signed_options(specs: &[OptionSpec], in_force: &Value) -> BTreeMap<Cow<'static, str>, String> {
    let is_on = |field: &str| text(&in_force[field]).is_some();
    let is_excluded = |spec: &OptionSpec| {
        let excludes = |other: &OptionSpec| other.conflicts().any(|field| field == spec.field);
        specs.iter().any(|other| excludes(other) && in_force[&other.field] != other.default)
    };
    let holds = |(field, wanted, is_equal): (&str, &str, bool)| {
        let is = |value: &Value| text(value).unwrap_or_default() == wanted;
        let has = |value: &Value| value.as_array().map_or_else(|| is(value), |values| values.iter().any(is));
        in_force.get(field).is_none_or(|value| has(value) == is_equal)
    };
    let counts = |spec: &OptionSpec| spec.needs().all(is_on) && !is_excluded(spec) && conditions(spec).all(holds);
    let signed = specs.iter().filter(|spec| counts(spec));
    signed.filter_map(|spec| Some((signed_name(spec)?, text(&in_force[&spec.field])?))).collect()
}

/// A value as it would be typed; `None` if unset.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()),
        // Prints `1`, not `1.0`.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|number| number.to_string()),
        Value::Array(values) if values.is_empty() => None,
        Value::Array(values) => Some(values.iter().filter_map(text).collect::<Vec<_>>().join(",")),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Params {
        plain: u32,
        share: f64,
        several: Vec<String>,
        switch: bool,
        #[schemars(extend("scores" = false))]
        shown: u32,
        #[schemars(extend("signed" = "other"))]
        own_name: Option<String>,
        #[schemars(extend("signed_if" = ["plain!=0", "several=a", "elsewhere=1"]))]
        at_times: u32,
        #[schemars(extend("signed" = "method"))]
        file: String,
        #[schemars(extend("needs" = ["own_name"]))]
        needing: u32,
        #[schemars(extend("conflicts" = ["plain"]))]
        excluding: Option<u32>,
    }

    #[test]
    fn an_option_is_signed_unless_its_field_says_otherwise() {
        let signed = |params: &Params| {
            let signature = Signature::without_model("m").with_options(params);
            signature.settings.into_iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join("|")
        };
        assert_eq!(signed(&Params::default()), "plain:0|share:0");
        let all = Params {
            plain: 1,
            share: 0.5,
            several: vec!["a".to_owned(), "b".to_owned()],
            switch: true,
            shown: 1,
            own_name: Some("o".to_owned()),
            at_times: 1,
            file: "f".to_owned(),
            needing: 1,
            excluding: None,
        };
        assert_eq!(signed(&all), "at-times:1|needing:1|other:o|plain:1|several:a,b|share:0.5|switch:true");
        assert_eq!(signed(&Params { excluding: Some(2), ..Params::default() }), "excluding:2|share:0");
    }

    #[test]
    fn a_value_cannot_pass_for_another_option_or_line() {
        let line =
            |plain: &str, other: &str| Signature::without_model("m").with("a", plain).with("b", other).to_string();
        assert_ne!(line("1", "2|b:3"), line("1|b:2", "3"));
        assert_eq!(line("1", "2\n3").lines().count(), 1);
        assert_ne!(line("1", "2\n3"), line("1", "2\\n3"));
    }
}
