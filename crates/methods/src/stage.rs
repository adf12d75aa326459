//! The stages of a method: what is asked of models, and the table of what came of it.
//!
//! A method whose questions depend on earlier answers says so by stages. Each asks, parses, and leaves a table; the
//! next is made from what the table says. So a run can end after a stage, take a stage's table from a file, tell what
//! each stage cost, and reach every stage without an answer: stand-ins take its place.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use probity_data::{Sample, from_value};
use probity_lm::{Outcome, SinkError};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::summary::Cost;
use crate::{MethodError, Run, RunOutput};

/// What a method says of one of its stages before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpec {
    /// The stage's name, which its table has too.
    pub name: &'static str,
    /// The roles of the models that it asks; `model` is the one of the command.
    pub roles: &'static [&'static str],
}

/// Takes each part of a stage's work as it is there, by its number, with the output to write its rows to.
pub type KeepPart<'k, P> = dyn FnMut(usize, P, &mut dyn RunOutput) -> Result<(), SinkError> + Send + 'k;

/// Why a row of a given table is none of the stage.
pub type RowError = Box<dyn Error + Send + Sync>;

/// Gives a row the fields of something else: of an outcome, or of a text that was written.
pub fn flatten_into(row: &mut Value, fields: &impl Serialize) -> serde_json::Result<()> {
    if let (Some(row), Value::Object(fields)) = (row.as_object_mut(), serde_json::to_value(fields)?) {
        row.extend(fields);
    }
    Ok(())
}

/// How a part ended that a given row is of; one that says nothing of it stands.
pub fn given_outcome(row: &Value) -> Result<Outcome, RowError> {
    match row.get("outcome").filter(|outcome| !outcome.is_null()) {
        Some(_) => Ok(from_value(row)?),
        None => Ok(Outcome::Scored),
    }
}

/// A stage of a method's work, ready to begin.
///
/// The work has *parts*: a text to be written, a question to be answered. Each comes to one value, which is one row of
/// the stage's table or ([`ONE_ROW`](Self::ONE_ROW) is false) as many as there turn out to be.
pub trait MethodStage: Sync {
    /// What comes of a part.
    type Part: Send;
    /// Whether each part is one row.
    const ONE_ROW: bool = true;
    /// Fields of a row that are made anew, whatever the row of a given table says: what is measured of the rest, and how
    /// a model computed it.
    const MADE_ANEW: &'static [&'static str] = &[];

    /// The name of the stage and of its table.
    fn name(&self) -> &'static str;

    /// Whether it may be repeated.
    fn in_rounds(&self) -> bool {
        false
    }

    /// Fields of a part's identity that hold results of an earlier stage: they are not known where that stage was
    /// stood in for.
    fn earlier_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// How many parts there are.
    fn parts(&self) -> usize;

    /// All that the parts depend on besides the samples: settings, prompts and models, as a
    /// [`Signature`](crate::Signature) has them, and the keys of the artefacts that they are made from.
    fn inputs(&self) -> Vec<String>;

    /// Asks, and hands over each part.
    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Self::Part>) -> Result<(), MethodError>;

    /// The fields of a part's rows that tell which part they are of.
    fn identity(&self, number: usize) -> Value;

    /// A part's rows.
    fn rows(&self, number: usize, part: &Self::Part) -> serde_json::Result<Vec<Value>>;

    /// The part that these rows are of: what [`rows`](Self::rows) wrote, or somebody else. Fields that [`rows`](Self::rows)
    /// would not write of it so are refused.
    fn read(&self, number: usize, rows: &[Value]) -> Result<Self::Part, RowError>;

    /// What stands for a part where nothing is asked: as many rows and as long texts as may come at most. Later stages
    /// are rehearsed, and their cost is told, from it.
    fn stand_in(&self, number: usize) -> Self::Part;
}

/// What a stage left.
#[derive(Debug, Clone, PartialEq)]
pub struct Artefact<P> {
    /// What came of each part, in their order.
    pub parts: Vec<P>,
    /// SHA-256 of the stage's name and of all that the parts depend on, in hex: two runs with the same key have the
    /// same artefact. Of a given table it is the hash of what it says.
    pub key: String,
}

/// How a method goes through its stages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staging {
    /// The run ends after this stage.
    pub until: Option<String>,
    /// Tables that stages take in the place of their work, by stage.
    pub tables: BTreeMap<String, GivenTable>,
    /// The models answer nothing: after each stage go on with stand-ins, up to the last stage's questions.
    pub stands_in: bool,
}

impl Staging {
    /// An error where it speaks of stages that a method does not have with its options.
    pub fn check(&self, method: &str, stages: &[&str]) -> Result<(), MethodError> {
        let until = self.until.iter().map(|stage| ("--until", stage));
        let from = self.tables.keys().map(|stage| ("--from", stage));
        match until.chain(from).find(|(_, stage)| !stages.contains(&stage.as_str())) {
            None => Ok(()),
            Some((option, stage)) => MethodError::refuse(
                format!("{option} {stage}"),
                format!("`{method}` has no such stage with these options"),
                if stages.is_empty() { "it has none".to_owned() } else { format!("it has: {}", stages.join(", ")) },
            ),
        }
    }
}

/// A stage's table from a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenTable {
    /// The file.
    pub path: PathBuf,
    /// Its rows and the lines that they stand in, from 1.
    pub rows: Vec<(u64, Value)>,
}

/// A stage that is done, for the manifest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageDone {
    /// Its name.
    pub name: &'static str,
    /// [`Artefact::key`].
    pub key: String,
    /// How many parts its work had.
    pub parts: usize,
    /// How many rows its table has.
    pub rows: usize,
    /// The file that its table came from; absent where it was worked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it cost.
    pub cost: Cost,
}

/// SHA-256 of the samples as they stand in a run's folder, in hex.
pub fn samples_key(samples: &[Sample]) -> String {
    let mut hasher = Sha256::new();
    for sample in samples {
        hasher.update(serde_json::to_vec(sample).expect("samples are plain values under string keys"));
        hasher.update(b"\n");
    }
    format!("{:x}", hasher.finalize())
}

/// The key of what a stage leaves, out of all that it depends on.
pub fn key<'i>(name: &'i str, inputs: impl IntoIterator<Item = &'i str>) -> String {
    let mut hasher = Sha256::new();
    // Lengths keep apart what runs together: (ab, c) is not (a, bc).
    for input in [env!("CARGO_PKG_VERSION"), name].into_iter().chain(inputs) {
        hasher.update((input.len() as u64).to_le_bytes());
        hasher.update(input);
    }
    format!("{:x}", hasher.finalize())
}

impl GivenTable {
    /// What it says, for a key.
    pub fn text(&self) -> String {
        self.rows.iter().map(|(_, row)| row.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// The parts of a stage that it holds behind so many rows, and how many rows there are up to their end.
    pub fn parts<S: MethodStage>(&self, stage: &S, used: usize) -> Result<(Vec<S::Part>, usize), MethodError> {
        let mut rest = &self.rows[used..];
        let mut parts = Vec::with_capacity(stage.parts());
        for number in 0..stage.parts() {
            let identity = stage.identity(number);
            let count = if S::ONE_ROW { rest.len().min(1) } else { of_part(rest, &identity) };
            let (own, after) = rest.split_at(count);
            let line = own.first().map_or_else(|| self.last_line(), |(line, _)| *line);
            if S::ONE_ROW {
                let Some((_, row)) = own.first() else {
                    let row = self.rows.len() + 1;
                    let why = format!("it ends here; row {row} is missing, which has {identity}");
                    return Err(self.error(stage, line, why));
                };
                if let Some(why) = difference(&identity, row) {
                    return Err(self.error(stage, line, why));
                }
            }
            // A part may have no rows; a row that is of no part at all is what is wrong then.
            let next = after.first().filter(|_| !S::ONE_ROW && own.is_empty());
            if let Some((line, row)) = next
                && (0..stage.parts()).all(|part| difference(&stage.identity(part), row).is_some())
            {
                let named: Map<String, Value> = identity
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| (name.clone(), row[name].clone()))
                    .collect();
                return Err(self.error(stage, *line, format!("nothing in these data has {}", Value::Object(named))));
            }
            parts.push(self.part(stage, number, own, line)?);
            rest = after;
        }
        Ok((parts, self.rows.len() - rest.len()))
    }

    /// An error where it has more rows than the stage, whose parts are so many, has taken.
    pub fn ends(&self, stage: &'static str, parts: usize, used: usize) -> Result<(), MethodError> {
        let Some((line, _)) = self.rows.get(used) else { return Ok(()) };
        let why = if used == parts {
            format!("the stage has {parts} rows with these data and options, and here is one more")
        } else {
            NOT_HERE.to_owned()
        };
        Err(MethodError::Table { stage, path: self.path.clone(), line: *line, why })
    }

    /// An error where it cannot be the stage's table. An earlier stage was stood in for, so that the stage has all
    /// parts that it may have at most; which of them there will be is not known.
    pub fn check<S: MethodStage>(&self, stage: &S) -> Result<(), MethodError> {
        let mut rest = self.rows.as_slice();
        for number in 0..stage.parts() {
            let identity = without(stage.identity(number), stage.earlier_fields());
            let is_of_part = |(_, row): &(u64, Value)| difference(&identity, row).is_none();
            let count =
                if S::ONE_ROW { usize::from(rest.first().is_some_and(is_of_part)) } else { of_part(rest, &identity) };
            let (own, after) = rest.split_at(count);
            if let Some((line, _)) = own.first() {
                self.part(stage, number, own, *line)?;
            }
            rest = after;
        }
        let Some((line, row)) = rest.first() else { return Ok(()) };
        let why = difference(&Value::Null, row).unwrap_or_else(|| NOT_HERE.to_owned());
        Err(self.error(stage, *line, why))
    }

    /// The part that these rows are of, the first of which stands in that line.
    fn part<S: MethodStage>(
        &self,
        stage: &S,
        number: usize,
        own: &[(u64, Value)],
        line: u64,
    ) -> Result<S::Part, MethodError> {
        let rows: Vec<Value> = own.iter().map(|(_, row)| row.clone()).collect();
        let refused = |why: RowError| self.error(stage, line, why.to_string());
        let part = stage.read(number, &rows).map_err(refused)?;
        let written = stage.rows(number, &part).map_err(|error| refused(error.into()))?;
        for ((line, row), written) in own.iter().zip(&written) {
            let said = without(without(row.clone(), S::MADE_ANEW), stage.earlier_fields());
            if let Some(why) = contradiction("", &said, written) {
                return Err(self.error(stage, *line, why));
            }
        }
        Ok(part)
    }

    fn last_line(&self) -> u64 {
        self.rows.last().map_or(1, |(line, _)| *line)
    }

    fn error<S: MethodStage>(&self, stage: &S, line: u64, why: String) -> MethodError {
        MethodError::Table { stage: stage.name(), path: self.path.clone(), line, why }
    }
}

/// Why a row of a given table is none of it.
const NOT_HERE: &str = "it belongs to nothing in these data, or not here";

/// An object but for these fields.
fn without(mut object: Value, fields: &[&str]) -> Value {
    if let Some(all) = object.as_object_mut() {
        all.retain(|name, _| !fields.contains(&name.as_str()));
    }
    object
}

/// What a row says that its part does not say when it is written as a row: a field that nobody reads, or one that the
/// rest of the row makes untrue. What it leaves out, or says to be nothing, it does not say.
fn contradiction(path: &str, said: &Value, written: &Value) -> Option<String> {
    match (said, written) {
        (Value::Null, _) => None,
        (Value::Object(said), Value::Object(written)) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            said.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
                let Some(there) = written.get(name) else {
                    return Some(format!("`{}` has no place in this row", below(name).escape_debug()));
                };
                contradiction(&below(name), value, there)
            })
        }
        (Value::Array(said), Value::Array(written)) if said.len() == written.len() => {
            let mut each = said.iter().zip(written).enumerate();
            each.find_map(|(index, (said, written))| contradiction(&format!("{path}[{index}]"), said, written))
        }
        _ if said == written || number(said).is_some_and(|said| number(written) == Some(said)) => None,
        _ => Some(format!("`{path}` is {said}, and by the rest of the row it is {written}")),
    }
}

/// A number, which a table may have as a text too.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// How many of the first rows have these fields.
fn of_part(rows: &[(u64, Value)], identity: &Value) -> usize {
    let has =
        |row: &Value| identity.as_object().into_iter().flatten().all(|(name, value)| row.get(name) == Some(value));
    rows.iter().take_while(|(_, row)| has(row)).count()
}

/// The first field in which a row says that it is of another part. What it leaves out it does not say.
fn difference(identity: &Value, row: &Value) -> Option<String> {
    if !row.is_object() {
        return Some("it is no JSON object".to_owned());
    }
    let fields = identity.as_object().into_iter().flatten();
    let other = fields.filter_map(|(name, value)| Some((name, value, row.get(name).filter(|there| *there != value)?)));
    let mut other =
        other.map(|(name, value, there)| format!("`{name}` is {there}, and the row that comes here has {value}"));
    other.next()
}
