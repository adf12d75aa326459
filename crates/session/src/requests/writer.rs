//! Writes answers in the order of the input, each as soon as all earlier ones exist.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use miette::Diagnostic as _;
use probity_data::LineError;
use probity_lm::{LabelError, LanguageModel, LmError, Precision, Usage};
use probity_store::{StoreError, TableWriter};

use super::line::{RequestLine, answer};
use crate::{Context, Notice, ProgressUnit, SessionError};

/// Counts of answered and refused requests.
#[derive(Debug, Default)]
pub struct LineTally {
    /// Requests with an answer.
    pub answered: usize,
    /// Requests with an outcome without numbers, such as prompts that are too long.
    pub unanswered: usize,
    /// Requests that this model cannot answer, by line number.
    pub refused: Vec<(usize, LineError)>,
}

/// Queries a model and writes the answers in the order of the input. Only requests that the model holds are in memory.
pub struct AnswerWriter<'a> {
    table: TableWriter,
    precision: Precision,
    context: &'a Context,
    tally: LineTally,
    /// Number of requests read so far, and whether the input has ended.
    read: usize,
    at_end: bool,
    /// Row and id of the requests that the model holds, by their index for the model.
    asked: BTreeMap<usize, (usize, String)>,
    next_asked: usize,
}

impl<'a> AnswerWriter<'a> {
    /// Writes into `table`; each line records `precision`.
    pub fn new(table: TableWriter, precision: Precision, context: &'a Context) -> Self {
        let (tally, asked) = (LineTally::default(), BTreeMap::new());
        Self { table, precision, context, tally, read: 0, at_end: false, asked, next_asked: 0 }
    }

    /// Queries the model line by line. Requests that fail `check` are refused with a reason, since the model would end
    /// the whole batch on them.
    pub fn ask<L: RequestLine>(
        self,
        model: &dyn LanguageModel,
        lines: &mut (dyn Iterator<Item = (usize, L)> + Send),
        check: impl Fn(&L::Request) -> Result<(), LmError> + Sync,
    ) -> Result<(Usage, LineTally), SessionError> {
        let interrupt = self.context.interrupt.clone();
        // The model alternates between taking requests and returning answers.
        let answers = Mutex::new(self);
        let lock = || answers.lock().unwrap_or_else(PoisonError::into_inner);
        // An iterator cannot fail: the error is kept until the model returns.
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

    /// The next request that passes `check`.
    fn next_request<L: RequestLine>(
        &mut self,
        lines: &mut (dyn Iterator<Item = (usize, L)> + Send),
        check: &dyn Fn(&L::Request) -> Result<(), LmError>,
    ) -> Result<Option<L::Request>, SessionError> {
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
            // Rows are written in order, so a gap would hold back all later answers.
            self.table.put_all(place, std::iter::empty::<()>())?;
        }
        self.at_end = true;
        Ok(None)
    }

    fn take<L: RequestLine>(&mut self, index: usize, result: &L::Result) -> Result<(), StoreError> {
        let (place, id) = self.asked.remove(&index).expect("the model answers each request once");
        let count = if L::outcome(result).has_answer() { &mut self.tally.answered } else { &mut self.tally.unanswered };
        *count += 1;
        self.table.put(place, &answer::<L>(&id, result, self.precision))?;
        let done = self.tally.answered + self.tally.unanswered + self.tally.refused.len();
        // Requests are not counted in advance: they may come from a pipe, and a file is only read as far as the model
        // needs.
        let total = self.at_end.then_some(self.read);
        self.context.events.notice(Notice::Progress { what: "asking", work: ProgressUnit::Questions, done, total });
        Ok(())
    }
}

/// The problem with a request's labels, with a hint on how to change the request.
fn wrong_labels(error: &LabelError) -> LineError {
    let told = LineError::caused("labels", error);
    match (error, error.help()) {
        (LabelError::Prefix { .. }, Some(hint)) => {
            told.with_hint(format!(r#"{hint}, or add "termination": "end_of_turn""#))
        }
        _ => told,
    }
}
