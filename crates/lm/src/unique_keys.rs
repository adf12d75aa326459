//! JSON with duplicate keys. Parsers disagree on which one counts, so the meaning would depend on the reader.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Rejects JSON with a duplicate key in an object. The error has the key, line and column.
pub fn refuse_repeated_keys(json: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<UniqueKeys>(json).map(|_| ())
}

/// Parses JSON and rejects duplicate keys.
pub fn parse_unique<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    refuse_repeated_keys(json).and_then(|()| serde_json::from_slice(json))
}

struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyWalk)
    }
}

struct KeyWalk;

impl<'de> Visitor<'de> for KeyWalk {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueKeys, A::Error> {
        // Used only for membership, so its order does not matter.
        let mut seen: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("duplicate key `{}`", key.escape_debug())));
            }
            seen.insert(key);
            // Values are visited, not stored: memory use is the keys of one object at a time.
            map.next_value::<UniqueKeys>()?;
        }
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<UniqueKeys, A::Error> {
        while list.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_named_with_its_line_at_any_depth() {
        let fine = r#"{"a": [1, -2, 3.5, "x", null, true, {"a": {"b": 1}}], "b": {"a": 1}}"#;
        assert!(refuse_repeated_keys(fine.as_bytes()).is_ok());
        let twice = "{\"a\": [{\"b\": 1,\n \"c\": 2,\n \"b\": 3}]}";
        let error = refuse_repeated_keys(twice.as_bytes()).expect_err("twice").to_string();
        assert!(error.starts_with("duplicate key `b` at line 3 column"), "{error}");
    }
}
