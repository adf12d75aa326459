//! A report and everything that is computed before writing it.

use probity_analysis::Table;
use probity_stats::Resampling;
use serde_json::Value;

use crate::attributes::{Attribute, attributes};
use crate::compare::{compare, verdicts};
use crate::facts::RunFacts;
use crate::figures::plots;
use crate::run::ReportedRun;
use crate::{Figure, ReportError, tables};

/// Options of a report.
#[derive(Debug, Clone)]
pub struct Options {
    /// Title of the page.
    pub title: String,
    /// Maximum number of samples in the page, over all runs.
    pub samples: usize,
    /// Intervals and tests.
    pub resampling: Resampling,
}

impl Default for Options {
    fn default() -> Self {
        Self { title: "probity report".into(), samples: 10_000, resampling: Resampling::default() }
    }
}

/// One run of a report.
#[derive(Debug)]
pub(crate) struct ReportPart {
    pub(crate) run: ReportedRun,
    pub(crate) facts: RunFacts,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    /// Missing plots, and what the run did not keep.
    pub(crate) notes: Vec<String>,
}

/// Runs with their figures, ready to be written in any format.
#[derive(Debug)]
pub struct RunReport {
    pub(crate) parts: Vec<ReportPart>,
    /// Conclusion, if there is one run.
    verdict: Option<Table>,
    /// Tables about several runs.
    pub(crate) across: Vec<Table>,
    pub(crate) across_figures: Vec<Figure>,
    pub(crate) options: Options,
}

impl RunReport {
    /// The id of the table of conclusions.
    pub const VERDICTS: &'static str = "verdicts";

    /// Reads the runs' tables and computes everything but the list of samples, which is streamed when the page is
    /// written. Equal run names get a number.
    pub fn new(runs: Vec<ReportedRun>, options: Options) -> Result<Self, ReportError> {
        let mut parts: Vec<ReportPart> = Vec::new();
        for mut run in runs {
            let same = parts
                .iter()
                .filter(|part| {
                    part.run.path.file_name() == run.path.file_name() && part.run.name.starts_with(&run.name)
                })
                .count();
            if same > 0 {
                run.rename(format!("{} ({})", run.name, same + 1));
            }
            // Ids of files and anchors start with a number, because a run's name may contain anything.
            let prefix = format!("run{}", parts.len() + 1);
            parts.push(ReportPart::new(&prefix, run, &options.resampling)?);
        }
        let (across, across_figures) = compare(&parts, &options.resampling);
        // The page shows the conclusion at the top; other formats have it as a table. With several runs it is in their
        // common tables.
        let verdict = Some(verdicts(&parts)).filter(|table| parts.len() == 1 && !table.rows.is_empty());
        Ok(Self { parts, verdict, across, across_figures, options })
    }

    /// Noun for the listed entries: samples, or items for a method without samples.
    pub(crate) fn noun(&self) -> &'static str {
        if self.parts.iter().any(|part| part.run.reads_samples()) { "sample" } else { "item" }
    }

    /// All tables: conclusions, tables about several runs, then those of each run.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.verdict.iter().chain(&self.across).chain(self.parts.iter().flat_map(|part| &part.tables))
    }

    /// All plots, in the same order.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.across_figures.iter().chain(self.parts.iter().flat_map(|part| &part.figures))
    }

    /// Notes with the names of their runs.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts.iter().flat_map(|part| part.notes.iter().map(|note| (part.run.name(), note.as_str())))
    }
}

impl ReportPart {
    fn new(prefix: &str, run: ReportedRun, resampling: &Resampling) -> Result<Self, ReportError> {
        let facts = RunFacts::read(&run)?;
        let attributes = attributes(&facts, resampling.confidence);
        let plots = plots(prefix, &run, &facts, &attributes, resampling);
        let mut tables = vec![tables::about(prefix, &run, &facts), tables::outcomes(prefix, &run, &facts)];
        tables.extend(tables::figures(prefix, &attributes, resampling));
        tables.extend(tables::method_tables(prefix, &run));
        for table in &mut tables {
            table.run = Some(run.name.clone());
        }
        let mut notes = Vec::new();
        if !tables::is_finished(&run) {
            notes.push(format!(
                "The run is not finished ({}): its figures cover the results so far.",
                tables::state(&run)
            ));
        }
        if !run.is_as_written {
            notes.push("Its manifest was changed after the run; probity check verifies the other files.".to_owned());
        }
        if run.summary.is_null() {
            notes.push("There is no summary, so the method's own tables are missing.".to_owned());
        }
        for path in run.changed_inputs() {
            notes.push(format!("{path} has changed since the run: the figures are for its previous content."));
        }
        let asked = !run.manifest["model"].is_null();
        if run.reads_samples() && run.samples().is_none() {
            notes.push("The run did not keep its samples: texts and gold scores are missing.".to_owned());
        }
        if asked && run.answers().is_none() {
            notes.push(
                "The run kept no answers (--no-store, or an older version): prompts and raw outputs are missing."
                    .to_owned(),
            );
        }
        notes.extend(plots.notes);
        Ok(Self { run, facts, attributes, tables, figures: plots.figures, notes })
    }

    /// Number of answers. Falls back to counting rows for metrics, which have no queries, and for killed runs, whose
    /// manifest lacks the count.
    pub(crate) fn answers(&self) -> u64 {
        let asked = self.run.manifest.pointer("/cost/requests").and_then(Value::as_u64).filter(|asked| *asked > 0);
        asked.unwrap_or_else(|| self.facts.samples.iter().map(|sample| u64::from(sample.judgements)).sum())
    }
}
