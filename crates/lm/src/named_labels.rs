//! Labels as requests write them: an object of names with their surface forms.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::{Label, OneOrMany};

/// Labels in the order in which they are written, as `{"yes": [" yes", " sure"], "no": " no"}`; a name that comes twice is
/// refused, the rest [`LabelSet::new`](crate::LabelSet::new) checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLabels(pub Vec<Label>);

// Read by hand: maps that serde knows lose the order of the text or keep the last of two equal names in silence.
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
                        return Err(A::Error::custom(format!("label `{name}` is given twice")));
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
