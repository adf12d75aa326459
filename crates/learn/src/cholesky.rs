//! Solves symmetric positive definite systems by Cholesky factorisation.

/// Number of columns eliminated together: a panel fits in the processor cache.
const PANEL: usize = 48;

/// The lower factor L of a matrix A = L·Lᵀ.
pub(crate) struct Cholesky {
    size: usize,
    /// `(size, size)` by rows; entries above the diagonal are unused.
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factors a matrix `(size, size)`, reading only its lower half. `None` if it is not numerically positive definite.
    pub(crate) fn new(size: usize, mut matrix: Vec<f64>) -> Option<Self> {
        // `(PANEL, size)`: the panel's columns as rows, so that the innermost loop accesses contiguous memory.
        let mut panel = vec![0.0; PANEL * size];
        for start in (0..size).step_by(PANEL) {
            let end = (start + PANEL).min(size);
            factor_panel(&mut matrix, size, start, end)?;
            for row in end..size {
                for column in start..end {
                    panel[(column - start) * size + row] = matrix[row * size + column];
                }
            }
            // Each remaining element subtracts its products column by column, in one dependency chain.
            for row in end..size {
                let (own, target) = matrix[(row * size)..=(row * size + row)].split_at_mut(end);
                subtract(target, &own[start..end], &panel, size, end);
            }
        }
        Some(Self { size, lower: matrix })
    }

    /// Solves A·x = `rhs`.
    pub(crate) fn solve(&self, rhs: &[f64]) -> Vec<f64> {
        let (size, lower) = (self.size, &self.lower);
        let mut x = rhs.to_vec();
        for row in 0..size {
            let (known, rest) = x.split_at_mut(row);
            let sum = dot(&lower[row * size..row * size + row], known);
            rest[0] = (rest[0] - sum) / lower[row * size + row];
        }
        for row in (0..size).rev() {
            x[row] /= lower[row * size + row];
            let (value, (above, _)) = (x[row], x.split_at_mut(row));
            let column = &lower[row * size..row * size + row];
            above.iter_mut().zip(column).for_each(|(x, l)| *x -= value * l);
        }
        x
    }
}

/// Factors the columns of a panel, after subtraction of all earlier columns.
fn factor_panel(matrix: &mut [f64], size: usize, start: usize, end: usize) -> Option<()> {
    for column in start..end {
        let pivot = matrix[column * size + column];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        let root = pivot.sqrt();
        matrix[column * size + column] = root;
        for row in column + 1..size {
            matrix[row * size + column] /= root;
        }
        let (_, below) = matrix.split_at_mut((column + 1) * size);
        // Only the other columns of the panel; later columns are updated for the whole panel at once.
        let factors: Vec<f64> = (column + 1..end).map(|other| below[(other - column - 1) * size + column]).collect();
        for (row, values) in below.chunks_exact_mut(size).enumerate() {
            let row = column + 1 + row;
            let own = values[column];
            let last = end.min(row + 1);
            values[column + 1..last].iter_mut().zip(&factors).for_each(|(value, factor)| *value -= own * factor);
        }
    }
    Some(())
}

/// Subtracts the products of a row's panel with the panel's rows from `target`, which begins at column `first`.
fn subtract(target: &mut [f64], own: &[f64], panel: &[f64], size: usize, first: usize) {
    let rows: Vec<&[f64]> =
        (0..own.len()).map(|column| &panel[column * size + first..column * size + first + target.len()]).collect();
    let mut columns = own.chunks_exact(4).zip(rows.chunks_exact(4));
    for (own, rows) in &mut columns {
        let [a, b, c, d] = [rows[0], rows[1], rows[2], rows[3]];
        for (k, x) in target.iter_mut().enumerate() {
            *x = *x - own[0] * a[k] - own[1] * b[k] - own[2] * c[k] - own[3] * d[k];
        }
    }
    let done = own.len() / 4 * 4;
    for (factor, row) in own[done..].iter().zip(&rows[done..]) {
        target.iter_mut().zip(*row).for_each(|(x, l)| *x -= factor * l);
    }
}

/// Dot product in four accumulators, added in a fixed order.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (mut left, mut right) = (a.chunks_exact(4), b.chunks_exact(4));
    for (a, b) in (&mut left).zip(&mut right) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Textbook factorisation.
    fn plain(size: usize, a: &[f64]) -> Vec<f64> {
        let mut l = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                let sum: f64 = (0..j).map(|k| l[i * size + k] * l[j * size + k]).sum();
                let rest = a[i * size + j] - sum;
                l[i * size + j] = if i == j { rest.sqrt() } else { rest / l[j * size + j] };
            }
        }
        l
    }

    proptest! {
        #[test]
        fn the_factor_is_the_textbooks_and_solves(size in 1usize..120, seed in 0u64..1000) {
            let mut state = seed + 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
            };
            let z: Vec<f64> = (0..size * size).map(|_| next()).collect();
            let mut a = vec![0.0; size * size];
            for i in 0..size {
                for j in 0..size {
                    a[i * size + j] = dot(&z[i * size..(i + 1) * size], &z[j * size..(j + 1) * size]);
                }
                a[i * size + i] += 0.5;
            }
            let factor = Cholesky::new(size, a.clone()).expect("positive definite");
            let expected = plain(size, &a);
            for i in 0..size {
                for j in 0..=i {
                    prop_assert!((factor.lower[i * size + j] - expected[i * size + j]).abs() < 1e-9);
                }
            }
            let rhs: Vec<f64> = (0..size).map(|_| next()).collect();
            let x = factor.solve(&rhs);
            for i in 0..size {
                prop_assert!((dot(&a[i * size..(i + 1) * size], &x) - rhs[i]).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        assert!(Cholesky::new(2, vec![1.0, 0.0, 2.0, 1.0]).is_none());
        assert!(Cholesky::new(1, vec![0.0]).is_none());
        assert!(Cholesky::new(1, vec![f64::NAN]).is_none());
    }
}
