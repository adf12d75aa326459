//! Disentangled attention (He et al. 2021, section 3.1). A score is the query-key product, plus the product of the
//! query with an embedding of its distance to the key, plus the product of the key with an embedding of its distance to
//! the query.

use probity_kernels::DistanceColumns;

/// The relative position terms of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disentangled {
    /// The table shared by all layers: one row for each distance from `−span` to `span − 1`.
    pub(crate) table: &'static str,
    pub(crate) span: usize,
    /// Distances from half of `span` share rows by their logarithm, up to this bound (exclusive).
    pub(crate) log_to: Option<usize>,
    /// The table's norm.
    pub(crate) norm: Option<&'static str>,
    /// The projection in each layer that maps the table's rows to keys, for content-to-position terms.
    pub(crate) keys: Option<&'static str>,
    /// The projection that maps them to queries, for position-to-content terms.
    pub(crate) queries: Option<&'static str>,
}

impl Disentangled {
    /// The table row of a key position minus a query position.
    pub(crate) fn row(&self, distance: isize) -> usize {
        // The reference subtracts the key's position from the query's.
        let (back, sign) = (distance.unsigned_abs(), if distance < 0 { 1 } else { -1 });
        let middle = self.span / 2;
        let bucket = match self.log_to {
            Some(most) if back > middle => {
                // In f32 and in the reference's order: at a bucket's edge the last bit decides. `libm` in Rust gives
                // the same last bit on every system.
                let log = |x: f32| libm::log(f64::from(x)) as f32;
                let along = log(back as f32 / middle as f32) / log(((most - 1) as f64 / middle as f64) as f32);
                (along * (middle - 1) as f32).ceil() as isize + middle as isize
            }
            _ => back as isize,
        };
        let span = self.span as isize;
        (sign * bucket + span).clamp(0, 2 * span - 1) as usize
    }

    /// A distance beyond which rows no longer change in either direction.
    fn reach(&self) -> usize {
        let settled =
            |reach: &usize| self.row(*reach as isize) == 0 && self.row(-(*reach as isize)) == 2 * self.span - 1;
        let most = self.log_to.map_or(self.span, |most| 2 * most);
        (self.span..most).find(settled).unwrap_or(most)
    }

    /// The column of each distance, if each row makes one column.
    pub(crate) fn columns(&self) -> DistanceColumns {
        DistanceColumns::new(2 * self.span, self.reach(), |distance| self.row(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_reference() {
        // From transformers 4.57.6, `make_log_bucket_position`: rows of query position minus key position, and the sum
        // over −1500 to 1500, with weights 1 to 7 in turn.
        let published: &[(isize, usize)] =
            &[(-1500, 0), (-512, 0), (-511, 1), (-129, 127), (-3, 253), (0, 256), (130, 386), (256, 448), (510, 511)];
        let small: &[(isize, usize)] =
            &[(-200, 0), (-199, 1), (-9, 7), (-1, 15), (8, 24), (9, 25), (16, 26), (198, 31), (1500, 31)];
        for (span, most, sum, rows) in [
            (256, 512, 3_068_553, published),
            (16, 200, 186_835, small),
            (2, 10, 24_004, &[(-9, 1), (-1, 1), (0, 2), (1500, 3)]),
            (32, 65_536, 384_057, &[(-1500, 7), (17, 49), (32, 50), (1500, 57)]),
        ] {
            let of = Disentangled { table: "", span, log_to: Some(most), norm: None, keys: None, queries: None };
            for (back, row) in rows {
                assert_eq!(of.row(-*back), *row, "{back} of {span} and {most}");
            }
            let sums = (-1500..=1500).enumerate().map(|(at, back): (usize, isize)| of.row(-back) * (at % 7 + 1));
            assert_eq!(sums.sum::<usize>(), sum, "{span} and {most}");
        }
        let plain = Disentangled { table: "", span: 60, log_to: None, norm: None, keys: None, queries: None };
        assert_eq!([-61, -60, -59, 0, 59, 60, 61].map(|back: isize| plain.row(-back)), [0, 0, 1, 60, 119, 119, 119]);
    }

    #[test]
    fn beyond_the_reach_of_columns_nothing_changes() {
        for (span, log_to) in [(256, Some(512)), (16, Some(200)), (2, Some(10)), (60, None)] {
            let of = Disentangled { table: "", span, log_to, norm: None, keys: None, queries: None };
            let reach = of.reach() as isize;
            for beyond in 1..3000 {
                assert_eq!(of.row(reach + beyond), of.row(reach), "{span} {log_to:?}");
                assert_eq!(of.row(-reach - beyond), of.row(-reach), "{span} {log_to:?}");
            }
        }
    }
}
