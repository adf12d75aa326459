//! Relative position terms of [disentangled](crate::disentangled) attention on candle operations; the counterpart of
//! [`crate::distances`].

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::disentangled::Disentangled;

/// The projected relative position table of a layer, `(heads, head_dim, 2 span)` each.
pub(super) struct DeviceLayerDistances {
    /// Keys for products with queries, if the model has content-to-position terms.
    pub(super) keys: Option<Tensor>,
    /// Queries for products with keys, if the model has position-to-content terms.
    pub(super) queries: Option<Tensor>,
}

/// Indices of row-key pairs into the products of rows and of keys with all distances.
pub(super) struct DistancePlaces {
    of_queries: Tensor,
    of_keys: Tensor,
}

impl DistancePlaces {
    /// From `(row, key, key position − row position)` for each pair.
    pub(super) fn new(
        of: &Disentangled,
        (rows, keys): (usize, usize),
        pairs: impl Iterator<Item = (usize, usize, isize)>,
        device: &Device,
    ) -> Result<Self> {
        let columns = 2 * of.span;
        if u32::try_from(rows.max(keys) * columns).is_err() {
            bail!("texts of {keys} tokens have too many products with {columns} distances for this device");
        }
        let place = |(row, key, distance)| {
            let column = of.row(distance);
            ((row * columns + column) as u32, (key * columns + column) as u32)
        };
        let (of_queries, of_keys): (Vec<u32>, Vec<u32>) = pairs.map(place).unzip();
        let places = |places: Vec<u32>| Tensor::new(places, device);
        Ok(Self { of_queries: places(of_queries)?, of_keys: places(of_keys)? })
    }
}

impl DeviceLayerDistances {
    /// Adds the relative position terms to scores `(heads · pieces, rows, seen)`, from queries `(heads · pieces, rows,
    /// head_dim)` and keys `(heads · pieces, seen, head_dim)`.
    pub(super) fn add(
        &self,
        scores: &Tensor,
        places: &DistancePlaces,
        queries: &Tensor,
        keys: &Tensor,
    ) -> Result<Tensor> {
        let gather = |rows: &Tensor, distances: &Tensor, places: &Tensor| {
            let (heads, head_dim, _) = distances.dims3()?;
            let products = rows.contiguous()?.reshape((heads, (), head_dim))?.matmul(distances)?; // (heads, …, 2 span)
            // Gathered before conversion to f32: there are often more distances than positions.
            products.flatten_from(1)?.index_select(places, 1)?.to_dtype(DType::F32)?.reshape(scores.shape())
        };
        // In the same order as our kernels.
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
        // The second block of a text of five tokens: its rows are the fourth and the fifth.
        let pairs = (0..10).map(|pair| (pair / 5, pair % 5, pair as isize % 5 - 3 - pair as isize / 5));
        let places = DistancePlaces::new(&OF, (2, 5), pairs, &Device::Cpu).expect("few of them");
        let of = |places: &Tensor| places.to_vec1::<u32>().expect("places");
        // Columns of distances −3 to 1 and −4 to 0: the reference subtracts the key's position.
        let columns = [3, 3, 3, 2, 1, 3, 3, 3, 3, 2];
        assert_eq!(of(&places.of_queries), std::array::from_fn::<u32, 10, _>(|at| (at / 5 * 4) as u32 + columns[at]));
        assert_eq!(of(&places.of_keys), std::array::from_fn::<u32, 10, _>(|at| (at % 5 * 4) as u32 + columns[at]));
    }

    #[test]
    fn more_products_than_can_be_counted_are_an_error() {
        let of = Disentangled { span: 1 << 31, ..OF };
        let error =
            DistancePlaces::new(&of, (1, 2), std::iter::empty(), &Device::Cpu).err().expect("refused").to_string();
        assert!(error.contains("too many products"), "{error}");
    }
}
