//! The resources of a running method: models to query and an output for rows.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use probity_analysis::trust::ToLabel;
use probity_data::Sample;
use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, Requests, ScoreRequest, ScoreResult, Sink, SinkError,
    Usage, plain_error,
};
use probity_metrics::{Metric, MetricItem, MetricModels, MetricScores};
use serde::Serialize;
use serde_json::Value;

use crate::quote::Quoted;
use crate::stage::{key, samples_key};
use crate::{Artefact, Cost, MethodError, MethodReport, MethodStage, StageDone, Staging};

/// Stores the rows of a run as they are finished.
///
/// A row is a JSON object with a table and a position in it. Rows arrive in any order, each position once; after a
/// failure all finished rows have been passed on. An error ends the run after queries in progress, and is returned
/// unchanged as [`MethodError::Output`].
pub trait RunOutput: Send {
    /// Announces rows `0..rows` of `table`, before its first row. A further call with a larger total announces more
    /// rows.
    fn table(&mut self, table: &'static str, rows: usize) -> Result<(), SinkError>;

    /// The rows at position `index` of `table`. Most tables have one row per position; some stages have any number.
    fn rows(&mut self, table: &'static str, index: usize, rows: Vec<Value>) -> Result<(), SinkError>;

    /// Row `index` of `table`.
    fn row(&mut self, table: &'static str, index: usize, row: Value) -> Result<(), SinkError> {
        self.rows(table, index, vec![row])
    }

    /// Whether rows can be read after the run; if so, messages may name their files.
    fn keeps_rows(&self) -> bool {
        true
    }

    /// A stage begins; it owns all following calls.
    fn begin_stage(&mut self, _: &'static str) {}

    /// A stage is complete with all of its rows.
    fn end_stage(&mut self, _: &StageDone) -> Result<(), SinkError> {
        Ok(())
    }

    /// `done` of `total` queries to the model are answered.
    fn progress(&mut self, done: usize, total: usize);

    /// `done` of `total` candidates are scored by a metric.
    fn measured(&mut self, _metric: &str, _done: usize, _total: usize) {}

    /// An error if the run should stop.
    fn check(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// An in-memory [`RunOutput`] for tests and library use.
#[derive(Debug, Default)]
pub struct MemoryOutput {
    tables: Vec<(&'static str, Vec<Option<Vec<Value>>>)>,
    /// The completed stages.
    pub stages: Vec<StageDone>,
    /// The last progress reported.
    pub progress: (usize, usize),
}

impl MemoryOutput {
    /// The rows of a table in order. Empty for an unknown table; missing rows are omitted.
    pub fn rows(&self, table: &str) -> Vec<&Value> {
        let tables = self.tables.iter().filter(|(name, _)| *name == table);
        tables.flat_map(|(_, rows)| rows.iter().flatten().flatten()).collect()
    }

    /// The names of all tables.
    pub fn tables(&self) -> impl Iterator<Item = &'static str> {
        self.tables.iter().map(|(name, _)| *name)
    }
}

impl RunOutput for MemoryOutput {
    fn table(&mut self, table: &'static str, rows: usize) -> Result<(), SinkError> {
        match self.tables.iter_mut().find(|(name, _)| *name == table) {
            Some((_, known)) if rows < known.len() => {
                return Err(format!("table `{table}` was announced again with fewer rows").into());
            }
            Some((_, known)) => known.resize(rows, None),
            None => self.tables.push((table, vec![None; rows])),
        }
        Ok(())
    }

    fn rows(&mut self, table: &'static str, index: usize, new: Vec<Value>) -> Result<(), SinkError> {
        let rows = self.tables.iter_mut().find(|(name, _)| *name == table).map(|(_, rows)| rows);
        let place = rows.and_then(|rows| rows.get_mut(index));
        let place = place.ok_or_else(|| format!("row {index} of `{table}` was not announced"))?;
        match place.replace(new) {
            None => Ok(()),
            Some(_) => Err(format!("duplicate row {index} of `{table}`").into()),
        }
    }

    fn end_stage(&mut self, stage: &StageDone) -> Result<(), SinkError> {
        self.stages.push(stage.clone());
        Ok(())
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.progress = (done, total);
    }
}

/// A method's access to the model and the output; counts queries.
pub struct Run<'a> {
    /// Absent for methods that [need](crate::Needs) none.
    model: Option<&'a dyn LanguageModel>,
    others: &'a [&'a dyn LanguageModel],
    metric_models: MetricModels,
    output: &'a mut dyn RunOutput,
    staging: Staging,
    /// The names of the method's stages.
    stages: Vec<&'static str>,
    samples_key: String,
    in_stage: bool,
    /// Whether an earlier stage used stand-ins.
    stood_in: bool,
    /// Judged texts of a method without samples, as samples, to be checked for text flags.
    texts: Vec<Sample>,
    /// The stages whose tables came from files, each with its file and key.
    given: Vec<(&'static str, String, String)>,
    /// The state of stages that run in rounds.
    rounds: Vec<RoundedStage>,
    quoted: Quoted,
    usage: Usage,
    requests: usize,
    started: Instant,
}

impl<'a> Run<'a> {
    /// Starts a run.
    pub fn new(model: &'a dyn LanguageModel, output: &'a mut dyn RunOutput) -> Self {
        Self { model: Some(model), ..Self::without_model(output) }
    }

    /// Starts a run of a method that [needs](crate::Needs) no model.
    pub fn without_model(output: &'a mut dyn RunOutput) -> Self {
        Self {
            model: None,
            others: &[],
            metric_models: MetricModels::default(),
            output,
            staging: Staging::default(),
            stages: Vec::new(),
            samples_key: String::new(),
            in_stage: false,
            stood_in: false,
            texts: Vec::new(),
            given: Vec::new(),
            rounds: Vec::new(),
            quoted: Quoted::default(),
            usage: Usage::default(),
            requests: 0,
            started: Instant::now(),
        }
    }

    /// Adds further models: those of [`Configured::models`](crate::Configured::models) that the method queries, in that
    /// order.
    #[must_use]
    pub fn with_other_models(self, others: &'a [&'a dyn LanguageModel]) -> Self {
        Self { others, ..self }
    }

    /// Adds the models of [`Configured::models`](crate::Configured::models) that metrics use.
    #[must_use]
    pub fn with_metric_models(self, metric_models: MetricModels) -> Self {
        Self { metric_models, ..self }
    }

    /// Sets how the run goes through its stages.
    #[must_use]
    pub fn with_staging(self, staging: Staging) -> Self {
        Self { staging, ..self }
    }

    /// Sets the method's stages and the key of the samples.
    pub(crate) fn begin(&mut self, stages: Vec<&'static str>, samples: &[Sample]) {
        // Stand-ins have no visible key, and a dry run of a million samples should not hash them.
        if !stages.is_empty() && !self.staging.stands_in {
            self.samples_key = samples_key(samples);
        }
        self.stages = stages;
    }

    /// How the run goes through its stages.
    pub fn staging(&self) -> &Staging {
        &self.staging
    }

    /// Whether this is a dry run: after reading and validation the method ends with [`MethodError::Rehearsed`].
    pub fn is_rehearsal(&self) -> bool {
        self.staging.stands_in
    }

    /// An error if the run should stop; for long work that writes nothing.
    pub fn check(&mut self) -> Result<(), MethodError> {
        self.output.check().map_err(MethodError::Output)
    }

    /// Reports progress of work without queries or rows; an error if the run should stop.
    pub fn working(&mut self, at: &str, done: usize, total: usize) -> Result<(), MethodError> {
        self.output.measured(at, done, total);
        self.check()
    }

    /// Records quoted texts of prompts; each text counts once, however many prompts show it.
    pub fn quotes(&mut self, quoted: Quoted) {
        self.quoted += quoted;
    }

    /// The texts quoted so far.
    pub fn quoted(&self) -> &Quoted {
        &self.quoted
    }

    /// Reports which stages took their table from a file, since figures depend on it.
    pub(crate) fn report_provided_tables(&self, report: &mut MethodReport) {
        if self.given.is_empty() {
            return;
        }
        let tables: Vec<String> = self.given.iter().map(|(name, _, key)| format!("{name}@{}", &key[..12])).collect();
        report.signature = report.signature.clone().with("from", &tables.join(","));
        for (name, file, _) in &self.given {
            let note = format!("the table `{name}` was read from {file}; no model was queried for it");
            report.tables.iter_mut().take(1).for_each(|table| table.note(note.clone()));
        }
    }

    /// Sets judged texts that are not part of a sample, to be checked for text flags.
    pub fn judged(&mut self, texts: Vec<Sample>) {
        self.texts = texts;
    }

    /// The texts passed to [`Self::judged`].
    pub(crate) fn judged_texts(&self) -> &[Sample] {
        &self.texts
    }

    /// Marks that a dry run lacks input for the following stages, even if all earlier tables came from files.
    pub fn stands_in(&mut self) {
        self.stood_in |= self.staging.stands_in;
    }

    /// Whether the table of a completed stage came from a file.
    pub fn came_from_file(&self, stage: &str) -> bool {
        self.given.iter().any(|(name, ..)| *name == stage)
    }

    /// The models that metrics use, as far as available.
    pub fn metric_models(&self) -> &MetricModels {
        &self.metric_models
    }

    /// The model to query. Every run of a [`Method`](crate::Method) has one.
    pub fn model(&self) -> &'a dyn LanguageModel {
        self.model.expect("a run without a model is of somebody that asks none")
    }

    /// The model to query, if any; a run that evaluates labels has none.
    pub fn model_if_any(&self) -> Option<&'a dyn LanguageModel> {
        self.model
    }

    /// The other models in the order of [`Configured::models`](crate::Configured::models). If all queries to one
    /// precede those to the next, each is loaded once.
    pub fn other_models(&self) -> &'a [&'a dyn LanguageModel] {
        self.others
    }

    /// The queries so far.
    pub fn cost(&self) -> Cost {
        Cost { requests: self.requests, seconds: self.started.elapsed().as_secs_f64(), usage: self.usage }
    }

    /// Runs queries that precede the method's own. In a dry run the originals are used instead of answers.
    pub fn beforehand<T>(&mut self, ask: impl FnOnce(&mut Self) -> Result<T, MethodError>) -> Result<T, MethodError> {
        // As in a stage: a dry run looks at the queries and continues.
        self.in_stage = true;
        let asked = ask(self);
        self.in_stage = false;
        asked
    }

    /// Adds the cost of a nested run.
    pub fn spend(&mut self, cost: &Cost) {
        self.requests += cost.requests;
        self.usage += cost.usage;
    }

    /// Whether rows can be read after the run.
    pub fn keeps_rows(&self) -> bool {
        self.output.keeps_rows()
    }

    /// Announces a table; see [`RunOutput::table`].
    pub fn table(&mut self, table: &'static str, rows: usize) -> Result<(), MethodError> {
        self.output.table(table, rows).map_err(MethodError::Output)
    }

    /// Writes a row; see [`RunOutput::row`].
    pub fn row(&mut self, table: &'static str, index: usize, row: &impl Serialize) -> Result<(), MethodError> {
        write_row(self.output, table, index, row).map_err(MethodError::Output)
    }

    /// Writes the non-empty tables of candidates to label.
    pub(crate) fn write_to_label(&mut self, to_label: &ToLabel) -> Result<(), MethodError> {
        for (table, rows) in to_label.tables().into_iter().filter(|(_, rows)| !rows.is_empty()) {
            self.table(table, rows.len())?;
            rows.iter().enumerate().try_for_each(|(index, row)| self.row(table, index, row))?;
        }
        Ok(())
    }

    /// The output for rows.
    pub fn output(&mut self) -> &mut dyn RunOutput {
        self.output
    }

    /// Sends all `requests`, which are built when the model takes them. `each` receives every result as it finishes,
    /// with the position of its request and the output for its row. Prompts with a shared prefix should be adjacent.
    pub fn score(
        &mut self,
        requests: impl ExactSizeIterator<Item = ScoreRequest> + Send,
        each: impl FnMut(usize, ScoreResult, &mut dyn RunOutput) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.score_by(self.model(), requests, each)
    }

    /// Like [`score`](Self::score), with one of the run's models.
    pub fn score_by(
        &mut self,
        model: &dyn LanguageModel,
        requests: impl ExactSizeIterator<Item = ScoreRequest> + Send,
        each: impl FnMut(usize, ScoreResult, &mut dyn RunOutput) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.ask(requests, |requests, sink| model.score(requests, sink), each)
    }

    /// Continues all prompts, in the same way.
    pub fn generate(
        &mut self,
        requests: impl ExactSizeIterator<Item = GenerateRequest> + Send,
        each: impl FnMut(usize, GenerateResult, &mut dyn RunOutput) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.generate_by(self.model(), requests, each)
    }

    /// Like [`generate`](Self::generate), with one of the run's models.
    pub fn generate_by(
        &mut self,
        model: &dyn LanguageModel,
        requests: impl ExactSizeIterator<Item = GenerateRequest> + Send,
        each: impl FnMut(usize, GenerateResult, &mut dyn RunOutput) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        self.ask(requests, |requests, sink| model.generate(requests, sink), each)
    }

    /// Scores items with a metric. Progress is reported under `told_as`, if set.
    pub fn measure(
        &mut self,
        told_as: Option<&str>,
        metric: &dyn Metric,
        items: &[MetricItem<'_>],
    ) -> Result<MetricScores, MethodError> {
        let tell = |output: &mut dyn RunOutput, done: usize| {
            if let Some(name) = told_as {
                output.measured(name, done, items.len());
            }
        };
        tell(self.output, 0);
        // One lock for counting and reporting: parts of the work finish concurrently, and progress must not go back.
        let state = Mutex::new((0, &mut *self.output));
        let watch = |more: usize| {
            let (done, output) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
            *done += more;
            tell(*output, *done);
            output.check()
        };
        Ok(metric.score(items, &watch)?)
    }

    /// Runs a stage, or takes its table from a file. Returns its parts in order. With `--until` this stage, the run
    /// ends here.
    pub fn stage<S: MethodStage>(&mut self, stage: &S) -> Result<Artefact<S::Part>, MethodError> {
        let artefact = self.round(stage)?;
        self.end_rounds(&[stage.name()])?;
        Ok(artefact)
    }

    /// Runs one round of a repeatable stage. Its rows follow those of earlier rounds; a table from a file contains all
    /// rounds. The stage is open until [`Self::end_rounds`].
    pub fn round<S: MethodStage>(&mut self, stage: &S) -> Result<Artefact<S::Part>, MethodError> {
        let (started, usage, requests) = (Instant::now(), std::mem::take(&mut self.usage), self.requests);
        let name = stage.name();
        self.output.begin_stage(name);
        let place = self.rounds.iter().position(|known| known.done.name == name).unwrap_or_else(|| {
            self.rounds.push(RoundedStage::new(name));
            self.rounds.len() - 1
        });
        let (before, used) = (self.rounds[place].done.parts, self.rounds[place].given_rows);
        self.table(name, before + stage.parts())?;
        let parts = (0..stage.parts()).map(|_| None).collect();
        let mut kept = StageParts { stage, before, parts, rows: 0 };
        let given = self.staging.tables.remove(name);
        match &given {
            // With stand-ins for earlier results, rows cannot be matched to parts.
            Some(_) if self.stood_in && stage.in_rounds() => {}
            Some(table) if self.stood_in => table.check(stage)?,
            Some(table) => {
                let (parts, rows) = table.parts(stage, used)?;
                self.rounds[place].given_rows = rows;
                parts
                    .into_iter()
                    .enumerate()
                    .try_for_each(|(number, part)| kept.keep(number, part, self.output).map_err(MethodError::Output))?;
            }
            None => {
                self.in_stage = true;
                let worked = stage.work(self, &mut |number, part, output| kept.keep(number, part, output));
                self.in_stage = false;
                worked?;
            }
        }
        let key = match &given {
            Some(table) => key(name, [table.text().as_str()]),
            None => key(name, [&self.samples_key].into_iter().chain(&stage.inputs()).map(String::as_str)),
        };
        let seconds = started.elapsed().as_secs_f64();
        let cost = Cost { requests: self.requests - requests, seconds, usage: self.usage };
        self.usage += usage;
        self.rounds[place].add(&key, stage.parts(), kept.rows, cost);
        self.staging.tables.extend(given.map(|table| (name.to_owned(), table)));
        if stage.in_rounds() && self.staging.until.as_deref() == Some(name) {
            // The run ends after this round; other open stages end in their current state.
            let open: Vec<&'static str> = self.rounds.iter().map(|known| known.done.name).collect();
            self.end_rounds(&open)?;
        }
        Ok(Artefact { parts: self.with_stand_ins(kept), key })
    }

    /// Closes these stages in order. With `--until` one of them, the run ends here.
    pub fn end_rounds(&mut self, stages: &[&'static str]) -> Result<(), MethodError> {
        for name in stages {
            let Some(place) = self.rounds.iter().position(|known| known.done.name == *name) else { continue };
            let RoundedStage { mut done, given_rows } = self.rounds.remove(place);
            if let Some(table) = self.staging.tables.remove(*name) {
                if !self.stood_in {
                    table.ends(done.name, done.parts, given_rows)?;
                }
                let from = table.path.display().to_string();
                self.given.push((done.name, from.clone(), done.key.clone()));
                done.from = Some(from);
            }
            self.output.end_stage(&done).map_err(MethodError::Output)?;
            self.ends_after(done.name)?;
        }
        Ok(())
    }

    /// An error if the run ends after this stage.
    fn ends_after(&self, stage: &'static str) -> Result<(), MethodError> {
        match () {
            () if self.staging.stands_in && self.stages.last() == Some(&stage) => Err(MethodError::Rehearsed),
            () if self.staging.until.as_deref() == Some(stage) => Err(MethodError::Until(stage)),
            () => Ok(()),
        }
    }

    /// All parts of a stage, with stand-ins for those without an answer in a dry run.
    fn with_stand_ins<S: MethodStage>(&mut self, kept: StageParts<'_, S>) -> Vec<S::Part> {
        self.stood_in |= self.staging.stands_in && kept.parts.iter().any(Option::is_none);
        let stand_in = |number: usize| self.staging.stands_in.then(|| kept.stage.stand_in(number));
        let parts = kept.parts.into_iter().enumerate().map(|(number, part)| part.or_else(|| stand_in(number)));
        parts.collect::<Option<Vec<_>>>().expect("a stage hands over each of its parts")
    }

    /// Sends a work list to the model, with progress and cost.
    fn ask<Q, A>(
        &mut self,
        mut requests: impl ExactSizeIterator<Item = Q> + Send,
        answer: impl FnOnce(&mut Requests<'_, Q>, &mut Sink<'_, A>) -> Result<Usage, LmError>,
        mut each: impl FnMut(usize, A, &mut dyn RunOutput) -> Result<(), SinkError> + Send,
    ) -> Result<(), MethodError> {
        let total = requests.len();
        if total == 0 {
            return Ok(());
        }
        if self.staging.stands_in && self.in_stage {
            // Every model of a stage is dry-run; a dry-run model ends its list with a sink error.
            match answer(&mut requests, &mut |_, _| Ok(())) {
                Err(LmError::Sink(_)) => {}
                ended => self.usage += ended?,
            }
            return Ok(());
        }
        self.requests += total;
        let mut done = 0;
        let output = &mut *self.output;
        output.progress(0, total);
        let usage = answer(&mut requests, &mut |index, result| {
            each(index, result, output)?;
            done += 1;
            output.progress(done, total);
            // Not every answer produces a row.
            output.check()
        });
        match usage {
            Err(LmError::Sink(_)) if self.staging.stands_in => return Err(MethodError::Rehearsed),
            usage => self.usage += usage?,
        }
        Ok(())
    }
}

/// The state of a stage over all rounds so far.
struct RoundedStage {
    done: StageDone,
    /// Rows of the table from a file that have been read.
    given_rows: usize,
}

impl RoundedStage {
    fn new(name: &'static str) -> Self {
        let done = StageDone { name, key: String::new(), parts: 0, rows: 0, from: None, cost: Cost::default() };
        Self { done, given_rows: 0 }
    }

    fn add(&mut self, round: &str, parts: usize, rows: usize, cost: Cost) {
        let done = &mut self.done;
        // The key of a single round is the stage's key; several are combined.
        done.key = if done.key.is_empty() { round.to_owned() } else { key(done.name, [done.key.as_str(), round]) };
        done.parts += parts;
        done.rows += rows;
        done.cost.requests += cost.requests;
        done.cost.seconds += cost.seconds;
        done.cost.usage += cost.usage;
    }
}

/// The state of a stage in this round.
struct StageParts<'s, S: MethodStage> {
    stage: &'s S,
    /// Parts of earlier rounds.
    before: usize,
    parts: Vec<Option<S::Part>>,
    rows: usize,
}

impl<S: MethodStage> StageParts<'_, S> {
    fn keep(&mut self, number: usize, part: S::Part, output: &mut dyn RunOutput) -> Result<(), SinkError> {
        let rows = self.stage.rows(number, &part);
        self.rows += rows.len();
        output.rows(self.stage.name(), self.before + number, rows)?;
        self.parts[number] = Some(part);
        Ok(())
    }
}

/// Serialises a row and writes it.
pub(crate) fn write_row(
    output: &mut dyn RunOutput,
    table: &'static str,
    index: usize,
    row: &impl Serialize,
) -> Result<(), SinkError> {
    let value = serde_json::to_value(row).map_err(plain_error)?;
    output.row(table, index, value)
}
