//! Classification heads, as configurations describe them. A reward model has one class, whose logit is the reward; an
//! entailment model has three.

use std::collections::BTreeSet;

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, activation, invalid};

/// Suffix of an `architectures` entry with a class head.
const CLASSIFIER: &str = "ForSequenceClassification";
/// Single-label classes, multi-label classes, or regression values.
const PROBLEM_TYPES: [&str; 3] = ["single_label_classification", "multi_label_classification", "regression"];
/// The class head's tensor in decoders.
pub(crate) const SCORE: &str = "score.weight";

/// Class names by index; empty if the configuration has no class head.
pub(crate) fn class_names(config: &Map<String, Value>) -> Result<Vec<String>, ConfigError> {
    let is_classifier = config
        .get("architectures")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|name| name.as_str().is_some_and(|name| name.ends_with(CLASSIFIER))));
    if !is_classifier {
        return Ok(Vec::new());
    }
    if let Some(kind) =
        present_field(config, "problem_type").filter(|kind| !PROBLEM_TYPES.iter().any(|known| *kind == known))
    {
        return Err(invalid("problem_type", kind, &format!("one of {}", PROBLEM_TYPES.join(", "))));
    }
    let names = names_by_number(config)?;
    check_classes_agree(config, &names)?;
    Ok(names)
}

/// The value of a field; null counts as absent.
fn present_field<'a>(config: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    config.get(field).filter(|value| !value.is_null())
}

/// Checks that the number of classes and `label2id` agree with the class names.
fn check_classes_agree(config: &Map<String, Value>, names: &[String]) -> Result<(), ConfigError> {
    for field in ["num_labels", "_num_labels"] {
        if let Some(count) = present_field(config, field).filter(|count| count.as_u64() != Some(names.len() as u64)) {
            return Err(invalid(field, count, &format!("{}, the number of classes in id2label", names.len())));
        }
    }
    let Some(numbers) = present_field(config, "label2id") else { return Ok(()) };
    let number = |name: &String| numbers.get(name).and_then(Value::as_u64);
    let is_inverse = numbers.as_object().is_some_and(|all| all.len() == names.len())
        && names.iter().enumerate().all(|(class, name)| number(name) == Some(class as u64));
    if is_inverse { Ok(()) } else { Err(invalid("label2id", numbers, "the inverse of id2label")) }
}

fn names_by_number(config: &Map<String, Value>) -> Result<Vec<String>, ConfigError> {
    let expected = "class names by number, from 0";
    if let Some(names) = present_field(config, "id2label") {
        let by_number = names.as_object().ok_or_else(|| invalid("id2label", names, expected))?;
        let name = |number: usize| by_number.get(&number.to_string()).and_then(Value::as_str).map(str::to_owned);
        let all: Option<Vec<String>> = (0..by_number.len()).map(name).collect();
        let all = all.filter(|all| !all.is_empty()).ok_or_else(|| invalid("id2label", names, expected))?;
        if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
            return Err(invalid("id2label", names, "a unique name for each class"));
        }
        return Ok(all);
    }
    // The reference's default.
    let count = present_field(config, "num_labels").cloned().unwrap_or(json!(2));
    let number = count.as_u64().filter(|count| (1..=1000).contains(count));
    let number = number.ok_or_else(|| invalid("num_labels", &count, "an integer from 1 to 1000"))?;
    Ok((0..number).map(|number| format!("LABEL_{number}")).collect())
}

/// The layers between a text's pooled state and its class logits: a product, an activation and an optional norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassHeadConfig {
    /// Names of the product, the usual one first.
    pub(crate) dense: &'static [&'static str],
    pub(crate) dense_bias: bool,
    pub(crate) activation: ClassActivation,
    pub(crate) norm: Option<&'static str>,
    /// The product that yields the class logits.
    pub(crate) output: &'static str,
}

/// How an encoder's states are pooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// The state of the first token.
    First,
    /// The mean over all tokens.
    Mean,
}

/// The activation of a class head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassActivation {
    Tanh,
    Other(Activation),
}

impl ClassActivation {
    /// Reads the activation function from a field.
    pub(crate) fn read(fields: &mut ConfigFields, field: &'static str, usual: Activation) -> Result<Self, ConfigError> {
        match fields.take(field) {
            None => Ok(Self::Other(usual)),
            Some(name) if name == "tanh" => Ok(Self::Tanh),
            Some(name) => activation(&name).map(Self::Other).ok_or_else(|| fields.not_honoured(field, &name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &Value) -> Result<Vec<String>, ConfigError> {
        class_names(config.as_object().expect("an object"))
    }

    #[test]
    fn classes_are_named_by_their_numbers_and_are_two_where_nothing_is_said() {
        let of = |more: &Value| {
            let mut config = json!({ "architectures": ["LlamaForSequenceClassification"] });
            config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            names(&config)
        };
        assert_eq!(of(&json!({})), Ok(vec!["LABEL_0".into(), "LABEL_1".into()]));
        assert_eq!(of(&json!({ "num_labels": 1 })), Ok(vec!["LABEL_0".into()]));
        assert_eq!(of(&json!({ "id2label": { "1": "b", "0": "a" } })), Ok(vec!["a".into(), "b".into()]));
        let twice = json!({ "id2label": { "0": "a", "1": "a" } });
        let other = json!({ "problem_type": "token_classification" });
        for bad in
            [json!({ "num_labels": 0 }), json!({ "id2label": {} }), json!({ "id2label": { "1": "a" } }), twice, other]
        {
            assert!(matches!(of(&bad), Err(ConfigError::Invalid { .. })));
        }
        for kind in PROBLEM_TYPES {
            assert_eq!(of(&json!({ "num_labels": 1, "problem_type": kind })), Ok(vec!["LABEL_0".into()]));
        }
        let named = json!({ "0": "a", "1": "b" });
        let alike = json!({ "id2label": named, "label2id": { "b": 1, "a": 0 }, "num_labels": 2, "_num_labels": 2 });
        assert_eq!(of(&alike), Ok(vec!["a".into(), "b".into()]));
        for (field, contradicting) in [
            ("num_labels", json!(3)),
            ("_num_labels", json!(1)),
            ("label2id", json!({ "a": 1, "b": 0 })),
            ("label2id", json!({ "a": 0 })),
            ("label2id", json!({ "a": 0, "b": 1, "c": 2 })),
            ("label2id", json!(["a", "b"])),
        ] {
            let told = of(&json!({ "id2label": named, field: contradicting })).expect_err("refused");
            assert!(told.to_string().contains(&format!("config field `{field}` is ")), "{told}");
        }
        assert_eq!(names(&json!({ "architectures": ["LlamaForCausalLM"], "num_labels": 1 })), Ok(Vec::new()));
    }
}
