//! Feature tables with columns in blocks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum magnitude of features and labels: squares of larger values would overflow in sums.
pub const MOST: f64 = 1e100;
/// Values more than this many standard deviations from the mean are outliers.
const USUAL: f64 = 2.0;

/// Columns that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnBlock {
    /// Name, such as `likelihood`, `surface` or `state`.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Relative weight of the block: doubling it divides its penalty by four.
    pub weight: f64,
}

impl ColumnBlock {
    /// A block of weight 1.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        Self { name: name.to_owned(), columns: columns.iter().map(|&column| column.to_owned()).collect(), weight: 1.0 }
    }
}

/// Features: one row per candidate, or per difference of two candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureTable {
    blocks: Vec<ColumnBlock>,
    /// `(rows, columns)`.
    values: Vec<f64>,
    columns: usize,
}

/// Invalid feature values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A row has the wrong number of values.
    #[error("row {row} has {found} features, and there are {expected}")]
    Width {
        /// Index of the row, from 0.
        row: usize,
        /// Number of values in the row.
        found: usize,
        /// Number of columns.
        expected: usize,
    },
    /// A value is not finite or too large.
    #[error("feature `{column}` of row {row} is not a finite number, or beyond ±1e100")]
    NotFinite {
        /// Index of the row, from 0.
        row: usize,
        /// Name of the column.
        column: String,
    },
}

impl FeatureTable {
    /// Creates a table of finite values whose squares are finite too.
    pub fn new(blocks: Vec<ColumnBlock>, rows: &[Vec<f64>]) -> Result<Self, TableError> {
        let columns = blocks.iter().map(|block| block.columns.len()).sum();
        for (row, values) in rows.iter().enumerate() {
            if values.len() != columns {
                return Err(TableError::Width { row, found: values.len(), expected: columns });
            }
            if let Some(place) = values.iter().position(|value| !value.is_finite() || value.abs() > MOST) {
                let mut names = blocks.iter().flat_map(|block| &block.columns);
                return Err(TableError::NotFinite { row, column: names.nth(place).cloned().unwrap_or_default() });
            }
        }
        Ok(Self { blocks, values: rows.concat(), columns })
    }

    /// The blocks.
    pub fn blocks(&self) -> &[ColumnBlock] {
        &self.blocks
    }

    /// Total number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// The values of a row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Keeps only the blocks whose names `keep` accepts.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept: Vec<bool> =
            self.blocks.iter().flat_map(|block| vec![keep(&block.name); block.columns.len()]).collect();
        let blocks: Vec<ColumnBlock> = self.blocks.iter().filter(|block| keep(&block.name)).cloned().collect();
        let values = self
            .values
            .chunks_exact(self.columns.max(1))
            .flat_map(|row| row.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(value, _)| *value));
        Self { values: values.collect(), columns: kept.iter().filter(|kept| **kept).count(), blocks }
    }

    /// Indices of these columns, by the names of blocks and columns; `None` if one is missing.
    pub fn places(&self, blocks: &[ColumnBlock]) -> Option<Vec<usize>> {
        let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (block, column) in
            self.blocks.iter().flat_map(|block| block.columns.iter().map(move |column| (block, column)))
        {
            let place = known.len();
            known.insert((&block.name, column), place);
        }
        let wanted = blocks.iter().flat_map(|block| block.columns.iter().map(move |column| (block, column)));
        wanted.map(|(block, column)| known.get(&(&*block.name, &**column)).copied()).collect()
    }

    /// Selects these columns.
    pub fn select(&self, blocks: &[ColumnBlock]) -> Option<Self> {
        let places = self.places(blocks)?;
        let values = (0..self.rows()).flat_map(|row| places.iter().map(move |place| self.row(row)[*place])).collect();
        Some(Self { blocks: blocks.to_vec(), values, columns: places.len() })
    }

    /// Selects these rows.
    #[must_use]
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        Self { values: rows.iter().flat_map(|row| self.row(*row)).copied().collect(), ..self.without_rows() }
    }

    /// Subtracts the mean over each row's group. `groups[row]` counts from 0.
    #[must_use]
    pub fn centred(&self, groups: &[usize]) -> Self {
        let count = groups.iter().max().map_or(0, |last| last + 1);
        let mut sums = vec![0.0; count * self.columns];
        let mut sizes = vec![0.0; count];
        for (row, group) in groups.iter().enumerate() {
            sizes[*group] += 1.0;
            let sums = &mut sums[group * self.columns..(group + 1) * self.columns];
            sums.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += value);
        }
        let centred = groups.iter().enumerate().flat_map(|(row, group)| {
            let sums = &sums[group * self.columns..(group + 1) * self.columns];
            self.row(row).iter().zip(sums).map(|(value, sum)| value - sum / sizes[*group])
        });
        Self { values: centred.collect(), ..self.without_rows() }
    }

    /// The usual range of each column: two standard deviations around its mean.
    pub fn usual(&self) -> Vec<[f64; 2]> {
        let count = self.rows() as f64;
        let ends = |column: usize| {
            let values = || (0..self.rows()).map(|row| self.row(row)[column]);
            let mean = values().sum::<f64>() / count;
            let deviation = (values().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count).sqrt();
            [mean - USUAL * deviation, mean + USUAL * deviation]
        };
        (0..self.columns).map(ends).collect()
    }

    /// Clips values to these ranges, so that one outlier does not dominate a head.
    #[must_use]
    pub fn within(&self, ends: &[[f64; 2]]) -> Self {
        let values = (0..self.rows()).flat_map(|row| self.row(row).iter().zip(ends));
        let values = values.map(|(value, [low, high])| value.max(*low).min(*high)).collect();
        Self { values, ..self.without_rows() }
    }

    /// One row per pair: the features of its first row minus those of its second.
    #[must_use]
    pub fn differences(&self, pairs: &[(usize, usize)]) -> Self {
        let values = pairs.iter().flat_map(|(a, b)| self.row(*a).iter().zip(self.row(*b)).map(|(a, b)| a - b));
        Self { values: values.collect(), ..self.without_rows() }
    }

    fn without_rows(&self) -> Self {
        Self { blocks: self.blocks.clone(), values: Vec::new(), columns: self.columns }
    }
}
