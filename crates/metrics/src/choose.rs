//! `bleu:tok=intl,smooth=floor,rouge-l`: metrics with their options as one text.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};
use probity_lm::nearest;
use serde_json::Value;

use crate::MetricError;
use crate::metric::{DynDefinition, Item, Metric, Models, Need, Settings};
use crate::registry::{metric, metrics};

/// A metric of the registry with the options that were chosen.
#[derive(Clone)]
pub struct Choice {
    definition: &'static dyn DynDefinition,
    matches: ArgMatches,
    /// As typed: `bleu:tok=intl,smooth=floor`.
    label: String,
}

/// Reads metrics with their options: names with commas between them, each with `:KEY=VALUE,KEY=VALUE` where it has options. What has `=` and
/// no `:` belongs to the metric before it. An unknown name or key is refused with the nearest, and so is what is asked for twice.
///
/// # Errors
/// [`MetricError::Unknown`] and [`MetricError::Option`].
pub fn choose(text: &str) -> Result<Vec<Choice>, MetricError> {
    let mut labels: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim) {
        match labels.last_mut() {
            Some(label) if piece.contains('=') && !piece.contains(':') => {
                label.push(if label.contains(':') { ',' } else { ':' });
                label.push_str(piece);
            }
            _ => labels.push(piece.to_owned()),
        }
    }
    if let Some(twice) = labels.iter().enumerate().find(|(index, label)| labels[..*index].contains(label)) {
        return Err(option(twice.1, "asked for twice", "name each metric once, or give it other options"));
    }
    labels.into_iter().map(Choice::read).collect()
}

impl Choice {
    fn read(label: String) -> Result<Self, MetricError> {
        let (name, options) = label.split_once(':').unwrap_or((&label, ""));
        let Some(definition) = metric(name) else {
            let names = || metrics().iter().map(|metric| metric.name());
            return Err(MetricError::Unknown {
                name: name.escape_debug().to_string(),
                near: suggestion(nearest(name, names())),
                known: names().collect::<Vec<_>>().join(", "),
            });
        };
        let command = definition.command();
        let pairs = options.split(',').filter(|pair| !pair.is_empty());
        let arguments: Result<Vec<_>, _> =
            pairs.map(|pair| argument(&command, pair).map_err(|(why, hint)| option(&label, why, hint))).collect();
        let matches =
            command.clone().try_get_matches_from(arguments?.into_iter().flatten()).map_err(|error| told(&label, &command, &error))?;
        Ok(Self { definition, matches, label })
    }

    /// What it is, from the registry.
    pub fn definition(&self) -> &'static dyn DynDefinition {
        self.definition
    }

    /// Names it among others: as it was typed, with its options.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The label of each number of a row: `rouge-l`, `rouge-l.precision`, `rouge-l.recall`.
    pub fn components(&self) -> Vec<String> {
        let parts = self.definition.parts().iter().map(|part| format!("{}.{part}", self.label));
        std::iter::once(self.label.clone()).chain(parts).collect()
    }

    /// All options, with defaults filled in.
    pub fn options_in_force(&self) -> Result<Value, MetricError> {
        self.definition.options_in_force(&self.matches)
    }

    /// The metric, ready to score.
    pub fn build(&self, models: &Models) -> Result<Box<dyn Metric>, MetricError> {
        self.definition.build(&self.matches, models)
    }

    /// Whether each item has what the metric needs.
    ///
    /// # Errors
    /// [`MetricError::NoItems`], and [`MetricError::Missing`] of the first item that lacks something.
    pub fn check(&self, items: &[Item<'_>]) -> Result<(), MetricError> {
        if items.is_empty() {
            return Err(MetricError::NoItems);
        }
        for need in self.definition.needs() {
            if let Some(item) = items.iter().position(|item| need.is_missing(item)) {
                return Err(MetricError::Missing { metric: self.label.clone(), what: need.what(), item, hint: need.hint() });
            }
        }
        Ok(())
    }

    /// What a score depends on, in sacrebleu's form: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:0.1.0`; `nrefs:var` where items
    /// differ in their number of references.
    pub fn signature(&self, settings: Settings, items: &[Item<'_>]) -> String {
        let mut fields = Vec::new();
        if self.definition.needs().contains(&Need::References) {
            let count = items.first().map_or(0, |item| item.references.len());
            let same = items.iter().all(|item| item.references.len() == count);
            fields.push(format!("nrefs:{}", if same { count.to_string() } else { "var".to_owned() }));
        }
        fields.extend(settings.into_iter().map(|(name, value)| format!("{name}:{value}")));
        fields.push(format!("version:{}", env!("CARGO_PKG_VERSION")));
        fields.join("|")
    }
}

impl Need {
    /// Whether the item lacks it.
    pub fn is_missing(self, item: &Item<'_>) -> bool {
        match self {
            Self::References => item.references.is_empty(),
            Self::Source => item.source.is_none(),
            Self::Encoder | Self::LanguageModel => false,
        }
    }

    /// The field of a sample, or the option, that has it.
    pub fn field(self) -> &'static str {
        match self {
            Self::References => "references",
            Self::Source => "context",
            Self::Encoder => "--encoder",
            Self::LanguageModel => "--model",
        }
    }

    /// What is to be said where it is lacking.
    pub fn what(self) -> &'static str {
        match self {
            Self::References => "a reference",
            Self::Source => "a source",
            Self::Encoder => "an encoder",
            Self::LanguageModel => "a sequence-to-sequence model",
        }
    }

    /// What to do about that.
    pub fn hint(self) -> &'static str {
        match self {
            Self::References => "give each sample a list `references` with at least one text",
            Self::Source => "give each sample the original text as its `context`",
            Self::Encoder => "name one with --encoder",
            Self::LanguageModel => "name one with --model",
        }
    }
}

/// `key=value` as an argument; what is wrong and a hint where it is none.
fn argument(command: &Command, pair: &str) -> Result<Option<String>, (String, String)> {
    let hint = || match command.get_arguments().filter_map(Arg::get_long).collect::<Vec<_>>() {
        known if known.is_empty() => format!("{} has no options", command.get_name()),
        known => format!("its options are {}", known.join(", ")),
    };
    let (key, value) =
        pair.split_once('=').ok_or_else(|| (format!("`{}` has no value", pair.escape_debug()), format!("write KEY=VALUE; {}", hint())))?;
    let Some(known) = command.get_arguments().find(|known| known.get_long() == Some(key)) else {
        let near = suggestion(nearest(key, command.get_arguments().filter_map(Arg::get_long)));
        return Err((format!("there is no option `{}`{near}", key.escape_debug()), hint()));
    };
    if known.get_action().takes_values() {
        return Ok(Some(format!("--{key}={value}")));
    }
    match value {
        "yes" | "true" => Ok(Some(format!("--{key}"))),
        "no" | "false" => Ok(None),
        _ => Err((format!("`{key}` is `{}`", value.escape_debug()), format!("write {key}=yes or {key}=no"))),
    }
}

/// What clap found, in the words of `KEY=VALUE`.
fn told(label: &str, command: &Command, error: &clap::Error) -> MetricError {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let key = text(ContextKind::InvalidArg);
    let key = key.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue);
    let help = command.get_arguments().find(|known| known.get_long() == Some(key)).and_then(Arg::get_help);
    let help = help.map(ToString::to_string).unwrap_or_default();
    match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(known))) if !known.is_empty() => {
            let near = suggestion(nearest(&value, known.iter().map(String::as_str)));
            option(label, format!("`{key}` cannot be `{}`{near}", value.escape_debug()), format!("it may be {}", known.join(", ")))
        }
        (ErrorKind::ArgumentConflict, _) => option(label, format!("`{key}` is given twice"), "give each option once"),
        _ => option(label, format!("`{key}` cannot be `{}`", value.escape_debug()), format!("{key}: {help}")),
    }
}

fn suggestion(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

fn option(metric: &str, why: impl Into<String>, hint: impl Into<String>) -> MetricError {
    MetricError::Option { metric: metric.escape_debug().to_string(), why: why.into(), hint: hint.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        choose(text).err().expect("refused").to_string()
    }

    #[test]
    fn options_belong_to_the_metric_before_them() {
        let choices = choose("bleu, bleu:tok=intl,smooth=floor,lowercase=yes").expect("well formed");
        assert_eq!(choices.iter().map(Choice::label).collect::<Vec<_>>(), ["bleu", "bleu:tok=intl,smooth=floor,lowercase=yes"]);
        let options = choices[1].options_in_force().expect("read");
        assert_eq!((&options["tok"], &options["smooth"], &options["lowercase"]), (&"intl".into(), &"floor".into(), &true.into()));
    }

    #[test]
    fn items_without_what_a_metric_needs_are_refused() {
        let choice = &choose("bleu").expect("well formed")[0];
        let item = Item { candidate: "a", references: vec!["a"], source: None };
        assert!(choice.check(std::slice::from_ref(&item)).is_ok());
        assert!(matches!(choice.check(&[]), Err(MetricError::NoItems)));
        let error = choice.check(&[item, Item::default()]).expect_err("refused").to_string();
        assert!(error.starts_with("bleu needs a reference for each item; item 1 has none\n\nhint: give each sample"), "{error}");
    }

    #[test]
    fn what_is_unknown_is_refused_with_the_nearest() {
        assert!(error("blue").starts_with("there is no metric `blue`; did you mean `bleu`?\n\nhint: the metrics are bleu"));
        assert!(
            error("bleu:tokk=intl").starts_with("bleu:tokk=intl: there is no option `tokk`; did you mean `tok`?\n\nhint: its options are")
        );
        assert!(error("bleu:tok=int").starts_with("bleu:tok=int: `tok` cannot be `int`; did you mean `intl`?\n\nhint: it may be"));
        assert!(error("bleu:lowercase=maybe").contains("write lowercase=yes or lowercase=no"));
        assert!(error("bleu:k=x").contains("`k` cannot be `x`"));
        assert!(error("bleu:intl").contains("`intl` has no value"));
        assert!(error("bleu,bleu").contains("asked for twice"));
        assert!(error("bleu:tok=intl,tok=char").contains("given twice"));
        assert!(error("").contains("no metric ``"));
    }
}
