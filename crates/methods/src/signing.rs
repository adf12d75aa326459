//! Which options are in a signature: all of them, unless a field says otherwise.

use probity_lm::LanguageModel;
use probity_options::{OptionSpec, Options, specs};
use serde_json::Value;

use crate::summary::Signature;

impl Signature {
    /// Of a method that asks this model, with its options. An option is in it by its name and value where something is in
    /// force, unless it needs an option that is off, or is excluded by one that is on. Its field may say otherwise:
    ///
    /// - `#[schemars(extend("scores" = false))]`: it changes no score, and is left out.
    /// - `extend("signed" = "NAME")`: the signature calls it NAME.
    /// - `extend("signed" = "changed")`: its default is left out, where the method does not add it.
    /// - `extend("signed" = "method")`: the method adds it, such as the hash of a file's text.
    pub(crate) fn of_options<P: Options>(method: &'static str, model: &dyn LanguageModel, params: &P) -> Self {
        Self::new(method, model).with_options(params)
    }

    /// The same with these options.
    fn with_options<P: Options>(mut self, params: &P) -> Self {
        let specs = specs::<P>();
        let in_force = serde_json::to_value(params).expect("options are plain values under string keys");
        let is_on = |field: &str| text(&in_force[field]).is_some();
        let is_excluded = |spec: &OptionSpec| {
            let excludes = |other: &OptionSpec| other.conflicts().any(|field| field == spec.field);
            specs.iter().any(|other| excludes(other) && in_force[&other.field] != other.default)
        };
        for spec in &specs {
            let value = &in_force[&spec.field];
            let name = match spec.extension("signed").and_then(Value::as_str) {
                _ if spec.extension("scores") == Some(&Value::Bool(false)) => continue,
                Some("method") => continue,
                Some("changed") if *value == spec.default => continue,
                None | Some("changed") => spec.name(),
                Some(name) => name.to_owned(),
            };
            if let Some(text) = text(value).filter(|_| spec.needs().all(is_on) && !is_excluded(spec)) {
                self.settings.insert(name.into(), text);
            }
        }
        self
    }
}

/// A value as it would be typed; none where nothing is in force.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()),
        // `1` and not `1.0`.
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
    use crate::methods;

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
        #[schemars(extend("signed" = "changed"))]
        changed: u32,
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
            changed: 1,
            file: "f".to_owned(),
            needing: 1,
            excluding: None,
        };
        assert_eq!(signed(&all), "changed:1|needing:1|other:o|plain:1|several:a,b|share:0.5|switch:true");
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

    #[test]
    fn what_fields_say_of_signatures_is_understood() {
        for option in methods().iter().flat_map(|method| method.options()) {
            let scores = option.extension("scores");
            assert!(scores.is_none_or(|scores| *scores == false), "{}: {scores:?}", option.field);
            let signed = option.extension("signed");
            assert!(signed.is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty())), "{}", option.field);
            assert!(scores.is_none() || signed.is_none(), "{}: changes no score, and is signed", option.field);
        }
    }
}
