//! The features of every candidate: what the model says of it while it reads it, and what can be counted.

use probity_data::{Candidate, Sample, from_value};
use probity_lm::{Ask, ContinuationAnswer, Outcome, PooledState, Prompt, Reading, ScoreRequest, ScoreResult};
use probity_stats::quantile;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::surface::{SURFACE, surface};
use crate::question::material;
use crate::stage::{flatten_into, given_outcome};
use crate::template::{PromptLayout, Template};
use crate::{KeepPart, MethodError, MethodStage, RowError, Run};

/// Of the tokens' log-probabilities with what the text is about before it (nats), without it (`bare`), and of what each
/// token gains by it. The first is what `gpt-score` has.
pub(super) const LIKELIHOOD: [&str; 12] = [
    "mean", "minimum", "q10", "q25", "q50", "q75", "deviation", "bare_mean", "bare_q10", "gain_mean", "gain_q10",
    "gain_q90",
];

/// What is asked of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    /// Log-probabilities, with what the text is about and without.
    pub(super) likelihood: bool,
    /// The state behind so many layers.
    pub(super) state: Option<usize>,
}

/// What is known of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CandidateFeatures {
    /// In the order of [`LIKELIHOOD`], where they were wanted and there are any.
    pub(super) likelihood: Option<Vec<f64>>,
    /// In the order of [`SURFACE`].
    pub(super) surface: Vec<f64>,
    pub(super) state: Option<PooledState>,
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: Option<usize>,
    pub(super) tokens: Option<usize>,
}

/// The stage in which candidates are read.
pub(super) struct FeatureStage<'a> {
    /// All candidates, each with its sample.
    candidates: Vec<(&'a Sample, &'a Candidate)>,
    wanted: Wanted,
    template: &'a Template,
    layout: &'a PromptLayout,
    /// What a candidate is called where nothing else is shown.
    noun: &'a str,
    inputs: Vec<String>,
}

impl<'a> FeatureStage<'a> {
    pub(super) fn new(
        samples: &'a [Sample],
        wanted: Wanted,
        (template, layout): (&'a Template, &'a PromptLayout),
        noun: &'a str,
        signature: &str,
    ) -> Self {
        let candidates = samples.iter().flat_map(|sample| sample.candidates.iter().map(move |one| (sample, one)));
        let inputs = vec![signature.to_owned(), format!("{wanted:?}")];
        Self { candidates: candidates.collect(), wanted, template, layout, noun, inputs }
    }

    fn source(&self, number: usize) -> &'a str {
        let (sample, _) = self.candidates[number];
        let instruction = sample.instruction.as_deref().unwrap_or_default();
        if sample.context.trim().is_empty() { instruction } else { &sample.context }
    }

    fn counted(&self, number: usize) -> Vec<f64> {
        surface(self.source(number), &self.candidates[number].1.text)
    }

    fn without_model(&self, number: usize, outcome: Outcome) -> CandidateFeatures {
        let surface = self.counted(number);
        CandidateFeatures { likelihood: None, surface, state: None, outcome, prompt_tokens: None, tokens: None }
    }

    fn asked_model(&self) -> bool {
        self.wanted.likelihood || self.wanted.state.is_some()
    }

    /// The question about a candidate behind what it is about, or behind nothing but what it is called.
    fn request(&self, number: usize, bare: bool) -> ScoreRequest {
        let (sample, candidate) = self.candidates[number];
        // As in `gpt-score`: one space before it, which tokenizers take into the first word.
        let text = format!(" {}", candidate.text.trim());
        let id = format!("{}/{}/{}", sample.id, candidate.id, if bare { "bare" } else { "reading" });
        if bare {
            let prompt = Prompt::Text(format!("The {}:", self.noun));
            return ScoreRequest { id, prompt, ask: Ask::Continuation(text) };
        }
        let rendered = self.template.render(&sample.id, &material(sample)).expect("it could be rendered before");
        let ask = match self.wanted.state {
            Some(layer) => Ask::Reading(Reading { text, layers: vec![layer] }),
            None => Ask::Continuation(text),
        };
        ScoreRequest { id, prompt: rendered.prompt(self.layout), ask }
    }

    /// What the answers come to.
    fn of(&self, number: usize, reading: &ScoreResult, bare: Option<&ScoreResult>) -> CandidateFeatures {
        let known = self.without_model(number, Outcome::Scored);
        let known = CandidateFeatures { prompt_tokens: Some(reading.prompt_tokens), ..known };
        let failed = [Some(reading), bare].into_iter().flatten().find(|result| result.continuation().is_none());
        if let Some(failed) = failed {
            return CandidateFeatures { outcome: failed.outcome.clone(), ..known };
        }
        let given = reading.continuation().expect("it has not failed");
        let known = CandidateFeatures { tokens: Some(given.token_ids.len()), ..known };
        let state = reading.reading().and_then(|reading| reading.states.first().cloned());
        let likelihood = bare.and_then(ScoreResult::continuation).map(|bare| likelihood(given, bare));
        match likelihood.transpose() {
            Ok(likelihood) => CandidateFeatures { likelihood, state, ..known },
            Err(outcome) => CandidateFeatures { outcome, ..known },
        }
    }
}

/// The features of [`LIKELIHOOD`]: of a text with what it is about before it, and without.
fn likelihood(given: &ContinuationAnswer, bare: &ContinuationAnswer) -> Result<Vec<f64>, Outcome> {
    let (with, without) = (&given.token_logprobs, &bare.token_logprobs);
    if with.is_empty() {
        return Err(Outcome::Empty);
    }
    if given.token_ids != bare.token_ids {
        let why = "the text's tokens are others where nothing stands before it, so they have no gain".to_owned();
        return Err(Outcome::NotFinite { why });
    }
    if with.iter().chain(without).any(|logprob| !logprob.is_finite()) {
        return Err(Outcome::NotFinite { why: "a token of the text has no probability at all".to_owned() });
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

fn named(names: &[&str], values: &[f64]) -> Map<String, Value> {
    names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

impl MethodStage for FeatureStage<'_> {
    type Part = CandidateFeatures;
    const NAME: &'static str = "features";
    const MADE_ANEW: &'static [&'static str] = &["surface"];

    fn parts(&self) -> usize {
        self.candidates.len()
    }

    fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, CandidateFeatures>) -> Result<(), MethodError> {
        let is_text = |number: &usize| !self.candidates[*number].1.text.trim().is_empty();
        let (texts, empty): (Vec<usize>, Vec<usize>) = (0..self.parts()).partition(is_text);
        for number in empty {
            keep(number, self.without_model(number, Outcome::Empty), run.output()).map_err(MethodError::Output)?;
        }
        if !self.asked_model() {
            let mut each = texts.into_iter();
            return each
                .try_for_each(|number| keep(number, self.without_model(number, Outcome::Scored), run.output()))
                .map_err(MethodError::Output);
        }
        for number in &texts {
            let (sample, _) = self.candidates[*number];
            run.quotes(self.template.render(&sample.id, &material(sample))?.quoted);
        }
        // A sample's candidates behind what they are about, which is read once, then the same ones bare: so few of them
        // wait for their second answer.
        let of_sample = |a: &usize, b: &usize| self.candidates[*a].0.id == self.candidates[*b].0.id;
        let asked: Vec<(usize, bool)> = texts
            .chunk_by(of_sample)
            .flat_map(|chunk| {
                let with = chunk.iter().map(|number| (*number, false));
                with.chain(chunk.iter().filter(|_| self.wanted.likelihood).map(|number| (*number, true)))
            })
            .collect();
        let mut open: Vec<[Option<ScoreResult>; 2]> = (0..self.parts()).map(|_| [None, None]).collect();
        let requests = asked.iter().map(|(number, bare)| self.request(*number, *bare));
        run.score(requests, |place, result, output| {
            let (number, bare) = asked[place];
            open[number][usize::from(bare)] = Some(result);
            if open[number].iter().flatten().count() <= usize::from(self.wanted.likelihood) {
                return Ok(());
            }
            let [reading, bare] = std::mem::take(&mut open[number]);
            let reading = reading.expect("every text is read");
            keep(number, self.of(number, &reading, bare.as_ref()), output)
        })
    }

    fn identity(&self, number: usize) -> Value {
        let (sample, candidate) = self.candidates[number];
        json!({ "item": sample.id, "candidate": candidate.id })
    }

    fn rows(&self, number: usize, of: &CandidateFeatures) -> serde_json::Result<Vec<Value>> {
        let mut row = self.identity(number);
        row["likelihood"] = json!(of.likelihood.as_ref().map(|values| named(&LIKELIHOOD, values)));
        row["surface"] = json!(named(&SURFACE, &of.surface));
        row["state"] = json!(of.state);
        flatten_into(&mut row, &of.outcome)?;
        row["prompt_tokens"] = json!(of.prompt_tokens);
        row["tokens"] = json!(of.tokens);
        Ok(vec![row])
    }

    fn read(&self, number: usize, rows: &[Value]) -> Result<CandidateFeatures, RowError> {
        #[derive(Deserialize)]
        struct Given {
            likelihood: Option<Map<String, Value>>,
            state: Option<PooledState>,
            prompt_tokens: Option<usize>,
            tokens: Option<usize>,
        }
        let Given { likelihood, state, prompt_tokens, tokens } = from_value(&rows[0])?;
        let outcome = given_outcome(&rows[0])?;
        let value = |given: &Map<String, Value>, name: &str| {
            let value = given.get(name).and_then(Value::as_f64);
            value.ok_or_else(|| format!("`likelihood.{name}` is no number"))
        };
        let likelihood = likelihood
            .map(|given| LIKELIHOOD.iter().map(|name| value(&given, name)).collect::<Result<Vec<f64>, String>>())
            .transpose()?;
        let missing = |what: &str| Err(format!("`{what}` is missing, and `outcome` is `{}`", outcome.name()).into());
        if outcome.has_answer() {
            if self.wanted.likelihood && likelihood.is_none() {
                return missing("likelihood");
            }
            match (&state, self.wanted.state) {
                (None, Some(_)) => return missing("state"),
                (Some(state), Some(layer)) if state.layer != layer => {
                    return Err(format!("`state.layer` is {}, and {layer} is wanted", state.layer).into());
                }
                (Some(state), _) if state.values.iter().any(|value| !value.is_finite()) => {
                    return Err("`state.values` holds what is no finite number".into());
                }
                _ => {}
            }
        }
        let known = self.without_model(number, outcome);
        Ok(CandidateFeatures { likelihood, state, prompt_tokens, tokens, ..known })
    }

    fn stand_in(&self, number: usize) -> CandidateFeatures {
        self.without_model(number, Outcome::Scored)
    }
}
