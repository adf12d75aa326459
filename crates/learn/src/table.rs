//! Features of candidates, in blocks of columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Numbers beyond are no features, and no labels: sums of their squares would be infinite.
pub const MOST: f64 = 1e100;
/// What is further from the mean than so many standard deviations is unusual.
const USUAL: f64 = 2.0;

/// Columns that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// What they are: `likelihood`, `surface`, `state` …
    pub name: String,
    /// Each column's name.
    pub columns: Vec<String>,
    /// How much the block weighs beside the others: twice as much, and its penalty is a quarter.
    pub weight: f64,
}

impl Block {
    /// A block that weighs as much as another.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        Self { name: name.to_owned(), columns: columns.iter().map(|&column| column.to_owned()).collect(), weight: 1.0 }
    }
}

/// Features: a row for each candidate, or for the difference of two.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureTable {
    blocks: Vec<Block>,
    /// `(rows, columns)`.
    values: Vec<f64>,
    columns: usize,
}

/// Why values are no features.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A row has more or fewer values than there are columns.
    #[error("row {row} has {found} features, and there are {expected}")]
    Width {
        /// The row, from 0.
        row: usize,
        /// Its values.
        found: usize,
        /// The columns.
        expected: usize,
    },
    /// A value is none.
    #[error("feature `{column}` of row {row} is not a finite number, or beyond ±1e100")]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column's name.
        column: String,
    },
}

impl FeatureTable {
    /// A table of finite values, whose squares are finite too.
    pub fn new(blocks: Vec<Block>, rows: &[Vec<f64>]) -> Result<Self, TableError> {
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
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// How many columns all blocks have.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// A row's values.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// The table with the blocks alone whose names `keep` admits.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept: Vec<bool> =
            self.blocks.iter().flat_map(|block| vec![keep(&block.name); block.columns.len()]).collect();
        let blocks: Vec<Block> = self.blocks.iter().filter(|block| keep(&block.name)).cloned().collect();
        let values = self
            .values
            .chunks_exact(self.columns.max(1))
            .flat_map(|row| row.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(value, _)| *value));
        Self { values: values.collect(), columns: kept.iter().filter(|kept| **kept).count(), blocks }
    }

    /// Where these columns stand, by the names of blocks and columns; nothing where one is not here.
    pub fn places(&self, blocks: &[Block]) -> Option<Vec<usize>> {
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

    /// The table with these columns alone.
    pub fn select(&self, blocks: &[Block]) -> Option<Self> {
        let places = self.places(blocks)?;
        let values = (0..self.rows()).flat_map(|row| places.iter().map(move |place| self.row(row)[*place])).collect();
        Some(Self { blocks: blocks.to_vec(), values, columns: places.len() })
    }

    /// These rows alone.
    #[must_use]
    pub fn of(&self, rows: &[usize]) -> Self {
        Self { values: rows.iter().flat_map(|row| self.row(*row)).copied().collect(), ..self.without_rows() }
    }

    /// The table in which each row has lost the mean over all rows of its group. `groups[row]` counts from 0.
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

    /// The ends of what is usual in each column: two standard deviations around its mean.
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

    /// The table in which values outside of these ends are at them: one odd text does not turn a head.
    #[must_use]
    pub fn within(&self, ends: &[[f64; 2]]) -> Self {
        let values = (0..self.rows()).flat_map(|row| self.row(row).iter().zip(ends));
        let values = values.map(|(value, [low, high])| value.max(*low).min(*high)).collect();
        Self { values, ..self.without_rows() }
    }

    /// A row for each pair: the features of its first row less those of its second.
    #[must_use]
    pub fn differences(&self, pairs: &[(usize, usize)]) -> Self {
        let values = pairs.iter().flat_map(|(a, b)| self.row(*a).iter().zip(self.row(*b)).map(|(a, b)| a - b));
        Self { values: values.collect(), ..self.without_rows() }
    }

    fn without_rows(&self) -> Self {
        Self { blocks: self.blocks.clone(), values: Vec::new(), columns: self.columns }
    }
}
