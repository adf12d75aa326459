//! Parses a recipe into stages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use probity_lm::nearest;
use probity_methods::{DynMethod, MethodError, Needs};
use probity_options::{GivenOptions, OptionCause, OptionError, OptionSpec, Options, read_text, specs};
use probity_runtime::hub::known_model;
use probity_runtime::weights::sha256_file;
use probity_session::{
    DataOptions, ErrorText, ModelOptions, OtherStage, OutputOptions, PlanProblems, PlannedRun, SessionError,
    StageLines, StageOrigin, UserConfig, stage_kind, stage_kinds, unreadable_files,
};
use probity_store::RecipeMark;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::WrongValue;
use super::{keys, value};
use crate::error::FileError;
use crate::report::{RecipeReport, ReportOptions};

/// A recipe and the options of this invocation.
pub(super) struct AskedRecipe<'a> {
    pub(super) path: &'a Path,
    /// The selected runs; empty for all.
    pub(super) only: &'a [String],
    /// Options that override those of every stage.
    pub(super) flags: GivenOptions,
}

/// A parsed recipe.
pub(super) struct RecipeContent {
    /// In the order of the file.
    pub(super) stages: Vec<PlannedRun>,
    pub(super) report: Option<RecipeReport>,
    /// Stages that are not selected or have problems.
    pub(super) others: Vec<OtherStage>,
    /// Problems with the rest of the recipe.
    pub(super) problems: PlanProblems,
}

/// Reads a recipe. Fails if the file cannot be read or is not TOML.
pub(super) fn read(asked: &AskedRecipe<'_>) -> miette::Result<RecipeContent> {
    let file = asked.path.display().to_string();
    let text = read_text(asked.path).map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let error = FileError::context(format!("cannot read {file}"))(error);
        if missing {
            error.with_hint(format!(
                "create one with: probity recipe new compare --out \
                                              {file}"
            ))
        } else {
            error
        }
    })?;
    // Parsing continues after an error, so that all are reported at once.
    let (table, errors) = DeTable::parse_recoverable(&text);
    let mut problems = PlanProblems::default();
    for error in errors {
        let (line, column) = error.span().map_or((1, 1), |span| position(&text, span.start));
        problems.at(line, format!("column {column}: {}", error.message().replace('\n', ", ")));
    }
    problems.into_result(Some(&file))?;
    let sha256 = sha256_file(asked.path)?;
    let mut reader = RecipeReader { asked, text: &text, sha256, wrong: Vec::new(), problems: PlanProblems::default() };
    let (all, report) = reader.read(table.get_ref());
    // The report covers the whole recipe, whichever runs are selected. If one has problems, no report is written.
    let wrong = reader.wrong.iter().map(|other| other.folder.clone());
    let folders = all.iter().filter_map(|(_, stage)| stage.run.output.out.clone()).chain(wrong).collect();
    let report = report.map(|(options, lines)| RecipeReport { options, lines, folders });
    let is_asked = |run: &str| asked.only.is_empty() || asked.only.iter().any(|only| only == run);
    let (stages, left_out): (Vec<_>, Vec<_>) = all.into_iter().partition(|(run, _)| is_asked(run));
    let left_out = left_out.into_iter().filter_map(|(_, stage)| {
        Some(OtherStage { name: stage.name().to_owned(), folder: stage.run.output.out.clone()?, is_wrong: false })
    });
    let others = left_out.chain(reader.wrong).collect();
    let stages = stages.into_iter().map(|(_, stage)| stage).collect();
    Ok(RecipeContent { stages, report, others, problems: reader.problems })
}

/// Line and column of a byte, from 1.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    (before.matches('\n').count() + 1, before.chars().rev().take_while(|c| *c != '\n').count() + 1)
}

/// A value and the line of its key.
#[derive(Clone, Copy)]
struct KeyEntry<'t> {
    line: usize,
    value: &'t DeValue<'t>,
}

/// The tables of a recipe.
const TABLES: [&str; 5] = ["defaults", "data", "model", "report", "run"];

/// Values by key.
type KeyEntries<'t> = BTreeMap<&'t str, KeyEntry<'t>>;

/// The `[report]` table, with the lines of its options.
type AskedReport = (ReportOptions, BTreeMap<String, usize>);

/// The lines of keys.
fn lines_of(entries: &KeyEntries<'_>) -> BTreeMap<String, usize> {
    entries.iter().map(|(key, entry)| ((*key).to_owned(), entry.line)).collect()
}

/// A `[run.NAME]`, `[model.NAME]` or `[data.NAME]`.
struct NamedTable<'t> {
    name: &'t str,
    line: usize,
    entries: KeyEntries<'t>,
}

/// One of the models or data files of a run.
#[derive(Clone)]
struct NamedChoice<'t> {
    name: String,
    entries: KeyEntries<'t>,
}

impl NamedChoice<'_> {
    /// Placeholder if there is no model or data.
    fn absent(kind: &str) -> Self {
        Self { name: kind.to_owned(), entries: KeyEntries::new() }
    }
}

struct RecipeReader<'a> {
    asked: &'a AskedRecipe<'a>,
    text: &'a str,
    sha256: String,
    /// Runs that are no stage because of problems.
    wrong: Vec<OtherStage>,
    problems: PlanProblems,
}

/// Tables shared by all runs.
struct SharedOptions<'t> {
    defaults: KeyEntries<'t>,
    models: Vec<NamedTable<'t>>,
    data: Vec<NamedTable<'t>>,
}

impl RecipeReader<'_> {
    /// All stages with the names of their runs, and the report.
    fn read<'t>(&mut self, table: &'t DeTable<'t>) -> (Vec<(&'t str, PlannedRun)>, Option<AskedReport>) {
        let top = self.entries(table);
        for (key, entry) in top.iter().filter(|(key, _)| !TABLES.contains(key)) {
            self.problems.at(entry.line, keys::unknown(key, TABLES));
        }
        let defaults = top.get("defaults").map(|entry| self.table(*entry, "defaults")).unwrap_or_default();
        let models = self.named(top.get("model").copied(), "model", &specs::<ModelOptions>());
        let data = self.named(top.get("data").copied(), "data", &specs::<DataOptions>());
        let common = SharedOptions { defaults, models, data };
        self.check_defaults(&common.defaults);
        let runs = self.tables(top.get("run").copied(), "run");
        if runs.is_empty() {
            let hint = "add [run.NAME] with method = \"compare\"; probity recipe new compare prints an example";
            self.problems.at(1, ErrorText::from("the recipe has no run").with_hint(hint));
        }
        self.check_only(&runs);
        let mut stages = Vec::new();
        for run in &runs {
            self.run(run, &common, &mut stages);
        }
        let report = top.get("report").and_then(|entry| self.report(*entry));
        (stages, report)
    }

    /// The options of the report.
    fn report(&mut self, entry: KeyEntry<'_>) -> Option<AskedReport> {
        let entries = self.table(entry, "report");
        let options = specs::<ReportOptions>();
        self.check_keys(&entries, &options, &[]);
        let given = self.values(&entries, &options)?;
        let options = probity_options::read(&given);
        let options = options.map_err(|error| self.problems.at(entry.line, ErrorText::from_error(&error))).ok()?;
        Some((options, lines_of(&entries)))
    }

    fn line(&self, byte: usize) -> usize {
        position(self.text, byte).0
    }

    fn entries<'t>(&self, table: &'t DeTable<'t>) -> KeyEntries<'t> {
        let entry = |(key, value): (&'t Spanned<_>, &'t Spanned<DeValue<'t>>)| {
            let name: &std::borrow::Cow<'t, str> = key.get_ref();
            (name.as_ref(), KeyEntry { line: self.line(key.span().start), value: value.get_ref() })
        };
        table.iter().map(entry).collect()
    }

    /// The entries of a table, or a problem if the value is none.
    fn table<'t>(&mut self, entry: KeyEntry<'t>, name: &str) -> KeyEntries<'t> {
        if let Some(table) = entry.value.as_table() {
            return self.entries(table);
        }
        let told = ErrorText::from(format!("`{}` must be a table", name.escape_debug()));
        self.problems.at(entry.line, told.with_hint(format!("write it as [{name}]")));
        KeyEntries::new()
    }

    /// The tables `[kind.NAME]`, in the order of the file.
    fn tables<'t>(&mut self, entry: Option<KeyEntry<'t>>, kind: &str) -> Vec<NamedTable<'t>> {
        let Some(entry) = entry else { return Vec::new() };
        let Some(table) = entry.value.as_table() else {
            let told = ErrorText::from(format!("`{kind}` must contain named tables"));
            let hint = format!("write [{kind}.NAME]; put options of all runs in [defaults]");
            self.problems.at(entry.line, told.with_hint(hint));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (name, below) in self.entries(table) {
            if let Some(table) = below.value.as_table() {
                tables.push(NamedTable { name, line: below.line, entries: self.entries(table) });
            } else {
                let told = ErrorText::from(format!("`{}` is not in a named table", name.escape_debug()));
                let hint = format!("write [{kind}.NAME] above it; put options of all runs in [defaults]");
                self.problems.at(below.line, told.with_hint(hint));
            }
        }
        // Entries are sorted by key, but runs are executed in the order of the file.
        tables.sort_by_key(|table| table.line);
        tables
    }

    /// The tables of models or data, checked.
    fn named<'t>(&mut self, entry: Option<KeyEntry<'t>>, kind: &str, options: &[OptionSpec]) -> Vec<NamedTable<'t>> {
        let tables = self.tables(entry, kind);
        for table in &tables {
            self.check_keys(&table.entries, options, &[]);
            self.values(&table.entries, options);
            if !table.entries.contains_key(kind) {
                self.problems.at(table.line, format!("[{kind}.{}]: `{kind}` is missing", table.name.escape_debug()));
            }
        }
        tables
    }

    fn check_keys(&mut self, entries: &KeyEntries<'_>, options: &[OptionSpec], more: &[&str]) {
        let names: Vec<String> = options.iter().map(OptionSpec::name).collect();
        let is_known = |key: &str| more.contains(&key) || keys::find(options, key).is_some();
        for (key, entry) in entries.iter().filter(|(key, _)| !is_known(key)) {
            let known = more.iter().copied().chain(names.iter().map(String::as_str));
            self.problems.at(entry.line, keys::unknown(key, known));
        }
    }

    /// The values of these options, by field; reports invalid ones and returns `None` if there are any.
    fn values(&mut self, entries: &KeyEntries<'_>, options: &[OptionSpec]) -> Option<GivenOptions> {
        let mut given = Some(GivenOptions::new());
        for (key, entry) in entries {
            let Some(option) = keys::find(options, key) else { continue };
            match (value::value(option, entry.value, self.folder()), &mut given) {
                (Ok(value), Some(given)) => drop(given.insert(option.field.clone(), value)),
                (Ok(_), None) => {}
                (Err(why), _) => {
                    self.problems.at(entry.line, ErrorText::from_error(&why).about(key));
                    given = None;
                }
            }
        }
        given
    }

    /// The valid values; the others are already reported.
    fn sound_values(&self, entries: &KeyEntries<'_>, options: &[OptionSpec]) -> GivenOptions {
        let sound = |(key, entry): (&&str, &KeyEntry<'_>)| {
            let option = keys::find(options, key)?;
            Some((option.field.clone(), value::value(option, entry.value, self.folder()).ok()?))
        };
        entries.iter().filter_map(sound).collect()
    }

    /// Reports defaults that no method accepts.
    fn check_defaults(&mut self, defaults: &KeyEntries<'_>) {
        let all = stage_kinds().flat_map(keys::run_options);
        let all: Vec<OptionSpec> = all.collect();
        let known: BTreeSet<String> = all.iter().map(OptionSpec::name).collect();
        for (key, entry) in defaults.iter().filter(|(key, _)| keys::find(&all, key).is_none()) {
            self.problems.at(entry.line, keys::unknown(key, known.iter().map(String::as_str)));
        }
    }

    fn check_only(&mut self, runs: &[NamedTable<'_>]) {
        let names: Vec<&str> = runs.iter().map(|run| run.name).collect();
        for only in self.asked.only.iter().filter(|only| !names.contains(&only.as_str())) {
            let near = nearest(only, names.iter().copied());
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let told = ErrorText::from(format!("--only: there is no [run.{}]{near}", only.escape_debug()));
            self.problems.anywhere(told.with_hint(format!("the runs are {}", names.join(", "))));
        }
    }

    /// The stages of a run.
    fn run<'t>(&mut self, run: &NamedTable<'t>, common: &SharedOptions<'_>, stages: &mut Vec<(&'t str, PlannedRun)>) {
        let method = self.method(run);
        let options = method.map_or_else(options_of_any, keys::run_options);
        if method.is_some() {
            self.check_keys(&run.entries, &options, &["method"]);
        }
        let own = run.entries.iter().filter(|(key, _)| !matches!(**key, "model" | "data"));
        let own: KeyEntries<'_> = own.map(|(key, entry)| (*key, *entry)).collect();
        // Only to report problems: if its model is missing, the run is no stage and its values are not read again.
        self.values(&own, &options);
        let given = |key: &str| run.entries.get(key).or(common.defaults.get(key)).copied();
        // For an unknown method, only models and data that are set can be checked.
        let named =
            Needs { model: given("model").is_some(), samples: given("data").is_some(), ..Needs::MODEL_AND_SAMPLES };
        let needs = method.map_or(named, DynMethod::needs);
        let is_given = |switch: &str| given(&switch.replace('_', "-")).is_some();
        let Needs { model: asks_model, samples: reads_samples, .. } = match needs {
            // Labels include the samples, and need no model.
            Needs { labels: Some(labels), .. } if run.entries.contains_key(labels.option) => {
                Needs { model: false, samples: run.entries.contains_key("data"), ..needs }
            }
            Needs { without_model: Some(switch), .. } if is_given(switch) => Needs { model: false, ..needs },
            _ => needs,
        };
        // If the method needs no model, the default does not apply: only the run itself can set one, for its metrics.
        let models = match run.entries.get("model").copied() {
            None if !asks_model => vec![NamedChoice::absent("model")],
            own => self.choices("model", own.or(given("model")), &common.models, run),
        };
        let data = if reads_samples {
            self.choices("data", given("data"), &common.data, run)
        } else {
            vec![NamedChoice::absent("data")]
        };
        // Missing models or data are already reported; the rest is checked without them.
        let is_whole = !models.is_empty() && !data.is_empty();
        let [models, data] = [("model", models), ("data", data)]
            .map(|(kind, choices)| if choices.is_empty() { vec![NamedChoice::absent(kind)] } else { choices });
        for model in &models {
            for of in &data {
                let mut entries = self.keys_apart(&common.defaults, &options);
                let own = self.keys_apart(&run.entries, &options);
                entries.extend(own.clone());
                for (kind, choice) in [("model", model), ("data", of)] {
                    entries.remove(kind);
                    if let Some(method) = method {
                        self.check_fits(kind, choice, method, &options);
                    }
                    // Precedence: the run, then its model and data, then the defaults.
                    let chosen = self.keys_apart(&choice.entries, &options).into_iter();
                    entries.extend(chosen.filter(|(key, _)| !own.contains_key(*key) || *key == kind));
                }
                // Defaults may belong to other methods. Unknown keys of the run itself are already reported.
                entries.retain(|key, _| keys::find(&options, key).is_some());
                let several = [(&models, model), (&data, of)].into_iter().filter(|(all, _)| all.len() > 1);
                let name = several.fold(run.name.to_owned(), |name, (_, choice)| format!("{name}/{}", choice.name));
                let known = options.iter().flat_map(|option| std::iter::once(option).chain(&option.keys));
                let known = known.map(OptionSpec::name).collect();
                let lines = StageLines { stage: run.line, options: lines_of(&entries), known };
                let called = method.map_or("", DynMethod::name);
                let names: [(&str, &str); 4] =
                    [("run", run.name), ("method", called), ("model", &model.name), ("data", &of.name)];
                let stage = method
                    .filter(|_| is_whole)
                    .and_then(|method| self.stage(method, &options, &entries, name.clone(), &names, lines.clone()));
                if let Some(stage) = stage {
                    stages.push((run.name, stage));
                    continue;
                }
                let given = self.sound_values(&entries, &options);
                self.look_at_inputs(method, &given, &name, &lines);
                let out = given.get("out").and_then(Value::as_str).and_then(|out| expand(out, &names).ok());
                self.wrong.extend(out.map(|out| OtherStage { name, folder: out.into(), is_wrong: true }));
            }
        }
    }

    /// Turns the keys of an option such as `compute` into separate entries, so that tables are merged by key. Tables
    /// with unknown or duplicate keys stay, and the option reports them.
    fn keys_apart<'t>(&self, entries: &KeyEntries<'t>, options: &[OptionSpec]) -> KeyEntries<'t> {
        let mut apart = entries.clone();
        for option in options.iter().filter(|option| !option.keys.is_empty()) {
            let name = option.name();
            let Some(table) = entries.get(name.as_str()).and_then(|entry| entry.value.as_table()) else { continue };
            let within = self.entries(table);
            let is_key =
                |key: &&str| option.keys.iter().any(|known| known.name() == *key) && !entries.contains_key(*key);
            if within.keys().all(is_key) {
                apart.remove(name.as_str());
                apart.extend(within);
            }
        }
        apart
    }

    /// Checks data, model and files of a run that is no stage, so that their problems are reported too.
    fn look_at_inputs(&mut self, method: Option<&dyn DynMethod>, given: &GivenOptions, name: &str, lines: &StageLines) {
        if let Some(Err(error)) = part(given).map(|DataOptions { data, .. }| probity_data::open(&data)) {
            self.problems.add_stage_error(Some(lines), name, Some("data"), &error);
        }
        if let Some(Err(error)) = part(given).map(|model: ModelOptions| model.located()) {
            self.problems.add_stage_error(Some(lines), name, Some("model"), &error);
        }
        let unreadable = method.map(|method| unreadable_files(method, &Value::Object(given.clone())));
        for (option, error) in unreadable.into_iter().flatten() {
            self.problems.add_stage_error(Some(lines), name, Some(&option), &error);
        }
    }

    /// Options of a model or data must apply to the method: ignoring one would compute something else.
    fn check_fits(&mut self, kind: &str, choice: &NamedChoice<'_>, method: &dyn DynMethod, options: &[OptionSpec]) {
        for (key, entry) in choice.entries.iter().filter(|(key, _)| keys::find(options, key).is_none()) {
            let (key, method) = (key.escape_debug(), method.name());
            let told = ErrorText::from(format!("`{method}` has no option `{key}`, which this {kind} sets"));
            self.problems.at(entry.line, told.with_hint(format!("use another {kind} for this method")));
        }
    }

    fn method(&mut self, run: &NamedTable<'_>) -> Option<&'static dyn DynMethod> {
        let listed = keys::methods().collect::<Vec<_>>().join(", ");
        let Some(entry) = run.entries.get("method") else {
            let told = ErrorText::from(format!("run `{}`: `method` is missing", run.name.escape_debug()));
            self.problems.at(run.line, told.with_hint(format!("set it to one of {listed}")));
            return None;
        };
        let found = entry.value.as_str().and_then(stage_kind);
        if found.is_none() {
            let given = entry.value.as_str().unwrap_or("this value");
            let near =
                nearest(given, keys::methods()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            self.problems.at(entry.line, format!("`method`: `{}` is none of {listed}{near}", given.escape_debug()));
        }
        found
    }

    /// The models or data that a run names; by default the only one there is.
    fn choices<'t>(
        &mut self,
        kind: &str,
        given: Option<KeyEntry<'t>>,
        tables: &[NamedTable<'t>],
        run: &NamedTable<'_>,
    ) -> Vec<NamedChoice<'t>> {
        let of_table = |table: &NamedTable<'t>| NamedChoice { name: plain(table.name), entries: table.entries.clone() };
        let Some(entry) = given else {
            return match tables {
                [] => vec![NamedChoice::absent(kind)],
                [only] if only.entries.contains_key(kind) => vec![of_table(only)],
                [_] => Vec::new(),
                several => {
                    let names = several.iter().map(|table| table.name).collect::<Vec<_>>().join(", ");
                    let name = run.name.escape_debug();
                    let told = ErrorText::from(format!("run `{name}`: `{kind}` is missing"));
                    self.problems.at(run.line, told.with_hint(format!("set it to one or a list of {names}")));
                    Vec::new()
                }
            };
        };
        let values: Vec<&'t DeValue<'t>> = match entry.value {
            DeValue::Array(list) => list.iter().map(Spanned::get_ref).collect(),
            value => vec![value],
        };
        if values.is_empty() {
            self.problems.at(entry.line, ErrorText::from_error(&WrongValue::NoItem).about(kind));
        }
        let mut choices: Vec<NamedChoice<'t>> = Vec::new();
        for value in values {
            let Some(name) = value.as_str() else {
                self.problems.at(entry.line, format!("`{kind}`: expected a name, or a list of names"));
                continue;
            };
            let table = tables.iter().find(|table| table.name == name);
            // A name without a table may be a model of the hub: only names similar to a table's are reported as typos.
            if table.is_none()
                && !self.stands_for_itself(name)
                && let Some(near) = nearest(name, tables.iter().map(|table| table.name))
            {
                let name = name.escape_debug();
                self.problems.at(entry.line, format!("`{kind}`: there is no [{kind}.{name}]; did you mean `{near}`?"));
                continue;
            }
            let direct = || NamedChoice {
                name: plain(name),
                entries: [(if kind == "model" { "model" } else { "data" }, KeyEntry { value, ..entry })].into(),
            };
            // A table without it is already reported.
            if table.is_none_or(|table| table.entries.contains_key(kind)) {
                choices.push(table.map_or_else(direct, of_table));
            }
        }
        choices
    }

    /// Whether the name is a known model or a file, without a table.
    fn stands_for_itself(&self, name: &str) -> bool {
        known_model(name).is_some() || self.folder().join(name).exists()
    }

    fn folder(&self) -> &Path {
        self.asked.path.parent().unwrap_or(Path::new(""))
    }

    fn stage(
        &mut self,
        method: &'static dyn DynMethod,
        options: &[OptionSpec],
        entries: &KeyEntries<'_>,
        stage: String,
        names: &[(&str, &str)],
        lines: StageLines,
    ) -> Option<PlannedRun> {
        let entries = entries.iter().filter(|(key, _)| !self.asked.flags.contains_key(&key.replace('-', "_")));
        let mut given = self.values(&entries.map(|(key, entry)| (*key, *entry)).collect(), options)?;
        if let Some(Value::String(out)) = given.get_mut("out") {
            match expand(out, names) {
                Ok(full) => *out = full,
                Err(why) => {
                    let line = lines.options.get("out").copied().unwrap_or(lines.stage);
                    self.problems.at(line, ErrorText::from_error(&why).about("out"));
                    return None;
                }
            }
        }
        given.extend(self.asked.flags.clone());
        UserConfig::load().unwrap_or_default().add_compute(options, &mut given);
        let mark = RecipeMark { path: self.asked.path.display().to_string(), sha256: self.sha256.clone(), stage };
        let origin = StageOrigin { mark, lines };
        match PlannedRun::new(method, &given, Some(origin.clone())) {
            Ok(stage) => Some(stage),
            Err(error) => {
                self.refuse(&origin, &error);
                None
            }
        }
    }

    /// Reports a stage with conflicting or missing options.
    fn refuse(&mut self, StageOrigin { mark, lines }: &StageOrigin, error: &SessionError) {
        let option = error.option().unwrap_or_default();
        let told = match error {
            SessionError::Option(OptionError { field, cause: cause @ OptionCause::Missing }) if field == "model" => {
                ErrorText::from_error(cause).with_hint(NAMES_ITS_MODELS)
            }
            SessionError::Option(error) | SessionError::Method(MethodError::Options(error)) => {
                ErrorText::from_error(&error.cause)
            }
            other => ErrorText::from_error(other),
        };
        let of_run = |told: ErrorText, why: &str| {
            let what = format!("run `{}`: {why}", mark.stage.escape_debug());
            ErrorText { what, ..told }
        };
        match lines.options.get(&option) {
            Some(line) => self.problems.at(*line, told.about(&option)),
            _ if option.is_empty() => {
                let why = told.what.clone();
                self.problems.at(lines.stage, of_run(told, &why));
            }
            None => {
                let why = told.what.strip_prefix("it ").unwrap_or(&told.what);
                let why = format!("`{option}` {why}");
                self.problems.at(lines.stage, of_run(told, &why));
            }
        }
    }
}

/// Hint for a missing model, which only commands take from the configuration.
const NAMES_ITS_MODELS: &str = "set it here, in [defaults] or in a [model.NAME]: recipes ignore the default model of \
     single commands ($PROBITY_MODEL, `probity config`)";

/// The options for data, model and folder.
fn options_of_any() -> Vec<OptionSpec> {
    [specs::<ModelOptions>(), specs::<DataOptions>(), specs::<OutputOptions>()].concat()
}

/// Reads the options of one type from the given values; `None` if they are invalid.
fn part<P: Options>(given: &GivenOptions) -> Option<P> {
    let specs = specs::<P>();
    let own = given.iter().filter(|(field, _)| specs.iter().any(|spec| spec.has_field(field)));
    probity_options::read(&own.map(|(field, value)| (field.clone(), value.clone())).collect()).ok()
}

/// File extensions that are removed from names.
const ENDS: [&str; 8] = [".gguf", ".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".zst"];

/// A name for use in a path: for a file, the last component without its extensions.
fn plain(name: &str) -> String {
    let (mut stem, mut is_path) = (name, name.starts_with(['/', '.']));
    // `news.jsonl.gz` has two extensions.
    while let Some(shorter) = ENDS.iter().find_map(|end| stem.strip_suffix(end)) {
        (stem, is_path) = (shorter, true);
    }
    let last = if is_path { stem.trim_end_matches('/').rsplit('/').next().unwrap_or(stem) } else { stem };
    // Without separators and `..`, a name cannot move `out` out of its folder.
    last.replace(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_')), "-")
        .trim_matches(['-', '.'])
        .to_owned()
}

/// An unknown placeholder.
#[derive(Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("unknown placeholder `{{{word}}}`; known are {known}")]
struct NoName {
    word: String,
    known: String,
}

/// Replaces placeholders such as `{run}`.
fn expand(text: &str, names: &[(&str, &str)]) -> Result<String, NoName> {
    let mut full = String::new();
    let mut rest = text;
    while let Some((before, (word, after))) =
        rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        let known = || names.iter().map(|(name, _)| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
        let found = names.iter().find(|(name, _)| *name == word);
        let unknown = || NoName { word: word.escape_debug().to_string(), known: known() };
        let (_, value) = found.ok_or_else(unknown)?;
        full.push_str(before);
        full.push_str(&plain(value));
        rest = after;
    }
    full.push_str(rest);
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_paths() {
        let known = [
            ("judge", "judge"),
            ("llama-3.2-1b", "llama-3.2-1b"),
            ("org/name-7B", "org-name-7B"),
            ("data/news.jsonl.gz", "news"),
            ("./models/tiny/", "tiny"),
            ("/models/a b.gguf", "a-b"),
            ("..", ""),
            ("\u{1b}[2J", "2J"),
        ];
        for (name, expected) in known {
            assert_eq!(plain(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_word_in_braces_stands_for_a_name_or_is_refused() {
        let names = [("run", "a"), ("model", "m/n")];
        let one = |text: &str| expand(text, &names);
        assert_eq!(one("x/{run}-{model}{run}"), Ok("x/a-m-na".to_owned()));
        assert_eq!(one("x{"), Ok("x{".to_owned()));
        assert!(one("{rum}").is_err_and(|why| why.word == "rum" && why.known == "{run}, {model}"));
    }

    #[test]
    fn columns_are_counted_in_characters() {
        assert_eq!([position("é = x", 5), position("a\nb", 2), position("", 7)], [(1, 5), (2, 1), (1, 1)]);
    }
}
