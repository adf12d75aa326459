//! Word edit distance near the diagonal, with backtrace.

/// Maximum distance of computed cells from the diagonal.
const BEAM: usize = 25;

/// Greater than any distance; marks cells that were not computed.
// Half of the range: adding edits does not overflow.
const FAR: u32 = u32::MAX / 2;

/// The last edit of a cell, from the candidate to the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    Keep,
    Replace,
    /// Insert a word of the reference.
    Insert,
    /// Delete a word of the candidate.
    Delete,
}

#[derive(Debug, Clone, Copy)]
struct EditCell {
    cost: u32,
    edit: Edit,
}

/// The computed span of a row.
#[derive(Debug, Clone, Default)]
struct DistanceRow {
    first: usize,
    cells: Vec<EditCell>,
}

impl DistanceRow {
    fn cost(&self, j: usize) -> u32 {
        j.checked_sub(self.first).and_then(|at| self.cells.get(at)).map_or(FAR, |cell| cell.cost)
    }
}

/// Distances of one candidate, and of others of its length, to a reference. Cells are computed if they are less than
/// [`BEAM`] from the diagonal of the table's shape; the last row is complete. Among edits of equal cost, keeping and
/// replacing come first, then deleting.
#[derive(Debug)]
pub(super) struct TerDistance<'r> {
    reference: &'r [u32],
    /// The candidate's words, and a row for each of its prefixes.
    words: Vec<u32>,
    rows: Vec<DistanceRow>,
    ratio: f64,
    beam: usize,
    /// Scratch rows for other candidates.
    spare: [DistanceRow; 2],
}

impl<'r> TerDistance<'r> {
    pub(super) fn new(candidate: &[u32], reference: &'r [u32]) -> Self {
        let ratio = if candidate.is_empty() { 1.0 } else { reference.len() as f64 / candidate.len() as f64 };
        // Wide enough that each row overlaps the one before it.
        let beam = if BEAM as f64 >= ratio / 2.0 { BEAM } else { (ratio / 2.0 + BEAM as f64).ceil() as usize };
        let first = (0..=reference.len()).map(|j| EditCell { cost: j as u32, edit: Edit::Insert }).collect();
        let rows = vec![DistanceRow { first: 0, cells: first }];
        let mut distance =
            Self { reference, words: candidate.to_vec(), rows, ratio, beam, spare: <[DistanceRow; 2]>::default() };
        distance.fill(0);
        distance
    }

    /// Switches to another candidate of the same length.
    pub(super) fn replace(&mut self, candidate: Vec<u32>) {
        let same = common_prefix(&self.words, &candidate);
        self.words = candidate;
        self.rows.truncate(same + 1);
        self.fill(same);
    }

    /// Computes the rows from the prefix of `done` words on.
    fn fill(&mut self, done: usize) {
        for i in done + 1..=self.words.len() {
            let mut row = DistanceRow::default();
            self.row(i, self.words[i - 1], &self.rows[i - 1], &mut row);
            self.rows.push(row);
        }
    }

    pub(super) fn candidate_words(&self) -> &[u32] {
        &self.words
    }

    pub(super) fn cost(&self) -> u32 {
        self.rows[self.words.len()].cost(self.reference.len())
    }

    /// The distance of another candidate of the same length. Reuses the rows of their common prefix.
    pub(super) fn cost_of(&mut self, candidate: &[u32]) -> u32 {
        let same = common_prefix(&self.words, candidate);
        let [mut above, mut row] = std::mem::take(&mut self.spare);
        for i in same + 1..=candidate.len() {
            let before = if i == same + 1 { &self.rows[same] } else { &above };
            self.row(i, candidate[i - 1], before, &mut row);
            std::mem::swap(&mut above, &mut row);
        }
        let cost = if same == candidate.len() { self.cost() } else { above.cost(self.reference.len()) };
        self.spare = [above, row];
        cost
    }

    fn row(&self, i: usize, word: u32, above: &DistanceRow, row: &mut DistanceRow) {
        let end = self.reference.len() + 1;
        let middle = (i as f64 * self.ratio).floor() as usize;
        let first = middle.saturating_sub(self.beam);
        // The last row is complete, since its last cell holds the distance, however far it is from the diagonal.
        let last = if i == self.words.len() { end } else { end.min(middle + self.beam) };
        row.first = first;
        row.cells.clear();
        let (mut diagonal, mut left) = (if first > 0 { above.cost(first - 1) } else { FAR }, FAR);
        for j in first..last {
            let up = above.cost(j);
            let same = j > 0 && self.reference[j - 1] == word;
            let mut cell =
                EditCell { cost: diagonal + u32::from(!same), edit: if same { Edit::Keep } else { Edit::Replace } };
            if up + 1 < cell.cost {
                cell = EditCell { cost: up + 1, edit: Edit::Delete };
            }
            if left + 1 < cell.cost {
                cell = EditCell { cost: left + 1, edit: Edit::Insert };
            }
            row.cells.push(cell);
            (diagonal, left) = (up, cell.cost);
        }
    }

    /// The edits that turn the candidate into the reference, in order.
    pub(super) fn edits(&self) -> Vec<Edit> {
        let (mut i, mut j) = (self.words.len(), self.reference.len());
        let mut edits = Vec::new();
        while i > 0 || j > 0 {
            let row = &self.rows[i];
            let edit = row.cells[j - row.first].edit;
            edits.push(edit);
            i -= usize::from(edit != Edit::Insert);
            j -= usize::from(edit != Edit::Delete);
        }
        edits.reverse();
        edits
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
