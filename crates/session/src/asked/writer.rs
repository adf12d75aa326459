//! Answers of lines, each written as soon as those before it are there.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use miette::Diagnostic as _;
use probity_data::LineError;
use probity_lm::{LabelError, LanguageModel, LmError, Precision, Usage};
use probity_store::{StoreError, TableWriter};

use super::line::{AskedLine, answer};
use crate::{Context, Notice, ProgressUnit, SessionError};

/// What became of the requests.
#[derive(Debug, Default)]
pub struct LineTally {
    /// Those with an answer.
    pub answered: usize,
    /// Too long, not finite …: an outcome without numbers.
    pub unanswered: usize,
    /// Requests that this model cannot be asked, by line.
    pub refused: Vec<(usize, LineError)>,
}

/// Asks a model and writes each answer as soon as those before it are there. What is held of a file is what the model
/// holds of it.
pub struct AnswerWriter<'a> {
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
    /// Writes into that table; `precision` stands in each line.
    pub fn new(table: TableWriter, precision: Precision, context: &'a Context) -> Self {
        let (tally, asked) = (LineTally::default(), BTreeMap::new());
        Self { table, precision, context, tally, read: 0, at_end: false, asked, next_asked: 0 }
    }

    /// Asks everything, line by line. A request that fails `check` is set aside with the reason: the model would end
    /// the list for it.
    pub fn ask<L: AskedLine>(
        self,
        model: &dyn LanguageModel,
        lines: &mut (dyn Iterator<Item = (usize, L)> + Send),
        check: impl Fn(&L::Request) -> Result<(), LmError> + Sync,
    ) -> Result<(Usage, LineTally), SessionError> {
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
