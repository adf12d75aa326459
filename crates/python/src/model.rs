//! A model in memory.

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use probity_data::{LineProblems, RecordUnit, Records};
use probity_lm::{LanguageModel as _, SinkError};
use probity_options::{read, specs};
use probity_session::{
    AnswerWriter, Context, Events, GenerateLine, Interrupt, ModelOptions, ModelPool, Notice, OpenedModel, RequestLine,
    ScoreLine, SessionError, SessionReport, UserConfig,
};
use probity_store::TableWriter;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::events::WaitingEvents;
use crate::json::{from_value, to_value};
use crate::stages::options;
use crate::work::wait;

/// A model that stays in memory between calls.
#[pyclass(frozen, module = "probity._probity")]
pub(crate) struct Model {
    opened: OpenedModel,
    given: Value,
    relay: Arc<Relay>,
    models: Arc<ModelPool>,
}

/// Forwards events to the current caller.
#[derive(Default)]
struct Relay(Mutex<Option<Arc<WaitingEvents>>>);

impl Relay {
    fn current(&self) -> Option<Arc<WaitingEvents>> {
        self.0.lock().clone()
    }
}

impl Events for Relay {
    fn notice(&self, notice: Notice<'_>) {
        if let Some(waiting) = self.current() {
            waiting.notice(notice);
        }
    }

    fn report(&self, report: SessionReport<'_>) -> Result<(), SinkError> {
        self.current().map_or(Ok(()), |waiting| waiting.report(report))
    }
}

impl Model {
    /// The models. Their events go to `events` until [`Self::is_left`].
    pub(crate) fn pool(&self, events: &Arc<WaitingEvents>) -> Arc<ModelPool> {
        *self.relay.0.lock() = Some(Arc::clone(events));
        Arc::clone(&self.models)
    }

    /// Stops forwarding events.
    pub(crate) fn is_left(&self) {
        *self.relay.0.lock() = None;
    }

    /// Runs the requests and returns their answers.
    fn ask<'py, L: RequestLine>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyAny>,
        observer: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let lines =
            to_value(requests).map_err(|why| crate::error::with_hint(&format!("{}: {}", why.place, why.why)))?;
        let lines: Vec<String> = lines.as_array().into_iter().flatten().map(Value::to_string).collect();
        let lines = lines.join("\n");
        let events = Arc::new(WaitingEvents::default());
        let interrupt = Interrupt::default();
        let models = self.pool(&events);
        let context = Context { events: events.clone(), interrupt: interrupt.clone(), models };
        let answered = wait(py, &events, &interrupt, observer, || answer::<L>(&self.opened, &lines, &context));
        self.is_left();
        from_value(py, &answered??)
    }
}

#[pymethods]
impl Model {
    /// Loads a model with these options.
    #[staticmethod]
    #[pyo3(signature = (given, observer = None))]
    fn load(py: Python<'_>, given: &Bound<'_, PyDict>, observer: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut given = options(given)?;
        UserConfig::load().map_err(Failure::from)?.add_compute(&specs::<ModelOptions>(), &mut given);
        let options: ModelOptions = read(&given).map_err(|error| Failure::from(SessionError::from(error)))?;
        let relay = Arc::new(Relay::default());
        let models = Arc::new(ModelPool::new(relay.clone()));
        let events = Arc::new(WaitingEvents::default());
        *relay.0.lock() = Some(events.clone());
        let load = || -> Result<OpenedModel, Failure> {
            let opened = OpenedModel::open(&options)?;
            models.language(&opened)?;
            Ok(opened)
        };
        let opened = wait(py, &events, &Interrupt::default(), observer, load)??;
        let model = Self { opened, given: Value::Object(given), relay, models };
        model.is_left();
        Ok(model)
    }

    /// Options that the model was loaded with.
    #[getter]
    fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_value(py, &self.given)
    }

    /// Description of the model: name, architecture, weights, fingerprint and compute settings.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let model = py.detach(|| self.models.language(&self.opened).map_err(Failure::from))?;
        from_value(py, &json!(self.opened.thinking(&*model).description()))
    }

    /// Probabilities of labels and texts.
    #[pyo3(signature = (requests, observer = None))]
    fn logprobs<'py>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyAny>,
        observer: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask::<ScoreLine>(py, requests, observer)
    }

    /// Generated texts.
    #[pyo3(signature = (requests, observer = None))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        requests: &Bound<'py, PyAny>,
        observer: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask::<GenerateLine>(py, requests, observer)
    }
}

/// Memory to write a table to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Renumbers problems from 0, like Python lists.
fn by_index(mut problems: LineProblems) -> LineProblems {
    problems.unit = RecordUnit::Index;
    for problem in &mut problems.kept {
        (problem.line, problem.unit) = (problem.line - 1, RecordUnit::Index);
    }
    problems
}

/// Answers requests in order. If one is invalid, it returns an error and runs none.
fn answer<L: RequestLine>(opened: &OpenedModel, lines: &str, context: &Context) -> Result<Value, Failure> {
    let mut records = Records::<L>::new(lines.as_bytes(), "the requests".to_owned(), None)?;
    let asked: Vec<(usize, L)> = records.by_ref().collect();
    let mut problems = by_index(records.into_problems());
    let model = context.models.language(opened)?;
    let memory = Memory::default();
    let writer = AnswerWriter::new(
        TableWriter::to_stream("the answers", memory.clone()),
        model.description().precision,
        context,
    );
    if !problems.is_empty() {
        return Err(probity_data::DataError::Problems(problems).into());
    }
    let (_, tally) =
        writer.ask::<L>(&opened.thinking(&*model), &mut asked.into_iter(), |request| L::fits(&model, request))?;
    if !tally.refused.is_empty() {
        tally.refused.into_iter().for_each(|(line, why)| problems.push(line - 1, why));
        return Err(probity_data::DataError::Problems(problems).into());
    }
    let text = memory.0.lock();
    let rows = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(rows.map(|line| serde_json::from_slice::<Value>(line).expect("a line of our own")).collect())
}
