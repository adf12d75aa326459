//! Bucketed relative positions (Raffel et al. 2020, section 2.1), with the formula of the published models.

use probity_kernels::RelativeBias;

/// The mapping from distances to buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelativeBuckets {
    /// The number of biases per head.
    pub(crate) buckets: usize,
    /// The distance from which all distances share the last bucket.
    pub(crate) max_distance: usize,
    /// Whether half of the buckets are for keys after the query. Otherwise such keys have the bucket of distance 0.
    pub(crate) bidirectional: bool,
}

impl RelativeBuckets {
    /// The bucket of a key position minus a query position. In each direction, half of the buckets hold one distance
    /// each; the others are logarithmic. The logarithm is computed in f32, as in the reference.
    pub(crate) fn bucket(&self, distance: isize) -> usize {
        let side = if self.bidirectional { self.buckets / 2 } else { self.buckets };
        let first = if self.bidirectional && distance > 0 { side } else { 0 };
        // A decoder never attends to keys after the query, so no bucket is reserved for them.
        let distance = if self.bidirectional { distance.unsigned_abs() } else { distance.min(0).unsigned_abs() };
        let exact = side / 2;
        if distance < exact {
            return first + distance;
        }
        // `libm` in Rust, not the system's: at a bucket's edge the last bit decides, and it may differ between
        // machines.
        let log = |x: f64| libm::log(x) as f32;
        let along = log(f64::from(distance as f32 / exact as f32)) / log(self.max_distance as f64 / exact as f64);
        first + (exact + (along * (side - exact) as f32) as usize).min(side - 1)
    }

    /// The bias of a stack, from its table `(buckets, heads)`.
    pub(crate) fn bias(&self, table: &[f32], heads: usize) -> RelativeBias {
        RelativeBias::new(heads, self.max_distance, |head, distance| table[self.bucket(distance) * heads + head])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_published_formula() {
        let encoder = RelativeBuckets { buckets: 32, max_distance: 128, bidirectional: true };
        let decoder = RelativeBuckets { bidirectional: false, ..encoder };
        // Bounds of the shared buckets, computed by hand: 8 · 16^(k/8) in each direction, 16 · 8^(k/16) in the decoder.
        let near = [
            (0, 0),
            (-7, 7),
            (-8, 8),
            (-11, 8),
            (-12, 9),
            (-15, 9),
            (-16, 10),
            (-22, 10),
            (-23, 11),
            (-31, 11),
            (-32, 12),
        ];
        let far = [
            (-45, 12),
            (-46, 13),
            (-63, 13),
            (-64, 14),
            (-90, 14),
            (-91, 15),
            (-128, 15),
            (-5000, 15),
            (1, 17),
            (64, 30),
            (999, 31),
        ];
        for (distance, bucket) in near.into_iter().chain(far) {
            assert_eq!(encoder.bucket(distance), bucket, "distance {distance} in an encoder");
        }
        for (distance, bucket) in
            [(5, 0), (0, 0), (-15, 15), (-16, 16), (-18, 16), (-19, 17), (-112, 30), (-113, 31), (-128, 31), (-600, 31)]
        {
            assert_eq!(decoder.bucket(distance), bucket, "distance {distance} in a decoder");
        }
    }
}
