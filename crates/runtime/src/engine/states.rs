//! Mean hidden states over texts, summed during the walk so that no tokens × width matrix is stored.

use std::ops::Range;

use super::scheduler::NodeStretch;
use super::token_scores::TokenQuery;
use super::tree::PrefixTree;

/// Rows of a node that belong to a query's text.
struct ReadRows {
    query: usize,
    rows: Range<usize>,
}

/// The pooled states requested by queries.
pub(super) struct PooledStates<'q> {
    queries: &'q [TokenQuery],
    /// All requested layers, ascending.
    layers: Vec<usize>,
    /// Per node, in query order.
    read: Vec<Vec<ReadRows>>,
    /// Running sums for each query and layer.
    sums: Vec<Vec<Vec<f64>>>,
}

impl<'q> PooledStates<'q> {
    pub(super) fn new(tree: &PrefixTree<'_>, queries: &'q [TokenQuery]) -> Self {
        let mut layers: Vec<usize> = queries.iter().flat_map(|query| query.layers.iter().copied()).collect();
        layers.sort_unstable();
        layers.dedup();
        let mut read: Vec<Vec<ReadRows>> = (0..tree.len()).map(|_| Vec::new()).collect();
        if !layers.is_empty() {
            tree.each_path(&mut |query, path| {
                if queries[query].layers.is_empty() {
                    return;
                }
                let first = queries[query].first_row() + 1;
                for (node, range) in path.iter().filter(|(_, range)| range.end > first) {
                    let rows = first.max(range.start) - range.start..range.len();
                    read[*node].push(ReadRows { query, rows });
                }
            });
        }
        let sums = queries.iter().map(|query| vec![Vec::new(); query.layers.len()]).collect();
        Self { queries, layers, read, sums }
    }

    pub(super) fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Adds the rows of a node's tokens after one of the layers. A query's rows always arrive in token order, so the
    /// order of additions never changes.
    pub(super) fn see(&mut self, stretch: &NodeStretch, place: usize, rows: &[f32]) {
        let width = rows.len() / stretch.range.len();
        for read in &self.read[stretch.node] {
            let asked = self.queries[read.query].layers.iter().zip(&mut self.sums[read.query]);
            let here = overlap(&read.rows, &stretch.range);
            for (_, sum) in asked.filter(|(layer, _)| **layer == self.layers[place]) {
                sum.resize(width, 0.0);
                for row in here.clone().map(|row| row - stretch.range.start) {
                    let row = &rows[row * width..(row + 1) * width];
                    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
                }
            }
        }
    }

    /// Number of rows of each query's text within these tokens, by query.
    pub(super) fn rows_of(&self, stretch: &NodeStretch) -> impl Iterator<Item = (usize, usize)> {
        self.read[stretch.node].iter().map(|read| (read.query, overlap(&read.rows, &stretch.range).len()))
    }

    /// Takes a query's states after all of its rows were added.
    pub(super) fn take(&mut self, query: usize) -> Vec<Vec<f32>> {
        let tokens = self.queries[query].asked.len() as f64;
        let mean = |sum: Vec<f64>| sum.into_iter().map(|sum| (sum / tokens) as f32).collect();
        std::mem::take(&mut self.sums[query]).into_iter().map(mean).collect()
    }
}

fn overlap(rows: &Range<usize>, range: &Range<usize>) -> Range<usize> {
    let start = rows.start.max(range.start);
    start..rows.end.min(range.end).max(start)
}
