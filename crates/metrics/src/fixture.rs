//! Test models with outputs that can be computed by hand.

use std::sync::Arc;

use probity_lm::{
    Ask, ContinuationAnswer, GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Outcome,
    Requests, ScoreAnswer, ScoreRequest, ScoreResult, ScriptedEncoder, ScriptedModel, Sink, Usage,
};

use crate::{MetricItem, MetricModels};

/// An encoder with orthogonal word vectors, which predicts `There` for any mask after `quietly`; and [`Lengths`] with a
/// limit of a hundred characters.
pub(crate) fn models(items: &[MetricItem<'_>]) -> MetricModels {
    let texts = items
        .iter()
        .flat_map(|item| [item.candidate].into_iter().chain(item.references.iter().copied()).chain(item.source));
    let mut words: Vec<&str> = texts.flat_map(str::split_whitespace).chain(["."]).collect();
    words.sort_unstable();
    words.dedup();
    let id = |word: &str| words.iter().position(|w| *w == word).map(|at| at as u32 + 4);
    let (sign, guess) = (id("quietly"), id("There"));
    let width = words.len() + 4;
    let encoder = ScriptedEncoder::new(&words, 6, width, move |ids, _| {
        ids.iter().flat_map(|&id| (0..width).map(move |at| f32::from(u8::from(at == id as usize)))).collect()
    });
    let encoder = encoder.with_masked(move |sequence| {
        let seen = |at: &usize| sequence.ids[..*at].iter().any(|id| Some(*id) == sign);
        sequence.positions.iter().map(|at| if seen(at) { guess.unwrap_or(0) } else { 0 }).collect()
    });
    MetricModels { encoder: Some(Arc::new(encoder)), language_model: Some(Arc::new(Lengths::new(100))) }
}

/// A language model whose token log-probability is minus the number of characters of the condition, except for
/// `impossible`; conditions longer than `limit` are too long.
pub(crate) struct Lengths {
    description: ModelDescription,
    limit: usize,
}

impl Lengths {
    pub(crate) fn new(limit: usize) -> Self {
        Self { description: ScriptedModel::from_probabilities(|_| Vec::new()).description().clone(), limit }
    }

    fn answer(&self, request: &ScoreRequest) -> ScoreResult {
        let Ask::Continuation(text) = &request.ask else { panic!("labels are asked for") };
        let given = request.prompt.text().chars().count();
        if given > self.limit {
            return ScoreResult {
                outcome: Outcome::TooLong { tokens_needed: given, limit: self.limit },
                prompt_tokens: 0,
                answer: None,
            };
        }
        let each = if text == "impossible" { f64::NEG_INFINITY } else { -(given as f64) };
        let tokens: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let token_logprobs = vec![each; tokens.len()];
        let answer = ContinuationAnswer {
            logprob: token_logprobs.iter().sum(),
            token_ids: vec![0; tokens.len()],
            tokens,
            token_logprobs,
            is_greedy: false,
        };
        ScoreResult { outcome: Outcome::Scored, prompt_tokens: 0, answer: Some(ScoreAnswer::Continuation(answer)) }
    }
}

impl LanguageModel for Lengths {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        let all: Vec<ScoreRequest> = requests.collect();
        for (index, request) in all.iter().enumerate().rev() {
            let is_new = !all[..index].iter().any(|other| other.prompt == request.prompt && other.ask == request.ask);
            assert!(is_new, "asked twice");
            sink(index, self.answer(request)).map_err(LmError::Sink)?;
        }
        Ok(Usage::default())
    }

    fn generate(
        &self,
        _: &mut Requests<'_, GenerateRequest>,
        _: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        panic!("nothing is generated")
    }
}
