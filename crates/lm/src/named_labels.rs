//! Labels in requests: an object that maps names to surface forms.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::{Label, OneOrMany};

/// Labels in source order, such as `{"yes": [" yes", " sure"], "no": " no"}`. Rejects duplicate names;
/// [`LabelSet::new`](crate::LabelSet::new) checks the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLabels(pub Vec<Label>);

// Implemented by hand: serde's maps lose the order or silently keep the last of two equal names.
impl<'de> Deserialize<'de> for NamedLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = NamedLabels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels, each with its surface form or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedLabels, A::Error> {
                let (mut labels, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, OneOrMany(variants))) = map.next_entry::<String, OneOrMany<String>>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("duplicate label `{name}`")));
                    }
                    labels.push(Label { name, variants });
                }
                Ok(NamedLabels(labels))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

impl JsonSchema for NamedLabels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            ]},
        })
    }
}
