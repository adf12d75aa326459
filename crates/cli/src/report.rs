//! `probity report`: results of runs for people and programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use miette::IntoDiagnostic as _;
use probity_analysis::Table;
use probity_report::{Options, ReportedRun, RunReport};
use probity_session::{ErrorText, PlanProblems, RunEnd, RunOutcome, resolved};
use probity_stats::Resampling;
use probity_store::{MANIFEST, Manifest, SUMMARY, check_writable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smart_default::SmartDefault;

use crate::error::FileError;
use crate::exit::Completed;
use crate::global::Global;
use crate::options::Typed;
use crate::output::{FileOfARun, folder_of, is_stdout, spare_run, write_output, write_text};
use crate::progress::Reporter;
use crate::terminal::{counted, print, size, table_text, visible};

pub(crate) const LONG_ABOUT: &str = "\
Make a report of runs: one HTML file, tables, plots

The HTML file is complete in itself: figures, tables and samples, which can be searched, filtered and opened to their \
prompts and probabilities. It asks the network for nothing and can be sent or archived. With several runs it has them \
side by side and tests their differences over the samples that they share. Without any output the tables are printed.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  probity report run --html report.html
  probity report run-a run-b --html report.html --csv tables
  probity report run --latex tables.tex --svg figures
  probity report run | less";

/// Options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders of runs, finished or not
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    options: Typed<ReportOptions>,
}

/// What a report is and where it goes.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ReportOptions {
    /// Write the page here
    #[schemars(extend("form" = "FILE", "heading" = "Outputs"))]
    html: Option<PathBuf>,
    /// Write each table into this folder as comma-separated values
    #[schemars(extend("form" = "DIR", "heading" = "Outputs"))]
    csv: Option<PathBuf>,
    /// Write all tables here as JSON; figures are unrounded, tables of the method itself as they are printed
    /// (summary.json has them unrounded)
    #[schemars(extend("form" = "FILE", "heading" = "Outputs"))]
    json: Option<PathBuf>,
    /// Write all tables here as Markdown
    #[schemars(extend("form" = "FILE", "heading" = "Outputs"))]
    markdown: Option<PathBuf>,
    /// Write all tables here as LaTeX (package booktabs)
    #[schemars(extend("form" = "FILE", "heading" = "Outputs"))]
    latex: Option<PathBuf>,
    /// Write each plot into this folder as SVG
    #[schemars(extend("form" = "DIR", "heading" = "Outputs"))]
    svg: Option<PathBuf>,
    /// The page's title
    #[default("probity report")]
    title: String,
    /// How many samples the page holds, over all runs; figures and tables are over all
    #[schemars(extend("form" = "N"))]
    #[default(10_000)]
    samples: usize,
    /// Swaps that a randomisation test draws where it cannot go through all (more than 4,096)
    #[schemars(range(min = 1, max = 1_000_000), extend("form" = "N"))]
    #[default(1000)]
    rounds: u32,
    /// Seed of the swaps that are drawn
    #[schemars(extend("form" = "N"))]
    seed: u64,
}

/// The report of a recipe.
pub(crate) struct RecipeReport {
    pub(crate) options: ReportOptions,
    /// The lines of its options in the recipe.
    pub(crate) lines: BTreeMap<String, usize>,
    /// The folders of all runs of the recipe, in order.
    pub(crate) folders: Vec<PathBuf>,
}

/// Why an output cannot have this name.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum TakenName {
    #[error("{} is there already and is no {kind}", path.display())]
    #[diagnostic(help("give another name, such as {example}"))]
    SomethingElse { path: PathBuf, kind: &'static str, example: &'static str },
    #[error("--{first} and --{second} name the same file, {}", path.display())]
    #[diagnostic(help("give each a name of its own"))]
    Twice { first: &'static str, second: &'static str, path: PathBuf },
    #[error("{} is a folder", path.display())]
    #[diagnostic(help("give the name of a file in it"))]
    Folder { path: PathBuf },
    #[error("--{option} writes several files, which cannot go to standard output")]
    #[diagnostic(help("give a folder, such as {option}; --html, --json, --markdown and --latex can go there"))]
    Several { option: &'static str },
}

impl ReportArgs {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        self.options.report(&self.runs, &Reporter::new(global))?;
        Ok(Completed::Success)
    }
}

impl RecipeReport {
    /// Reports outputs that cannot be written, before hours of computation.
    pub(crate) fn check_places(&self, problems: &mut PlanProblems) {
        let of_runs: Vec<PathBuf> = self.folders.iter().map(|folder| resolved(folder)).collect();
        for (option, error) in self.options.without_place(&of_runs) {
            let told = ErrorText::from_error(&*error).about(option);
            match self.lines.get(option) {
                Some(line) => problems.at(*line, told),
                None => problems.anywhere(told),
            }
        }
    }

    /// Reports on all finished runs, including earlier ones that were not selected this time. After a dry run nothing
    /// has changed.
    pub(crate) fn report(&self, ends: &[RunEnd<'_>], reporter: &Reporter) -> miette::Result<()> {
        let has_finished = |folder: &&PathBuf| {
            let end = ends.iter().find(|end| end.stage.run.output.out.as_ref() == Some(*folder));
            end.map_or_else(|| Manifest::was_finished(folder), |end| end.in_short().is_some())
        };
        let folders: Vec<PathBuf> = self.folders.iter().filter(has_finished).cloned().collect();
        if folders.is_empty() || ends.iter().all(|end| matches!(end.ended, RunOutcome::Planned)) {
            return Ok(());
        }
        self.options.report(&folders, reporter)
    }
}

impl ReportOptions {
    /// Reports on the runs in these folders.
    pub(crate) fn report(&self, runs: &[PathBuf], reporter: &Reporter) -> miette::Result<()> {
        // Repeated after the runs of a recipe, because their files exist only now.
        self.spare_other_files()?;
        let runs = runs.iter().map(|path| ReportedRun::open(path)).collect::<Result<Vec<_>, _>>()?;
        let resampling = Resampling { rounds: self.rounds as usize, seed: self.seed, ..Resampling::default() };
        let report = RunReport::new(runs, Options { title: self.title.clone(), samples: self.samples, resampling })?;
        for (run, note) in report.notes() {
            reporter.say(&visible(&format!("{run}: {note}")));
        }
        if let Some(path) = &self.html {
            write_output(path, |writer| Ok(report.write_html(writer)?))?;
            if !is_stdout(path) {
                let bytes = fs::metadata(path).map(|file| file.len()).unwrap_or_default();
                reporter.say(&format!("{} ({})", path.display(), size(bytes)));
            }
        }
        self.write_tables(&report, reporter)?;
        if let Some(folder) = &self.svg {
            for figure in report.figures() {
                write_file(folder, &figure.id, "svg", &figure.standalone())?;
            }
        }
        if !self.has_output() {
            report.tables().try_for_each(|table| print(&table_text(table)))?;
        }
        Ok(())
    }

    /// Outputs that are one file, by option, without standard output.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("html", &self.html), ("json", &self.json), ("markdown", &self.markdown), ("latex", &self.latex)];
        all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref().filter(|path| !is_stdout(path))?)))
    }

    /// Outputs that are folders, by option.
    fn folders(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("csv", &self.csv), ("svg", &self.svg)];
        all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// Fails if an output would replace another file.
    fn spare_other_files(&self) -> miette::Result<()> {
        self.folders().try_for_each(|(option, path)| several(option, path))?;
        self.files().try_for_each(|(option, path)| self.own_name(option, path).and_then(|()| spare(option, path)))
    }

    /// Fails if an earlier output has the same path.
    fn own_name(&self, second: &'static str, path: &Path) -> miette::Result<()> {
        match self.files().find(|(option, other)| *option == second || resolved(other) == resolved(path)) {
            Some((first, _)) if first != second => {
                Err(TakenName::Twice { first, second, path: path.to_owned() }.into())
            }
            _ => Ok(()),
        }
    }

    /// Outputs that cannot be written, by option. `of_runs` are the resolved run folders, which may not exist yet.
    fn without_place(&self, of_runs: &[PathBuf]) -> Vec<(&'static str, miette::Report)> {
        let file = |(option, path)| {
            let own_name = self.own_name(option, path).and_then(|()| spare(option, path));
            Some((option, own_name.and_then(|()| place(path, of_runs)).err()?))
        };
        let folder = |(option, path): (&'static str, &Path)| {
            let writable = || Ok(check_writable(path).map_err(unwritable(path, "created"))?);
            Some((option, several(option, path).and_then(|()| writable()).err()?))
        };
        self.files().filter_map(file).chain(self.folders().filter_map(folder)).collect()
    }

    fn has_output(&self) -> bool {
        [&self.html, &self.csv, &self.json, &self.markdown, &self.latex, &self.svg].into_iter().any(Option::is_some)
    }

    fn write_tables(&self, report: &RunReport, reporter: &Reporter) -> miette::Result<()> {
        if let Some(folder) = &self.csv {
            // Some tables are only text, without columns.
            let tables: Vec<&Table> = report.tables().filter(|table| !table.columns.is_empty()).collect();
            for table in &tables {
                write_file(folder, &table.id, "csv", &probity_report::csv(table))?;
            }
            reporter.say(&format!("{} ({})", folder.display(), counted(tables.len(), "table")));
        }
        let joined = |form: fn(&Table) -> String| report.tables().map(form).collect::<Vec<_>>().join("\n");
        if let Some(path) = &self.json {
            let tables: Vec<Value> = report.tables().map(probity_report::json).collect();
            write_text(path, &(serde_json::to_string_pretty(&tables).into_diagnostic()? + "\n"))?;
        }
        if let Some(path) = &self.markdown {
            write_text(path, &joined(probity_report::markdown))?;
        }
        if let Some(path) = &self.latex {
            write_text(path, &joined(probity_report::latex))?;
        }
        Ok(())
    }
}

/// Fails if an output of several files is standard output.
fn several(option: &'static str, path: &Path) -> miette::Result<()> {
    if is_stdout(path) { Err(TakenName::Several { option }.into()) } else { Ok(()) }
}

/// Outputs that are one file: option, description, first bytes and an example name.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("html", "page", "<!doctype html", "report.html"),
    ("json", "JSON of a report", "[\n  {\n    \"id\": ", "report.json"),
    ("markdown", "Markdown of a report", "### ", "report.md"),
    ("latex", "LaTeX of a report", "\\begin{table}", "report.tex"),
];

/// Fails if the path is another file. A report may be replaced by a report, but files of a run are never replaced.
fn spare(option: &str, path: &Path) -> miette::Result<()> {
    spare_run(path)?;
    let kind = KINDS.iter().find(|(of, ..)| *of == option);
    let Some((_, kind, begins, example)) = kind.filter(|_| path.is_file()) else { return Ok(()) };
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(64).read_to_end(&mut start))
        .map_err(FileError::context(format!("{} could not be read", path.display())))?;
    if start.is_empty() || start.trim_ascii_start().to_ascii_lowercase().starts_with(begins.as_bytes()) {
        return Ok(());
    }
    Err(TakenName::SomethingElse { path: path.to_owned(), kind, example }.into())
}

/// An error if the file cannot be written once these run folders exist.
fn place(path: &Path, of_runs: &[PathBuf]) -> miette::Result<()> {
    let at = resolved(path);
    if of_runs.contains(&at) {
        return Err(TakenName::Folder { path: path.to_owned() }.into());
    }
    // Files that a run will write; the names of its tables are not known yet.
    let name = path.file_name().unwrap_or_default();
    let is_of_a_run = name == MANIFEST || name == SUMMARY || path.extension().is_some_and(|end| end == "jsonl");
    if is_of_a_run && at.parent().is_some_and(|folder| of_runs.iter().any(|run| run == folder)) {
        return Err(FileOfARun { path: path.to_owned() }.into());
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(TakenName::Folder { path: path.to_owned() }.into()),
        // Devices and pipes are written directly.
        Ok(found) if !found.is_file() => return Ok(()),
        _ => {}
    }
    let folder = folder_of(path);
    let will_be_there = of_runs.iter().any(|run| run.starts_with(resolved(folder)));
    if !will_be_there && let Err(error) = fs::metadata(folder) {
        let hint = format!("make the folder {}, or give another place", folder.display());
        return Err(FileError::context(format!("{} could not be written", path.display()))(error)
            .with_hint(hint)
            .into());
    }
    Ok(check_writable(folder).map_err(unwritable(path, "written"))?)
}

/// The error of an output that cannot be created or written.
fn unwritable(path: &Path, action: &str) -> impl FnOnce(io::Error) -> FileError {
    let what = format!("{} could not be {action}", path.display());
    |error| FileError::context(what)(error).with_hint("give a place that you may write to")
}

/// Creates the folder if missing; replaces files with these names.
fn write_file(folder: &Path, name: &str, extension: &str, text: &str) -> miette::Result<()> {
    fs::create_dir_all(folder).map_err(FileError::context(format!("{} could not be created", folder.display())))?;
    write_text(&folder.join(format!("{name}.{extension}")), text)
}
