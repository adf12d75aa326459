//! Parses metrics with options, such as `bleu:tok=intl,smooth=floor,rouge-l`.

use probity_lm::{did_you_mean, nearest};
use probity_options::{GivenOptions, read_pair};
use serde_json::Value;

use crate::MetricError;
use crate::metric::{DynDefinition, Metric, MetricItem, MetricModels, MetricSettings, Need};
use crate::registry::{metric, metrics};

/// A metric of the registry with its options.
#[derive(Clone)]
pub struct ChosenMetric {
    definition: &'static dyn DynDefinition,
    given: GivenOptions,
    /// As written by the user: `bleu:tok=intl,smooth=floor`.
    label: String,
}

/// Parses a comma-separated list of metrics, each optionally followed by `:KEY=VALUE,KEY=VALUE`. An item with `=` and
/// without `:` belongs to the preceding metric. Errors for an unknown name or key suggest the nearest one; repeated
/// metrics are errors.
///
/// # Errors
/// [`MetricError::Unknown`] and [`MetricError::Option`].
pub fn choose(text: &str) -> Result<Vec<ChosenMetric>, MetricError> {
    let mut labels: Vec<String> = Vec::new();
    for piece in text.split(',').map(str::trim) {
        match labels.last_mut() {
            // Commas separate both metrics and options: an item with `:` starts a metric, one with only `=` continues
            // it.
            Some(label) if piece.contains('=') && !piece.contains(':') => {
                label.push(if label.contains(':') { ',' } else { ':' });
                label.push_str(piece);
            }
            _ => labels.push(piece.to_owned()),
        }
    }
    // Labels name columns and rows of the output, so they must be unique.
    if let Some(twice) = labels.iter().enumerate().find(|(index, label)| labels[..*index].contains(label)) {
        return Err(option(twice.1, "asked for twice", "name each metric once, or give it other options"));
    }
    labels.into_iter().map(ChosenMetric::read).collect()
}

impl ChosenMetric {
    fn read(label: String) -> Result<Self, MetricError> {
        let (name, options) = label.split_once(':').unwrap_or((&label, ""));
        let Some(definition) = metric(name) else {
            let names = || metrics().iter().map(|metric| metric.name());
            return Err(MetricError::Unknown {
                name: name.escape_debug().to_string(),
                near: did_you_mean(nearest(name, names())),
                known: names().collect::<Vec<_>>().join(", "),
            });
        };
        let known = definition.options();
        let mut given = GivenOptions::new();
        for pair in options.split(',').filter(|pair| !pair.is_empty()) {
            let (field, value) =
                read_pair(name, &known, pair).map_err(|problem| option(&label, problem.why, problem.hint))?;
            if given.insert(field.clone(), value).is_some() {
                return Err(option(
                    &label,
                    format!("`{}` is given twice", field.replace('_', "-")),
                    "give each option once",
                ));
            }
        }
        Ok(Self { definition, given, label })
    }

    /// Sets a default for an option that the user omitted. The label is unchanged.
    #[must_use]
    pub fn with_default(mut self, field: &str, value: Value) -> Self {
        self.given.entry(field).or_insert(value);
        self
    }

    /// The registry entry.
    pub fn definition(&self) -> &'static dyn DynDefinition {
        self.definition
    }

    /// The metric as written by the user, with its options.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The label of each number in a row: `rouge-l`, `rouge-l.precision`, `rouge-l.recall`.
    pub fn components(&self) -> Vec<String> {
        let parts = self.definition.parts().iter().map(|part| format!("{}.{part}", self.label));
        std::iter::once(self.label.clone()).chain(parts).collect()
    }

    /// All options, including defaults.
    pub fn options_in_force(&self) -> Value {
        self.definition.options_in_force(&self.given)
    }

    /// Builds the metric.
    pub fn build(&self, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        self.definition.build(&self.given, models)
    }

    /// Checks that each item has the inputs of the metric.
    ///
    /// # Errors
    /// [`MetricError::NoItems`], and [`MetricError::Missing`] for the first item that lacks an input.
    pub fn check(&self, items: &[MetricItem<'_>]) -> Result<(), MetricError> {
        if items.is_empty() {
            return Err(MetricError::NoItems);
        }
        for need in self.definition.needs() {
            if let Some(item) = items.iter().position(|item| need.is_missing(item)) {
                return Err(self.missing(*need, format!("item {item}")));
            }
        }
        Ok(())
    }

    /// The error for an item that lacks an input; `item` is its name for the user.
    pub fn missing(&self, need: Need, item: String) -> MetricError {
        MetricError::Missing { metric: self.label.clone(), what: need.what(), item, hint: need.hint() }
    }

    /// The first input of the metric that the item lacks.
    pub fn lacking(&self, item: &MetricItem<'_>) -> Option<Need> {
        self.definition.needs().iter().copied().find(|need| need.is_missing(item))
    }

    /// Everything that a score depends on, in sacrebleu's form:
    /// `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:0.1.0`; `nrefs:var` if items differ in their number of
    /// references.
    pub fn signature(&self, settings: MetricSettings, items: &[MetricItem<'_>]) -> String {
        let mut fields = Vec::new();
        if self.definition.needs().contains(&Need::References) {
            let count = items.first().map_or(0, |item| item.references.len());
            let same = items.iter().all(|item| item.references.len() == count);
            fields.push(format!("nrefs:{}", if same { count.to_string() } else { "var".to_owned() }));
        }
        fields.extend(settings.into_iter().map(|(name, value)| format!("{name}:{value}")));
        // Last, as in sacrebleu's signatures.
        fields.push(format!("version:{}", env!("CARGO_PKG_VERSION")));
        fields.join("|")
    }
}

impl Need {
    /// Whether the item lacks this input.
    pub fn is_missing(self, item: &MetricItem<'_>) -> bool {
        match self {
            Self::References => item.references.is_empty(),
            Self::Source => item.source.is_none(),
            Self::Encoder | Self::LanguageModel => false,
        }
    }

    /// Reason for an undefined score of an item without it.
    pub fn why_undefined(self) -> &'static str {
        match self {
            Self::References => "the sample has no reference",
            Self::Source => "the sample has no source",
            Self::Encoder => "there is no encoder",
            Self::LanguageModel => "there is no sequence-to-sequence model",
        }
    }

    /// Name of the missing input, for messages.
    pub fn what(self) -> &'static str {
        match self {
            Self::References => "a reference",
            Self::Source => "a source",
            Self::Encoder => "an encoder",
            Self::LanguageModel => "a sequence-to-sequence model",
        }
    }

    /// Suggested fix.
    pub fn hint(self) -> &'static str {
        match self {
            Self::References => "give each sample a list `references` with at least one text",
            Self::Source => {
                "give each sample the original text as its `context`; --map context=COLUMN names its column"
            }
            Self::Encoder => "name one with --encoder: probity model get all-minilm-l6-v2 fetches one",
            Self::LanguageModel => "name one with --model",
        }
    }
}

fn option(metric: &str, why: impl Into<String>, hint: impl Into<String>) -> MetricError {
    MetricError::Option { metric: metric.escape_debug().to_string(), why: why.into(), hint: hint.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::hint_of;

    fn error(text: &str) -> String {
        choose(text).err().expect("refused").to_string()
    }

    #[test]
    fn options_belong_to_the_metric_before_them() {
        let choices = choose("bleu, bleu:tok=intl,smooth=floor,lowercase=yes").expect("well formed");
        assert_eq!(
            choices.iter().map(ChosenMetric::label).collect::<Vec<_>>(),
            ["bleu", "bleu:tok=intl,smooth=floor,lowercase=yes"]
        );
        let options = choices[1].options_in_force();
        assert_eq!(
            (&options["tok"], &options["smooth"], &options["lowercase"]),
            (&"intl".into(), &"floor".into(), &true.into())
        );
    }

    #[test]
    fn items_without_what_a_metric_needs_are_refused() {
        let choice = &choose("bleu").expect("well formed")[0];
        let item = MetricItem { candidate: "a", references: vec!["a"], source: None };
        assert!(choice.check(std::slice::from_ref(&item)).is_ok());
        assert!(matches!(choice.check(&[]), Err(MetricError::NoItems)));
        let error = choice.check(&[item, MetricItem::default()]).expect_err("refused");
        assert_eq!(error.to_string(), "bleu needs a reference for each item; item 1 has none");
        assert!(hint_of(&error).starts_with("give each sample"), "{error:?}");
    }

    #[test]
    fn what_is_unknown_is_refused_with_the_nearest() {
        for (text, wrong, hint) in [
            ("blue", "there is no metric `blue`; did you mean `bleu`?", "the metrics are bleu"),
            ("bleu:tokk=intl", "bleu:tokk=intl: unknown option `tokk`; did you mean `tok`?", "its options are"),
            ("bleu:tok=int", "bleu:tok=int: `tok` cannot be `int`; did you mean `intl`?", "use one of"),
            ("bleu:lowercase=maybe", "cannot be `maybe`", "write lowercase=yes or lowercase=no"),
        ] {
            let error = choose(text).err().expect(text);
            assert!(error.to_string().contains(wrong), "{error}");
            assert!(hint_of(&error).starts_with(hint), "{error:?}");
        }
        assert!(error("bleu:k=x").contains("`k` cannot be `x`"));
        assert!(error("bleu:intl").contains("`intl` has no value"));
        assert!(error("bleu,bleu").contains("asked for twice"));
        assert!(error("bleu:tok=intl,tok=char").contains("given twice"));
        assert!(error("").contains("no metric ``"));
    }
}
