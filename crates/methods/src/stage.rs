//! The stages of a method: queries to models, each with a table of results.
//!
//! A method declares stages if its queries depend on earlier answers. Each stage queries, parses and writes a table;
//! the next is built from it. A run can therefore end after any stage, take a stage's table from a file, and report the
//! cost of each stage. In a dry run stand-ins replace the answers.

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

/// Static description of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpec {
    /// The name of the stage and of its table.
    pub name: &'static str,
    /// The roles of the models it queries; `model` is the command's model.
    pub roles: &'static [&'static str],
}

/// Receives each finished part by number, with the output for its rows.
pub type KeepPart<'k, P> = dyn FnMut(usize, P, &mut dyn RunOutput) -> Result<(), SinkError> + Send + 'k;

/// Why a row of a provided table does not fit the stage.
pub type RowError = Box<dyn Error + Send + Sync>;

/// The outcome in a row of a provided table; `Scored` if the row has none.
pub fn row_outcome(row: &Value) -> Result<Outcome, RowError> {
    match row.get("outcome").filter(|outcome| !outcome.is_null()) {
        Some(_) => Ok(from_value(row)?),
        None => Ok(Outcome::Scored),
    }
}

/// A stage of a method, ready to run.
///
/// The work has *parts*, such as a text to write or a question to answer. Each part yields one value, stored as one row
/// of the stage's table or, if [`ONE_ROW`](Self::ONE_ROW) is false, any number of rows.
pub trait MethodStage: Sync {
    /// The value of a part.
    type Part: Send;
    /// Whether each part is one row.
    const ONE_ROW: bool = true;
    /// Fields that are recomputed instead of read from a provided table: measurements of the other fields, and how a
    /// model computed them.
    const MADE_ANEW: &'static [&'static str] = &[];

    /// The name of the stage and of its table.
    fn name(&self) -> &'static str;

    /// Whether it may run in several rounds.
    fn in_rounds(&self) -> bool {
        false
    }

    /// Fields of a part's identity that hold results of an earlier stage; unknown if that stage used stand-ins.
    fn earlier_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The number of parts.
    fn parts(&self) -> usize;

    /// Everything that the parts depend on besides the samples: settings, prompts and models as in a
    /// [`Signature`](crate::Signature), and the keys of input artefacts.
    fn inputs(&self) -> Vec<String>;

    /// Queries the model and passes each part to `keep`.
    fn work(&self, run: &mut Run<'_>, keep: &mut KeepPart<'_, Self::Part>) -> Result<(), MethodError>;

    /// The fields that identify the rows of a part.
    fn identity(&self, number: usize) -> Value;

    /// A part's rows.
    fn rows(&self, number: usize, part: &Self::Part) -> Vec<Value>;

    /// Parses a part from rows written by [`rows`](Self::rows) or provided by the user. Fields that
    /// [`rows`](Self::rows) would write differently are refused.
    fn read(&self, number: usize, rows: &[Value]) -> Result<Self::Part, RowError>;

    /// A stand-in for a part in a dry run, with the maximum number of rows and length of text. Later stages and the
    /// cost estimate use it.
    fn stand_in(&self, number: usize) -> Self::Part;
}

/// The result of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Artefact<P> {
    /// The parts, in order.
    pub parts: Vec<P>,
    /// SHA-256 of the stage's name and of everything its parts depend on, in hex: equal keys mean equal artefacts. For
    /// a table from a file it hashes the content.
    pub key: String,
}

/// How a run goes through a method's stages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Staging {
    /// The run ends after this stage.
    pub until: Option<String>,
    /// Tables from files that replace the work of stages, by stage.
    pub tables: BTreeMap<String, GivenTable>,
    /// Dry run: stand-ins replace the answers of every stage, up to the last stage's queries.
    pub stands_in: bool,
}

impl Staging {
    /// An error if it names stages that the method does not have with its options.
    pub fn check(&self, method: &str, stages: &[&str]) -> Result<(), MethodError> {
        let until = self.until.iter().map(|stage| ("--until", stage));
        let from = self.tables.keys().map(|stage| ("--from", stage));
        match until.chain(from).find(|(_, stage)| !stages.contains(&stage.as_str())) {
            None => Ok(()),
            Some((option, stage)) => MethodError::refuse(
                format!("{option} {stage}"),
                format!("`{method}` does not have this stage with these options"),
                if stages.is_empty() {
                    "it has no stages".to_owned()
                } else {
                    format!("its stages are {}", stages.join(", "))
                },
            ),
        }
    }
}

/// A stage's table read from a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenTable {
    /// The file.
    pub path: PathBuf,
    /// The rows with their line numbers, from 1.
    pub rows: Vec<(u64, Value)>,
}

/// A completed stage, for the manifest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageDone {
    /// Its name.
    pub name: &'static str,
    /// [`Artefact::key`].
    pub key: String,
    /// The number of parts.
    pub parts: usize,
    /// The number of rows.
    pub rows: usize,
    /// The file of its table; absent if the stage ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its cost.
    pub cost: Cost,
}

/// SHA-256 of the samples as stored in a run folder, in hex.
pub fn samples_key(samples: &[Sample]) -> String {
    let mut hasher = Sha256::new();
    for sample in samples {
        hasher.update(serde_json::to_vec(sample).expect("samples are plain values under string keys"));
        hasher.update(b"\n");
    }
    format!("{:x}", hasher.finalize())
}

/// The key of a stage's result from everything it depends on.
pub fn key<'i>(name: &'i str, inputs: impl IntoIterator<Item = &'i str>) -> String {
    let mut hasher = Sha256::new();
    // Lengths keep different splits apart: (ab, c) is not (a, bc).
    for input in [env!("CARGO_PKG_VERSION"), name].into_iter().chain(inputs) {
        hasher.update((input.len() as u64).to_le_bytes());
        hasher.update(input);
    }
    format!("{:x}", hasher.finalize())
}

impl GivenTable {
    /// The content of the table, for a key.
    pub fn text(&self) -> String {
        self.rows.iter().map(|(_, row)| row.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// Reads the parts of a stage after the first `used` rows; also returns the number of rows used so far.
    pub fn parts<S: MethodStage>(&self, stage: &S, used: usize) -> Result<(Vec<S::Part>, usize), MethodError> {
        let mut rest = &self.rows[used..];
        let mut parts = Vec::with_capacity(stage.parts());
        for number in 0..stage.parts() {
            let identity = stage.identity(number);
            let count = if S::ONE_ROW { rest.len().min(1) } else { part_rows(rest, &identity) };
            let (own, after) = rest.split_at(count);
            let line = own.first().map_or_else(|| self.last_line(), |(line, _)| *line);
            if S::ONE_ROW {
                let Some((_, row)) = own.first() else {
                    let row = self.rows.len() + 1;
                    let why = format!("the file ends before row {row} with {identity}");
                    return Err(self.error(stage, line, why));
                };
                if let Some(why) = difference(&identity, row) {
                    return Err(self.error(stage, line, why));
                }
            }
            // A part may have no rows. A next row that fits no part at all is the error then.
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
                return Err(self.error(stage, *line, format!("nothing in the data has {}", Value::Object(named))));
            }
            parts.push(self.part(stage, number, own, line)?);
            rest = after;
        }
        Ok((parts, self.rows.len() - rest.len()))
    }

    /// An error if rows remain after the stage's `parts` parts, which used `used` rows.
    pub fn ends(&self, stage: &'static str, parts: usize, used: usize) -> Result<(), MethodError> {
        let Some((line, _)) = self.rows.get(used) else { return Ok(()) };
        let why = if used == parts {
            format!("extra row: the stage has {parts} rows with these data and options")
        } else {
            NOT_HERE.to_owned()
        };
        Err(MethodError::Table { stage, path: self.path.clone(), line: *line, why })
    }

    /// An error if this cannot be the stage's table. For use after stand-ins: the stage has the maximum of parts, and
    /// it is unknown which of them will occur.
    pub fn check<S: MethodStage>(&self, stage: &S) -> Result<(), MethodError> {
        let mut rest = self.rows.as_slice();
        for number in 0..stage.parts() {
            let identity = without(stage.identity(number), stage.earlier_fields());
            let is_of_part = |(_, row): &(u64, Value)| difference(&identity, row).is_none();
            let count =
                if S::ONE_ROW { usize::from(rest.first().is_some_and(is_of_part)) } else { part_rows(rest, &identity) };
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

    /// Reads the part from these rows, the first of which is on `line`.
    fn part<S: MethodStage>(
        &self,
        stage: &S,
        number: usize,
        own: &[(u64, Value)],
        line: u64,
    ) -> Result<S::Part, MethodError> {
        let rows: Vec<Value> = own.iter().map(|(_, row)| row.clone()).collect();
        let refused = |why: RowError| {
            let identity = if own.is_empty() { format!(": {}", stage.identity(number)) } else { String::new() };
            self.error(stage, line, format!("{why}{identity}"))
        };
        let part = stage.read(number, &rows).map_err(refused)?;
        let written = stage.rows(number, &part);
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

/// A row of a provided table does not fit.
const NOT_HERE: &str = "it matches nothing in the data, or is out of order";

/// The object without these fields.
fn without(mut object: Value, fields: &[&str]) -> Value {
    if let Some(all) = object.as_object_mut() {
        all.retain(|name, _| !fields.contains(&name.as_str()));
    }
    object
}

/// The first value in a row that its part would not write: an unknown field, or one that contradicts the rest. Missing
/// and null fields are ignored.
fn contradiction(path: &str, said: &Value, written: &Value) -> Option<String> {
    match (said, written) {
        (Value::Null, _) => None,
        (Value::Object(said), Value::Object(written)) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            said.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
                let Some(there) = written.get(name) else {
                    return Some(format!("unexpected field `{}`", below(name).escape_debug()));
                };
                contradiction(&below(name), value, there)
            })
        }
        (Value::Array(said), Value::Array(written)) if said.len() == written.len() => {
            let mut each = said.iter().zip(written).enumerate();
            each.find_map(|(index, (said, written))| contradiction(&format!("{path}[{index}]"), said, written))
        }
        _ if said == written || number(said).is_some_and(|said| number(written) == Some(said)) => None,
        _ => Some(format!("`{path}` is {said}, but the rest of the row implies {written}")),
    }
}

/// A number, possibly stored as text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// The number of leading rows with these fields.
fn part_rows(rows: &[(u64, Value)], identity: &Value) -> usize {
    let has =
        |row: &Value| identity.as_object().into_iter().flatten().all(|(name, value)| row.get(name) == Some(value));
    rows.iter().take_while(|(_, row)| has(row)).count()
}

/// The first field that identifies the row as another part's. Missing fields are ignored.
fn difference(identity: &Value, row: &Value) -> Option<String> {
    if !row.is_object() {
        return Some("not a JSON object".to_owned());
    }
    let fields = identity.as_object().into_iter().flatten();
    let other = fields.filter_map(|(name, value)| Some((name, value, row.get(name).filter(|there| *there != value)?)));
    let mut other = other.map(|(name, value, there)| format!("`{name}` is {there}; expected {value}"));
    other.next()
}
