//! The features of candidates: the model's figures while reading them, and surface statistics.

use probity_data::{Candidate, Sample, from_value};
use probity_lm::{Ask, ContinuationAnswer, Outcome, PooledState, Reading, ScoreRequest, ScoreResult};
use probity_stats::quantile;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::prompts::ReadingPrompts;
use super::surface::{SURFACE, surface};
use crate::figures::TokenCounts;
use crate::stage::row_outcome;
use crate::{KeepPart, MethodError, MethodStage, RowError, Run, row};

/// Statistics of token log-probabilities (nats): given the context, without it (`bare`), and the gain by token. The
/// first equals the score of `gpt-score`.
pub(super) const LIKELIHOOD: [&str; 12] = [
    "mean", "minimum", "q10", "q25", "q50", "q75", "deviation", "bare_mean", "bare_q10", "gain_mean", "gain_q10",
    "gain_q90",
];

/// The features required from the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WantedFeatures {
    /// Log-probabilities, given the context and without it.
    pub(super) likelihood: bool,
    /// The hidden state after this many layers.
    pub(super) state: Option<usize>,
    /// The hidden state after this many layers, for the answer that the text is the better of two.
    pub(super) comparison: Option<usize>,
}

/// A query about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureRequest {
    /// The text after its context.
    Reading,
    /// The text after only its noun.
    Bare,
    /// The answer that the text, shown first, is the better of two.
    Comparison,
}

impl WantedFeatures {
    fn asks(self, asked: FeatureRequest) -> bool {
        match asked {
            FeatureRequest::Reading => self.likelihood || self.state.is_some(),
            FeatureRequest::Bare => self.likelihood,
            FeatureRequest::Comparison => self.comparison.is_some(),
        }
    }
}

/// The features of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CandidateFeatures {
    /// In the order of [`LIKELIHOOD`], if required and defined.
    pub(super) likelihood: Option<Vec<f64>>,
    /// In the order of [`SURFACE`].
    pub(super) surface: Vec<f64>,
    pub(super) state: Option<PooledState>,
    pub(super) comparison: Option<PooledState>,
    pub(super) outcome: Outcome,
    /// Tokens of all prompts, and of the text.
    pub(super) counts: TokenCounts,
}

/// The stage that reads candidates.
pub(super) struct FeatureStage<'a> {
    /// All candidates, each with its sample and position.
    candidates: Vec<(&'a Sample, usize)>,
    wanted: WantedFeatures,
    prompts: &'a ReadingPrompts,
    inputs: Vec<String>,
}

impl<'a> FeatureStage<'a> {
    pub(super) fn new(
        samples: &'a [Sample],
        wanted: WantedFeatures,
        prompts: &'a ReadingPrompts,
        signature: &str,
    ) -> Self {
        let candidates =
            samples.iter().flat_map(|sample| (0..sample.candidates.len()).map(move |place| (sample, place)));
        let inputs = vec![signature.to_owned(), format!("{wanted:?}")];
        Self { candidates: candidates.collect(), wanted, prompts, inputs }
    }

    fn candidate(&self, number: usize) -> &'a Candidate {
        let (sample, place) = self.candidates[number];
        &sample.candidates[place]
    }

    fn without_model(&self, number: usize, outcome: Outcome) -> CandidateFeatures {
        let (sample, _) = self.candidates[number];
        let instruction = sample.instruction.as_deref().unwrap_or_default();
        let source = if sample.context.trim().is_empty() { instruction } else { &sample.context };
        let surface = surface(source, &self.candidate(number).text);
        CandidateFeatures {
            likelihood: None,
            surface,
            state: None,
            comparison: None,
            outcome,
            counts: TokenCounts::default(),
        }
    }

    /// The queries about a candidate.
    fn requests_for(&self, number: usize) -> Vec<FeatureRequest> {
        let (sample, _) = self.candidates[number];
        let is_pair = sample.candidates.len() == 2 && sample.candidates.iter().all(|one| !one.text.trim().is_empty());
        let can_be = |asked: &FeatureRequest| *asked != FeatureRequest::Comparison || is_pair;
        let all = [FeatureRequest::Reading, FeatureRequest::Bare, FeatureRequest::Comparison].into_iter();
        all.filter(|asked| self.wanted.asks(*asked)).filter(can_be).collect()
    }

    fn request(&self, number: usize, asked: FeatureRequest) -> ScoreRequest {
        let (sample, place) = self.candidates[number];
        let candidate = self.candidate(number);
        let id = |what: &str| format!("{}/{}/{what}", sample.id, candidate.id);
        let read = |text: String, layer: Option<usize>| match layer {
            Some(layer) => Ask::Reading(Reading { text, layers: vec![layer] }),
            None => Ask::Continuation(text),
        };
        // As in `gpt-score`: a space in front, which tokenizers merge into the first word.
        let text = format!(" {}", candidate.text.trim());
        match asked {
            FeatureRequest::Reading => {
                let prompt = self.prompts.reading(sample);
                ScoreRequest { id: id("reading"), prompt, ask: read(text, self.wanted.state) }
            }
            FeatureRequest::Bare => ScoreRequest { id: id("bare"), prompt: self.prompts.bare(), ask: read(text, None) },
            FeatureRequest::Comparison => {
                let (prompt, answer) = self.prompts.comparison(sample, place);
                ScoreRequest { id: id("comparison"), prompt, ask: read(answer, self.wanted.comparison) }
            }
        }
    }

    /// Combines the answers of a candidate.
    fn combine_answers(&self, number: usize, answers: &[(FeatureRequest, ScoreResult)]) -> CandidateFeatures {
        let of = |asked: FeatureRequest| answers.iter().find(|(known, _)| *known == asked).map(|(_, result)| result);
        let known = self.without_model(number, Outcome::Scored);
        let counts = TokenCounts::of_prompt(answers.iter().map(|(_, result)| result.prompt_tokens).sum());
        let known = CandidateFeatures { counts, ..known };
        if let Some((_, failed)) = answers.iter().find(|(_, result)| result.continuation().is_none()) {
            return CandidateFeatures { outcome: failed.outcome.clone(), ..known };
        }
        let state = |asked: FeatureRequest| of(asked)?.reading()?.states.first().cloned();
        let text = of(FeatureRequest::Reading).and_then(ScoreResult::continuation);
        let counts = TokenCounts { tokens: text.map(|text| text.token_ids.len()), ..counts };
        let known = CandidateFeatures { counts, ..known };
        let likelihood = text
            .zip(of(FeatureRequest::Bare).and_then(ScoreResult::continuation))
            .map(|(text, bare)| likelihood(text, bare));
        match likelihood.transpose() {
            Ok(likelihood) => {
                let (state, comparison) = (state(FeatureRequest::Reading), state(FeatureRequest::Comparison));
                CandidateFeatures { likelihood, state, comparison, ..known }
            }
            Err(outcome) => CandidateFeatures { outcome, ..known },
        }
    }
}

/// The features of [`LIKELIHOOD`], from the log-probabilities given the context and without it.
fn likelihood(given: &ContinuationAnswer, bare: &ContinuationAnswer) -> Result<Vec<f64>, Outcome> {
    let (with, without) = (&given.token_logprobs, &bare.token_logprobs);
    if with.is_empty() {
        return Err(Outcome::Empty);
    }
    if given.token_ids != bare.token_ids {
        let why = "the text has other tokens without its context, so the gain is undefined".to_owned();
        return Err(Outcome::NotFinite { why });
    }
    if with.iter().chain(without).any(|logprob| !logprob.is_finite()) {
        return Err(Outcome::NotFinite { why: "a token of the text has probability 0".to_owned() });
    }
    let gains: Vec<f64> = with.iter().zip(without).map(|(with, without)| with - without).collect();
    let ascending = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let sorted = [with, without, &gains].map(|values| ascending(values));
    let at = |place: usize, share: f64| quantile(&sorted[place], share).expect("there is a token");
    let centre = mean(with);
    let squares: Vec<f64> = with.iter().map(|value| (value - centre) * (value - centre)).collect();
    Ok(vec![
        centre,
        sorted[0][0],
        at(0, 0.1),
        at(0, 0.25),
        at(0, 0.5),
        at(0, 0.75),
        mean(&squares).sqrt(),
        mean(without),
        at(1, 0.1),
        mean(&gains),
        at(2, 0.1),
        at(2, 0.9),
    ])
}

/// Checks a state read from a row against the required layer.
fn check_state(name: &str, state: Option<&PooledState>, wanted: Option<usize>) -> Result<(), RowError> {
    match (state, wanted) {
        (None, Some(_)) => Err(format!("`{name}` is missing, but the row has an answer").into()),
        (Some(state), Some(layer)) if state.layer != layer => {
            Err(format!("`{name}.layer` is {}; expected {layer}", state.layer).into())
        }
        (Some(state), _) if state.values.iter().any(|value| !value.is_finite()) => {
            Err(format!("`{name}.values` contains a number that is not finite").into())
        }
        _ => Ok(()),
    }
}

fn named(names: &[&str], values: &[f64]) -> Map<String, Value> {
    names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

/// The name of the stage and of its table.
pub(super) const FEATURES: &str = "features";

impl MethodStage for FeatureStage<'_> {
    type Part = CandidateFeatures;
    const MADE_ANEW: &'static [&'static str] = &["surface"];

    fn name(&self) -> &'static str {
        FEATURES
    }

    fn parts(&self) -> usize {
        self.candidates.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, CandidateFeatures>) -> Result<(), MethodError> {
        let is_text = |number: &usize| !self.candidate(*number).text.trim().is_empty();
        let (texts, empty): (Vec<usize>, Vec<usize>) = (0..self.parts()).partition(is_text);
        for number in empty {
            keep(number, self.without_model(number, Outcome::Empty), run.output()).map_err(MethodError::Output)?;
        }
        for (sample, _) in texts.iter().map(|number| self.candidates[*number]).filter(|(_, place)| *place == 0) {
            self.prompts.quoted(sample, self.wanted)?.into_iter().for_each(|quoted| run.quotes(quoted));
        }
        // Grouped by sample, first all candidates after their shared context, then the other queries, so that few
        // candidates wait for their last answer.
        let of_sample = |a: &usize, b: &usize| self.candidates[*a].0.id == self.candidates[*b].0.id;
        let mut questions: Vec<(usize, FeatureRequest)> = Vec::new();
        let mut waiting: Vec<usize> = vec![0; self.parts()];
        for chunk in texts.chunk_by(of_sample) {
            for asked in [FeatureRequest::Reading, FeatureRequest::Bare, FeatureRequest::Comparison] {
                questions.extend(
                    chunk
                        .iter()
                        .filter(|number| self.requests_for(**number).contains(&asked))
                        .map(|number| (*number, asked)),
                );
            }
            for number in chunk {
                waiting[*number] = self.requests_for(*number).len();
            }
        }
        for number in texts.into_iter().filter(|number| waiting[*number] == 0) {
            keep(number, self.without_model(number, Outcome::Scored), run.output()).map_err(MethodError::Output)?;
        }
        let mut open: Vec<Vec<(FeatureRequest, ScoreResult)>> = vec![Vec::new(); self.parts()];
        let requests = questions.iter().map(|(number, asked)| self.request(*number, *asked));
        run.score(requests, |place, result, output| {
            let (number, asked) = questions[place];
            open[number].push((asked, result));
            if open[number].len() < waiting[number] {
                return Ok(());
            }
            let answers = std::mem::take(&mut open[number]);
            keep(number, self.combine_answers(number, &answers), output)
        })
    }

    fn identity(&self, number: usize) -> Value {
        json!({ "item": self.candidates[number].0.id, "candidate": self.candidate(number).id })
    }

    fn rows(&self, number: usize, of: &CandidateFeatures) -> Vec<Value> {
        let likelihood = of.likelihood.as_ref().map(|values| named(&LIKELIHOOD, values));
        let comparison = self.wanted.comparison.map(|_| row! { "comparison": of.comparison });
        vec![row! {
            ..self.identity(number), "likelihood": likelihood, "surface": named(&SURFACE, &of.surface),
            "state": of.state, ..comparison, ..&of.outcome, ..of.counts,
        }]
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<CandidateFeatures, RowError> {
        #[derive(Deserialize)]
        struct Given {
            likelihood: Option<Map<String, Value>>,
            state: Option<PooledState>,
            comparison: Option<PooledState>,
        }
        let Given { likelihood, state, comparison } = from_value(&rows[0])?;
        let outcome = row_outcome(&rows[0])?;
        let value = |given: &Map<String, Value>, name: &str| {
            let value = given.get(name).and_then(Value::as_f64);
            value.ok_or_else(|| format!("`likelihood.{name}` is not a number"))
        };
        let likelihood = likelihood
            .map(|given| LIKELIHOOD.iter().map(|name| value(&given, name)).collect::<Result<Vec<f64>, String>>())
            .transpose()?;
        if outcome.has_answer() {
            if self.wanted.likelihood && likelihood.is_none() {
                return Err("`likelihood` is missing, but the row has an answer".into());
            }
            let asks = self.requests_for(number).contains(&FeatureRequest::Comparison);
            check_state("state", state.as_ref(), self.wanted.state)?;
            check_state("comparison", comparison.as_ref(), self.wanted.comparison.filter(|_| asks))?;
        }
        let known = self.without_model(number, outcome);
        Ok(CandidateFeatures { likelihood, state, comparison, counts: from_value(&rows[0])?, ..known })
    }

    fn stand_in(&self, number: usize) -> CandidateFeatures {
        self.without_model(number, Outcome::Scored)
    }
}
