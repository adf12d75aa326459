//! Rows of hidden states and logits, and the most probable tokens of a row.

use candle_core::{CpuStorage, Storage, Tensor};
use probity_models::{HeadRow, PackedDecoder};

/// Maximum number of logit rows held at once.
pub(super) const LOGIT_ROWS: usize = 64;

/// A possible token at a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LikelyToken {
    pub(crate) id: u32,
    /// log P(token | before) under the full vocabulary.
    pub(crate) logprob: f64,
}

/// The `counts` most probable tokens of each row of hidden states. Ties go to the lowest id. `heads` are the output
/// head's results for the same rows; a row whose normaliser is not finite has NaN log-probabilities.
pub(super) fn likeliest(
    model: &dyn PackedDecoder,
    hidden: &Tensor,
    heads: &[HeadRow],
    counts: &[usize],
) -> candle_core::Result<Vec<Vec<LikelyToken>>> {
    let mut found: Vec<Vec<LikelyToken>> = vec![Vec::new(); counts.len()];
    let mut whole = Vec::new();
    for (row, (head, count)) in heads.iter().zip(counts).enumerate() {
        match count {
            0 => {}
            // The head knows the most probable token without a full row of logits.
            1 if !head.block_max.is_empty() => {
                let largest = head.block_max.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                found[row] = vec![LikelyToken { id: head.greedy, logprob: f64::from(largest) - head.normaliser }];
            }
            _ => whole.push(row),
        }
    }
    for rows in whole.chunks(LOGIT_ROWS) {
        let logits = model.logits(&pick(hidden, rows)?)?;
        let width = logits.dim(1)?;
        with_values(&logits, |values| {
            for (row, logits) in rows.iter().zip(values.chunks_exact(width)) {
                found[*row] = largest(logits, counts[*row], heads[*row].normaliser);
            }
        })?;
    }
    Ok(found)
}

fn largest(logits: &[f32], count: usize, normaliser: f64) -> Vec<LikelyToken> {
    let likelier = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count, likelier);
        ids.truncate(count);
    }
    ids.sort_unstable_by(likelier);
    ids.into_iter().map(|id| LikelyToken { id, logprob: f64::from(logits[id as usize]) - normaliser }).collect()
}

/// Selects rows of a matrix.
pub(super) fn pick(hidden: &Tensor, rows: &[usize]) -> candle_core::Result<Tensor> {
    // If all rows are selected in order, nothing is copied.
    if rows.len() == hidden.dim(0)? && rows.iter().enumerate().all(|(at, row)| at == *row) {
        return Ok(hidden.clone());
    }
    hidden.index_select(&Tensor::new(rows.iter().map(|row| *row as u32).collect::<Vec<_>>(), hidden.device())?, 0)
}

/// Reads a matrix row by row, without copying if possible.
pub(super) fn with_values<T>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> T) -> candle_core::Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        return Ok(read(&values[start..end]));
    }
    // Releases the storage lock before the tensor is read again.
    drop(storage);
    Ok(read(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_first_and_the_lowest_id_among_equals() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0];
        let ids = |count| largest(&logits, count, 0.5).iter().map(|token| token.id).collect::<Vec<_>>();
        assert_eq!((ids(1), ids(3), ids(9)), (vec![1], vec![1, 3, 4], vec![1, 3, 4, 0, 2]));
        assert_eq!(largest(&logits, 1, 0.5)[0].logprob, 2.5);
    }
}
