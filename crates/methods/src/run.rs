//! What a method works with: a model that answers and an output that keeps.

use std::time::{Duration, Instant};

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, Requests, ScoreRequest, ScoreResult, Sink, SinkError,
    Usage,
};
use probity_metrics::Models;
use serde::Serialize;
use serde_json::Value;

use crate::MethodError;

/// Keeps the rows of a run as they are finished.
///
/// A row has a table, a position in the table's final order, and is a JSON object. Rows come in any order, each
/// position once; a method that dies half-way has handed over every row that was finished. An error stops the run after
/// what is in flight and comes back unchanged as [`MethodError::Output`].
pub trait Output: Send {
    /// Announces that rows `0..rows` of `table` will come. Called once per table, before its first row.
    fn table(&mut self, table: &'static str, rows: usize) -> Result<(), SinkError>;

    /// Row `index` of `table`.
    fn row(&mut self, table: &'static str, index: usize, row: Value) -> Result<(), SinkError>;

    /// `done` of `total` questions to the model are answered.
    fn progress(&mut self, done: usize, total: usize);
}

/// An [`Output`] in memory, for tests and for use as a library.
#[derive(Debug, Default)]
pub struct MemoryOutput {
    tables: Vec<(&'static str, Vec<Option<Value>>)>,
    /// The last progress reported.
    pub progress: (usize, usize),
}

impl MemoryOutput {
    /// The rows of a table in their final order. Empty for a table that was never announced; a row that never came is
    /// left out.
    pub fn rows(&self, table: &str) -> Vec<&Value> {
        self.tables.iter().filter(|(name, _)| *name == table).flat_map(|(_, rows)| rows.iter().flatten()).collect()
    }
}

impl Output for MemoryOutput {
    fn table(&mut self, table: &'static str, rows: usize) -> Result<(), SinkError> {
        if self.tables.iter().any(|(name, _)| *name == table) {
            return Err(format!("table `{table}` is announced twice").into());
        }
        self.tables.push((table, vec![None; rows]));
        Ok(())
    }

    fn row(&mut self, table: &'static str, index: usize, row: Value) -> Result<(), SinkError> {
        let rows = self.tables.iter_mut().find(|(name, _)| *name == table).map(|(_, rows)| rows);
        let place = rows
            .and_then(|rows| rows.get_mut(index))
            .ok_or_else(|| format!("row {index} of `{table}` was not announced"))?;
        match place.replace(row) {
            None => Ok(()),
            Some(_) => Err(format!("row {index} of `{table}` came twice").into()),
        }
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.progress = (done, total);
    }
}

/// What the questions of a run cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Questions put to the model.
    pub requests: usize,
    /// Wall-clock seconds from the start of the run to its summary.
    pub seconds: f64,
    /// Tokens of all prompts and answers, as if each were computed from scratch.
    pub tokens_unshared: u64,
    /// Tokens that went through the model.
    pub tokens_computed: u64,
    /// The most bytes of keys and values that were held, or set aside for texts being generated, at once.
    pub peak_cache_bytes: u64,
    /// Tokens that the model wrote.
    pub tokens_generated: u64,
    /// Tokens that were guessed ahead of the model and put to it, and those of them that it would have said. They
    /// depend on how the work was done; what was written does not.
    pub tokens_drafted: u64,
    /// See [`tokens_drafted`](Self::tokens_drafted).
    pub drafts_accepted: u64,
}

impl Cost {
    /// The share of drafted tokens that the model would have said; absent where nothing was drafted.
    pub fn acceptance(&self) -> Option<f64> {
        (self.tokens_drafted > 0).then(|| self.drafts_accepted as f64 / self.tokens_drafted as f64)
    }
}

/// A method's access to the model and to the output, with a tally of what was asked.
pub struct Run<'a> {
    model: &'a dyn LanguageModel,
    others: &'a [&'a dyn LanguageModel],
    metric_models: Models,
    output: &'a mut dyn Output,
    usage: Usage,
    requests: usize,
    started: Instant,
}

impl<'a> Run<'a> {
    /// A run that starts now.
    pub fn new(model: &'a dyn LanguageModel, output: &'a mut dyn Output) -> Self {
        Self {
            model,
            others: &[],
            metric_models: Models::default(),
            output,
            usage: Usage::default(),
            requests: 0,
            started: Instant::now(),
        }
    }

    /// The same with further models: those of [`Configured::models`](crate::Configured::models) that the method asks
    /// itself, in that order.
    #[must_use]
    pub fn with_other_models(self, others: &'a [&'a dyn LanguageModel]) -> Self {
        Self { others, ..self }
    }

    /// The same with the models of [`Configured::models`](crate::Configured::models) that are for metrics.
    #[must_use]
    pub fn with_metric_models(self, metric_models: Models) -> Self {
        Self { metric_models, ..self }
    }

    /// The models that metrics are made with, as far as they are there.
    pub fn metric_models(&self) -> &Models {
        &self.metric_models
    }

    /// The model that is asked.
    pub fn model(&self) -> &'a dyn LanguageModel {
        self.model
    }

    /// The models that the method asks besides, in the order in which it names them. Whoever asks one of them all of
    /// its questions before the next lets each be loaded once.
    pub fn other_models(&self) -> &'a [&'a dyn LanguageModel] {
        self.others
    }

    /// What was asked so far.
    pub fn cost(&self) -> Cost {
        Cost {
            requests: self.requests,
            seconds: self.elapsed().as_secs_f64(),
            tokens_unshared: self.usage.tokens_unshared,
            tokens_computed: self.usage.tokens_computed,
            peak_cache_bytes: self.usage.peak_cache_bytes,
            tokens_generated: self.usage.tokens_generated,
            tokens_drafted: self.usage.tokens_drafted,
            drafts_accepted: self.usage.drafts_accepted,
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Announces a table; see [`Output::table`].
    pub fn table(&mut self, table: &'static str, rows: usize) -> Result<(), MethodError> {
        self.output.table(table, rows).map_err(MethodError::Output)
    }

    /// Writes a row; see [`Output::row`].
    pub fn row(&mut self, table: &'static str, index: usize, row: &impl Serialize) -> Result<(), MethodError> {
        write_row(self.output, table, index, row).map_err(MethodError::Output)
    }

    /// Where rows go.
    pub(crate) fn output(&mut self) -> &mut dyn Output {
        self.output
    }

    /// Asks all of `requests`, which are made as the model takes them; `each` gets every result as it finishes, by the
    /// position of its request, with the output to write its row to. Prompts that begin alike should stand together.
    pub fn score(
        &mut self,
        requests: impl ExactSizeIterator<Item = ScoreRequest> + Send,
        each: impl FnMut(usize, ScoreResult, &mut dyn Output) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.score_by(self.model, requests, each)
    }

    /// The same by one of the models that this run has.
    pub fn score_by(
        &mut self,
        model: &dyn LanguageModel,
        requests: impl ExactSizeIterator<Item = ScoreRequest> + Send,
        each: impl FnMut(usize, ScoreResult, &mut dyn Output) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.ask(requests, |requests, sink| model.score(requests, sink), each)
    }

    /// Continues all prompts, in the same way.
    pub fn generate(
        &mut self,
        requests: impl ExactSizeIterator<Item = GenerateRequest> + Send,
        each: impl FnMut(usize, GenerateResult, &mut dyn Output) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.generate_by(self.model, requests, each)
    }

    /// The same by one of the models that this run has.
    pub fn generate_by(
        &mut self,
        model: &dyn LanguageModel,
        requests: impl ExactSizeIterator<Item = GenerateRequest> + Send,
        each: impl FnMut(usize, GenerateResult, &mut dyn Output) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.ask(requests, |requests, sink| model.generate(requests, sink), each)
    }

    /// Hands a work list to the model, and keeps progress and tally.
    fn ask<Q, A>(
        &mut self,
        mut requests: impl ExactSizeIterator<Item = Q> + Send,
        answer: impl FnOnce(&mut Requests<'_, Q>, &mut Sink<'_, A>) -> Result<Usage, LmError>,
        mut each: impl FnMut(usize, A, &mut dyn Output) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        let total = requests.len();
        if total == 0 {
            return Ok(());
        }
        self.requests += total;
        let (mut done, output) = (0, &mut *self.output);
        output.progress(0, total);
        let usage = answer(&mut requests, &mut |index, result| {
            each(index, result, output)?;
            done += 1;
            output.progress(done, total);
            Ok(())
        })?;
        self.usage += usage;
        Ok(())
    }
}

/// Serialises a row and hands it over.
pub(crate) fn write_row(
    output: &mut dyn Output,
    table: &'static str,
    index: usize,
    row: &impl Serialize,
) -> Result<(), SinkError> {
    let value = serde_json::to_value(row)?;
    output.row(table, index, value)
}
