//! A language model for dry runs: it checks requests or counts their cost, without computing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Outcome, Requests, ScoreRequest,
    ScoreResult, Sink, Usage,
};

use crate::engine::generate::plan_texts;
use crate::engine::token_scores::plan_scores;
use crate::memory::{MemoryLimit, ModelMemory};
use crate::request_encoder::RequestEncoder;
use crate::score::queries_of;
use crate::tokenizer::TokenizerError;
use crate::{Checkpoint, LoadError, LoadOptions, Model, PlannedCost};

/// A language model for dry runs.
///
/// Created from a [checkpoint](Self::check), it checks the first request of each work list as the model would, and ends
/// the list with [`LmError::Sink`]. Created from a [loaded model](Self::count), it plans the model's schedule, counts
/// its cost, and returns [`Outcome::Empty`] for each request.
pub struct DryModel<'a> {
    work: DryWork<'a>,
    cost: Mutex<PlannedCost>,
}

enum DryWork<'a> {
    Check(Box<RequestEncoder>),
    /// Needs a loaded model, because the schedule depends on the memory left after loading.
    Count(&'a Model),
}

impl DryModel<'static> {
    /// A model that checks requests without weights. The fingerprint in its description states that the files were not
    /// hashed.
    pub fn check(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self, LoadError> {
        options.check()?;
        checkpoint.check_answers(options)?;
        // Other models may free memory before this one is loaded.
        ModelMemory::new(checkpoint, options).check(checkpoint, options, MemoryLimit::Total)?;
        let description = checkpoint.describe(options, "not hashed");
        let requests = RequestEncoder::new(checkpoint.encoder.clone(), description);
        Ok(Self { work: DryWork::Check(Box::new(requests)), cost: Mutex::default() })
    }
}

impl<'a> DryModel<'a> {
    /// A model that counts the cost of requests.
    pub fn count(model: &'a Model) -> Self {
        Self { work: DryWork::Count(model), cost: Mutex::default() }
    }

    /// The cost of all requests so far.
    pub fn into_cost(self) -> PlannedCost {
        self.cost.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn cost(&self) -> MutexGuard<'_, PlannedCost> {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_outcome(&self, model: &Model, outcome: &Outcome) {
        let mut cost = self.cost();
        cost.questions += 1;
        if let Outcome::TooLong { tokens_needed, limit } = outcome {
            cost.too_long += 1;
            let needed = model.cache_needed(*tokens_needed).filter(|_| *limit == model.token_limit());
            cost.cache_needed = cost.cache_needed.max(needed);
        }
    }

    fn count_scores(
        &self,
        model: &Model,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        let mut answer = |index, result: ScoreResult| {
            self.count_outcome(model, &result.outcome);
            sink(index, result)
        };
        let hold = |index, request| model.requests.ask(index, request);
        model.in_windows(requests, &mut answer, &hold, &mut |window, answer| {
            let mut all = Usage::default();
            for (replica, mut part) in model.parts(window) {
                let (queries, _) = queries_of(&mut part);
                let (usage, rows) = plan_scores(replica, &queries, model.schedule(replica));
                let mut cost = self.cost();
                cost.usage += usage;
                cost.rows += rows;
                for query in queries {
                    cost.keep_longest(&query.seen);
                }
                // `answer` takes this lock.
                drop(cost);
                for asked in part {
                    let (outcome, prompt_tokens) = (Outcome::Empty, asked.prompt_tokens);
                    answer(asked.index, ScoreResult { outcome, prompt_tokens, answer: None }).map_err(LmError::Sink)?;
                }
                all += usage;
            }
            Ok(all)
        })
    }

    fn count_texts(
        &self,
        model: &Model,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        let mut answer = |index, result: GenerateResult| {
            self.count_outcome(model, &result.outcome);
            sink(index, result)
        };
        let hold = |index, request| model.requests.begin(index, request);
        model.in_windows(requests, &mut answer, &hold, &mut |window, answer| {
            let mut all = Usage::default();
            for (replica, part) in model.parts(window) {
                // Each token of the labels after a text is computed at most once more.
                let label_tokens =
                    part.iter().map(|begun| verdict_tokens(model, &begun.request)).sum::<Result<u64, _>>();
                let label_tokens = label_tokens.map_err(|error| LmError::Model(Box::new(error)))?;
                let (places, prompts): (Vec<usize>, Vec<_>) =
                    part.into_iter().map(|begun| (begun.index, begun.prompt)).unzip();
                let usage = plan_texts(replica, &prompts, model.schedule(replica));
                let mut cost = self.cost();
                cost.usage += usage;
                cost.usage.tokens_unshared += label_tokens;
                cost.usage.tokens_computed += label_tokens;
                cost.rows += label_tokens;
                cost.generated += prompts.iter().map(|prompt| prompt.max_tokens as u64).sum::<u64>();
                cost.texts = cost.texts.max(prompts.len());
                for prompt in &prompts {
                    cost.keep_longest(&prompt.tokens);
                }
                // `answer` takes this lock.
                drop(cost);
                for (place, prompt) in places.into_iter().zip(prompts) {
                    answer(place, GenerateResult::without_text(Outcome::Empty, prompt.tokens.len()))
                        .map_err(LmError::Sink)?;
                }
                all += usage;
            }
            Ok(all)
        })
    }
}

/// Number of tokens of the labels scored after a generated text.
fn verdict_tokens(model: &Model, request: &GenerateRequest) -> Result<u64, TokenizerError> {
    let Some((marker, labels)) = &request.verdict else { return Ok(0) };
    let variants = labels.labels().iter().flat_map(|label| &label.variants);
    // With the marker, because its end and a label may form one token.
    let text = |variant: &String| model.encoder().tokenizer().encode_text(&format!("{marker}{variant}"));
    variants.map(|variant| Ok(text(variant)?.len() as u64)).sum()
}

fn end_after<T>(first: Option<Result<T, LmError>>) -> Result<Usage, LmError> {
    first.transpose()?;
    Err(LmError::Sink("only the first request is checked".into()))
}

impl LanguageModel for DryModel<'_> {
    fn description(&self) -> &ModelDescription {
        match &self.work {
            DryWork::Check(encoder) => &encoder.description,
            DryWork::Count(model) => model.description(),
        }
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        match &self.work {
            DryWork::Check(encoder) => end_after(requests.next().map(|request| encoder.ask(0, request))),
            DryWork::Count(model) => self.count_scores(model, requests, sink),
        }
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        match &self.work {
            DryWork::Check(encoder) => end_after(requests.next().map(|request| encoder.begin(0, request))),
            DryWork::Count(model) => self.count_texts(model, requests, sink),
        }
    }
}
