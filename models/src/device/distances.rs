//! What stands for distances in [disentangled](crate::disentangled) attention, and its products over candle's operations:
//! what [`crate::distances`] computes with our kernels.

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::disentangled::Disentangled;

/// What stands for distances in a layer, `(heads, head_dim, 2 span)` each.
pub(super) struct LayerDistances {
    /// What queries meet, where they do.
    pub(super) keys: Option<Tensor>,
    /// What keys meet.
    pub(super) queries: Option<Tensor>,
}

/// Where the products of some rows of a text, and of the positions that these see, stand among those with all distances:
/// `(rows · seen)` each.
pub(super) struct DistancePlaces {
    of_queries: Tensor,
    of_keys: Tensor,
}

impl DistancePlaces {
    /// Of so many rows and positions, the first row's own among these given.
    pub(super) fn new(of: &Disentangled, (rows, seen, own): (usize, usize, usize), device: &Device) -> Result<Self> {
        let columns = 2 * of.span;
        if u32::try_from(rows.max(seen) * columns).is_err() {
            bail!("a text of {seen} tokens has too many products with {columns} distances for this device");
        }
        let column = |row: usize, key: usize| of.row(key as isize - (own + row) as isize);
        let pairs = || (0..rows).flat_map(|row| (0..seen).map(move |key| (row, key)));
        let of_queries: Vec<u32> = pairs().map(|(row, key)| (row * columns + column(row, key)) as u32).collect();
        let of_keys: Vec<u32> = pairs().map(|(row, key)| (key * columns + column(row, key)) as u32).collect();
        let places = |places: Vec<u32>| Tensor::from_vec(places, rows * seen, device);
        Ok(Self { of_queries: places(of_queries)?, of_keys: places(of_keys)? })
    }
}

impl LayerDistances {
    /// Scores `(heads, rows, seen)` with the products of queries `(heads, rows, head_dim)` and of keys `(heads, seen,
    /// head_dim)` with what stands for the distance of each pair.
    pub(super) fn add(
        &self,
        scores: &Tensor,
        places: &DistancePlaces,
        queries: &Tensor,
        keys: &Tensor,
    ) -> Result<Tensor> {
        let gather = |rows: &Tensor, distances: &Tensor, places: &Tensor| {
            let products = rows.contiguous()?.matmul(distances)?; // (heads, rows, 2 span)
            // Gathered before they are widened: there are often more distances than positions.
            products.flatten_from(1)?.index_select(places, 1)?.to_dtype(DType::F32)?.reshape(scores.shape())
        };
        // In the order in which our kernels add them.
        let of_queries = self.keys.as_ref().map(|all| gather(queries, all, &places.of_queries)).transpose()?;
        let of_keys = self.queries.as_ref().map(|all| gather(keys, all, &places.of_keys)).transpose()?;
        [of_queries, of_keys].into_iter().flatten().try_fold(scores.clone(), |sum, products| sum + products)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Disentangled = Disentangled { table: "", span: 2, log_to: None, norm: None, keys: None, queries: None };

    #[test]
    fn a_pair_has_the_product_of_its_distance_in_the_query_s_row_and_in_the_key_s() {
        // The second block of a text of five: its rows are the fourth and the fifth.
        let places = DistancePlaces::new(&OF, (2, 5, 3), &Device::Cpu).expect("few of them");
        let of = |places: &Tensor| places.to_vec1::<u32>().expect("places");
        // Columns of distances −3 to 1 and −4 to 0: the reference counts from the key.
        let columns = [3, 3, 3, 2, 1, 3, 3, 3, 3, 2];
        assert_eq!(of(&places.of_queries), std::array::from_fn::<u32, 10, _>(|at| (at / 5 * 4) as u32 + columns[at]));
        assert_eq!(of(&places.of_keys), std::array::from_fn::<u32, 10, _>(|at| (at % 5 * 4) as u32 + columns[at]));
    }

    #[test]
    fn more_products_than_can_be_counted_are_an_error() {
        let of = Disentangled { span: 1 << 31, ..OF };
        let error = DistancePlaces::new(&of, (1, 2, 0), &Device::Cpu).err().expect("refused").to_string();
        assert!(error.contains("too many products"), "{error}");
    }
}
