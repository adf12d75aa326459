//! The output head: logits from hidden states.

use candle_core::{CpuStorage, Device, Layout, Result, Storage, Tensor, bail};
use probity_kernels::{HeadMatrix, HeadRow, Inputs, MatrixProduct, PackedMatrix, greedy_among, head, matmul, soft_cap};

use crate::Compute;

/// `scale · x · Wᵀ + b` over the vocabulary.
pub(crate) struct VocabularyHead {
    /// Shared with the embedding if tied.
    pub(crate) weight: PackedMatrix,
    pub(crate) bias: Option<Vec<f32>>,
    /// Factor of `x`.
    pub(crate) scale: f32,
    /// Soft cap of logits: `z` becomes `cap · tanh(z / cap)`.
    pub(crate) cap: Option<f32>,
}

impl VocabularyHead {
    /// Logits `(rows, vocab_size)` of hidden states `(rows, hidden_size)`.
    pub(crate) fn logits(&self, compute: Compute, inputs: &mut Inputs, hidden: &Tensor) -> Result<Tensor> {
        self.pack(compute, inputs, hidden)?;
        let (rows, vocab_size) = (hidden.dim(0)?, self.weight.out_features());
        let mut logits = vec![0.0; rows * vocab_size];
        let product = MatrixProduct { weights: &self.weight, bias: self.bias.as_deref(), y: &mut logits, add: false };
        matmul(compute.isa, inputs, &mut [product]);
        if let Some(cap) = self.cap {
            soft_cap(compute.isa, 1.0, cap, &mut logits);
        }
        Tensor::from_vec(logits, (rows, vocab_size), &Device::Cpu)
    }

    /// Computes the head's summary of each row.
    pub(crate) fn rows(
        &self,
        compute: Compute,
        inputs: &mut Inputs,
        hidden: &Tensor,
        asked: &[Vec<u32>],
    ) -> Result<Vec<HeadRow>> {
        if asked.iter().flatten().any(|token| *token as usize >= self.weight.out_features())
            || hidden.dim(0)? != asked.len()
        {
            bail!("one list of tokens of the vocabulary for each row");
        }
        // No row is wanted in this pass, so there is nothing to pack.
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        self.pack(compute, inputs, hidden)?;
        Ok(head(compute.isa, inputs, self.matrix(), asked))
    }

    /// The most likely allowed token.
    pub(crate) fn greedy_among(
        &self,
        compute: Compute,
        inputs: &mut Inputs,
        hidden: &Tensor,
        row: &HeadRow,
        allowed: &[u32],
    ) -> Result<Option<u32>> {
        self.pack(compute, inputs, hidden)?;
        Ok(greedy_among(compute.isa, inputs, self.matrix(), row, allowed))
    }

    fn matrix(&self) -> HeadMatrix<'_> {
        HeadMatrix { weights: &self.weight, bias: self.bias.as_deref(), cap: self.cap }
    }

    fn pack(&self, compute: Compute, inputs: &mut Inputs, hidden: &Tensor) -> Result<()> {
        let (storage, layout) = hidden.storage_and_layout();
        let (rows, width) = layout.shape().dims2()?;
        if rows == 0 || width != self.weight.in_features() {
            bail!("an output head of {} inputs was given {rows} rows of {width}", self.weight.in_features());
        }
        let hidden = elements(&storage, layout)?;
        if self.scale == 1.0 {
            inputs.set(compute.isa, hidden, width, [self.weight.form()]);
        } else {
            let scaled: Vec<f32> = hidden.iter().map(|x| x * self.scale).collect();
            inputs.set(compute.isa, &scaled, width, [self.weight.form()]);
        }
        Ok(())
    }
}

/// The elements of a contiguous f32 tensor in memory.
fn elements<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) => Ok(&values[start..end]),
        _ => bail!("the tensors of a CPU model are contiguous and f32"),
    }
}
