//! Heads that tell classes apart, as configurations describe them. A reward model has one class, whose logit is the reward;
//! a judge of entailment has three.

use probity_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::config::{ConfigError, invalid};

/// What a class in `architectures` ends with.
const CLASSIFIER: &str = "ForSequenceClassification";
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
    // Classes that do not exclude each other have probabilities of their own, which do not sum to one.
    if let Some(kind) = config.get("problem_type").filter(|kind| **kind == "multi_label_classification") {
        return Err(invalid(
            "problem_type",
            kind,
            "classes that exclude each other, or one (single_label_classification)",
        ));
    }
    let expected = "the classes' names by their numbers, from 0 on";
    if let Some(names) = config.get("id2label").filter(|names| !names.is_null()) {
        let by_number = names.as_object().ok_or_else(|| invalid("id2label", names, expected))?;
        let name = |number: usize| by_number.get(&number.to_string()).and_then(Value::as_str).map(str::to_owned);
        let all: Option<Vec<String>> = (0..by_number.len()).map(name).collect();
        let all = all.filter(|all| !all.is_empty()).ok_or_else(|| invalid("id2label", names, expected))?;
        if (1..all.len()).any(|class| all[..class].contains(&all[class])) {
            return Err(invalid("id2label", names, "a name for each class that no other has"));
        }
        return Ok(all);
    }
    // The reference's default.
    let count = config.get("num_labels").filter(|count| !count.is_null()).cloned().unwrap_or(json!(2));
    let number = count.as_u64().filter(|count| (1..=1000).contains(count));
    let number = number.ok_or_else(|| invalid("num_labels", &count, "an integer from 1 to 1000"))?;
    Ok((0..number).map(|number| format!("LABEL_{number}")).collect())
}

/// What an encoder makes of a text's first token before its classes are told apart: a product and an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassHeadConfig {
    /// Names of the product, the usual one first.
    pub(crate) dense: &'static [&'static str],
    pub(crate) activation: ClassActivation,
    /// The product with the classes.
    pub(crate) output: &'static str,
}

/// The activation of a class head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassActivation {
    Tanh,
    Other(Activation),
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
        let many = json!({ "problem_type": "multi_label_classification" });
        for bad in
            [json!({ "num_labels": 0 }), json!({ "id2label": {} }), json!({ "id2label": { "1": "a" } }), twice, many]
        {
            assert!(matches!(of(&bad), Err(ConfigError::Invalid { .. })));
        }
        assert_eq!(names(&json!({ "architectures": ["LlamaForCausalLM"], "num_labels": 1 })), Ok(Vec::new()));
    }
}
