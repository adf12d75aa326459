//! `probity logprobs`: the raw interface to the model.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use probity_data::{DataError, LineError, Problems, Record, Records, read_strict};
use probity_lm::{
    Ask, Label, LabelError, LabelSet, LanguageModel, LmError, Message, Precision, Prompt, ScoreAnswer, ScoreRequest, ScoreResult,
    Termination, Usage,
};
use probity_runtime::Planner;
use probity_store::{Recorded, StoreError, TableWriter, write_whole};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::compute::{ModelArgs, in_force};
use crate::dry_run;
use crate::exit::Done;
use crate::interrupt;
use crate::method::{answer_settings, shared_answers};
use crate::output::Stdout;
use crate::progress::Reporter;

pub(crate) const LONG_ABOUT: &str = "\
Ask for label or token log-probabilities: the raw interface.

Each input line is a JSON object with
  id            a string, unique in the file
  prompt        text, or
  messages      a chat: [{\"role\": \"user\", \"content\": \"…\"}], laid out by the model's own template, or
  tokens        token ids, used as they are
and
  labels        {\"A\": [\"A\", \" A\"], \"B\": [\"B\", \" B\"]}: each label with its surface forms, or
  continuation  a text whose tokens' log-probabilities are wanted
and, where wanted,
  answer_prefix with messages: what the answer begins with, such as \"Answer:\"
  termination   with labels: \"open\" (the answer starts with the label; the default) or \"end_of_turn\" (the answer is the label)

Each answer is a JSON line, in the order of the input: id, outcome, precision and prompt_tokens; for labels `labels` with the log-probability
under the full vocabulary (logprob) and the probability among the labels (prob) of each, and their mass under the full vocabulary; for a
continuation logprob, token_logprobs, tokens, token_ids and is_greedy. Logarithms are natural. A log-probability of minus infinity is null.

Lines that cannot be used are told on standard error with file and line, the others are answered, and the exit code is then 2.";

/// Options of `logprobs`.
#[derive(Debug, Args)]
pub(crate) struct LogprobsArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The requests, or - for standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Answer only the first N good requests
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write answers here instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace that file where it exists
    #[arg(long)]
    overwrite: bool,
    /// Take answers that are kept in this folder, and keep new ones there too: what was interrupted is not asked again
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Ask and write nothing: print the number of questions, the tokens with and without sharing, and estimates of memory and time
    #[arg(long)]
    dry_run: bool,
    /// Write a JSON description of the model, the arguments and the cost here
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Exit with 1 where a request has no answer (too long, not finite)
    #[arg(long)]
    strict: bool,
}

/// An input line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestLine {
    id: String,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    answer_prefix: Option<String>,
    labels: Option<Labels>,
    termination: Option<Termination>,
    continuation: Option<String>,
}

/// Labels in the order of the file; a name that comes twice is refused.
#[derive(Debug)]
struct Labels(Vec<Label>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels, each with a list of its surface forms")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels: Vec<Label> = Vec::new();
                while let Some((name, variants)) = map.next_entry::<String, Vec<String>>()? {
                    if labels.iter().any(|label| label.name == name) {
                        return Err(de::Error::custom(format!("label `{name}` is given twice")));
                    }
                    labels.push(Label { name, variants });
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

impl Record for RequestLine {
    const KIND: &'static str = "request";
    const EXAMPLE: &'static str = r#"{"id": "1", "prompt": "Is water wet? Answer:", "labels": {"yes": [" yes"], "no": [" no"]}}"#;

    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Vec<LineError> {
        let mut wrong = Vec::new();
        let prompts = [("prompt", self.prompt.is_some()), ("messages", self.messages.is_some()), ("tokens", self.tokens.is_some())];
        wrong.extend(exactly_one(&prompts));
        wrong.extend(exactly_one(&[("labels", self.labels.is_some()), ("continuation", self.continuation.is_some())]));
        if self.messages.as_ref().is_some_and(Vec::is_empty) {
            wrong.push(LineError::content("messages", "there is no message"));
        }
        if self.continuation.as_ref().is_some_and(String::is_empty) {
            wrong.push(LineError::content("continuation", "empty"));
        }
        if self.answer_prefix.is_some() && self.messages.is_none() {
            wrong.push(LineError::content("answer_prefix", "goes with `messages` only; put it at the end of the prompt"));
        }
        if self.termination.is_some() && self.labels.is_none() {
            wrong.push(LineError::content("termination", "goes with `labels` only"));
        }
        if let Some(labels) = &self.labels
            && let Err(error) = LabelSet::new(labels.0.clone())
        {
            wrong.push(LineError::content("labels", error.to_string()));
        }
        wrong
    }
}

fn exactly_one(fields: &[(&str, bool)]) -> Option<LineError> {
    let given: Vec<&str> = fields.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let names = || fields.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match given[..] {
        [_] => None,
        [] => Some(LineError::content("", format!("one of {} is needed", names()))),
        [_, second, ..] => Some(LineError::content(second, format!("only one of {} can be given", names()))),
    }
}

impl RequestLine {
    /// The request; the line was [checked](Record::check).
    fn into_request(self) -> ScoreRequest {
        let prompt = match (self.prompt, self.messages, self.tokens) {
            (Some(text), ..) => Prompt::Text(text),
            (_, Some(messages), _) => Prompt::Chat { messages, answer_prefix: self.answer_prefix.unwrap_or_default() },
            (.., tokens) => Prompt::Tokens(tokens.unwrap_or_default()),
        };
        let ask = match (self.labels, self.continuation) {
            (Some(labels), _) => {
                let set = LabelSet::new(labels.0).expect("labels were checked with the line");
                Ask::Labels(set.with_termination(self.termination.unwrap_or_default()))
            }
            (None, continuation) => Ask::Continuation(continuation.unwrap_or_default()),
        };
        ScoreRequest { id: self.id, prompt, ask }
    }
}

/// The requests of a file without a broken line.
pub(crate) fn read_requests(path: &Path) -> Result<Vec<ScoreRequest>, DataError> {
    Ok(read_strict::<RequestLine>(path)?.into_iter().map(RequestLine::into_request).collect())
}

impl LogprobsArgs {
    pub(crate) fn run(self, global: Global, arguments: &[OsString]) -> anyhow::Result<Done> {
        let reporter = Reporter::new(global);
        let mut reporter = if self.out.is_none() && std::io::stdout().is_terminal() { reporter.without_bar() } else { reporter };
        let mut records = Records::<RequestLine>::open(&self.input, self.limit)?;
        if self.dry_run {
            return self.dry_run(records, &mut reporter);
        }
        let table = match &self.out {
            Some(path) => TableWriter::create(path, self.overwrite)?,
            None => TableWriter::to_stream("standard output", Stdout::new()),
        };
        let model = self.model.load(&mut reporter)?;
        interrupt::catch(global.progress);
        let shared = shared_answers(self.cache.as_deref())?;
        let recorded = Recorded::new(&model, &answer_settings(model.options()), None, shared.as_ref())?;
        let answers = Answers::new(table.with_flush_every(1), model.description().precision, &mut reporter);
        let (usage, tally) = answers.ask(&recorded, &mut records, |request| model.check(request))?;
        let mut problems = records.into_problems();
        tally.refused.into_iter().for_each(|(number, why)| problems.push(number, why));
        if let Some(path) = &self.manifest {
            let arguments: Vec<_> = arguments.iter().skip(1).map(|argument| argument.to_string_lossy()).collect();
            let manifest = json!({
                "probity": env!("CARGO_PKG_VERSION"), "arguments_given": arguments, "arguments_in_force": in_force(model.options()),
                "model": model.description(), "answered": tally.answered, "unanswered": tally.unanswered,
                "broken_lines": problems.count(), "usage": usage,
            });
            write_whole(path, |writer| writeln!(writer, "{manifest:#}").context("cannot write the manifest"))?;
        }
        let done = if self.strict && tally.unanswered > 0 { Done::Unscored } else { Done::Success };
        Ok(told(problems).unwrap_or(done))
    }

    fn dry_run(&self, mut records: Records<'_, RequestLine>, reporter: &mut Reporter) -> anyhow::Result<Done> {
        let model = self.model.load(reporter)?;
        let planner = Planner::new(&model);
        let mut requests = records.by_ref().map(|(_, line)| line.into_request()).filter(|request| model.check(request).is_ok());
        planner.score(&mut requests, &mut |_, _| Ok(()))?;
        dry_run::show(&model, &planner.into_plan(), reporter)?;
        Ok(told(records.into_problems()).unwrap_or(Done::Success))
    }
}

/// The exit code of a file with broken lines, which are told, or without.
fn told(problems: Problems) -> Option<Done> {
    if problems.is_empty() {
        return None;
    }
    eprintln!("{}", crate::exit::message(&DataError::Problems(problems)));
    Some(Done::InPart)
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    /// Too long, not finite …: an outcome without numbers.
    unanswered: usize,
    /// Requests that this model cannot be asked, by line.
    refused: Vec<(usize, LineError)>,
}

/// Asks a model and writes each answer as soon as those before it are there. What is held of a file is what the model holds of it.
struct Answers<'a> {
    table: TableWriter,
    precision: Precision,
    reporter: &'a mut Reporter,
    tally: Tally,
    /// Requests read so far, and whether these are all.
    read: usize,
    at_end: bool,
    /// Place in the table and id of the requests that the model has, by their number for the model.
    asked: BTreeMap<usize, (usize, String)>,
    next_asked: usize,
}

impl<'a> Answers<'a> {
    fn new(table: TableWriter, precision: Precision, reporter: &'a mut Reporter) -> Self {
        let (tally, asked) = (Tally::default(), BTreeMap::new());
        Self { table, precision, reporter, tally, read: 0, at_end: false, asked, next_asked: 0 }
    }

    /// Asks everything, line by line. A request that fails `check` is set aside with the reason: the model would end the list for it.
    fn ask(
        self,
        model: &dyn LanguageModel,
        lines: &mut dyn Iterator<Item = (usize, RequestLine)>,
        check: impl Fn(&ScoreRequest) -> Result<(), LmError>,
    ) -> anyhow::Result<(Usage, Tally)> {
        // The model takes requests and gives answers by turns.
        let answers = RefCell::new(self);
        let mut failure = None;
        let mut requests = std::iter::from_fn(|| {
            answers.borrow_mut().next_request(lines, &check).unwrap_or_else(|error| {
                failure = Some(error);
                None
            })
        });
        let result = model.score(&mut requests, &mut |index, result| {
            answers.borrow_mut().take(index, &result)?;
            Ok(interrupt::check()?)
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        let usage = result?;
        let Self { table, tally, .. } = answers.into_inner();
        table.finish()?;
        Ok((usage, tally))
    }

    /// The next request that can be asked.
    fn next_request(
        &mut self,
        lines: &mut dyn Iterator<Item = (usize, RequestLine)>,
        check: &dyn Fn(&ScoreRequest) -> Result<(), LmError>,
    ) -> anyhow::Result<Option<ScoreRequest>> {
        for (number, line) in lines {
            let place = self.read;
            self.read += 1;
            let request = line.into_request();
            let why = match check(&request) {
                Ok(()) => {
                    self.asked.insert(self.next_asked, (place, request.id.clone()));
                    self.next_asked += 1;
                    return Ok(Some(request));
                }
                Err(LmError::Labels { source, .. }) => wrong_labels(&source),
                Err(LmError::Request { why, .. }) => LineError::content("", why),
                Err(other) => return Err(other.into()),
            };
            self.tally.refused.push((number, why));
            self.table.put_all(place, std::iter::empty::<()>())?;
        }
        self.at_end = true;
        Ok(None)
    }

    fn take(&mut self, index: usize, result: &ScoreResult) -> Result<(), StoreError> {
        let (place, id) = self.asked.remove(&index).expect("the model answers each request once");
        let count = if result.outcome.has_answer() { &mut self.tally.answered } else { &mut self.tally.unanswered };
        *count += 1;
        self.table.put(place, &answer(&id, result, self.precision))?;
        let done = self.tally.answered + self.tally.unanswered + self.tally.refused.len();
        self.reporter.questions("asking", done, self.at_end.then_some(self.read));
        Ok(())
    }
}

/// What is wrong with a request's labels, with what can be done about it in a request.
fn wrong_labels(error: &LabelError) -> LineError {
    let more = if matches!(error, LabelError::Prefix { .. }) { r#", or add "termination": "end_of_turn""# } else { "" };
    LineError::content("labels", format!("{error}{more}"))
}

/// An answer's line.
fn answer(id: &str, result: &ScoreResult, precision: Precision) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("id".into(), id.into());
    // The outcome's reason, where it has one, stands beside it.
    if let Ok(Value::Object(outcome)) = serde_json::to_value(&result.outcome) {
        line.extend(outcome);
    }
    line.insert("precision".into(), precision.as_str().into());
    line.insert("prompt_tokens".into(), result.prompt_tokens.into());
    match &result.answer {
        Some(ScoreAnswer::Labels(answer)) => {
            let label = |label: &probity_lm::LabelScore| (label.name.clone(), json!({"logprob": label.logprob, "prob": label.prob}));
            line.insert("labels".into(), Value::Object(answer.labels.iter().map(label).collect()));
            line.insert("mass".into(), answer.mass.into());
        }
        Some(ScoreAnswer::Continuation(answer)) => {
            if let Ok(Value::Object(fields)) = serde_json::to_value(answer) {
                line.extend(fields);
            }
        }
        None => {}
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use probity_data::read_from;
    use probity_lm::{GenerateRequest, GenerateResult, Requests, ScriptedModel, Sink};

    fn read(text: &str) -> probity_data::ReadReport<RequestLine> {
        read_from(text.as_bytes(), "r.jsonl".into(), None).expect("readable")
    }

    fn problem(line: &str) -> String {
        read(line).problems.to_string()
    }

    #[test]
    fn alternatives_are_exclusive_and_one_is_needed() {
        assert!(problem(r#"{"id":"1","prompt":"x","tokens":[1],"continuation":"y"}"#).contains("field `tokens`: only one of"));
        assert!(problem(r#"{"id":"1","prompt":"x"}"#).contains("one of `labels`, `continuation` is needed"));
        assert!(problem(r#"{"id":"1","labels":{"A":["A"]}}"#).contains("one of `prompt`, `messages`, `tokens` is needed"));
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":["A"]},"continuation":"y"}"#).contains("only one of"));
        assert!(problem(r#"{"id":"1","prompt":"x","continuation":""}"#).contains("field `continuation`: empty"));
        assert!(problem(r#"{"id":"1","prompt":"x","continuaton":"y"}"#).contains("nearest known name is `continuation`"));
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":["a"],"A":["b"]}}"#).contains("given twice"));
        assert!(problem(r#"{"id":"1","prompt":"x","labels":{"A":[]}}"#).contains("has no variants"));
        assert!(problem(r#"{"id":"1","prompt":"x","answer_prefix":"A","continuation":"y"}"#).contains("goes with `messages` only"));
    }

    fn answered(text: &str) -> (Vec<Value>, Tally) {
        let model = ScriptedModel::from_probabilities(|_| vec![0.3, 0.1]);
        let check = |request: &ScoreRequest| {
            let why = || LmError::Request { id: request.id.clone(), why: "not for this model".into() };
            if request.id.starts_with("bad") { Err(why()) } else { Ok(()) }
        };
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.jsonl");
        let mut reporter = Reporter::new(Global { quiet: true, ..Global::default() });
        let table = TableWriter::create(&path, false).expect("created");
        let answers = Answers::new(table, Precision::Exact, &mut reporter);
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

    /// Takes a request only when the one before is answered.
    struct OneAtATime(ScriptedModel);

    impl LanguageModel for OneAtATime {
        fn description(&self) -> &probity_lm::ModelDescription {
            self.0.description()
        }

        fn score(&self, requests: &mut Requests<'_, ScoreRequest>, sink: &mut Sink<'_, ScoreResult>) -> Result<Usage, LmError> {
            for (index, request) in requests.enumerate() {
                self.0.score(&mut std::iter::once(request), &mut |_, result| sink(index, result))?;
            }
            Ok(Usage::default())
        }

        fn generate(&self, _: &mut Requests<'_, GenerateRequest>, _: &mut Sink<'_, GenerateResult>) -> Result<Usage, LmError> {
            panic!("nothing is generated")
        }
    }

    #[test]
    fn a_file_is_read_no_further_than_the_model_asks() {
        let line = |id: usize| format!("{{\"id\":\"{id}\",\"prompt\":\"x\",\"continuation\":\"y\"}}\n");
        let text: String = (0..50).map(line).collect();
        let read_lines = std::cell::Cell::new(0);
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.jsonl");
        let mut reporter = Reporter::new(Global { quiet: true, ..Global::default() });
        let table = TableWriter::create(&path, false).expect("created").with_flush_every(1);
        let model = OneAtATime(ScriptedModel::from_probabilities(|_| Vec::new()));
        let mut lines = read(&text).records.into_iter().inspect(|_| {
            let written = std::fs::read_to_string(&path).expect("there").lines().count();
            assert_eq!(written, read_lines.get(), "what was read before is answered and written");
            read_lines.set(read_lines.get() + 1);
        });
        let answers = Answers::new(table, Precision::Exact, &mut reporter);
        let (_, tally) = answers.ask(&model, &mut lines, |_| Ok(())).expect("scripted");
        assert_eq!((tally.answered, read_lines.get()), (50, 50));
    }

    #[test]
    fn an_outcome_without_an_answer_keeps_its_reason() {
        let result = ScoreResult { outcome: probity_lm::Outcome::TooLong { tokens_needed: 9, limit: 4 }, prompt_tokens: 9, answer: None };
        assert_eq!(
            Value::Object(answer("x", &result, Precision::Fast)),
            json!({"id":"x","outcome":"too_long","tokens_needed":9,"limit":4,"precision":"fast","prompt_tokens":9})
        );
    }
}
