//! Converts rows to samples, with a mapping checked against the existing columns.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use probity_lm::nearest;

use crate::cell_text::{cell, joined, listed, references};
use crate::column::{ColumnPath, TableRow, names};
use crate::conversation::{before_the_answer, conversation, role_without_answer};
use crate::line_error::{LineError, excerpt};
use crate::mapping::{Field, MapEntry, Mapping};
use crate::partial::PartialSample;
use crate::values::{NumberError, kind, number, plain};
use crate::{Candidate, SharedText, UnfitMapping};

/// A checked mapping.
pub(crate) struct PreparedMapping {
    id: Option<ColumnPath>,
    context: Vec<ColumnPath>,
    instruction: Vec<ColumnPath>,
    texts: BTreeMap<String, Vec<ColumnPath>>,
    slots: Vec<CandidateColumn>,
    candidate_id: Option<ColumnPath>,
    references: Vec<ColumnPath>,
    preference: Option<ColumnPath>,
    /// The meanings of preference values.
    pub(crate) meanings: Vec<(String, String)>,
    /// Whether rows with the same id form one sample.
    pub(crate) gathers: bool,
    /// Whether the file lists its columns in advance, so that every mapped column exists.
    names_columns: bool,
}

/// A column of candidates.
pub(crate) struct CandidateColumn {
    name: Option<String>,
    column: ColumnPath,
    scores: Vec<(String, ColumnPath)>,
}

impl CandidateColumn {
    /// Id of its candidate, if the column holds one text.
    pub(crate) fn called(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.column.name)
    }

    fn field(&self) -> String {
        Field::Candidate(self.name.clone()).to_string()
    }
}

impl PreparedMapping {
    /// Checks a mapping against the columns, if the file lists them in advance.
    pub(crate) fn new(
        mapping: &Mapping,
        columns: Option<&[String]>,
        context_optional: bool,
    ) -> Result<Self, UnfitMapping> {
        let mut plan = Self {
            id: None,
            context: Vec::new(),
            instruction: Vec::new(),
            texts: BTreeMap::new(),
            slots: Vec::new(),
            candidate_id: None,
            references: Vec::new(),
            preference: None,
            meanings: Vec::new(),
            gathers: false,
            names_columns: columns.is_some(),
        };
        let mut scores = Vec::new();
        let known = columns.map(names);
        let is_read =
            |entry: &&MapEntry| !entry.is_left_out() || matches!(entry.field, Field::Context | Field::Instruction);
        for entry in mapping.entries().iter().filter(is_read) {
            let column =
                if entry.constant { ColumnPath::constant(&entry.column) } else { ColumnPath::new(&entry.column) };
            if let (Some(columns), Some(known)) = (columns, &known)
                && !column.is_constant()
                && !matches!(entry.field, Field::PreferenceValue(_))
                && column.root(known).is_none()
            {
                return Err(no_column(&entry.field, &entry.column, columns));
            }
            match &entry.field {
                Field::Id => plan.id = Some(column),
                Field::Context => plan.context.push(column),
                Field::Instruction => plan.instruction.push(column),
                Field::Text(name) => plan.texts.entry(name.clone()).or_default().push(column),
                Field::Candidate(name) => {
                    plan.slots.push(CandidateColumn { name: name.clone(), column, scores: Vec::new() });
                }
                Field::CandidateId => plan.candidate_id = Some(column),
                Field::Reference => plan.references.push(column),
                Field::Preference => plan.preference = Some(column),
                Field::PreferenceValue(value) => plan.meanings.push((value.clone(), entry.column.clone())),
                Field::Score(of) => scores.push((of.clone(), column)),
            }
        }
        plan.check(columns, context_optional)?;
        // Scores come last: their candidates are known only after all other fields.
        for (of, column) in scores {
            let (slot, attribute) = plan.slot_of_score(&of)?;
            plan.slots[slot].scores.push((attribute, column));
        }
        Ok(plan)
    }

    /// Checks that the mapped fields fit together.
    fn check(&mut self, columns: Option<&[String]>, context_optional: bool) -> Result<(), UnfitMapping> {
        let known = columns.map(listed);
        let missing = |field, what| Err(UnfitMapping::Missing { field, what, columns: known.clone() });
        if self.slots.is_empty() {
            return missing("candidate", "a candidate");
        }
        // An instruction or named texts suffice: some questions have no source text.
        let has_none = self.context.is_empty() && self.instruction.is_empty() && self.texts.is_empty();
        if has_none && !context_optional {
            return missing("context", "the context");
        }
        if !self.meanings.is_empty() && self.preference.is_none() {
            return missing("preference", "the preference whose values are mapped");
        }
        if self.candidate_id.is_some() {
            let [slot] = &self.slots[..] else {
                return Err(UnfitMapping::CandidateIds);
            };
            self.gathers = !slot.column.is_each();
            if self.gathers && self.id.is_none() {
                return missing("id", "the id that groups rows into samples");
            }
        }
        Ok(())
    }

    /// The candidate column and the attribute of `score.…`.
    fn slot_of_score(&self, of: &str) -> Result<(usize, String), UnfitMapping> {
        let named = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let attribute = of.strip_prefix(slot.called())?.strip_prefix('.')?;
            (!attribute.is_empty()).then_some((slot.called().len(), index, attribute))
        });
        // Use the longest matching name: candidate names may contain dots, so `a` and `a.b` both match
        // `score.a.b.fluency`.
        match (named.max(), &self.slots[..]) {
            (Some((_, index, attribute)), _) => Ok((index, attribute.to_owned())),
            (None, [_]) => Ok((0, of.to_owned())),
            (None, slots) => {
                let attribute = of.rsplit('.').next().unwrap_or(of);
                let forms: Vec<_> =
                    slots.iter().map(|slot| excerpt(&format!("score.{}.{attribute}", slot.called()))).collect();
                Err(UnfitMapping::Score { of: excerpt(of), forms: forms.join(" or ") })
            }
        }
    }

    /// The subset of these columns that the mapping uses.
    pub(crate) fn used(&self, columns: &[String]) -> Vec<String> {
        let known = names(columns);
        let mut used: Vec<String> =
            self.columns().filter_map(|(_, column)| column.root(&known)).map(str::to_owned).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// All mapped columns with their fields.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (String, &ColumnPath)> {
        let single =
            [(Field::Id, &self.id), (Field::CandidateId, &self.candidate_id), (Field::Preference, &self.preference)];
        let single = single.into_iter().filter_map(|(field, column)| Some((field.to_string(), column.as_ref()?)));
        let slots = self.slots.iter().flat_map(|slot| {
            let scores = slot.scores.iter().map(|(attribute, column)| (format!("score.{attribute}"), column));
            std::iter::once((slot.field(), &slot.column)).chain(scores)
        });
        let named = self.texts.iter().map(|(name, columns)| (Field::Text(name.clone()), columns));
        let texts = [(Field::Context, &self.context), (Field::Instruction, &self.instruction)].into_iter().chain(named);
        let texts = texts.flat_map(|(field, columns)| columns.iter().map(move |column| (field.to_string(), column)));
        single.chain(texts).chain(slots).chain(self.references.iter().map(|column| ("reference".to_owned(), column)))
    }

    /// The mapped columns.
    pub(crate) fn paths(&self) -> Vec<ColumnPath> {
        self.columns().map(|(_, column)| column.clone()).collect()
    }

    /// The candidate of a column.
    pub(crate) fn candidate_for(&self, column: &str) -> Option<&str> {
        self.slots.iter().find(|slot| slot.column.name == column).map(CandidateColumn::called)
    }

    /// Reads the content of a row, or all of its errors. `place` is the row's line, `ordinal` its position among the
    /// rows, and `called` the id of a sample without one.
    pub(crate) fn read(
        &self,
        row: &TableRow,
        place: usize,
        ordinal: usize,
        called: usize,
    ) -> Result<PartialSample, Vec<LineError>> {
        let mut wrong = Vec::new();
        let required = |field: Field, column: &ColumnPath| {
            name(&field, column, row)?.map(Some).ok_or_else(|| self.absent(&field, column, row))
        };
        let id = match &self.id {
            Some(column) => kept(required(Field::Id, column), &mut wrong),
            None => Some(called.to_string()),
        };
        let context = self.context.first().and_then(|column| {
            let text = joined("context", &self.context, row)
                .and_then(|text| text.map(Some).ok_or_else(|| self.absent(&Field::Context, column, row)));
            kept(text, &mut wrong)
        });
        let instruction = kept(joined("instruction", &self.instruction, row), &mut wrong);
        let mut texts = BTreeMap::new();
        for (name, columns) in &self.texts {
            let text = kept(joined(&Field::Text(name.clone()).to_string(), columns, row), &mut wrong);
            texts.extend(text.map(|text| (name.clone(), text)));
        }
        let preference = self.preference.as_ref();
        let preference = preference.and_then(|column| kept(name(&Field::Preference, column, row), &mut wrong));
        let candidate_called = self
            .candidate_id
            .as_ref()
            .filter(|_| self.gathers)
            .and_then(|column| kept(required(Field::CandidateId, column), &mut wrong));
        let mut partial = PartialSample::new(place, id.unwrap_or_default(), context);
        let instruction = instruction.filter(|text| !text.is_empty());
        match self.prompt_text(row, instruction) {
            Ok(asked) => partial.instruction = asked,
            Err(error) => wrong.push(error),
        }
        partial.texts = texts;
        partial.preference = preference.filter(|value| !value.is_empty());
        for slot in &self.slots {
            match self.candidates(slot, row, candidate_called.as_deref()) {
                Ok(candidates) => partial.candidates.extend(candidates.into_iter().map(|candidate| (place, candidate))),
                Err(errors) => wrong.extend(errors),
            }
        }
        if partial.candidates.is_empty() && wrong.is_empty() {
            wrong.push(self.absent(&Field::Candidate(self.slots[0].name.clone()), &self.slots[0].column, row));
        }
        // Otherwise a judge that always prefers the first position would be right.
        if self.has_known_answer() && ordinal.is_multiple_of(2) {
            partial.candidates.reverse();
        }
        for column in &self.references {
            match references(column, row) {
                Ok(found) => partial.references.extend(found),
                Err(error) => wrong.push(error),
            }
        }
        if wrong.is_empty() { Ok(partial) } else { Err(wrong) }
    }

    /// What the candidates answer: for conversations all messages before the last one, otherwise the text of the
    /// column.
    fn prompt_text(&self, row: &TableRow, given: Option<SharedText>) -> Result<Option<SharedText>, LineError> {
        let mut before: Option<(&CandidateColumn, String)> = None;
        // A borrowed text is not a conversation, and inspecting it would copy it.
        for slot in self.slots.iter().filter(|slot| slot.column.shared_text(row).is_none()) {
            let Some(value) = slot.column.value(row) else { continue };
            let refused = |why: String| cell(&slot.field(), &slot.column, why);
            if let Some(role) = role_without_answer(value.as_ref()) {
                return Err(refused(format!("its last message is from the {role}, so it has no answer")));
            }
            let Some(said) = before_the_answer(value.as_ref()) else { continue };
            let said = said.map_err(refused)?;
            match &before {
                Some((first, other)) if *other != said => {
                    let why = format!(
                        "the conversation before its answer differs from that in `{}`",
                        excerpt(&first.column.name)
                    );
                    return Err(cell(&slot.field(), &slot.column, why));
                }
                Some(_) => {}
                None => before = Some((slot, said)),
            }
        }
        match (given, before) {
            // Published preferences repeat the prompt in their conversations. If a conversation does not contain it,
            // its answer belongs to another question.
            (Some(prompt), Some((slot, said))) if !said.contains(prompt.trim()) && self.has_known_answer() => {
                Err(cell(
                    &slot.field(),
                    &slot.column,
                    "the conversation before its answer does not contain the row's \
                                                       prompt",
                ))
            }
            // The conversation has all turns; the prompt of such data sets is often only the first turn.
            (Some(_), Some((_, said))) if self.has_known_answer() => Ok(Some(said.into())),
            (given, before) => Ok(given.or_else(|| before.map(|(_, said)| said.into()))),
        }
    }

    /// Whether the mapping itself defines the better candidate, as for published preference training data.
    fn has_known_answer(&self) -> bool {
        self.preference.as_ref().is_some_and(ColumnPath::is_constant)
    }

    /// The candidates of a slot: none for null.
    fn candidates(
        &self,
        slot: &CandidateColumn,
        row: &TableRow,
        called: Option<&str>,
    ) -> Result<Vec<Candidate>, Vec<LineError>> {
        let shared = slot.column.shared_text(row);
        // An empty text replaces a borrowed text, which should not be copied.
        let value = shared.map_or_else(|| slot.column.value(row), |_| Some(Cow::Owned(Value::String(String::new()))));
        let Some(value) = value else { return Ok(Vec::new()) };
        let wrong = |why: String| vec![cell(&slot.field(), &slot.column, why)];
        let said = conversation(&value, true).transpose().map_err(wrong)?.map(Value::String);
        let (items, is_list) = match value.as_ref() {
            // Before other lists: a list of messages is one answer, not one candidate per message.
            Value::Array(_) if said.is_some() => (said.iter().collect(), false),
            Value::Array(_) if slot.name.is_some() => {
                return Err(wrong("expected one text for a named candidate, found a list".into()));
            }
            Value::Array(items) => (items.iter().collect(), true),
            one => (vec![one], false),
        };
        let ids = match (&self.candidate_id, is_list) {
            (Some(column), true) if !self.gathers => {
                Some(list(column, row, items.len(), "candidate-id").map_err(|e| vec![e])?)
            }
            _ => None,
        };
        let mut errors = Vec::new();
        let mut columns = Vec::new();
        for (attribute, column) in &slot.scores {
            match scores(attribute, column, row, is_list.then_some(items.len())) {
                Ok(values) => columns.push((attribute, values)),
                Err(more) => errors.extend(more),
            }
        }
        let mut candidates = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let id = match (&ids, called) {
                (Some(ids), _) => ids[index].clone(),
                (None, Some(called)) if !is_list => called.to_owned(),
                (None, Some(called)) => format!("{called}.{}", index + 1),
                (None, None) if !is_list => slot.called().to_owned(),
                (None, None) if self.slots.len() == 1 => (index + 1).to_string(),
                (None, None) => format!("{}.{}", slot.called(), index + 1),
            };
            let given =
                columns.iter().filter_map(|(attribute, values)| Some(((*attribute).clone(), (*values.get(index)?)?)));
            match candidate(item, id, given.collect()) {
                Ok(candidate) => candidates.extend(candidate.map(|candidate| match shared {
                    Some(text) => Candidate { text: text.clone(), ..candidate },
                    None => candidate,
                })),
                Err(why) => {
                    let item = if is_list { format!("item {index}: ") } else { String::new() };
                    let error = cell(&slot.field(), &slot.column, format!("{item}{why}"));
                    errors.push(error.with_hint_of(&why));
                }
            }
        }
        if errors.is_empty() { Ok(candidates) } else { Err(errors) }
    }
}

impl PreparedMapping {
    /// Error for a missing required value.
    fn absent(&self, field: &Field, column: &ColumnPath, row: &TableRow) -> LineError {
        let keys: Vec<String> = row.keys().map(str::to_owned).collect();
        // Parquet files and data frames omit nulls from their rows.
        if self.names_columns || column.root(&names(&keys)).is_some() {
            return cell(&field.to_string(), column, "missing value");
        }
        let near = nearest(&column.name, keys.iter().map(String::as_str));
        let near = near.map(|near| format!("did you mean `{}`? ", excerpt(near)));
        let hint = format!("{}the line has {}", near.unwrap_or_default(), listed(&keys));
        cell(&field.to_string(), column, "no such column").with_hint(hint)
    }
}

/// A candidate from a text or from an object in the native form; `None` for null.
fn candidate(item: &Value, id: String, mut scores: BTreeMap<String, f64>) -> Result<Option<Candidate>, CandidateError> {
    match item {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(Candidate { id, text: text.clone().into(), scores })),
        Value::Object(fields) if fields.contains_key("text") => {
            let of_kind = |key, value| CandidateError::Key { key, found: kind(value) };
            let text = fields["text"].as_str().ok_or_else(|| of_kind("text", &fields["text"]))?;
            let id = match fields.get("id").filter(|id| !id.is_null()) {
                Some(own) => plain(own).ok_or_else(|| of_kind("id", own))?,
                None => id,
            };
            for (attribute, score) in fields.get("scores").and_then(Value::as_object).into_iter().flatten() {
                let wrong = |source| CandidateError::Score { attribute: excerpt(attribute), source };
                if let Some(score) = number(score).map_err(wrong)? {
                    scores.insert(attribute.clone(), score);
                }
            }
            Ok(Some(Candidate { id, text: text.to_owned().into(), scores }))
        }
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            Err(CandidateError::NoText { keys: listed(&keys) })
        }
        other => Err(CandidateError::Kind { found: kind(other) }),
    }
}

/// Why a value is not a candidate.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum CandidateError {
    #[error("`{key}` is {found}, not a string")]
    Key { key: &'static str, found: &'static str },
    #[error("`scores.{attribute}`: {source}")]
    #[diagnostic(forward(source))]
    Score { attribute: String, source: NumberError },
    #[error("an object without `text`")]
    #[diagnostic(help("map its text: COLUMN[].KEY; its keys are {keys}"))]
    NoText { keys: String },
    #[error("expected a string, found {found}")]
    Kind { found: &'static str },
}

/// Unwraps a value and collects its error. Reading continues, so that all errors of a row are reported together.
fn kept<T>(result: Result<Option<T>, LineError>, wrong: &mut Vec<LineError>) -> Option<T> {
    result.unwrap_or_else(|error| {
        wrong.push(error);
        None
    })
}

/// The scores of one attribute, by candidate.
fn scores(
    attribute: &str,
    column: &ColumnPath,
    row: &TableRow,
    items: Option<usize>,
) -> Result<Vec<Option<f64>>, Vec<LineError>> {
    let field = format!("score.{attribute}");
    let Some(value) = column.value(row) else { return Ok(Vec::new()) };
    let values: Vec<&Value> = match (value.as_ref(), items) {
        (Value::Array(values), Some(items)) if values.len() == items => values.iter().collect(),
        (Value::Array(values), Some(items)) => {
            return Err(vec![cell(&field, column, format!("{} scores for {items} candidates", values.len()))]);
        }
        (one, Some(items)) if items != 1 => {
            return Err(vec![cell(&field, column, format!("{} for {items} candidates", kind(one)))]);
        }
        (one, _) => vec![one],
    };
    let mut errors = Vec::new();
    let numbers = values.into_iter().map(|value| {
        number(value).unwrap_or_else(|why| {
            errors.push(cell(&field, column, why.to_string()).with_hint_of(&why));
            None
        })
    });
    let numbers = numbers.collect();
    if errors.is_empty() { Ok(numbers) } else { Err(errors) }
}

fn name(field: &Field, column: &ColumnPath, row: &TableRow) -> Result<Option<String>, LineError> {
    let Some(value) = column.value(row) else { return Ok(None) };
    plain(&value).map(Some).ok_or_else(|| {
        cell(
            &field.to_string(),
            column,
            format!(
                "expected a name, found \
                                                                                    {}",
                kind(&value)
            ),
        )
    })
}

/// A list with one name per candidate.
fn list(column: &ColumnPath, row: &TableRow, items: usize, field: &str) -> Result<Vec<String>, LineError> {
    let value = column.value(row).unwrap_or(Cow::Owned(Value::Null));
    let names: Option<Vec<String>> = value.as_array().and_then(|names| names.iter().map(plain).collect());
    match names {
        Some(names) if names.len() == items => Ok(names),
        Some(names) => Err(cell(field, column, format!("{} names for {items} candidates", names.len()))),
        None => Err(cell(field, column, format!("expected a list of names, found {}", kind(&value)))),
    }
}

/// Error for a missing column.
pub(crate) fn no_column(field: &Field, column: &str, columns: &[String]) -> UnfitMapping {
    let near =
        nearest(column, columns.iter().map(String::as_str)).map(|near| format!("did you mean `{}`? ", excerpt(near)));
    let (field, column) = (excerpt(&field.to_string()), excerpt(column));
    UnfitMapping::NoColumn { field, column, near: near.unwrap_or_default(), columns: listed(columns) }
}
