//! Bit-parallel longest common subsequences: each table row is a bit vector over the tokens of the candidate.

/// A table of longest common subsequences between prefixes. Row `i` is for the first `i` tokens of the reference. Its
/// bit `j` is 0 if the subsequence grows by one when the candidate's prefix grows from `j` to `j + 1` tokens
/// (Crochemore et al. 2001; Hyyrö 2004).
#[derive(Debug, Default)]
pub(crate) struct Lcs {
    /// Occurrences of each token in the candidate, as bits.
    places: Vec<u64>,
    /// The rows, concatenated.
    rows: Vec<u64>,
}

const BITS: usize = u64::BITS as usize;

impl Lcs {
    /// The length. Tokens are numbers below `kinds`.
    pub(crate) fn length(&mut self, reference: &[u32], candidate: &[u32], kinds: usize) -> usize {
        let width = self.begin(candidate, kinds);
        for token in reference {
            let (row, places) = (&mut self.rows[..width], &self.places[*token as usize * width..][..width]);
            step(row, places);
        }
        grown(&self.rows[..width], candidate.len())
    }

    /// The positions in the reference of one longest common subsequence, in descending order. A walk back through the
    /// table takes a common token; otherwise it skips the candidate's token if the subsequence is shorter without the
    /// reference's, and else the reference's.
    pub(crate) fn positions(&mut self, reference: &[u32], candidate: &[u32], kinds: usize) -> Vec<usize> {
        let width = self.begin(candidate, kinds);
        for (i, token) in reference.iter().enumerate() {
            self.rows.extend_from_within(i * width..);
            step(&mut self.rows[(i + 1) * width..], &self.places[*token as usize * width..][..width]);
        }
        let row = |i: usize| &self.rows[i * width..][..width];
        let (mut i, mut j) = (reference.len(), candidate.len());
        let mut positions = Vec::new();
        if i == 0 || j == 0 {
            return positions;
        }
        // Length of the subsequence with and without the reference's last token.
        let (mut with, mut without) = (grown(row(i), j), grown(row(i - 1), j));
        // The choice among several longest ones matters, because rouge-lsum joins the positions of several lines. It
        // follows rouge_score's walk.
        while with > 0 {
            let common = reference[i - 1] == candidate[j - 1];
            let (drop_candidate, drop_reference) = (common || with > without, common || with == without);
            if common {
                positions.push(i - 1);
            }
            if drop_candidate {
                j -= 1;
                with -= grows(row(i), j);
                without -= grows(row(i - 1), j);
            }
            if drop_reference {
                i -= 1;
                with = without;
                without = if i > 0 { grown(row(i - 1), j) } else { 0 };
            }
        }
        positions
    }

    /// Records the positions of each token in the candidate and creates the first row; returns the number of words per
    /// row.
    fn begin(&mut self, candidate: &[u32], kinds: usize) -> usize {
        let width = candidate.len().div_ceil(BITS);
        self.places.clear();
        self.places.resize(kinds * width, 0);
        for (j, token) in candidate.iter().enumerate() {
            self.places[*token as usize * width + j / BITS] |= 1 << (j % BITS);
        }
        self.rows.clear();
        // All ones: nothing grows against an empty reference.
        self.rows.resize(width, u64::MAX);
        width
    }
}

/// Computes the next row: in each run of bits that ends with a 0, the lowest position of the token becomes the 0.
fn step(row: &mut [u64], places: &[u64]) {
    let mut carry = false;
    for (bits, places) in row.iter_mut().zip(places) {
        let common = *bits & places;
        let (sum, over) = bits.overflowing_add(common);
        let (sum, more) = sum.overflowing_add(u64::from(carry));
        carry = over || more;
        *bits = sum | (*bits & !places);
    }
}

/// Length of the subsequence for the first `len` tokens of the candidate.
fn grown(row: &[u64], len: usize) -> usize {
    let whole: u32 = row[..len / BITS].iter().map(|bits| bits.count_zeros()).sum();
    let rest = row.get(len / BITS).map_or(0, |bits| (!bits & ((1 << (len % BITS)) - 1)).count_ones());
    (whole + rest) as usize
}

/// Whether it grows with token `j` of the candidate: 1 or 0.
fn grows(row: &[u64], j: usize) -> usize {
    (!row[j / BITS] >> (j % BITS) & 1) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook table with the walk described in [`Lcs::positions`].
    fn plain(reference: &[u32], candidate: &[u32]) -> (usize, Vec<usize>) {
        let mut table = vec![vec![0; candidate.len() + 1]; reference.len() + 1];
        for i in 1..=reference.len() {
            for j in 1..=candidate.len() {
                let same = reference[i - 1] == candidate[j - 1];
                table[i][j] = if same { table[i - 1][j - 1] + 1 } else { table[i - 1][j].max(table[i][j - 1]) };
            }
        }
        let (mut i, mut j, mut positions) = (reference.len(), candidate.len(), Vec::new());
        while i > 0 && j > 0 {
            if reference[i - 1] == candidate[j - 1] {
                (i, j) = (i - 1, j - 1);
                positions.push(i);
            } else if table[i][j - 1] > table[i - 1][j] {
                j -= 1;
            } else {
                i -= 1;
            }
        }
        (table[reference.len()][candidate.len()], positions)
    }

    proptest! {
        #[test]
        fn length_and_positions_are_those_of_the_plain_table(
            kinds in 1..6_u32,
            reference in prop::collection::vec(0..1_000_u32, 0..150),
            candidate in prop::collection::vec(0..1_000_u32, 0..150),
        ) {
            let fold = |tokens: Vec<u32>| tokens.into_iter().map(|token| token % kinds).collect::<Vec<_>>();
            let (reference, candidate) = (fold(reference), fold(candidate));
            let (length, positions) = plain(&reference, &candidate);
            let mut lcs = Lcs::default();
            prop_assert_eq!(lcs.positions(&reference, &candidate, kinds as usize), positions);
            prop_assert_eq!(lcs.length(&reference, &candidate, kinds as usize), length);
        }
    }
}
