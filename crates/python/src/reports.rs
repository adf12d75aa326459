//! Reports of runs, and comparison with a baseline.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use probity_analysis::GateOptions;
use probity_report::{Options, ReportedRun, RunReport};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::{Failure, with_hint};
use crate::json::from_value;

/// Writes the report of runs as one HTML file.
#[pyfunction]
#[pyo3(signature = (runs, html, title = None, samples = None))]
pub(crate) fn report(
    py: Python<'_>,
    runs: Vec<PathBuf>,
    html: PathBuf,
    title: Option<String>,
    samples: Option<usize>,
) -> PyResult<()> {
    py.detach(|| {
        let defaults = Options::default();
        let options = Options {
            title: title.unwrap_or(defaults.title),
            samples: samples.unwrap_or(defaults.samples),
            resampling: defaults.resampling,
        };
        let runs = runs.iter().map(|path| ReportedRun::open(path)).collect::<Result<Vec<_>, _>>();
        let report = runs.and_then(|runs| RunReport::new(runs, options)).map_err(Failure::from)?;
        let cannot = |error: std::io::Error| with_hint(&format!("{} cannot be written: {error}", html.display()));
        let mut file = BufWriter::new(File::create(&html).map_err(cannot)?);
        report.write_html(&mut file).map_err(Failure::from)?;
        file.flush().map_err(cannot)
    })
}

/// Compares a run with a baseline, or two candidates of a run, for each attribute.
#[pyfunction]
#[pyo3(signature = (run, baseline = None, candidates = None, attribute = Vec::new(), bounds = (0.0, 0.0), allowed = (false, false)))]
pub(crate) fn gate(
    py: Python<'_>,
    run: PathBuf,
    baseline: Option<PathBuf>,
    candidates: Option<(String, String)>,
    attribute: Vec<String>,
    bounds: (f64, f64),
    allowed: (bool, bool),
) -> PyResult<Bound<'_, PyAny>> {
    let ((tolerance, minimum_effect), (unlike, missing)) = (bounds, allowed);
    let options = GateOptions { only: attribute, candidates, tolerance, minimum_effect, unlike, missing };
    let gated = py.detach(|| probity_analysis::gate(&run, baseline.as_deref(), &options).map_err(Failure::from))?;
    from_value(py, &json!(gated))
}
