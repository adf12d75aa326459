//! What can be told of each option without a value: from the JSON schema of the type.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::read::check;

/// A type whose fields are options.
///
/// Every field has a default, by `#[serde(default)]` on the type; one whose default the field's own bounds refuse (an
/// empty list that must have an item, an empty text) must be given. Fields that are types of this kind themselves are
/// flattened, or else are one option with a key for each of their fields ([`OptionSpec::keys`]). Bounds are schemars' (`range`, `length`), `#[schemars(extend("form" = "N"))]` says how help writes the
/// value, and `"hint"` what to do where the field's own type refuses one.
pub trait Options: Default + Serialize + DeserializeOwned + JsonSchema {}

impl<T: Default + Serialize + DeserializeOwned + JsonSchema> Options for T {}

/// One of the values that an option may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionChoice {
    /// As it is given.
    pub name: String,
    /// What it means; empty where the name says it.
    pub help: String,
}

/// What kind of value an option has; of each, where it takes several.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionKind {
    /// It is given or not.
    Flag,
    /// A whole number within bounds, these included.
    Integer {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A finite number.
    Number,
    /// One of a few names.
    Choice(Vec<OptionChoice>),
    /// A text, which a type of its own may read further.
    Text,
}

/// An option, as far as it is known without a value.
#[derive(Debug, Clone)]
pub struct OptionSpec {
    /// The field's name: `answer_prefix`.
    pub field: String,
    /// What it is for, in paragraphs.
    pub help: String,
    /// The kind of its value.
    pub kind: OptionKind,
    /// How help writes the value: `FILE`, `NAME|PATH`, `FIRST,SECOND`; empty where nothing was said.
    pub form: String,
    /// It may be given several times.
    pub is_list: bool,
    /// The keys of an option that is given as `KEY=VALUE`, once for each; their fields are accepted as options too.
    pub keys: Vec<OptionSpec>,
    /// It must be given.
    pub is_required: bool,
    /// The field of another option, where that may be given in its place.
    pub unless: Option<String>,
    /// What is in force where it is not given; null where that is nothing.
    pub default: Value,
    /// Bounds that the kind does not hold.
    pub(crate) schema: Value,
    /// Of a key, the field of its option.
    within: Option<String>,
    accepts: Accepts,
}

/// Whether a type reads this value of that field, all others having their defaults.
type Accepts = fn(&str, &Value) -> Result<(), serde_json::Error>;

impl OptionSpec {
    /// The name as it is typed: `answer-prefix`.
    pub fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// The name as it is typed on a command line: that, unless `#[schemars(extend("long" = "NAME"))]` says another one.
    pub fn long(&self) -> String {
        self.extension("long").and_then(Value::as_str).map_or_else(|| self.name(), str::to_owned)
    }

    /// Whether that field is its own or one of its keys'.
    pub fn has_field(&self, field: &str) -> bool {
        self.field == field || self.keys.iter().any(|key| key.field == field)
    }

    /// Whether the type reads this value.
    pub(crate) fn accepts(&self, value: &Value) -> Result<(), serde_json::Error> {
        match &self.within {
            Some(option) => (self.accepts)(option, &json!({ &self.field: value })),
            None => (self.accepts)(&self.field, value),
        }
    }

    /// What it is for, as lists have it: without the final period where it is one paragraph.
    pub fn description(&self) -> &str {
        let is_one = !self.help.contains("\n\n");
        self.help.strip_suffix('.').filter(|_| is_one).unwrap_or(&self.help)
    }

    /// Its defaults as they would be typed; none where nothing is in force.
    pub fn typed_defaults(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            // `1` and not `1.0`.
            Value::Number(number) if number.is_f64() => number.as_f64().map(|number| number.to_string()),
            other => Some(other.to_string()),
        };
        match &self.default {
            _ if self.is_required => Vec::new(),
            Value::Array(values) => values.iter().filter_map(text).collect(),
            one => text(one).into_iter().collect(),
        }
    }

    /// The fields that cannot be given beside it: `#[schemars(extend("conflicts" = ["FIELD"]))]`.
    pub fn conflicts(&self) -> impl Iterator<Item = &str> {
        self.fields("conflicts")
    }

    /// The fields without which it means nothing: `#[schemars(extend("needs" = ["FIELD"]))]`.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.fields("needs")
    }

    fn fields(&self, extension: &str) -> impl Iterator<Item = &str> {
        self.extension(extension).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// Something that the adapters know and this crate does not: `#[schemars(extend("KEY" = …))]` of the field.
    pub fn extension(&self, key: &str) -> Option<&Value> {
        self.schema.get(key)
    }
}

/// All options of a type, in the order of its fields.
pub fn specs<P: Options>() -> Vec<OptionSpec> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<P>();
    let defaults = serde_json::to_value(P::default()).expect("options are plain values under string keys");
    fields(schema.as_value(), &defaults, accepts::<P>, None)
}

/// The options that are the fields of an object.
fn fields(schema: &Value, defaults: &Value, accepts: Accepts, within: Option<&str>) -> Vec<OptionSpec> {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    // Serialised they stand in the order of the fields, of flattened types too; a schema has these at the end.
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

/// The names of the types that a schema allows.
fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The schema of what is there, where nothing may be there too.
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

/// The names among which to choose, in their order; none where it is no such schema.
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

/// Lines of a doc comment as paragraphs, a blank line between two.
fn paragraphs(text: &str) -> String {
    let all = text.split("\n\n").map(|paragraph| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    all.filter(|paragraph| !paragraph.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Help with a line for each key, written as clap writes possible values.
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
