//! The output head on candle operations; the counterpart of [`crate::head`].

use candle_core::{DType, Result, Tensor, bail};
use probity_kernels::likeliest_among;

use super::weights::DeviceMatrix;
use crate::packed::HeadRow;

/// Rows of logits in memory at a time.
pub(super) const HEAD_ROWS: usize = 16;

/// `scale · x · Wᵀ + b` over the vocabulary.
pub(super) struct DeviceHead {
    /// Multiplied in f32 independent of the model's type: a bf16 product would round the logits.
    pub(super) weight: DeviceMatrix,
    /// Stored in f32.
    pub(super) bias: Option<Tensor>,
    /// Factor of `x`.
    pub(super) scale: f32,
    /// Soft cap of logits: `z` becomes `cap · tanh(z / cap)`.
    pub(super) cap: Option<f32>,
}

impl DeviceHead {
    /// Logits `(rows, vocab_size)` of hidden states `(rows, hidden_size)`.
    pub(super) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let hidden = hidden.to_dtype(DType::F32)?;
        let hidden = if self.scale == 1.0 { hidden } else { (hidden * f64::from(self.scale))? };
        let mut logits = self.weight.forward(&hidden)?;
        if let Some(bias) = &self.bias {
            logits = logits.broadcast_add(bias)?;
        }
        match self.cap.map(f64::from) {
            Some(cap) => (logits / cap)?.tanh()? * cap,
            None => Ok(logits),
        }
    }

    /// Computes the head's summary of each row.
    pub(super) fn rows(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<HeadRow>> {
        head_rows(hidden, asked, |hidden| self.logits(hidden))
    }

    /// The most likely allowed token.
    pub(super) fn greedy_among(&self, hidden: &Tensor, allowed: &[u32]) -> Result<Option<u32>> {
        let logits = self.logits(hidden)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(likeliest_among(&logits, allowed).map(|(_, id)| id as u32))
    }
}

/// Summarises rows of hidden states, whose logits are computed a few rows at a time.
pub(super) fn head_rows(
    hidden: &Tensor,
    asked: &[Vec<u32>],
    logits: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Vec<HeadRow>> {
    if hidden.dim(0)? != asked.len() {
        bail!("one list of tokens of the vocabulary for each row");
    }
    let mut rows = Vec::with_capacity(asked.len());
    for (part, asked) in asked.chunks(HEAD_ROWS).enumerate() {
        let logits = logits(&hidden.narrow(0, part * HEAD_ROWS, asked.len())?)?;
        let mut picked = pick(&logits, asked)?.into_iter();
        for ((normaliser, greedy), asked) in normalisers(&logits)?.into_iter().zip(greedy(&logits)?).zip(asked) {
            let logits = picked.by_ref().take(asked.len()).collect();
            rows.push(HeadRow { normaliser, greedy, logits, block_max: Vec::new() });
        }
    }
    Ok(rows)
}

/// log Σ exp over the vocabulary for each row of logits; not finite if a logit is NaN or +∞.
fn normalisers(logits: &Tensor) -> Result<Vec<f64>> {
    let max = logits.max_keepdim(1)?;
    let sums = logits.broadcast_sub(&max)?.exp()?.sum_keepdim(1)?;
    // Metal has no f64, so the sum is converted on the host.
    let sums: Vec<f32> = (sums.log()? + max)?.squeeze(1)?.to_vec1()?;
    Ok(sums.into_iter().map(f64::from).collect())
}

/// The index of the largest element in each row of `(rows, width)`; ties go to the lowest. Without a largest element
/// the index is arbitrary.
fn greedy(logits: &Tensor) -> Result<Vec<u32>> {
    let width = logits.dim(1)? as u32;
    // Comparison and minimum, because arg-max does not guarantee which of several maxima it returns. A row without a
    // maximum still yields a valid token.
    let is_largest = logits.broadcast_eq(&logits.max_keepdim(1)?)?;
    let ids = Tensor::arange(0, width, logits.device())?.broadcast_as(logits.shape())?.contiguous()?;
    is_largest.where_cond(&ids, &Tensor::full(width - 1, logits.shape(), logits.device())?)?.min(1)?.to_vec1()
}

/// The requested elements of each row of `(rows, width)`, concatenated.
fn pick(logits: &Tensor, asked: &[Vec<u32>]) -> Result<Vec<f32>> {
    let width = logits.dim(1)?;
    let mut places = Vec::new();
    for (row, ids) in asked.iter().enumerate() {
        if let Some(id) = ids.iter().find(|id| **id as usize >= width) {
            bail!("token {id} is outside the vocabulary of {width}");
        }
        // With at most `HEAD_ROWS` rows, indices into the logits fit 32 bits.
        places.extend(ids.iter().map(|id| (row * width) as u32 + id));
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let count = places.len();
    logits.flatten_all()?.index_select(&Tensor::from_vec(places, count, logits.device())?, 0)?.to_vec1()
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn the_greedy_token_is_the_lowest_of_the_largest() {
        let rows = [[1f32, 3.0, 3.0], [5.0, -1.0, 5.0], [f32::NEG_INFINITY, f32::NEG_INFINITY, -9.0], [2.0, 2.0, 2.0]];
        let logits = Tensor::new(&rows, &Device::Cpu).expect("a matrix");
        assert_eq!(greedy(&logits).expect("runs"), [1, 0, 2, 0]);
        let nothing = Tensor::new(&[[f32::NAN; 3]], &Device::Cpu).expect("a matrix");
        assert!(greedy(&nothing).expect("runs")[0] < 3);
    }

    #[test]
    fn a_normaliser_of_logits_that_are_no_numbers_is_not_finite() {
        let of = |row: [f32; 3]| normalisers(&Tensor::new(&[row], &Device::Cpu).expect("a row")).expect("runs")[0];
        assert!((of([0.0, 0.0, 0.0]) - 3f64.ln()).abs() < 1e-6);
        assert!((of([100.0, f32::NEG_INFINITY, 100.0]) - (100.0 + 2f64.ln())).abs() < 1e-4);
        for bad in [[0.0, f32::NAN, 1.0], [f32::NAN, 0.0, 1.0], [0.0, f32::INFINITY, 1.0], [f32::NEG_INFINITY; 3]] {
            assert!(!of(bad).is_finite(), "{bad:?}");
        }
    }

    #[test]
    fn asked_logits_come_row_by_row_and_only_from_the_vocabulary() {
        let logits =
            Tensor::new(&[[0f32, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]], &Device::Cpu).expect("a matrix");
        assert_eq!(pick(&logits, &[vec![2, 0], vec![], vec![1, 1, 2]]).expect("runs"), [2.0, 0.0, 7.0, 7.0, 8.0]);
        assert!(pick(&logits, &[vec![], vec![], vec![]]).expect("runs").is_empty());
        assert!(pick(&logits, &[vec![3], vec![], vec![]]).is_err(), "not the next row's first");
    }
}
