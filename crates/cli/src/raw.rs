//! The raw interfaces to a model: a file's requests, line by line, and each answer as a line in the order of the
//! requests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use miette::Diagnostic as _;
use probity_data::{DataError, LineError, LineProblems, Record, Records};
use probity_lm::{LabelError, LanguageModel, LmError, Message, Outcome, Precision, Prompt, Requests, Sink, Usage};
use probity_runtime::{Model, Planner};
use probity_session::{
    Context, DryRun, ModelOptions, Notice, PlannedPart, ProgressUnit, SessionError, SessionReport, answer_settings,
    computing_in_force, message, shared_answers, tell_damaged,
};
use probity_store::{Recorded, StoreError, TableWriter, write_whole};
use serde_json::{Map, Value, json};

use crate::error::FileError;
use crate::events::Terminal;
use crate::exit::Completed;
use crate::global::Global;
use crate::interrupt;
use crate::method::typed;
use crate::options::Typed;
use crate::output::{Stdout, is_stdout, spare_input};
use crate::progress::Reporter;

/// What can be asked so.
pub(crate) trait AskedLine: Record + Send + 'static {
    /// What the model is asked.
    type Request: Send;
    /// What comes back.
    type Result: Send;

    /// The request; the line was [checked](Record::check).
    fn into_request(self) -> Self::Request;

    /// Whether the model can be asked that. It would end the whole list with the same error.
    fn fits(model: &Model, request: &Self::Request) -> Result<(), LmError>;

    /// Asks all of them.
    fn ask(
        model: &dyn LanguageModel,
        requests: &mut Requests<'_, Self::Request>,
        sink: &mut Sink<'_, Self::Result>,
    ) -> Result<Usage, LmError>;

    /// How it ended.
    fn outcome(result: &Self::Result) -> &Outcome;

    /// Tokens of the prompt.
    fn prompt_tokens(result: &Self::Result) -> usize;

    /// What is said of the answer; nothing where there is none.
    fn fields(result: &Self::Result) -> Map<String, Value>;

    /// What is said when all is done; nothing by default.
    fn epilogue(_usage: &Usage, _seconds: f64) -> Option<String> {
        None
    }
}

/// Options of the raw interfaces.
#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    #[command(flatten)]
    model: Typed<ModelOptions>,
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
    /// Ask and write nothing: print the number of questions, the tokens with and without sharing, and estimates of
    /// memory and time. Texts to be written count at their limits, without what is guessed in vain
    #[arg(long)]
    dry_run: bool,
    /// Write a JSON description of the model, the arguments and the cost here
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Exit with 1 where a request has no answer (too long, not finite)
    #[arg(long)]
    strict: bool,
}

/// What is wrong with the prompt of a line, which is given in one of three forms.
pub(crate) fn check_prompt(
    prompt: Option<&String>,
    messages: Option<&Vec<Message>>,
    tokens: Option<&Vec<u32>>,
    answer_prefix: Option<&String>,
) -> Vec<LineError> {
    let given = [("prompt", prompt.is_some()), ("messages", messages.is_some()), ("tokens", tokens.is_some())];
    let mut wrong: Vec<LineError> = exactly_one(&given).into_iter().collect();
    if messages.is_some_and(Vec::is_empty) {
        wrong.push(LineError::content("messages", "there is no message"));
    }
    if answer_prefix.is_some() && messages.is_none() {
        wrong.push(LineError::content("answer_prefix", "goes with `messages` only; put it at the end of the prompt"));
    }
    wrong
}

/// The prompt of a checked line.
pub(crate) fn prompt(
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    answer_prefix: Option<String>,
) -> Prompt {
    match (prompt, messages) {
        (Some(text), _) => Prompt::Text(text),
        (_, Some(messages)) => Prompt::Chat { messages, answer_prefix: answer_prefix.unwrap_or_default() },
        _ => Prompt::Tokens(tokens.unwrap_or_default()),
    }
}

/// What is wrong where one of these fields is needed.
pub(crate) fn exactly_one(fields: &[(&str, bool)]) -> Option<LineError> {
    if fields.iter().any(|(_, given)| *given) {
        return at_most_one(fields);
    }
    Some(LineError::content("", format!("one of {} is needed", names(fields))))
}

/// What is wrong where one of these fields can be given.
pub(crate) fn at_most_one(fields: &[(&str, bool)]) -> Option<LineError> {
    let (second, _) = fields.iter().filter(|(_, given)| *given).nth(1)?;
    Some(LineError::content(*second, format!("only one of {} can be given", names(fields))))
}

fn names(fields: &[(&str, bool)]) -> String {
    fields.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl RawArgs {
    /// Asks what the file's lines say.
    pub(crate) fn run<L: AskedLine>(&self, global: Global, arguments: &[OsString]) -> miette::Result<Completed> {
        let reporter = Reporter::new(global);
        let out = self.out.as_deref().filter(|path| !is_stdout(path));
        let to_terminal = out.is_none() && std::io::stdout().is_terminal();
        let terminal = Arc::new(Terminal::by(if to_terminal { reporter.without_bar() } else { reporter }));
        for written in out.into_iter().chain(self.manifest.as_deref()) {
            spare_input(&self.input, written)?;
        }
        let mut records = Records::<L>::open(&self.input, self.limit)?;
        let context = Context::new(terminal, interrupt::catch(global.progress));
        if self.dry_run {
            return self.dry_run(records, &context);
        }
        let table = match out {
            Some(path) => TableWriter::create(path, self.overwrite)?,
            None => TableWriter::to_stream("standard output", Stdout::new()),
        };
        // What cannot be written is told before a model is loaded.
        let shared = shared_answers(self.cache.as_deref())?;
        let given = typed(arguments);
        let version = env!("CARGO_PKG_VERSION");
        self.write_manifest(&json!({"probity": version, "arguments_given": given, "answered": null}))?;
        let model = context.models.language(&self.model)?;
        let recorded = Recorded::new(model.clone(), &answer_settings(model.options()), None, shared.as_ref())?;
        context.events.notice(Notice::Found(recorded.found_so_far()));
        // Whoever reads the answers through a pipe has each as it comes, and an interrupt loses none.
        let answers = AnswerWriter::new(table.with_flush_every(1), model.description().precision, &context);
        let started = Instant::now();
        let (usage, tally) = answers.ask::<L>(&recorded, &mut records, |request| L::fits(&model, request))?;
        if let Some(told) = L::epilogue(&usage, started.elapsed().as_secs_f64()) {
            context.events.notice(Notice::StepEnded);
            context.events.notice(Notice::Message(&told));
        }
        tell_damaged(&recorded.damaged(), context.events.as_ref());
        let mut problems = records.into_problems();
        // Told among the broken lines, by line: told after them, they would bring their hints into the middle of the
        // list.
        tally.refused.into_iter().for_each(|(number, why)| problems.push(number, why));
        self.write_manifest(&json!({
            "probity": version, "arguments_given": given, "arguments_in_force": computing_in_force(model.options()),
            "model": model.description(), "answered": tally.answered, "unanswered": tally.unanswered,
            "broken_lines": problems.count(), "usage": usage,
        }))?;
        let done = if self.strict && tally.unanswered > 0 { Completed::Unscored } else { Completed::Success };
        Ok(told(problems).unwrap_or(done))
    }

    fn write_manifest(&self, manifest: &Value) -> miette::Result<()> {
        let Some(path) = &self.manifest else { return Ok(()) };
        let cannot = FileError::of("cannot write the manifest");
        write_whole(path, |writer| Ok(writeln!(writer, "{manifest:#}").map_err(cannot)?))
    }

    fn dry_run<L: AskedLine>(&self, mut records: Records<'_, L>, context: &Context) -> miette::Result<Completed> {
        let model = context.models.language(&self.model)?;
        let planner = Planner::new(&model);
        let mut requests =
            records.by_ref().map(|(_, line)| line.into_request()).filter(|request| L::fits(&model, request).is_ok());
        L::ask(&planner, &mut requests, &mut |_, _| Ok(()))?;
        context.events.notice(Notice::Message("dry run: measuring this machine"));
        let dry_run = DryRun { parts: vec![PlannedPart::of(None, &model, planner.into_plan())?] };
        context.events.report(SessionReport::DryRun(&dry_run)).map_err(SessionError::Events)?;
        Ok(told(records.into_problems()).unwrap_or(Completed::Success))
    }
}

/// The exit code of a file with broken lines, which are told, or without.
fn told(problems: LineProblems) -> Option<Completed> {
    if problems.is_empty() {
        return None;
    }
    crate::terminal::tell(&message(&DataError::Problems(problems)));
    Some(Completed::InPart)
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct LineTally {
    pub(crate) answered: usize,
    /// Too long, not finite …: an outcome without numbers.
    pub(crate) unanswered: usize,
    /// Requests that this model cannot be asked, by line.
    pub(crate) refused: Vec<(usize, LineError)>,
}

/// Asks a model and writes each answer as soon as those before it are there. What is held of a file is what the model
/// holds of it.
pub(crate) struct AnswerWriter<'a> {
    table: TableWriter,
    precision: Precision,
    context: &'a Context,
    tally: LineTally,
    /// Requests read so far, and whether these are all.
    read: usize,
    at_end: bool,
    /// Place in the table and id of the requests that the model has, by their number for the model.
    asked: BTreeMap<usize, (usize, String)>,
    next_asked: usize,
}

impl<'a> AnswerWriter<'a> {
    pub(crate) fn new(table: TableWriter, precision: Precision, context: &'a Context) -> Self {
        let (tally, asked) = (LineTally::default(), BTreeMap::new());
        Self { table, precision, context, tally, read: 0, at_end: false, asked, next_asked: 0 }
    }

    /// Asks everything, line by line. A request that fails `check` is set aside with the reason: the model would end
    /// the list for it.
    pub(crate) fn ask<L: AskedLine>(
        self,
        model: &dyn LanguageModel,
        lines: &mut (dyn Iterator<Item = (usize, L)> + Send),
        check: impl Fn(&L::Request) -> Result<(), LmError> + Sync,
    ) -> miette::Result<(Usage, LineTally)> {
        let interrupt = self.context.interrupt.clone();
        // The model takes requests and gives answers by turns.
        let answers = Mutex::new(self);
        let lock = || answers.lock().unwrap_or_else(PoisonError::into_inner);
        // An iterator can end, but cannot fail: the error is kept until the model has come back.
        let mut failure = None;
        let mut requests = std::iter::from_fn(|| {
            lock().next_request(lines, &check).unwrap_or_else(|error| {
                failure = Some(error);
                None
            })
        });
        let result = L::ask(model, &mut requests, &mut |index, result| {
            lock().take::<L>(index, &result)?;
            Ok(interrupt.check()?)
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        let usage = result?;
        let Self { table, tally, .. } = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        table.finish()?;
        Ok((usage, tally))
    }

    /// The next request that can be asked.
    fn next_request<L: AskedLine>(
        &mut self,
        lines: &mut (dyn Iterator<Item = (usize, L)> + Send),
        check: &dyn Fn(&L::Request) -> Result<(), LmError>,
    ) -> miette::Result<Option<L::Request>> {
        for (number, line) in lines {
            let place = self.read;
            self.read += 1;
            let id = line.id().to_owned();
            let request = line.into_request();
            let why = match check(&request) {
                Ok(()) => {
                    self.asked.insert(self.next_asked, (place, id));
                    self.next_asked += 1;
                    return Ok(Some(request));
                }
                Err(LmError::Labels { source, .. }) => wrong_labels(&source),
                Err(LmError::Request { source, .. }) => LineError::caused("", &*source),
                Err(other) => return Err(other.into()),
            };
            self.tally.refused.push((number, why));
            // Rows are written in order: answers behind a place that stays empty would wait until the end.
            self.table.put_all(place, std::iter::empty::<()>())?;
        }
        self.at_end = true;
        Ok(None)
    }

    fn take<L: AskedLine>(&mut self, index: usize, result: &L::Result) -> Result<(), StoreError> {
        let (place, id) = self.asked.remove(&index).expect("the model answers each request once");
        let count = if L::outcome(result).has_answer() { &mut self.tally.answered } else { &mut self.tally.unanswered };
        *count += 1;
        self.table.put(place, &answer::<L>(&id, result, self.precision))?;
        let done = self.tally.answered + self.tally.unanswered + self.tally.refused.len();
        // Requests are not counted beforehand: they may come through a pipe, and a file is read no further than the
        // model asks.
        let total = self.at_end.then_some(self.read);
        self.context.events.notice(Notice::Progress { what: "asking", work: ProgressUnit::Questions, done, total });
        Ok(())
    }
}

/// What is wrong with a request's labels, with what can be done about it in a request.
fn wrong_labels(error: &LabelError) -> LineError {
    let told = LineError::caused("labels", error);
    match (error, error.help()) {
        (LabelError::Prefix { .. }, Some(hint)) => {
            told.with_hint(format!(r#"{hint}, or add "termination": "end_of_turn""#))
        }
        _ => told,
    }
}

/// An answer's line.
pub(crate) fn answer<L: AskedLine>(id: &str, result: &L::Result, precision: Precision) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("id".into(), id.into());
    // The outcome's reason, where it has one, stands beside it.
    if let Ok(Value::Object(outcome)) = serde_json::to_value(L::outcome(result)) {
        line.extend(outcome);
    }
    line.insert("precision".into(), precision.as_str().into());
    line.insert("prompt_tokens".into(), L::prompt_tokens(result).into());
    line.extend(L::fields(result));
    line
}
