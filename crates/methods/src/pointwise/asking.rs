//! Questions to the model and its replies.

use probity_lm::{
    Ask, ClassAnswer, ContinuationAnswer, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, Outcome, Prompt,
    ScoreRequest, ScoreResult, SinkError,
};
use serde_json::{Map, Value, json};

use super::{CandidatePlace, Pointwise, PointwiseQuestion};
use crate::answer::Answer;
use crate::figures::TokenCounts;
use crate::figures::mean;
use crate::question::material;
use crate::template::{Rendered, TemplateError};
use crate::{MethodError, Run, RunOutput};

/// Computes the score from label probabilities.
pub(crate) type ReadLabels<'a> = dyn Fn(&LabelAnswer) -> Result<f64, Outcome> + Sync + 'a;

/// The kind of query about a candidate, and how its answer becomes a score.
pub(crate) enum PointwiseAsk<'a> {
    /// The probability of each label.
    Labels { labels: LabelSet, read: &'a ReadLabels<'a> },
    /// The probability of the candidate as a continuation of a prompt that does not show it.
    Candidate { read: &'a (dyn Fn(&ContinuationAnswer) -> Result<f64, Outcome> + Sync) },
    /// The class head's output for the candidate as an answer.
    Classes { read: &'a (dyn Fn(&ClassAnswer) -> f64 + Sync) },
    /// Generated texts, `samples` per prompt. A request is built from an id, the prompt and the sample's number.
    Texts {
        samples: usize,
        request: &'a (dyn Fn(&str, Prompt, usize) -> GenerateRequest + Sync),
        read: &'a (dyn Fn(&GenerateResult) -> Result<f64, Outcome> + Sync),
    },
}

/// The model's answer to one question, whose value is the score.
#[derive(Debug, Clone)]
pub(super) struct PointwiseReply {
    pub(super) answer: Answer<f64>,
    /// Fields of its row from which the score was read: label probabilities, token counts or generated texts.
    pub(super) shown: Map<String, Value>,
    /// Generated texts without a score.
    pub(super) unparsed: usize,
}

/// Receives the reply to one question.
pub(super) type KeepReply<'k> =
    dyn FnMut(usize, PointwiseReply, &mut dyn RunOutput) -> Result<(), SinkError> + Send + 'k;

impl PointwiseReply {
    fn new(answer: Answer<f64>, counts: TokenCounts, field: &str, shown: Value) -> Self {
        let shown = Map::from_iter([(field.to_owned(), shown)]);
        Self { answer: Answer { counts, ..answer }, shown, unparsed: 0 }
    }

    fn from_labels(result: &ScoreResult, read: &ReadLabels<'_>) -> Self {
        let mut answer = Answer::from_labels(result, |labels| read(labels).map(Some));
        // The score is defined even if two labels are equally probable.
        if answer.outcome == Outcome::Tie {
            answer.outcome = Outcome::Scored;
        }
        let labels = result.labels().map(|answer| answer.labels.as_slice()).unwrap_or_default();
        let probabilities: Map<String, Value> =
            labels.iter().map(|label| (label.name.clone(), json!(label.prob))).collect();
        let shown = [("mass".to_owned(), json!(answer.mass)), ("probabilities".to_owned(), probabilities.into())];
        Self { answer, shown: Map::from_iter(shown), unparsed: 0 }
    }

    fn from_continuation(result: &ScoreResult, read: &dyn Fn(&ContinuationAnswer) -> Result<f64, Outcome>) -> Self {
        let found = result.continuation();
        let answer = match found.map(read) {
            Some(Err(outcome)) => Answer::none(outcome),
            score => Answer { value: score.and_then(Result::ok), ..Answer::none(result.outcome.clone()) },
        };
        let tokens = json!(found.map(|found| found.token_logprobs.len()));
        Self::new(answer, TokenCounts::of_prompt(result.prompt_tokens), "tokens", tokens)
    }

    fn from_classes(result: &ScoreResult, read: &dyn Fn(&ClassAnswer) -> f64) -> Self {
        let classes = result.classes();
        let logits: Option<Map<String, Value>> =
            classes.map(|answer| answer.classes.iter().map(|class| (class.name.clone(), json!(class.logit))).collect());
        let answer = Answer { value: classes.map(read), ..Answer::none(result.outcome.clone()) };
        Self::new(answer, TokenCounts::of_prompt(result.prompt_tokens), "classes", json!(logits))
    }

    /// The mean over the texts with a score. An answer that ends at once has no score; any other missing text keeps the
    /// model's outcome and leaves the question without a score.
    fn from_texts(results: &[GenerateResult], read: &dyn Fn(&GenerateResult) -> Result<f64, Outcome>) -> Self {
        let mut outcomes = results.iter().map(|result| &result.outcome);
        let failed = outcomes.find(|outcome| !outcome.has_say());
        let reading = |result: &GenerateResult| match &result.outcome {
            // Tokens that decode to no text: keep the model's reason.
            outcome @ Outcome::Unparsed { .. } => Err(outcome.clone()),
            _ => read(result),
        };
        let readings: Vec<Result<f64, Outcome>> = results.iter().map(reading).collect();
        let unparsed = if failed.is_some() { 0 } else { readings.iter().filter(|reading| reading.is_err()).count() };
        let answer = match (failed, mean(readings.iter().filter_map(|reading| reading.as_ref().ok().copied()))) {
            (Some(outcome), _) => Answer::none(outcome.clone()),
            (None, Some(score)) => Answer::new(score),
            (None, None) => Answer::none(readings.into_iter().find_map(Result::err).unwrap_or(Outcome::Empty)),
        };
        let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
        let counts = results.first().map(TokenCounts::from).unwrap_or_default();
        Self { unparsed, ..Self::new(answer, counts, "texts", json!(texts)) }
    }
}

impl Pointwise<'_> {
    pub(super) fn render(&self, place: CandidatePlace, question: PointwiseQuestion) -> Result<Rendered, TemplateError> {
        let sample = &self.samples[place.item];
        let template = &self.templates[place.group][question.template];
        let candidate = ("candidate", &*self.candidate(place).text);
        if self.other.is_some() {
            let other = question.reference.map_or(&*sample.context, |k| &*sample.references[k]);
            return template.render(&sample.id, &[candidate, ("other", other)]);
        }
        let [context, instruction] = material(sample);
        let shown = [context, instruction, candidate];
        // A candidate that is scored as a continuation is not shown.
        let shown = if matches!(self.asking, PointwiseAsk::Candidate { .. }) { &shown[..2] } else { &shown[..] };
        template.render(&sample.id, shown)
    }

    fn prompt(&self, place: CandidatePlace, question: PointwiseQuestion) -> Prompt {
        let rendered = self.render(place, question).expect("it could be rendered before");
        match self.asking {
            PointwiseAsk::Classes { .. } => rendered.conversation(&self.layout),
            _ => rendered.prompt(&self.layout),
        }
    }

    fn request_id(&self, place: CandidatePlace, question: PointwiseQuestion) -> String {
        let template = &self.templates[place.group][question.template];
        // Templates with several questions share a name; requests need distinct ids.
        let number = question.template + 1;
        let asked = template.setting("question").map(|_| format!("/question {number}")).unwrap_or_default();
        let template = template.name();
        let reference = question.reference.map(|k| format!("/reference {k}")).unwrap_or_default();
        // Sampled answers are seeded by id, so two attributes must not share one.
        let attribute = if self.names_attribute { format!("{}/", self.attributes[place.group]) } else { String::new() };
        format!("{}/{}/{attribute}{template}{asked}{reference}", self.samples[place.item].id, self.candidate(place).id)
    }

    /// Queries the model; `keep` receives each reply with its position.
    pub(super) fn ask(
        &self,
        questions: &[(CandidatePlace, PointwiseQuestion)],
        run: &mut Run<'_>,
        keep: &mut KeepReply<'_>,
    ) -> Result<(), MethodError> {
        let request = |&(place, question): &(CandidatePlace, PointwiseQuestion), ask: Ask| ScoreRequest {
            id: self.request_id(place, question),
            prompt: self.prompt(place, question),
            ask,
        };
        match &self.asking {
            PointwiseAsk::Labels { labels, read } => {
                let requests = questions.iter().map(|asked| request(asked, Ask::Labels(labels.clone())));
                run.score(requests, |index, result, output| {
                    keep(index, PointwiseReply::from_labels(&result, *read), output)
                })
            }
            PointwiseAsk::Candidate { read } => {
                // A space in front, which tokenizers merge into the first word; without it the first token differs.
                let continuation =
                    |place: CandidatePlace| Ask::Continuation(format!(" {}", self.candidate(place).text.trim()));
                let requests = questions.iter().map(|asked| request(asked, continuation(asked.0)));
                run.score(requests, |index, result, output| {
                    keep(index, PointwiseReply::from_continuation(&result, *read), output)
                })
            }
            PointwiseAsk::Classes { read } => {
                let requests = questions.iter().map(|asked| request(asked, Ask::Classes));
                run.score(requests, |index, result, output| {
                    keep(index, PointwiseReply::from_classes(&result, *read), output)
                })
            }
            PointwiseAsk::Texts { samples, request, read } => {
                let requests = (0..questions.len() * samples).map(|index| {
                    let (place, question) = questions[index / samples];
                    request(&self.request_id(place, question), self.prompt(place, question), index % samples)
                });
                let mut open: Vec<Vec<Option<GenerateResult>>> = vec![vec![None; *samples]; questions.len()];
                run.generate(requests, |index, result, output| {
                    let (prompt, sample) = (index / samples, index % samples);
                    open[prompt][sample] = Some(result);
                    if open[prompt].iter().any(Option::is_none) {
                        return Ok(());
                    }
                    let results: Vec<GenerateResult> =
                        std::mem::take(&mut open[prompt]).into_iter().flatten().collect();
                    keep(prompt, PointwiseReply::from_texts(&results, *read), output)
                })
            }
        }
    }
}
