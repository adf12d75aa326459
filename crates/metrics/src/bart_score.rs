//! `BARTScore` (Yuan et al. 2021): the likelihood of one text given another under a sequence-to-sequence model.

use std::sync::Arc;

use probity_lm::{Ask, LanguageModel, LmError, ModelDescription, Outcome, Prompt, ScoreRequest, ScoreResult};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MetricError;
use crate::encoded::settings;
use crate::metric::{
    Definition, Metric, MetricItem, MetricModels, MetricScores, MetricSettings, Need, Needs, Score, Watch,
};

/// Options of `BARTScore`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct BartScoreOptions {
    /// Direction that is the score
    #[default(ScoreDirection::F)]
    direction: ScoreDirection,
    /// How to combine several references
    #[default(Several::Max)]
    several: Several,
}

/// Which of the two directions is the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ScoreDirection {
    /// Mean of both
    F,
    /// Candidate given the reference
    Precision,
    /// Reference given the candidate
    Recall,
}

/// Of scores against several references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Several {
    /// Highest score, for each direction separately
    Max,
    /// Mean
    Mean,
}

/// `BARTScore` between candidates and references; see [`Definition::LONG_ABOUT`].
pub(crate) struct BartScore {
    model: Arc<dyn LanguageModel>,
    description: ModelDescription,
    options: BartScoreOptions,
}

/// `BARTScore` of candidates, given their source; see [`Definition::LONG_ABOUT`].
pub(crate) struct BartScoreSource {
    model: Arc<dyn LanguageModel>,
    description: ModelDescription,
}

impl Definition for BartScore {
    type Options = BartScoreOptions;
    const NAME: &'static str = "bart-score";
    const ABOUT: &'static str = "Mean log-probability of candidate and reference by seq2seq";
    const LONG_ABOUT: &'static str = "\
Mean log-probability of candidate and reference by seq2seq.

BARTScore (Yuan et al. 2021). `precision` is the mean over the candidate's tokens of log P(token | reference, earlier \
tokens); `recall` is the same for the reference's tokens given the candidate. The score is their mean, the paper's F, \
or one of the two with `direction`; all are at most 0. RevisEval (Zhang et al. 2024) uses recall, and so does `probity \
reviseval` by default. Any sequence-to-sequence model is accepted. Scores are comparable only under the same model, \
which the signature names. The published script also counts the tokens that its tokenizer adds around each text; here \
only the text's own tokens count. An empty candidate or reference is undefined, and so is a text longer than the \
model's context: nothing is truncated. The score of all items is the mean.";
    const PARTS: &'static [&'static str] = &["precision", "recall"];
    const NEEDS: Needs = &[Need::References, Need::LanguageModel];
    const MEAN: bool = true;

    fn build(options: BartScoreOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let model = models.language_model(Self::NAME)?;
        let description = describe(&*model);
        Ok(Box::new(Self { model, description, options }))
    }
}

/// There are none.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct NoOptions {}

impl Definition for BartScoreSource {
    type Options = NoOptions;
    const NAME: &'static str = "bart-score-source";
    const ABOUT: &'static str = "Mean log-probability of the candidate given the source";
    const LONG_ABOUT: &'static str = "\
Mean log-probability of the candidate given the source.

Faithfulness by BARTScore (Yuan et al. 2021). As `bart-score`, but of the candidate given its source; no reference is \
needed.";
    const NEEDS: Needs = &[Need::Source, Need::LanguageModel];
    const MEAN: bool = true;

    fn build(_: NoOptions, models: &MetricModels) -> Result<Box<dyn Metric>, MetricError> {
        let model = models.language_model(Self::NAME)?;
        let description = describe(&*model);
        Ok(Box::new(Self { model, description }))
    }
}

fn describe(model: &dyn LanguageModel) -> ModelDescription {
    model.description().clone()
}

impl Metric for BartScore {
    fn settings(&self) -> MetricSettings {
        let direction = match self.options.direction {
            ScoreDirection::F => "f",
            ScoreDirection::Precision => "precision",
            ScoreDirection::Recall => "recall",
        };
        let several = match self.options.several {
            Several::Max => "max",
            Several::Mean => "mean",
        };
        let own = [("direction", direction.to_owned()), ("several", several.to_owned())];
        settings(&self.description).into_iter().chain(own).collect()
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let pairs: Vec<(&str, &str)> = items.iter().flat_map(both_ways).collect();
        let scores = log_probabilities(Self::NAME, &*self.model, &pairs)?;
        let mut scores = scores.chunks_exact(2);
        let rows = items.iter().map(|item| {
            let of_item: Vec<&[Score]> = scores.by_ref().take(item.references.len()).collect();
            let part = |direction: usize| self.over_references(of_item.iter().map(|pair| pair[direction]));
            let (precision, recall) = (part(0), part(1));
            let score = match self.options.direction {
                ScoreDirection::F => self.over_references(of_item.iter().map(|pair| f_score(pair[0], pair[1]))),
                ScoreDirection::Precision => precision,
                ScoreDirection::Recall => recall,
            };
            vec![score, precision, recall]
        });
        let rows = rows.collect();
        watch(items.len()).map_err(MetricError::Stopped)?;
        Ok(MetricScores::with_means(rows))
    }
}

/// The mean of both directions; undefined for the first direction that is undefined.
fn f_score(precision: Score, recall: Score) -> Score {
    match (precision, recall) {
        (Score::Value(precision), Score::Value(recall)) => Score::Value(f64::midpoint(precision, recall)),
        (undefined @ Score::Undefined(_), _) | (_, undefined) => undefined,
    }
}

/// The (condition, continuation) pairs of precision and recall for each reference.
fn both_ways<'a>(item: &MetricItem<'a>) -> Vec<(&'a str, &'a str)> {
    item.references.iter().flat_map(|reference| [(*reference, item.candidate), (item.candidate, *reference)]).collect()
}

impl BartScore {
    /// Combines several scores; if none is defined, returns the first reason.
    fn over_references(&self, scores: impl Iterator<Item = Score>) -> Score {
        let scores: Vec<Score> = scores.collect();
        let values = || scores.iter().filter_map(|score| score.value());
        match self.options.several {
            _ if values().next().is_none() => {
                scores.first().copied().unwrap_or(Score::Undefined("there is no reference"))
            }
            Several::Max => Score::Value(values().fold(f64::NEG_INFINITY, f64::max)),
            Several::Mean => Score::mean(scores.iter().copied()),
        }
    }
}

impl Metric for BartScoreSource {
    fn settings(&self) -> MetricSettings {
        settings(&self.description)
    }

    fn score(&self, items: &[MetricItem<'_>], watch: Watch<'_>) -> Result<MetricScores, MetricError> {
        let pairs: Vec<(&str, &str)> =
            items.iter().map(|item| (item.source.unwrap_or_default(), item.candidate)).collect();
        let scores = log_probabilities(Self::NAME, &*self.model, &pairs)?;
        watch(items.len()).map_err(MetricError::Stopped)?;
        Ok(MetricScores::with_means(scores.into_iter().map(|score| vec![score]).collect()))
    }
}

/// The mean token log-probability of each pair's second text, given the first. Equal pairs are computed once.
fn log_probabilities(
    metric: &str,
    model: &dyn LanguageModel,
    pairs: &[(&str, &str)],
) -> Result<Vec<Score>, MetricError> {
    // Shared system outputs and references of one sample repeat pairs, and model queries are expensive.
    let mut index = FxHashMap::default();
    let mut distinct: Vec<(&str, &str)> = Vec::new();
    for pair in pairs {
        index.entry(*pair).or_insert_with(|| {
            distinct.push(*pair);
            distinct.len() - 1
        });
    }
    let mut answers = vec![Score::Undefined("a text is empty"); distinct.len()];
    let asked: Vec<usize> = (0..distinct.len())
        // An empty condition would be treated as no condition, which is a different query.
        .filter(|&at| !distinct[at].0.trim().is_empty() && !distinct[at].1.trim().is_empty())
        .collect();
    let mut requests = asked.iter().map(|&at| {
        let (given, text) = distinct[at];
        ScoreRequest {
            id: format!("{metric}/{at}"),
            prompt: Prompt::Text(given.to_owned()),
            ask: Ask::Continuation(text.to_owned()),
        }
    });
    let sink = &mut |position: usize, result: ScoreResult| {
        answers[asked[position]] = mean(&result);
        Ok(())
    };
    let failed = |source: LmError| MetricError::Model { metric: metric.to_owned(), source: Box::new(source) };
    model.score(&mut requests, sink).map_err(failed)?;
    Ok(pairs.iter().map(|pair| answers[index[pair]]).collect())
}

fn mean(result: &ScoreResult) -> Score {
    let Some(continuation) = result.continuation() else {
        return Score::Undefined(match result.outcome {
            Outcome::TooLong { .. } => "too long for the model",
            Outcome::Altered { .. } => "changed by the model's chat template",
            Outcome::NotFinite { .. } => "the model gave no number",
            _ => "a text is empty",
        });
    };
    // Per token, as in the paper: a sum would rank texts by length.
    let mean = continuation.logprob / continuation.token_logprobs.len() as f64;
    if mean.is_finite() { Score::Value(mean) } else { Score::Undefined("the model finds the text impossible") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose;
    use crate::fixture::Lengths;

    fn scored(metric: &str, items: &[MetricItem<'_>]) -> Vec<Vec<Score>> {
        let models = MetricModels { language_model: Some(Arc::new(Lengths::new(20))), ..MetricModels::default() };
        choose(metric).expect("well formed")[0]
            .build(&models)
            .expect("suits")
            .score(items, &|_| Ok(()))
            .expect("scripted")
            .items
    }

    fn item<'a>(candidate: &'a str, references: &[&'a str]) -> MetricItem<'a> {
        MetricItem { candidate, references: references.to_vec(), source: Some("source") }
    }

    #[test]
    fn each_direction_has_its_number_and_the_score_is_their_mean() {
        let rows = scored("bart-score", &[item("a bc", &["abcdefgh"]), item("x", &["x"])]);
        assert_eq!(rows[0], [-6.0, -8.0, -4.0].map(Score::Value));
        assert_eq!(rows[1], [-1.0; 3].map(Score::Value));
        assert_eq!(scored("bart-score-source", &[item("a bc", &[])])[0], [Score::Value(-6.0)]);
    }

    #[test]
    fn one_direction_can_be_the_score() {
        let items = [item("a bc", &["abcdefgh"])];
        assert_eq!(scored("bart-score:direction=precision", &items)[0], [-8.0, -8.0, -4.0].map(Score::Value));
        assert_eq!(scored("bart-score:direction=recall", &items)[0], [-4.0, -8.0, -4.0].map(Score::Value));
        // Each direction is independent of the other being defined.
        let impossible = scored("bart-score:direction=recall", &[item("impossible", &["a"])]);
        assert_eq!(impossible[0][0], Score::Value(-10.0));
    }

    #[test]
    fn of_several_references_the_highest_or_the_mean_is_taken() {
        let items = [item("ab", &["abcd", "abcdef", ""])];
        assert_eq!(scored("bart-score", &items)[0], [-3.0, -4.0, -2.0].map(Score::Value));
        assert_eq!(scored("bart-score:several=mean", &items)[0], [-3.5, -5.0, -2.0].map(Score::Value));
    }

    #[test]
    fn what_has_no_number_says_why() {
        let long = "x".repeat(21);
        let rows = scored("bart-score", &[item(" ", &["a"]), item("a", &[&long]), item("impossible", &["a"])]);
        assert_eq!(rows[0], [Score::Undefined("a text is empty"); 3]);
        assert_eq!(
            rows[1],
            [
                Score::Undefined("too long for the model"),
                Score::Undefined("too long for the model"),
                Score::Value(-1.0)
            ]
        );
        assert_eq!(rows[2][1..], [Score::Undefined("the model finds the text impossible"), Score::Value(-10.0)]);
    }
}
