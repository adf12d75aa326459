//! Heads that tell classes apart, as configurations describe them. A reward model has one class, whose logit is the reward;
//! a judge of entailment has three.

use std::collections::BTreeSet;

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, ConfigFields, activation, invalid};

/// What a class in `architectures` ends with.
const CLASSIFIER: &str = "ForSequenceClassification";
/// What logits may mean: classes of which one holds, classes each of which may, or values.
const PROBLEM_TYPES: [&str; 3] = ["single_label_classification", "multi_label_classification", "regression"];
/// The head of decoders.
pub(crate) const SCORE: &str = "score.weight";

/// The classes that a configuration says its model tells apart, by their numbers; none where it is another kind of
/// model.
pub(crate) fn class_names(config: &Map<String, Value>) -> Result<Vec<String>, ConfigError> {
    let is_classifier = config
        .get("architectures")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|name| name.as_str().is_some_and(|name| name.ends_with(CLASSIFIER))));
    if !is_classifier {
        return Ok(Vec::new());
    }
    if let Some(kind) = said(config, "problem_type").filter(|kind| !PROBLEM_TYPES.iter().any(|known| *kind == known)) {
        return Err(invalid("problem_type", kind, &format!("one of {}", PROBLEM_TYPES.join(", "))));
    }
    let names = names_by_number(config)?;
    check_told_alike(config, &names)?;
    Ok(names)
}

/// The value of a field, null counting as absent.
fn said<'a>(config: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    config.get(field).filter(|value| !value.is_null())
}

/// Refuses counts and numbers of classes that are others than those of their names.
fn check_told_alike(config: &Map<String, Value>, names: &[String]) -> Result<(), ConfigError> {
    for field in ["num_labels", "_num_labels"] {
        if let Some(count) = said(config, field).filter(|count| count.as_u64() != Some(names.len() as u64)) {
            return Err(invalid(field, count, &format!("{}, as many as id2label names", names.len())));
        }
    }
    let Some(numbers) = said(config, "label2id") else { return Ok(()) };
    let number = |name: &String| numbers.get(name).and_then(Value::as_u64);
    let is_inverse = numbers.as_object().is_some_and(|all| all.len() == names.len())
        && names.iter().enumerate().all(|(class, name)| number(name) == Some(class as u64));
    if is_inverse {
        Ok(())
    } else {
        Err(invalid("label2id", numbers, "the numbers that id2label has of the same names"))
    }
}

fn names_by_number(config: &Map<String, Value>) -> Result<Vec<String>, ConfigError> {
    let expected = "the classes' names by their numbers, from 0 on";
    if let Some(names) = said(config, "id2label") {
        let by_number = names.as_object().ok_or_else(|| invalid("id2label", names, expected))?;
        let name = |number: usize| by_number.get(&number.to_string()).and_then(Value::as_str).map(str::to_owned);
        let all: Option<Vec<String>> = (0..by_number.len()).map(name).collect();
        let all = all.filter(|all| !all.is_empty()).ok_or_else(|| invalid("id2label", names, expected))?;
        if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
            return Err(invalid("id2label", names, "a name for each class that no other has"));
        }
        return Ok(all);
    }
    // The reference's default.
    let count = said(config, "num_labels").cloned().unwrap_or(json!(2));
    let number = count.as_u64().filter(|count| (1..=1000).contains(count));
    let number = number.ok_or_else(|| invalid("num_labels", &count, "an integer from 1 to 1000"))?;
    Ok((0..number).map(|number| format!("LABEL_{number}")).collect())
}

/// What is made of the state that stands for a text before its classes are told apart: a product, an activation and, where
/// there is one, a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassHeadConfig {
    /// Names of the product, the usual one first.
    pub(crate) dense: &'static [&'static str],
    pub(crate) dense_bias: bool,
    pub(crate) activation: ClassActivation,
    pub(crate) norm: Option<&'static str>,
    /// The product with the classes.
    pub(crate) output: &'static str,
}

/// Which of an encoder's states stands for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// That of its first token.
    First,
    /// The mean of all.
    Mean,
}

/// The activation of a class head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassActivation {
    Tanh,
    Other(Activation),
}

impl ClassActivation {
    /// The function that a field names.
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
