//! Methods as stages: their names and options, and how to run one.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use probity_data::GivenTable;
use probity_options::{GivenOptions, OptionKind, OptionSpec, specs};
use probity_session::{
    Context, Interrupt, ModelOptions, ModelPool, Notice, Plan, PlannedRun, RunEnd, RunOutcome, UserConfig, stage_kind,
    stage_kinds, stage_options,
};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::arrow_rows::ArrowRows;
use crate::error::{Failure, with_hint};
use crate::events::WaitingEvents;
use crate::given_rows::GivenRows;
use crate::json::{from_value, to_value};
use crate::model::Model;
use crate::work::wait;

/// All methods: name, help, needs and options.
#[pyfunction]
pub(crate) fn kinds(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let kind = |kind: &dyn probity_methods::DynMethod| {
        let needs = kind.needs();
        json!({
            "name": kind.name(), "about": kind.about(), "long_about": kind.long_about(), "model": needs.model,
            "samples": needs.samples, "options": all_described(&stage_options(kind)),
        })
    };
    from_value(py, &stage_kinds().map(kind).collect())
}

/// The options of a model.
#[pyfunction]
pub(crate) fn model_options(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    from_value(py, &all_described(&specs::<ModelOptions>()))
}

/// Options, each followed by its keys, which are accepted as options too.
fn all_described(options: &[OptionSpec]) -> Value {
    let key = |key: &OptionSpec| {
        let mut key = described(key);
        key["key"] = true.into();
        key
    };
    options.iter().flat_map(|option| std::iter::once(described(option)).chain(option.keys.iter().map(key))).collect()
}

fn described(option: &OptionSpec) -> Value {
    let (kind, choices) = match &option.kind {
        OptionKind::Flag => ("flag", Vec::new()),
        OptionKind::Integer { .. } => ("integer", Vec::new()),
        OptionKind::Number => ("number", Vec::new()),
        OptionKind::Choice(choices) => ("choice", choices.iter().map(|choice| choice.name.as_str()).collect()),
        OptionKind::Text => ("text", Vec::new()),
    };
    json!({
        "field": option.field, "key": false, "help": option.help, "kind": kind, "choices": choices, "form": option.form,
        "list": option.is_list, "required": option.is_required && option.unless.is_none(),
        "default": if option.is_required { Value::Null } else { option.default.clone() },
    })
}

/// Runs a stage. `given` are its options by field; `data` is a table used instead of a file. Returns the folder (if
/// anything was written), the summary or the result of a dry run, and how it ended.
#[pyfunction]
#[pyo3(signature = (kind, given, data = None, model = None, observer = None))]
pub(crate) fn run_stage<'py>(
    py: Python<'py>,
    kind: &str,
    given: &Bound<'py, PyDict>,
    data: Option<&Bound<'py, PyAny>>,
    model: Option<&Model>,
    observer: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let method = stage_kind(kind).ok_or_else(|| PyValueError::new_err(format!("unknown method `{kind}`")))?;
    let given = options(given)?;
    let table = data.map(table).transpose()?;
    let events = Arc::new(WaitingEvents::default());
    let interrupt = Interrupt::default();
    let pool = model.map_or_else(|| Arc::new(ModelPool::new(events.clone())), |model| model.pool(&events));
    let context = Context { events: events.clone(), interrupt: interrupt.clone(), models: pool };
    let place = Mutex::default();
    let ended = wait(py, &events, &interrupt, observer, || run(method, given, table, &context, &place));
    if let Some(model) = model {
        model.is_left();
    }
    let ended = ended.and_then(|ended| Ok(ended?));
    let (folder, ended) = ended.map_err(|error| match place.into_inner() {
        _ if !error.is_instance_of::<PyKeyboardInterrupt>(py) => error,
        Some(folder) => {
            let goes_on = format!("continue with out={:?}, resume=True", folder.display().to_string());
            PyKeyboardInterrupt::new_err(format!("finished work is kept: {goes_on}"))
        }
        None => PyKeyboardInterrupt::new_err("no answers are stored; a new run starts from scratch"),
    })?;
    from_value(py, &json!({ "folder": folder, "result": events.take().result, "ended": ended }))
}

fn run(
    method: &'static dyn probity_methods::DynMethod,
    mut given: GivenOptions,
    table: Option<Box<dyn GivenTable>>,
    context: &Context,
    place: &Mutex<Option<PathBuf>>,
) -> Result<(Option<PathBuf>, &'static str), Failure> {
    let config = UserConfig::load()?;
    if let Some(model) = config.model.as_ref().filter(|_| method.needs().model) {
        given.entry("model").or_insert_with(|| model.clone().into());
    }
    config.add_compute(&stage_options(method), &mut given);
    let mut stage = PlannedRun::new(method, &given, None)?;
    if let Some(table) = table {
        stage = stage.over_table(table)?;
    }
    // Python runs always write tables, since nothing is printed.
    let own = stage.run.output.out.is_none() && !stage.run.ask.dry_run;
    if own {
        stage.run.output.out = Some(config.folder_of_its_own(method.name()));
    }
    let folder = stage.run.output.out.clone().filter(|_| !stage.run.ask.dry_run);
    let keeps = !stage.run.keep.no_store;
    let plan = Plan::single_stage(stage, typed(method.name(), &given));
    let ready = plan.check()?;
    if let Some(out) = folder.as_ref().filter(|_| own) {
        // Reported before the first query, so that an interrupted run can be resumed there.
        context.events.notice(Notice::Message(&format!("results go to {}", out.display())));
    }
    *place.lock() = folder.clone().filter(|_| keeps);
    let ends = plan.run(ready, context)?;
    let unscored = |end: &RunEnd<'_>| {
        let outcomes = &end.in_short().filter(|_| end.stage.run.ask.strict)?.outcomes;
        (outcomes.unscored() > 0).then(|| outcomes.line())
    };
    if let (Some(outcomes), Some(folder)) = (ends.iter().find_map(unscored), &folder) {
        let shown = folder.display().to_string();
        return Err(Failure::from_text(format!(
            "strict: some results have no score: {outcomes}\n\nhint: open the scored results with \
             probity.open_run({shown:?})"
        )));
    }
    let ended = ends.first().map_or("finished", |end| match &end.ended {
        RunOutcome::Finished(_) => "finished",
        RunOutcome::Before(_) => "before",
        RunOutcome::Until(_) => "until",
        RunOutcome::Planned => "planned",
        RunOutcome::Failed => "failed",
    });
    Ok((folder, ended))
}

/// The equivalent command for the manifest.
fn typed(name: &str, given: &GivenOptions) -> Vec<String> {
    let mut arguments = vec![name.to_owned()];
    for (field, value) in given {
        let option = format!("--{}", field.replace('_', "-"));
        let values = match value {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            match value {
                Value::Bool(false) | Value::Null => {}
                Value::Bool(true) => arguments.push(option.clone()),
                Value::String(text) => arguments.extend([option.clone(), text.clone()]),
                other => arguments.extend([option.clone(), other.to_string()]),
            }
        }
    }
    arguments
}

/// Keyword arguments as options.
pub(crate) fn options(given: &Bound<'_, PyDict>) -> PyResult<GivenOptions> {
    match to_value(given.as_any()) {
        Ok(Value::Object(given)) => Ok(given),
        Ok(_) => Err(PyValueError::new_err("options must be keyword arguments")),
        Err(why) => Err(PyValueError::new_err(format!("{}: {}", why.place, why.why))),
    }
}

/// Writes a table in memory as JSON lines, for an option that takes a file; `name` is its name in messages.
#[pyfunction]
pub(crate) fn write_rows(name: &str, data: &Bound<'_, PyAny>, path: PathBuf) -> PyResult<()> {
    let rows = table(data)?;
    data.py().detach(|| {
        let cannot = |error: std::io::Error| with_hint(&format!("{} cannot be written: {error}", path.display()));
        let mut file = BufWriter::new(File::create(&path).map_err(cannot)?);
        for (place, row) in rows {
            let row = row.map_err(|error| with_hint(&format!("{name}: index {place}: {error}")))?;
            writeln!(file, "{}", row.into_object()).map_err(cannot)?;
        }
        file.flush().map_err(cannot)
    })
}

/// An Arrow table, or dicts.
fn table(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn GivenTable>> {
    if data.hasattr("__arrow_c_stream__")? {
        return Ok(Box::new(ArrowRows::from_stream(data)?));
    }
    Ok(Box::new(GivenRows::from_iterable(data)?))
}
