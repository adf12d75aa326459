//! Option specifications, derived from the JSON schema of the type.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::read::check;

/// A type whose fields are options.
///
/// Every field has a default by `#[serde(default)]` on the type. A field whose default violates its own bounds (an
/// empty list that must have an item, an empty text) is required. A field that is itself such a type is flattened, or
/// is one option with a key for each of its fields ([`OptionSpec::keys`]). Bounds are those of schemars (`range`,
/// `length`). `#[schemars(extend("form" = "N"))]` sets the placeholder in help, and `"hint"` the hint if the field's
/// type rejects a value.
pub trait Options: Default + Serialize + DeserializeOwned + JsonSchema {}

impl<T: Default + Serialize + DeserializeOwned + JsonSchema> Options for T {}

/// A possible value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionChoice {
    /// Name.
    pub name: String,
    /// Meaning; empty if the name is self-explanatory.
    pub help: String,
}

/// Type of an option's value; of each value if it is repeatable.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionKind {
    /// On or off.
    Flag,
    /// An integer in an inclusive range.
    Integer {
        /// Minimum.
        min: i64,
        /// Maximum.
        max: i64,
    },
    /// A finite number.
    Number,
    /// One of several names.
    Choice(Vec<OptionChoice>),
    /// A text; the field's type may parse it further.
    Text,
}

/// Specification of an option.
#[derive(Debug, Clone)]
pub struct OptionSpec {
    /// Field name: `answer_prefix`.
    pub field: String,
    /// Help in paragraphs.
    pub help: String,
    /// Type of the value.
    pub kind: OptionKind,
    /// Placeholder in help: `FILE`, `NAME|PATH`, `FIRST,SECOND`; empty if not set.
    pub form: String,
    /// Whether it is repeatable.
    pub is_list: bool,
    /// Keys of a repeatable `KEY=VALUE` option; their fields are accepted as options too.
    pub keys: Vec<OptionSpec>,
    /// Whether it is required.
    pub is_required: bool,
    /// Field of an option that can replace it.
    pub unless: Option<String>,
    /// Default; null if there is none.
    pub default: Value,
    /// Bounds that the type does not enforce.
    pub(crate) schema: Value,
    /// For a key, the field of its option.
    within: Option<String>,
    accepts: Accepts,
}

/// Checks that a type accepts a value of a field, with defaults for all others.
type Accepts = fn(&str, &Value) -> Result<(), serde_json::Error>;

impl OptionSpec {
    /// Name in recipes and keys: `answer-prefix`.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// Name on the command line: [`Self::name`], unless `#[schemars(extend("long" = "NAME"))]` sets another.
    pub fn long(&self) -> String {
        self.extension("long").and_then(Value::as_str).map_or_else(|| self.name(), str::to_owned)
    }

    /// Whether the field belongs to this option or one of its keys.
    pub fn has_field(&self, field: &str) -> bool {
        self.field == field || self.keys.iter().any(|key| key.field == field)
    }

    /// Checks that the type accepts the value.
    pub(crate) fn accepts(&self, value: &Value) -> Result<(), serde_json::Error> {
        match &self.within {
            Some(option) => (self.accepts)(option, &json!({ &self.field: value })),
            None => (self.accepts)(&self.field, value),
        }
    }

    /// Help for lists: without the final period if it is one paragraph.
    pub fn description(&self) -> &str {
        let is_one = !self.help.contains("\n\n");
        self.help.strip_suffix('.').filter(|_| is_one).unwrap_or(&self.help)
    }

    /// Defaults as the user would type them; empty if there is none.
    pub fn typed_defaults(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            // `1`, not `1.0`.
            Value::Number(number) if number.is_f64() => number.as_f64().map(|number| number.to_string()),
            other => Some(other.to_string()),
        };
        match &self.default {
            _ if self.is_required => Vec::new(),
            Value::Array(values) => values.iter().filter_map(text).collect(),
            one => text(one).into_iter().collect(),
        }
    }

    /// Fields that exclude it: `#[schemars(extend("conflicts" = ["FIELD"]))]`.
    pub fn conflicts(&self) -> impl Iterator<Item = &str> {
        self.fields("conflicts")
    }

    /// Fields that it requires: `#[schemars(extend("needs" = ["FIELD"]))]`.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.fields("needs")
    }

    fn fields(&self, extension: &str) -> impl Iterator<Item = &str> {
        self.extension(extension).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// A custom property for adapters: `#[schemars(extend("KEY" = …))]` of the field.
    pub fn extension(&self, key: &str) -> Option<&Value> {
        self.schema.get(key)
    }
}

/// All options of a type, in field order.
pub fn specs<P: Options>() -> Vec<OptionSpec> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<P>();
    let defaults = serde_json::to_value(P::default()).expect("options are plain values under string keys");
    fields(schema.as_value(), &defaults, accepts::<P>, None)
}

/// Options for the fields of an object schema.
fn fields(schema: &Value, defaults: &Value, accepts: Accepts, within: Option<&str>) -> Vec<OptionSpec> {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    // The serialised defaults are in field order, including flattened types; a schema puts those last.
    let order = defaults.as_object().map(|defaults| defaults.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let spec = |field: &String| {
        let property = properties
            .get(field)
            .unwrap_or_else(|| panic!("`{field}` is serialised under a name that it is not read by"));
        let default = defaults[field].clone();
        let schema = property.as_object().cloned().unwrap_or_default();
        let has_keys = schema.contains_key("properties");
        let is_list = has_keys || types(&schema).contains(&"array");
        let (keys, default) = if has_keys {
            (fields(property, &default, accepts, Some(field)), Value::Null)
        } else {
            (Vec::new(), default)
        };
        let one = if is_list && !has_keys {
            schema.get("items").and_then(Value::as_object).cloned().unwrap_or_default()
        } else {
            present(&schema)
        };
        let mut spec = OptionSpec {
            field: field.clone(),
            help: with_keys(paragraphs(schema.get("description").and_then(Value::as_str).unwrap_or_default()), &keys),
            kind: kind(&one),
            form: schema.get("form").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_list,
            keys,
            is_required: false,
            unless: None,
            default,
            schema: Value::Object(schema),
            within: within.map(str::to_owned),
            accepts,
        };
        spec.is_required = !spec.default.is_null() && check::bounds(&spec, &spec.default).is_err();
        spec
    };
    order.iter().map(spec).collect()
}

/// [`Accepts`] of a type.
fn accepts<P: Options>(field: &str, value: &Value) -> Result<(), serde_json::Error> {
    let one = Map::from_iter([(field.to_owned(), value.clone())]);
    P::deserialize(Value::Object(one)).map(drop)
}

/// Type names that a schema allows.
fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The schema of the value, without the null of an optional one.
fn present(schema: &Map<String, Value>) -> Map<String, Value> {
    let any = schema.get("anyOf").and_then(Value::as_array);
    let something = any.and_then(|any| any.iter().filter_map(Value::as_object).find(|one| types(one) != ["null"]));
    something.unwrap_or(schema).clone()
}

fn kind(schema: &Map<String, Value>) -> OptionKind {
    let choices = choices(schema);
    let types = types(schema);
    match () {
        () if !choices.is_empty() => OptionKind::Choice(choices),
        () if types.contains(&"boolean") => OptionKind::Flag,
        () if types.contains(&"integer") => {
            let bound = |key: &str| schema.get(key).and_then(Value::as_f64).map(|bound| bound as i64);
            let max = match schema.get("format").and_then(Value::as_str) {
                Some("uint8") => i64::from(u8::MAX),
                Some("uint16") => i64::from(u16::MAX),
                Some("uint32") => i64::from(u32::MAX),
                _ => i64::MAX,
            };
            OptionKind::Integer { min: bound("minimum").unwrap_or(i64::MIN), max: bound("maximum").unwrap_or(max) }
        }
        () if types.contains(&"number") => OptionKind::Number,
        () => OptionKind::Text,
    }
}

/// Choices of an enum schema in order; empty for other schemas.
fn choices(schema: &Map<String, Value>) -> Vec<OptionChoice> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let plain = |schema: &Map<String, Value>| -> Vec<OptionChoice> {
        let names = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        names
            .filter(|name| name.is_string())
            .map(|name| OptionChoice { name: text(name), help: String::new() })
            .collect()
    };
    let one = |schema: &Value| -> Vec<OptionChoice> {
        let Some(schema) = schema.as_object() else { return Vec::new() };
        match schema.get("const") {
            Some(name) => {
                vec![OptionChoice {
                    name: text(name),
                    help: paragraphs(schema.get("description").and_then(Value::as_str).unwrap_or_default()),
                }]
            }
            None => plain(schema),
        }
    };
    match schema.get("oneOf").and_then(Value::as_array) {
        Some(all) => all.iter().flat_map(one).collect(),
        None => plain(schema),
    }
}

/// Splits a doc comment into paragraphs separated by blank lines.
fn paragraphs(text: &str) -> String {
    let all = text.split("\n\n").map(|paragraph| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    all.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Help with a line for each key, formatted like clap's possible values.
fn with_keys(help: String, keys: &[OptionSpec]) -> String {
    let line = |key: &OptionSpec| {
        let form = match &key.kind {
            OptionKind::Flag => "yes".to_owned(),
            OptionKind::Choice(choices) => choices.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join("|"),
            _ => key.form.clone(),
        };
        let default = key.typed_defaults().pop().filter(|_| key.kind != OptionKind::Flag);
        let default = default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        format!("- {}={form}: {}{default}", key.name(), key.description())
    };
    if keys.is_empty() {
        return help;
    }
    format!("{help}\n\nKeys:\n{}", keys.iter().map(line).collect::<Vec<_>>().join("\n"))
}
