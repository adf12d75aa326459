//! Converts rows to samples: one per row, or one per id.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::automatic::is_own_name;
use crate::column::{ColumnPath, TableRow, names};
use crate::line_error::LineError;
use crate::mapping::MapEntry;
use crate::partial::PartialSample;
use crate::plan::{PreparedMapping, no_column};
use crate::preferences::FirstRow;
use crate::rows::{SeenColumns, TableRows};
use crate::{DataError, Mapping, Sample, SampleSource, UnfitMapping};

/// Samples from rows, with all errors of each.
///
/// With one sample per row, samples are streamed; if rows are grouped by id, samples follow after the last row.
pub(crate) struct MappedSamples<R> {
    rows: TableRows<R>,
    plan: PreparedMapping,
    mapping: Mapping,
    automatic: AutomaticColumns,
    seen: SeenColumns,
    place: usize,
    ordinal: usize,
    at_end: bool,
    gathered: std::vec::IntoIter<Item>,
    /// Paths with their fields that have not matched any row yet.
    unmet: Vec<(String, ColumnPath)>,
}

/// The user's mapping and the columns that complete it by their names.
struct AutomaticColumns {
    mapped: Mapping,
    known: Vec<String>,
    chosen_is_a_conversation: bool,
    context_optional: bool,
}

impl AutomaticColumns {
    /// The complete checked mapping; `named` are the columns if the file lists them in advance.
    fn plan(&self, named: Option<&[String]>) -> Result<(Mapping, PreparedMapping), UnfitMapping> {
        let mapping = self.mapped.completed(&self.known, self.chosen_is_a_conversation)?;
        let plan = PreparedMapping::new(&mapping, named, self.context_optional)?;
        Ok((mapping, plan))
    }
}

type Item = (usize, Result<Sample, Vec<LineError>>);

impl<R: BufRead> MappedSamples<R> {
    /// The samples of `rows`, read with the options of `source`; `first` describes the first row if rows name their own
    /// columns.
    pub(crate) fn new(
        mut rows: TableRows<R>,
        source: &SampleSource,
        first: FirstRow,
        seen: SeenColumns,
        file: &str,
    ) -> Result<Self, DataError> {
        let columns = rows.columns().map(<[String]>::to_vec);
        let automatic = AutomaticColumns {
            mapped: source.map.clone(),
            known: columns.clone().unwrap_or(first.keys),
            chosen_is_a_conversation: first.chosen_is_a_conversation,
            context_optional: source.context_optional,
        };
        let (mapping, plan) = automatic
            .plan(columns.as_deref())
            .map_err(|source| DataError::Mapping { file: file.to_owned(), source })?;
        if let Some(columns) = &columns {
            rows.want(&plan.used(columns));
            seen.extend(columns);
        }
        seen.set_used(plan.paths());
        let gathered = Vec::new().into_iter();
        let unmet = plan
            .columns()
            .filter(|(_, column)| column.is_path())
            .map(|(field, column)| (field, column.clone()))
            .collect();
        Ok(Self { rows, plan, mapping, automatic, seen, place: 0, ordinal: 0, at_end: false, gathered, unmet })
    }

    /// The next row with a result.
    fn next_partial(&mut self) -> Option<(usize, Result<PartialSample, Vec<LineError>>)> {
        let (place, row) = self.rows.next()?;
        (self.place, self.ordinal) = (place, self.ordinal + 1);
        // Rows of a data frame are identified by their positions from 0, rows of a file by their numbers.
        let called = if matches!(self.rows, TableRows::Given(..)) { place } else { self.ordinal };
        if let Ok(row) = &row
            && self.rows.columns().is_none()
            && let Err(error) = self.take_up(row)
        {
            return Some((place, Err(vec![error])));
        }
        if let Ok(row) = &row {
            // Each path is tried until it matches a row; most match the first.
            self.unmet.retain(|(_, column)| column.value(row).is_none());
        }
        Some((place, row.map_err(|e| vec![e]).and_then(|row| self.plan.read(&row, place, self.ordinal, called))))
    }

    /// From the first row that has them, reads columns named after fields.
    fn take_up(&mut self, row: &TableRow) -> Result<(), LineError> {
        let known = &self.automatic.known;
        let is_new = |name: &&str| is_own_name(name) && !known.iter().any(|known| known == name);
        let new: Vec<String> = row.keys().filter(is_new).map(str::to_owned).collect();
        let Some(one) = new.first().cloned() else { return Ok(()) };
        self.automatic.known.extend(new);
        let (mapping, plan) = self.automatic.plan(None).map_err(|error| LineError::caused("", &error))?;
        if plan.gathers != self.plan.gathers {
            let error = LineError::content(one, "the first row has no such column");
            return Err(error.with_hint("add it to every row, or ignore it: --map candidate-id:="));
        }
        self.seen.set_used(plan.paths());
        (self.mapping, self.plan) = (mapping, plan);
        Ok(())
    }

    /// All rows grouped by id, in order of first appearance.
    fn gather(&mut self) -> Vec<Item> {
        let mut samples: Vec<PartialSample> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut items = Vec::new();
        while let Some((place, partial)) = self.next_partial() {
            let wrong = match partial {
                Err(wrong) => wrong,
                Ok(partial) => {
                    // Rows of a sample need not be adjacent: a table may be sorted by system.
                    if let Some(&index) = places.get(&partial.id) {
                        samples[index].add(partial, &self.plan)
                    } else {
                        places.insert(partial.id.clone(), samples.len());
                        samples.push(partial);
                        Vec::new()
                    }
                }
            };
            if !wrong.is_empty() {
                items.push((place, Err(wrong)));
            }
        }
        // Finished after the last row, since a preference may name a later candidate.
        items.extend(samples.into_iter().map(|partial| (partial.place, partial.finish(&self.plan))));
        items
    }

    /// Columns and paths that no row had. If rows name their own columns, this is known only at the end of the file.
    fn never_seen(&self) -> Option<Item> {
        let seen = self.seen.all();
        let known = names(&seen);
        let wrong = |entry: &MapEntry| {
            let is_missing = |column: &ColumnPath| {
                !column.is_constant() && column.name == entry.column && column.root(&known).is_none()
            };
            let missing = self.plan.columns().any(|(_, column)| is_missing(column));
            missing.then(|| LineError::caused("", &no_column(&entry.field, &entry.column, &seen)))
        };
        let mut wrong: Vec<LineError> = self.mapping.entries().iter().filter_map(wrong).collect();
        // An exact column name may be empty in all rows.
        let is_path = |column: &ColumnPath| column.root(&known).is_some_and(|root| root != column.name);
        let leads_nowhere = self.unmet.iter().filter(|(_, column)| is_path(column));
        wrong.extend(
            leads_nowhere.map(|(field, column)| LineError::cell(&column.name, field, "it has no value in any row")),
        );
        // An empty file has no columns; the empty file itself is reported elsewhere.
        (!wrong.is_empty() && self.ordinal > 0).then_some((self.place, Err(wrong)))
    }
}

impl<R: BufRead> Iterator for MappedSamples<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.plan.gathers {
            if !self.at_end {
                self.at_end = true;
                let mut items = self.gather();
                items.extend(self.never_seen());
                self.gathered = items.into_iter();
            }
            return self.gathered.next();
        }
        if let Some((place, partial)) = self.next_partial() {
            return Some((place, partial.and_then(|partial| partial.finish(&self.plan))));
        }
        // Once, after the last row.
        if std::mem::replace(&mut self.at_end, true) { None } else { self.never_seen() }
    }
}
