//! Rows of tables, as JSON objects.

/// A row: like [`serde_json::json!`], with `"field"?: value` for a field that is left out if its value is null, and
/// `..value` for the fields of a value, such as an outcome.
///
/// # Panics
/// A value has no JSON form; see [`serde_json::json!`].
#[macro_export]
macro_rules! row {
    ($($fields:tt)*) => {{
        let mut row = ::serde_json::Map::new();
        $crate::row_fields!(row; $($fields)*);
        ::serde_json::Value::Object(row)
    }};
}

/// Adds fields to the map of [`row!`].
#[doc(hidden)]
#[macro_export]
macro_rules! row_fields {
    ($row:ident;) => {};
    ($row:ident; ..$value:expr $(, $($rest:tt)*)?) => {
        if let ::serde_json::Value::Object(fields) = ::serde_json::json!($value) {
            $row.extend(fields);
        }
        $crate::row_fields!($row; $($($rest)*)?);
    };
    ($row:ident; $field:literal?: $value:expr $(, $($rest:tt)*)?) => {
        match ::serde_json::json!($value) {
            ::serde_json::Value::Null => {}
            value => drop($row.insert($field.to_owned(), value)),
        }
        $crate::row_fields!($row; $($($rest)*)?);
    };
    ($row:ident; $field:literal: $value:expr $(, $($rest:tt)*)?) => {
        $row.insert($field.to_owned(), ::serde_json::json!($value));
        $crate::row_fields!($row; $($($rest)*)?);
    };
}

#[cfg(test)]
mod tests {
    use probity_lm::Outcome;
    use serde_json::json;

    #[test]
    fn a_row_has_its_fields_in_order_without_those_left_out() {
        let outcome = Outcome::NotFinite { why: "x".to_owned() };
        let row = row! { "b": 1, "left out"?: None::<u32>, "kept"?: Some(2), ..&outcome, "a": None::<u32> };
        let expected = json!({"b": 1, "kept": 2, "outcome": "not_finite", "why": "x", "a": null});
        assert_eq!(row.to_string(), expected.to_string());
    }
}
