//! A scripted model for tests of methods.

use crate::{
    Ask, AskedTokens, ChatOptions, ClassAnswer, ClassKind, ClassScore, ContinuationAnswer, DEFAULT_MIN_MASS,
    GenerateRequest, GenerateResult, LabelAnswer, LanguageModel, LmError, ModelDescription, Outcome, PooledState,
    Precision, ReadingAnswer, Requests, ScoreAnswer, ScoreRequest, ScoreResult, Sink, ThinkingStyle, TokenAlternative,
    TokensAnswer, Usage,
};

type ScoreScript = Box<dyn Fn(&ScoreRequest) -> ScoreResult + Send + Sync>;
type GenerateScript = Box<dyn Fn(&GenerateRequest) -> GenerateResult + Send + Sync>;

/// A language model whose answers are defined by the test.
pub struct ScriptedModel {
    description: ModelDescription,
    score: ScoreScript,
    generate: GenerateScript,
}

impl ScriptedModel {
    /// Answers label queries with the result of `probabilities`, in label order (the sum may be below 1). Classes use
    /// the same values as logits. For a continuation, each word is a token with log P = −(number of characters). A
    /// token by id has log P = −(id + 1). States are the shares of four kinds of letters and the layer.
    pub fn from_probabilities(probabilities: impl Fn(&ScoreRequest) -> Vec<f64> + Send + Sync + 'static) -> Self {
        Self::from_results(move |request| {
            let prompt_tokens = request.prompt.text().split_whitespace().count();
            let (outcome, answer) = match &request.ask {
                Ask::Labels(set) => {
                    let names = set.labels().iter().map(|l| l.name.clone());
                    let logprobs = probabilities(request).into_iter().map(f64::ln);
                    match LabelAnswer::from_logprobs(names.zip(logprobs)) {
                        Some(answer) => (answer.outcome(DEFAULT_MIN_MASS), Some(ScoreAnswer::Labels(answer))),
                        None => (Outcome::NotFinite { why: "no label has any probability".into() }, None),
                    }
                }
                Ask::Reading(reading) => {
                    let continuation = by_length(&reading.text);
                    let state =
                        |layer: &usize| PooledState { layer: *layer, values: by_letters(&reading.text, *layer) };
                    let states = reading.layers.iter().map(state).collect();
                    (Outcome::Scored, Some(ScoreAnswer::Reading(ReadingAnswer { continuation, states })))
                }
                Ask::Continuation(text) => (Outcome::Scored, Some(ScoreAnswer::Continuation(by_length(text)))),
                Ask::Tokens(asked) => (Outcome::Scored, Some(ScoreAnswer::Tokens(by_id(asked)))),
                // One logit per number from the test.
                Ask::Classes => {
                    let logits = probabilities(request).into_iter().enumerate();
                    let classes = logits.map(|(at, logit)| ClassScore { name: format!("LABEL_{at}"), logit }).collect();
                    (Outcome::Scored, Some(ScoreAnswer::Classes(ClassAnswer { kind: ClassKind::default(), classes })))
                }
            };
            ScoreResult { outcome, prompt_tokens, answer }
        })
    }

    /// Answers each request with the result of `score`.
    pub fn from_results(score: impl Fn(&ScoreRequest) -> ScoreResult + Send + Sync + 'static) -> Self {
        let description = ModelDescription {
            name: "scripted".into(),
            adapter: None,
            revision: None,
            architecture: "scripted".into(),
            fingerprint: "0".repeat(64),
            precision: Precision::Exact,
            device: "cpu".into(),
            platform: None,
            through: None,
            weights: "none".into(),
            context_length: None,
            layers: Some(3),
            classes: Vec::new(),
            class_kind: ClassKind::default(),
            has_chat_template: true,
            thinking: None,
            chat: ChatOptions::default(),
        };
        let generate = |_: &GenerateRequest| GenerateResult::without_text(Outcome::Empty, 0);
        Self { description, score: Box::new(score), generate: Box::new(generate) }
    }

    /// Adds a class head.
    #[must_use]
    pub fn with_classes<S: Into<String>>(mut self, classes: impl IntoIterator<Item = S>) -> Self {
        self.description.classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the meaning of the logits.
    #[must_use]
    pub fn with_class_kind(mut self, kind: ClassKind) -> Self {
        self.description.class_kind = kind;
        self
    }

    /// Sets how the model thinks.
    #[must_use]
    pub fn with_thinking(mut self, style: ThinkingStyle) -> Self {
        self.description.thinking = Some(style);
        self
    }

    /// Continues each prompt with the result of `generate`.
    #[must_use]
    pub fn with_generation(
        mut self,
        generate: impl Fn(&GenerateRequest) -> GenerateResult + Send + Sync + 'static,
    ) -> Self {
        self.generate = Box::new(generate);
        self
    }
}

/// log P of a word is minus its number of characters.
fn by_length(text: &str) -> ContinuationAnswer {
    let tokens: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let token_logprobs: Vec<f64> = tokens.iter().map(|t| -(t.chars().count() as f64)).collect();
    let token_ids = vec![0; tokens.len()];
    ContinuationAnswer { logprob: token_logprobs.iter().sum(), token_logprobs, tokens, token_ids, is_greedy: false }
}

/// log P of a token is −(id + 1) at every position, so the lowest ids are the most probable.
fn by_id(asked: &AskedTokens) -> TokensAnswer {
    let text = |id: u32| format!("<{id}>");
    let logprob = |id: u32| -f64::from(id) - 1.0;
    let likeliest = |id: u32| TokenAlternative { id, token: text(id), logprob: logprob(id) };
    let token_logprobs: Vec<f64> = asked.ids.iter().map(|id| logprob(*id)).collect();
    TokensAnswer {
        continuation: ContinuationAnswer {
            logprob: token_logprobs.iter().sum(),
            token_logprobs,
            tokens: asked.ids.iter().map(|id| text(*id)).collect(),
            token_ids: asked.ids.clone(),
            is_greedy: asked.ids.iter().all(|id| *id == 0),
        },
        alternatives: vec![
            (0..asked.alternatives as u32).map(likeliest).collect();
            asked.ids.len() + usize::from(asked.next)
        ],
    }
}

/// Shares of four kinds of letters, and the layer.
fn by_letters(text: &str, layer: usize) -> Vec<f32> {
    let share =
        |of: &dyn Fn(char) -> bool| text.chars().filter(|c| of(*c)).count() as f32 / text.chars().count().max(1) as f32;
    let kinds: [&dyn Fn(char) -> bool; 4] =
        [&|c| "aeiou".contains(c), &char::is_uppercase, &char::is_numeric, &char::is_whitespace];
    kinds.into_iter().map(share).chain([layer as f32]).collect()
}

impl LanguageModel for ScriptedModel {
    fn description(&self) -> &ModelDescription {
        &self.description
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        let mut usage = Usage::default();
        // Answers in reverse order: a method that relies on the order of answers fails its tests.
        let requests: Vec<ScoreRequest> = requests.collect();
        for (index, request) in requests.iter().enumerate().rev() {
            let result = (self.score)(request);
            usage.tokens_unshared += result.prompt_tokens as u64;
            usage.tokens_computed += result.prompt_tokens as u64;
            sink(index, result).map_err(LmError::Sink)?;
        }
        Ok(usage)
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        let requests: Vec<GenerateRequest> = requests.collect();
        for (index, request) in requests.iter().enumerate().rev() {
            sink(index, (self.generate)(request)).map_err(LmError::Sink)?;
        }
        Ok(Usage::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LabelSet, Prompt};

    fn ask(p: &[f64]) -> ScoreResult {
        let p = p.to_vec();
        let model = ScriptedModel::from_probabilities(move |_| p.clone());
        let labels = LabelSet::from_words(["A", "B"]).expect("valid");
        let request = ScoreRequest { id: "r".into(), prompt: Prompt::Text("x".into()), ask: Ask::Labels(labels) };
        model.score_all(&[request]).expect("scripted").remove(0)
    }

    #[test]
    fn mass_tie_and_scored_are_told_apart() {
        assert_eq!(ask(&[0.6, 0.2]).outcome, Outcome::Scored);
        assert_eq!(ask(&[0.2, 0.2]).outcome, Outcome::Tie);
        assert_eq!(ask(&[0.006, 0.002]).outcome, Outcome::LowMass { why: None });
        let labels = ask(&[0.6, 0.2]);
        let labels = labels.labels().expect("labels");
        assert!((labels.mass - 0.8).abs() < 1e-12 && (labels.labels[0].prob - 0.75).abs() < 1e-12);
    }

    #[test]
    fn no_probability_at_all_is_not_finite_and_has_no_answer() {
        let result = ask(&[0.0, 0.0]);
        assert!(matches!(result.outcome, Outcome::NotFinite { .. }) && result.answer.is_none());
    }
}
