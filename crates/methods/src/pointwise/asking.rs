//! Questions to the model and its replies.

use probity_lm::{
    Ask, ClassAnswer, ContinuationAnswer, GenerateRequest, GenerateResult, LabelAnswer, LabelSet, Outcome, Prompt,
    ScoreRequest, ScoreResult, SinkError,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{CandidatePlace, Pointwise, PointwiseQuestion};
use crate::answer::Answer;
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

/// The model's answer to one question: the score and its details, such as label probabilities, token counts or
/// generated texts.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PointwiseReply {
    pub(super) score: Option<f64>,
    #[serde(skip)]
    pub(super) mass: Option<f64>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    #[serde(flatten)]
    shown: Map<String, Value>,
    prompt_tokens: Option<usize>,
    /// Generated texts without a score.
    #[serde(skip)]
    pub(super) unparsed: usize,
}

/// Receives the reply to one question.
pub(super) type KeepReply<'k> =
    dyn FnMut(usize, PointwiseReply, &mut dyn RunOutput) -> Result<(), SinkError> + Send + 'k;

impl PointwiseReply {
    fn from_labels(result: &ScoreResult, read: &ReadLabels<'_>) -> Self {
        let Answer { value: score, mass, outcome, prompt_tokens, .. } =
            Answer::from_labels(result, |labels| read(labels).map(Some));
        // The score is defined even if two labels are equally probable.
        let outcome = if outcome == Outcome::Tie { Outcome::Scored } else { outcome };
        let labels = result.labels().map(|answer| answer.labels.as_slice()).unwrap_or_default();
        let probabilities: Map<String, Value> =
            labels.iter().map(|label| (label.name.clone(), json!(label.prob))).collect();
        let shown =
            Map::from_iter([("mass".to_owned(), json!(mass)), ("probabilities".to_owned(), probabilities.into())]);
        Self { score, mass, outcome, shown, prompt_tokens, unparsed: 0 }
    }

    fn from_continuation(result: &ScoreResult, read: &dyn Fn(&ContinuationAnswer) -> Result<f64, Outcome>) -> Self {
        let answer = result.continuation();
        let (score, outcome) = match answer.map(read) {
            Some(Ok(score)) => (Some(score), result.outcome.clone()),
            Some(Err(outcome)) => (None, outcome),
            None => (None, result.outcome.clone()),
        };
        let shown = Map::from_iter([("tokens".to_owned(), json!(answer.map(|a| a.token_logprobs.len())))]);
        Self { score, mass: None, outcome, shown, prompt_tokens: Some(result.prompt_tokens), unparsed: 0 }
    }

    fn from_classes(result: &ScoreResult, read: &dyn Fn(&ClassAnswer) -> f64) -> Self {
        let classes = result.classes();
        let logits: Option<Map<String, Value>> =
            classes.map(|answer| answer.classes.iter().map(|class| (class.name.clone(), json!(class.logit))).collect());
        let (score, outcome) = (classes.map(read), result.outcome.clone());
        let shown = Map::from_iter([("classes".to_owned(), json!(logits))]);
        Self { score, mass: None, outcome, shown, prompt_tokens: Some(result.prompt_tokens), unparsed: 0 }
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
        let (score, outcome) =
            match (failed, mean(readings.iter().filter_map(|reading| reading.as_ref().ok().copied()))) {
                (Some(outcome), _) => (None, outcome.clone()),
                (None, Some(score)) => (Some(score), Outcome::Scored),
                (None, None) => (None, readings.into_iter().find_map(Result::err).unwrap_or(Outcome::Empty)),
            };
        let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
        let shown = Map::from_iter([("texts".to_owned(), json!(texts))]);
        Self {
            score,
            mass: None,
            outcome,
            shown,
            prompt_tokens: results.first().map(|result| result.prompt_tokens),
            unparsed,
        }
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
