//! Lines that request a generated text.

use probity_data::{LineError, Record};
use probity_lm::{
    Constraint, GenerateRequest, GenerateResult, LanguageModel, LmError, Message, OneOrMany, Outcome, Requests,
    RoundedNumber, Sampling, SamplingLimits, Sink, Usage, rounded_number,
};
use probity_runtime::Model;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::line::{RequestLine, at_most_one, check_prompt, prompt};

/// Default limit of generated tokens.
const MAX_TOKENS: usize = 256;

/// A line that requests a generated text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateLine {
    id: String,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    answer_prefix: Option<String>,
    max_tokens: Option<usize>,
    stop: Option<OneOrMany<String>>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    seed: Option<u64>,
    schema: Option<Value>,
    choice: Option<Vec<String>>,
    regex: Option<String>,
}

impl Record for GenerateLine {
    const KIND: &'static str = "request";
    const EXAMPLE: &'static str = r#"{"id": "1", "prompt": "Once upon a time", "max_tokens": 50}"#;

    fn id(&self) -> &str {
        &self.id
    }

    fn check_line(line: &[u8]) -> Option<LineError> {
        let RoundedNumber { path, literal } = rounded_number(line, &["schema"])?;
        let error = LineError::content("schema", format!("{path}: {literal} cannot be read exactly"));
        Some(error.with_hint("write a number of at most 15 digits, or a string"))
    }

    fn check(&self) -> Vec<LineError> {
        let (prompt, messages, tokens) = (self.prompt.as_ref(), self.messages.as_ref(), self.tokens.as_ref());
        let mut wrong = check_prompt(prompt, messages, tokens, self.answer_prefix.as_ref());
        let constraints =
            [("schema", self.schema.is_some()), ("choice", self.choice.is_some()), ("regex", self.regex.is_some())];
        wrong.extend(at_most_one(&constraints));
        let mut must = |field: &str, holds: bool, what: &str| {
            if !holds {
                wrong.push(LineError::content(field, what));
            }
        };
        must("max_tokens", self.max_tokens != Some(0), "must be at least 1");
        must(
            "stop",
            self.stop.iter().flat_map(|OneOrMany(stops)| stops).all(|stop| !stop.is_empty()),
            "a stop sequence is empty",
        );
        must("choice", self.choice.as_ref().is_none_or(|choice| !choice.is_empty()), "the list is empty");
        must("temperature", self.temperature.is_none_or(|t| t >= 0.0 && t.is_finite()), "must be at least 0");
        must("top_k", self.top_k != Some(0), "must be at least 1");
        must("top_p", self.top_p.is_none_or(|p| p > 0.0 && p <= 1.0), "must be above 0 and at most 1");
        must("min_p", self.min_p.is_none_or(|p| (0.0..=1.0).contains(&p)), "must be from 0 to 1");
        let given = [self.top_k.is_some(), self.top_p.is_some(), self.min_p.is_some(), self.seed.is_some()];
        for (field, given) in ["top_k", "top_p", "min_p", "seed"].into_iter().zip(given) {
            // With a temperature of 0 these fields are allowed and have no effect.
            let drawn = !given || self.temperature.is_some();
            must(field, drawn, "requires a `temperature` above 0");
        }
        wrong
    }
}

impl RequestLine for GenerateLine {
    type Request = GenerateRequest;
    type Result = GenerateResult;

    fn into_request(self) -> GenerateRequest {
        let sampling = match self.temperature {
            Some(temperature) if temperature > 0.0 => Sampling::Random {
                temperature,
                limits: SamplingLimits { top_k: self.top_k, top_p: self.top_p, min_p: self.min_p },
                seed: self.seed.unwrap_or(0),
            },
            _ => Sampling::Greedy,
        };
        let constraint = match (self.schema, self.choice, self.regex) {
            (Some(schema), ..) => Some(Constraint::JsonSchema(schema)),
            (_, Some(choice), _) => Some(Constraint::Choice(choice)),
            (.., regex) => regex.map(Constraint::Regex),
        };
        GenerateRequest {
            id: self.id,
            prompt: prompt(self.prompt, self.messages, self.tokens, self.answer_prefix),
            max_tokens: self.max_tokens.unwrap_or(MAX_TOKENS),
            stop: self.stop.map(|OneOrMany(stops)| stops).unwrap_or_default(),
            sampling,
            constraint,
            verdict: None,
            alternatives: None,
        }
    }

    fn fits(model: &Model, request: &GenerateRequest) -> Result<(), LmError> {
        model.check_text(request)
    }

    fn ask(
        model: &dyn LanguageModel,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        model.generate(requests, sink)
    }

    fn outcome(result: &GenerateResult) -> &Outcome {
        &result.outcome
    }

    fn prompt_tokens(result: &GenerateResult) -> usize {
        result.prompt_tokens
    }

    fn fields(result: &GenerateResult) -> Map<String, Value> {
        let mut fields = Map::new();
        // The number of draft tokens is not written: output must be identical after resuming or with other batches.
        if let Some(finish) = result.finish {
            fields.insert("text".into(), result.text.clone().into());
            fields.insert("tokens".into(), result.token_ids.clone().into());
            fields.insert("finish".into(), serde_json::to_value(finish).unwrap_or_default());
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorText;
    use probity_data::read_from;
    use probity_lm::{Finish, Precision, Prompt};
    use serde_json::json;

    use crate::answer;

    #[test]
    fn a_number_of_a_schema_that_reading_changes_is_refused_by_its_path() {
        for (number, place) in [("1e400", "#/enum/0"), ("0.1000000000000000055511151231257827", "#/enum/0")] {
            let line = format!(r#"{{"id": "1", "prompt": "p", "schema": {{"enum": [{number}]}}}}"#);
            let told = read(&line).problems.to_string();
            assert!(told.contains(&format!("{place}: {number} cannot be read exactly")), "{told}");
        }
        let kept = r#"{"id": "1", "prompt": "p", "schema": {"enum": [0.1, 1e3, 7]}}"#;
        assert_eq!(read(kept).records.len(), 1);
    }

    fn read(text: &str) -> probity_data::ReadReport<GenerateLine> {
        read_from(text.as_bytes(), "r.jsonl".into(), None).expect("readable")
    }

    fn request(line: &Value) -> GenerateRequest {
        let mut report = read(&line.to_string());
        assert!(report.problems.is_empty(), "{}", report.problems);
        report.records.remove(0).1.into_request()
    }

    #[test]
    fn a_plain_line_is_a_greedy_request() {
        let plain = request(&json!({"id": "1", "prompt": "x", "temperature": 0, "seed": 7}));
        assert_eq!(plain, GenerateRequest::greedy("1", Prompt::Text("x".into()), MAX_TOKENS));
    }

    #[test]
    fn every_field_reaches_the_request() {
        let message = json!([{"role": "user", "content": "hi"}]);
        let line = json!({"id": "1", "messages": message, "answer_prefix": "A:", "max_tokens": 3, "stop": ["\n"], "temperature": 0.5, "top_k": 9,
            "top_p": 0.9, "min_p": 0.1, "seed": 4, "regex": "a+"});
        let request = request(&line);
        let limits = SamplingLimits { top_k: Some(9), top_p: Some(0.9), min_p: Some(0.1) };
        assert_eq!(request.sampling, Sampling::Random { temperature: 0.5, limits, seed: 4 });
        assert_eq!((request.max_tokens, &request.stop[..]), (3, &["\n".to_owned()][..]));
        assert_eq!(request.constraint, Some(Constraint::Regex("a+".into())));
        assert!(matches!(request.prompt, Prompt::Chat { answer_prefix, .. } if answer_prefix == "A:"));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told_by_field() {
        for (fields, told) in [
            (r#""tokens":[1]"#, "field `tokens`: only one of `prompt`, `messages`, `tokens`"),
            (r#""max_tokens":0"#, "field `max_tokens`: must be at least 1"),
            (r#""stop":[""]"#, "field `stop`: a stop sequence is empty"),
            (r#""choice":[]"#, "field `choice`: the list is empty"),
            (r#""choice":["a"],"regex":"a""#, "field `regex`: only one of `schema`, `choice`, `regex`"),
            (r#""top_p":0.5"#, "field `top_p`: requires a `temperature` above 0"),
            (r#""temperature":1,"top_p":0"#, "field `top_p`: must be above 0"),
            (r#""temperature":1,"min_p":2"#, "field `min_p`: must be from 0 to 1"),
            (r#""temperature":-1"#, "field `temperature`: must be at least 0"),
            (r#""max_token":1"#, "did you mean `max_tokens`?"),
        ] {
            let problems = read(&format!("{{\"id\":\"1\",\"prompt\":\"x\",{fields}}}")).problems;
            let problems = ErrorText::from_error(&problems).to_string();
            assert!(problems.contains(told), "{told}\n{problems}");
        }
    }

    fn nothing(outcome: Outcome) -> GenerateResult {
        GenerateResult::without_text(outcome, 9)
    }

    #[test]
    fn an_answer_has_its_text_and_an_outcome_without_one_its_reason() {
        let text = GenerateResult {
            text: "to be".into(),
            token_ids: vec![5, 6],
            finish: Some(Finish::Length),
            ..nothing(Outcome::Scored)
        };
        let line = answer::<GenerateLine>("1", &text, Precision::Exact);
        assert_eq!(
            (&line["text"], &line["tokens"], &line["finish"]),
            (&json!("to be"), &json!([5, 6]), &json!("length"))
        );
        let too_long = nothing(Outcome::TooLong { tokens_needed: 9, limit: 4 });
        assert_eq!(
            Value::Object(answer::<GenerateLine>("x", &too_long, Precision::Fast)),
            json!({"id":"x","outcome":"too_long","tokens_needed":9,"limit":4,"precision":"fast","prompt_tokens":9})
        );
    }
}
