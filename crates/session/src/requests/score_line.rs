//! Lines that request probabilities.

use probity_data::{LineError, Record};
use probity_lm::{
    Ask, ClassScore, LabelSet, LanguageModel, LmError, Message, NamedLabels, Outcome, PooledState, Reading, Requests,
    ScoreAnswer, ScoreRequest, ScoreResult, Sink, Termination, Usage,
};
use probity_runtime::Model;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::line::{RequestLine, check_prompt, exactly_one, prompt};

/// A line that requests the probabilities of labels or of a text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreLine {
    id: String,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    answer_prefix: Option<String>,
    labels: Option<NamedLabels>,
    termination: Option<Termination>,
    continuation: Option<String>,
    classes: Option<bool>,
    layers: Option<Vec<usize>>,
}

impl ScoreLine {
    fn asks_classes(&self) -> bool {
        self.classes == Some(true)
    }
}

impl Record for ScoreLine {
    const KIND: &'static str = "request";
    const EXAMPLE: &'static str =
        r#"{"id": "1", "prompt": "Is water wet? Answer:", "labels": {"yes": [" yes"], "no": [" no"]}}"#;

    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Vec<LineError> {
        let (prompt, messages, tokens) = (self.prompt.as_ref(), self.messages.as_ref(), self.tokens.as_ref());
        let mut wrong = check_prompt(prompt, messages, tokens, self.answer_prefix.as_ref());
        wrong.extend(exactly_one(&[
            ("labels", self.labels.is_some()),
            ("continuation", self.continuation.is_some()),
            ("classes", self.asks_classes()),
        ]));
        if self.asks_classes() && self.answer_prefix.is_some() {
            let why = "requires `labels` or `continuation`; a class head reads the last message unchanged";
            wrong.push(LineError::content("answer_prefix", why));
        }
        if self.continuation.as_ref().is_some_and(String::is_empty) {
            wrong.push(LineError::content("continuation", "empty"));
        }
        if self.termination.is_some() && self.labels.is_none() {
            wrong.push(LineError::content("termination", "requires `labels`"));
        }
        if self.layers.is_some() && self.continuation.is_none() {
            wrong.push(LineError::content("layers", "requires `continuation`"));
        }
        if let Some(labels) = &self.labels
            && let Err(error) = LabelSet::new(labels.0.clone())
        {
            wrong.push(LineError::caused("labels", &error));
        }
        wrong
    }
}

impl RequestLine for ScoreLine {
    type Request = ScoreRequest;
    type Result = ScoreResult;

    fn into_request(self) -> ScoreRequest {
        let asks_classes = self.asks_classes();
        let ask = match (self.labels, self.continuation) {
            (Some(labels), _) => {
                let set = LabelSet::new(labels.0).expect("labels were checked with the line");
                Ask::Labels(set.with_termination(self.termination.unwrap_or_default()))
            }
            _ if asks_classes => Ask::Classes,
            (None, continuation) => {
                let text = continuation.unwrap_or_default();
                match self.layers {
                    Some(layers) => Ask::Reading(Reading { text, layers }),
                    None => Ask::Continuation(text),
                }
            }
        };
        ScoreRequest { id: self.id, prompt: prompt(self.prompt, self.messages, self.tokens, self.answer_prefix), ask }
    }

    fn fits(model: &Model, request: &ScoreRequest) -> Result<(), LmError> {
        model.check(request)
    }

    fn ask(
        model: &dyn LanguageModel,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        model.score(requests, sink)
    }

    fn outcome(result: &ScoreResult) -> &Outcome {
        &result.outcome
    }

    fn prompt_tokens(result: &ScoreResult) -> usize {
        result.prompt_tokens
    }

    fn fields(result: &ScoreResult) -> Map<String, Value> {
        let mut fields = Map::new();
        match &result.answer {
            Some(ScoreAnswer::Labels(answer)) => {
                let label = |label: &probity_lm::LabelScore| {
                    (label.name.clone(), json!({"logprob": label.logprob, "prob": label.prob}))
                };
                fields.insert("labels".into(), Value::Object(answer.labels.iter().map(label).collect()));
                fields.insert("mass".into(), answer.mass.into());
            }
            Some(ScoreAnswer::Reading(answer)) => {
                if let Ok(Value::Object(continuation)) = serde_json::to_value(&answer.continuation) {
                    fields = continuation;
                }
                let state = |state: &PooledState| json!({"layer": state.layer, "values": state.values});
                fields.insert("states".into(), answer.states.iter().map(state).collect());
            }
            Some(ScoreAnswer::Continuation(answer)) => {
                if let Ok(Value::Object(answer)) = serde_json::to_value(answer) {
                    fields = answer;
                }
            }
            Some(ScoreAnswer::Classes(answer)) => {
                let said = answer.probabilities();
                let class = |(place, class): (usize, &ClassScore)| {
                    let mut said_of = json!({"logit": class.logit});
                    if let Some((logprob, prob)) = said.as_ref().map(|said| said[place]) {
                        (said_of["logprob"], said_of["prob"]) = (logprob.into(), prob.into());
                    }
                    (class.name.clone(), said_of)
                };
                fields.insert("classes".into(), Value::Object(answer.classes.iter().enumerate().map(class).collect()));
            }
            // No line requests these.
            Some(ScoreAnswer::Tokens(_)) | None => {}
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probity_data::read_from;
    use probity_lm::{ClassAnswer, ClassKind, GenerateRequest, GenerateResult, Precision, ScriptedModel};
    use std::sync::atomic::Ordering::Relaxed;

    use probity_store::TableWriter;

    use crate::{Context, ErrorText, Interrupt, Silent};

    use crate::{AnswerWriter, LineTally, answer};

    fn read(text: &str) -> probity_data::ReadReport<ScoreLine> {
        read_from(text.as_bytes(), "r.jsonl".into(), None).expect("readable")
    }

    fn problem(line: &str) -> String {
        ErrorText::from_error(&read(line).problems).to_string()
    }

    #[test]
    fn alternatives_are_exclusive_and_one_is_needed() {
        assert!(
            problem(r#"{"id":"1","prompt":"x","tokens":[1],"continuation":"y"}"#)
                .contains("field `tokens`: only one of")
        );
        assert!(problem(r#"{"id":"1","prompt":"x"}"#).contains(
            "one of `labels`, `continuation`, `classes` is \
                                                                required"
        ));
        assert!(
            problem(r#"{"id":"1","labels":{"A":["A"]}}"#).contains("one of `prompt`, `messages`, `tokens` is required")
        );
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":["A"]},"continuation":"y"}"#).contains("only one of"));
        assert!(problem(r#"{"id":"1","prompt":"x","continuation":""}"#).contains("field `continuation`: empty"));
        assert!(problem(r#"{"id":"1","prompt":"x","continuaton":"y"}"#).contains("did you mean `continuation`?"));
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":["a"],"A":["b"]}}"#).contains("duplicate label"));
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":[]}}"#).contains("has no variants"));
        assert!(
            problem(r#"{"id":"1","prompt":"x","answer_prefix":"A","continuation":"y"}"#)
                .contains("requires `messages`")
        );
    }

    #[test]
    fn classes_have_probabilities_where_logits_do_not_stand_for_themselves() {
        let line = r#"{"id":"1","prompt":"x","classes":true}"#;
        assert_eq!(read(line).records.remove(0).1.into_request().ask, Ask::Classes);
        let prefix = r#"{"id":"1","messages":[{"role":"user","content":"x"}],"answer_prefix":"A","classes":true}"#;
        assert!(problem(prefix).contains("field `answer_prefix`: requires"));
        assert!(problem(r#"{"id":"1","prompt":"x","classes":false}"#).contains("`classes` is required"));
        assert!(problem(r#"{"id":"1","prompt":"x","classes":true,"labels":{"A":["A"]}}"#).contains("only one of"));
        let said = |kind, logits: &[f64]| {
            let names = ["no", "yes"].into_iter().map(str::to_owned);
            let classes = names.zip(logits).map(|(name, logit)| ClassScore { name, logit: *logit }).collect();
            let answer = Some(ScoreAnswer::Classes(ClassAnswer { kind, classes }));
            ScoreLine::fields(&ScoreResult { outcome: Outcome::Scored, prompt_tokens: 1, answer })["classes"].clone()
        };
        let of_one = said(ClassKind::SingleLabel, &[0.0, f64::ln(3.0)]);
        assert_eq!(of_one.as_object().expect("classes").keys().collect::<Vec<_>>(), ["no", "yes"]);
        let near = |value: &Value, expected: f64| (value.as_f64().expect("a number") - expected).abs() < 1e-12;
        assert!(near(&of_one["yes"]["prob"], 0.75) && near(&of_one["yes"]["logprob"], f64::ln(0.75)));
        let of_each = said(ClassKind::MultiLabel, &[0.0, -800.0]);
        assert!(near(&of_each["no"]["prob"], 0.5) && near(&of_each["yes"]["logprob"], -800.0), "{of_each}");
        assert_eq!(said(ClassKind::Regression, &[2.5, 1.0]), json!({"no": {"logit": 2.5}, "yes": {"logit": 1.0}}));
        assert_eq!(said(ClassKind::SingleLabel, &[2.5]), json!({"no": {"logit": 2.5}}));
    }

    fn answered(text: &str) -> (Vec<Value>, LineTally) {
        let model = ScriptedModel::from_probabilities(|_| vec![0.3, 0.1]);
        let check = |request: &ScoreRequest| {
            let why = || LmError::Request { id: request.id.clone(), source: "not for this model".into() };
            if request.id.starts_with("bad") { Err(why()) } else { Ok(()) }
        };
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.jsonl");
        let context = Context::new(std::sync::Arc::new(Silent), Interrupt::default());
        let table = TableWriter::create(&path, false).expect("created");
        let answers = AnswerWriter::new(table, Precision::Exact, &context);
        let (_, tally) = answers.ask(&model, &mut read(text).records.into_iter(), check).expect("scripted");
        let text = std::fs::read_to_string(path).expect("read");
        (text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), tally)
    }

    #[test]
    fn labels_keep_their_order_and_answers_that_of_the_input() {
        let text = "{\"id\":\"b\",\"prompt\":\"x\",\"labels\":{\"Z\":[\"Z\"],\"A\":[\"A\"]}}\n{\"id\":\"a\",\"prompt\":\"x y\",\"continuation\":\"to be\"}\n";
        // The scripted model answers the last request first.
        let (lines, tally) = answered(text);
        assert_eq!(lines[0]["id"], "b");
        let names: Vec<_> = lines[0]["labels"].as_object().expect("labels").keys().collect();
        assert_eq!(names, ["Z", "A"]);
        assert!((lines[0]["labels"]["Z"]["prob"].as_f64().expect("number") - 0.75).abs() < 1e-12);
        assert_eq!((tally.answered, tally.unanswered, tally.refused.len()), (2, 0, 0));
        assert_eq!((&lines[1]["tokens"], &lines[1]["outcome"]), (&json!(["to", "be"]), &json!("scored")));
    }

    #[test]
    fn a_request_that_the_model_refuses_leaves_the_others_their_answers() {
        let line = |id: &str| format!("{{\"id\":\"{id}\",\"prompt\":\"x\",\"continuation\":\"y\"}}\n");
        let (lines, tally) = answered(&(line("a") + &line("bad") + &line("c")));
        assert_eq!(lines.iter().map(|line| line["id"].as_str().expect("id")).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!((tally.refused.len(), tally.refused[0].0), (1, 2));
        assert_eq!(tally.refused[0].1.to_string(), "not for this model");
    }

    /// Accepts a request only after the previous one was answered.
    struct OneAtATime(ScriptedModel);

    impl LanguageModel for OneAtATime {
        fn description(&self) -> &probity_lm::ModelDescription {
            self.0.description()
        }

        fn score(
            &self,
            requests: &mut Requests<'_, ScoreRequest>,
            sink: &mut Sink<'_, ScoreResult>,
        ) -> Result<Usage, LmError> {
            for (index, request) in requests.enumerate() {
                self.0.score(&mut std::iter::once(request), &mut |_, result| sink(index, result))?;
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

    #[test]
    fn a_file_is_read_no_further_than_the_model_asks() {
        let line = |id: usize| format!("{{\"id\":\"{id}\",\"prompt\":\"x\",\"continuation\":\"y\"}}\n");
        let text: String = (0..50).map(line).collect();
        let read_lines = std::sync::atomic::AtomicUsize::new(0);
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.jsonl");
        let context = Context::new(std::sync::Arc::new(Silent), Interrupt::default());
        let table = TableWriter::create(&path, false).expect("created").with_flush_every(1);
        let model = OneAtATime(ScriptedModel::from_probabilities(|_| Vec::new()));
        let mut lines = read(&text).records.into_iter().inspect(|_| {
            let written = std::fs::read_to_string(&path).expect("there").lines().count();
            assert_eq!(written, read_lines.load(Relaxed), "what was read before is answered and written");
            read_lines.fetch_add(1, Relaxed);
        });
        let answers = AnswerWriter::new(table, Precision::Exact, &context);
        let (_, tally) = answers.ask(&model, &mut lines, |_| Ok(())).expect("scripted");
        assert_eq!((tally.answered, read_lines.load(Relaxed)), (50, 50));
    }

    #[test]
    fn an_outcome_without_an_answer_keeps_its_reason() {
        let result = ScoreResult {
            outcome: probity_lm::Outcome::TooLong { tokens_needed: 9, limit: 4 },
            prompt_tokens: 9,
            answer: None,
        };
        assert_eq!(
            Value::Object(answer::<ScoreLine>("x", &result, Precision::Fast)),
            json!({"id":"x","outcome":"too_long","tokens_needed":9,"limit":4,"precision":"fast","prompt_tokens":9})
        );
    }
}
