//! Mixtures of experts on candle operations.
//!
//! With few rows, all rows go through all experts. Each product is then bound by reading its weights, most of which are
//! needed anyway, and the routing stays on the device. With many rows, each row goes through its own experts only. This
//! copies the router's logits to the host once, which is cheap compared with the products.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::ops::sigmoid;

use super::layer::activate;
use super::weights::{DeviceLinear, DeviceNorm};
use crate::layer::{FeedForwardWeights, GatedProducts, LEAST_SUM, Router};
use crate::stack_config::{ExpertChoice, RouterScores};

/// Number of rows up to which a product takes about as long as reading its weights. It is about the number of
/// operations that a GPU performs per byte read: some 250 in bf16, and a tenth in f32, where weights are converted
/// first.
const READING_ROWS: [usize; 2] = [64, 256];
/// Limit on the elements of expert results in memory at once.
const MOST_RESULTS: usize = 1 << 22;
/// Limit on the pairs of experts compared at once, over all rows.
const MOST_PAIRS: usize = 1 << 24;

/// The assignment of rows to experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grouping {
    /// All rows through all experts; results of unchosen experts are dropped.
    Dense,
    /// Each row through its chosen experts.
    Sparse,
}

impl Grouping {
    /// Depends only on the number of rows.
    fn new(rows: usize, choice: ExpertChoice, dtype: DType) -> Self {
        let most = READING_ROWS[usize::from(dtype != DType::F32)];
        // With fewer rows some experts are not chosen at all, and their weights need not be read.
        let reads_all = rows * choice.chosen >= choice.count;
        let is_dense = reads_all && rows <= most && rows * choice.count * choice.count <= MOST_PAIRS;
        if is_dense { Self::Dense } else { Self::Sparse }
    }
}

/// For each row of logits `(rows, experts)`: the experts' weights, 0 if not chosen, as in [`Router::chosen`]; and a 0/1
/// mask of the chosen experts.
fn expert_weights<L>(logits: &Tensor, router: &Router<L>) -> Result<(Tensor, Tensor)> {
    let (choice, count) = (router.choice, router.choice.count);
    let (scores, ranks) = match choice.scores {
        RouterScores::Softmax => (logits.broadcast_sub(&logits.max_keepdim(1)?)?.exp()?, logits.clone()),
        RouterScores::CorrectedSigmoid => {
            let scores = sigmoid(logits)?;
            let ranks = scores.broadcast_add(&Tensor::new(&router.correction[..], logits.device())?)?;
            (scores, ranks)
        }
    };
    // An expert's place is the number of experts before it: those with larger ranks, and equal ones with a lower index.
    // A sort on the device would not guarantee the order of ties.
    let (own, others) = (ranks.unsqueeze(2)?, ranks.unsqueeze(1)?);
    let lower: Vec<f32> = (0..count * count).map(|at| f32::from(u8::from(at % count < at / count))).collect();
    let lower = Tensor::from_vec(lower, (1, count, count), logits.device())?;
    let larger = others.broadcast_gt(&own)?.to_dtype(DType::F32)?;
    let equal = others.broadcast_eq(&own)?.to_dtype(DType::F32)?.broadcast_mul(&lower)?;
    let is_chosen = (larger + equal)?.sum(D::Minus1)?.lt(choice.chosen as f64)?;
    let chosen = is_chosen.where_cond(&scores, &scores.zeros_like()?)?;
    let weights = match (choice.scores, choice.normalised) {
        (RouterScores::Softmax, true) => chosen.broadcast_div(&chosen.sum_keepdim(1)?)?,
        (RouterScores::Softmax, false) => chosen.broadcast_div(&scores.sum_keepdim(1)?)?,
        (RouterScores::CorrectedSigmoid, true) => {
            chosen.broadcast_div(&(chosen.sum_keepdim(1)? + f64::from(LEAST_SUM))?)?
        }
        (RouterScores::CorrectedSigmoid, false) => chosen,
    };
    Ok(((weights * f64::from(choice.scale))?, is_chosen))
}

/// Rows sorted by expert.
struct SortedRows {
    /// The row index of each entry.
    rows: Vec<u32>,
    /// The number of rows per expert.
    counts: Vec<usize>,
    /// For each row, the indices of its experts' results, by expert index.
    places: Vec<u32>,
    /// The corresponding weights.
    weights: Vec<f32>,
}

impl SortedRows {
    fn new<L>(logits: &[Vec<f32>], router: &Router<L>) -> Self {
        let choice = router.choice;
        let chosen: Vec<_> = logits.iter().map(|logits| router.chosen(logits)).collect();
        let mut counts = vec![0; choice.count];
        chosen.iter().flatten().for_each(|(expert, _)| counts[*expert] += 1);
        let firsts = counts.iter().scan(0, |next, count| {
            *next += count;
            Some(*next - count)
        });
        let mut next: Vec<usize> = firsts.collect();
        let mut rows = vec![0; chosen.len() * choice.chosen];
        let (mut places, mut weights) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for (row, chosen) in chosen.iter().enumerate() {
            for (expert, weight) in chosen {
                let place = next[*expert];
                next[*expert] += 1;
                rows[place] = row as u32;
                places.push(place as u32);
                weights.push(*weight);
            }
        }
        Self { rows, counts, places, weights }
    }
}

impl FeedForwardWeights<DeviceLinear, DeviceNorm> {
    /// Maps `(rows, hidden_size)` to the same shape, in the type of `x`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(router) = &self.router else {
            return self.products[0].forward(x, self.activation);
        };
        // In f32 throughout: rounded logits could tie and select other experts.
        let logits = router.logits.forward(&x.to_dtype(DType::F32)?)?;
        let sum = match Grouping::new(x.dim(0)?, router.choice, x.dtype()) {
            Grouping::Dense => self.dense(x, &logits, router)?,
            Grouping::Sparse => self.sparse(x, &logits.to_vec2()?, router)?,
        };
        let sum = sum.to_dtype(x.dtype())?;
        match &self.shared {
            Some(shared) => sum + shared.forward(x, self.activation)?,
            None => Ok(sum),
        }
    }

    fn dense<L>(&self, x: &Tensor, logits: &Tensor, router: &Router<L>) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let (weights, is_chosen) = expert_weights(logits, router)?;
        let by_expert = |x: &Tensor| x.t()?.contiguous()?.reshape((router.choice.count, rows, 1));
        let (weights, is_chosen) = (by_expert(&weights)?, by_expert(&is_chosen)?);
        let at_once = (MOST_RESULTS / (rows * width)).max(1);
        let mut sum = Tensor::zeros(x.shape(), DType::F32, x.device())?;
        for (part, products) in self.products.chunks(at_once).enumerate() {
            let results = products.iter().map(|products| products.forward(x, self.activation));
            let results = Tensor::stack(&results.collect::<Result<Vec<_>>>()?, 0)?.to_dtype(DType::F32)?;
            let own = |x: &Tensor| x.narrow(0, part * at_once, products.len())?.broadcast_as(results.shape());
            // Results of unchosen experts may be infinite, and 0 times infinity is NaN.
            let chosen = own(&is_chosen)?.where_cond(&results, &results.zeros_like()?)?;
            sum = (sum + (chosen * own(&weights)?)?.sum(0)?)?;
        }
        Ok(sum)
    }

    fn sparse<L>(&self, x: &Tensor, logits: &[Vec<f32>], router: &Router<L>) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let sorted = SortedRows::new(logits, router);
        let all = x.index_select(&Tensor::new(sorted.rows, x.device())?, 0)?;
        let (mut results, mut first) = (Vec::new(), 0);
        for (products, count) in self.products.iter().zip(sorted.counts).filter(|(_, count)| *count > 0) {
            results.push(products.forward(&all.narrow(0, first, count)?, self.activation)?);
            first += count;
        }
        let results = Tensor::cat(&results, 0)?.index_select(&Tensor::new(sorted.places, x.device())?, 0)?;
        let results = results.to_dtype(DType::F32)?.reshape((rows, router.choice.chosen, width))?;
        let weights = Tensor::from_vec(sorted.weights, (rows, router.choice.chosen, 1), x.device())?;
        results.broadcast_mul(&weights)?.sum(1)
    }
}

impl GatedProducts<DeviceLinear> {
    fn forward(&self, x: &Tensor, activation: probity_kernels::Activation) -> Result<Tensor> {
        let up = self.up.as_ref().map(|up| up.forward(x)).transpose()?;
        self.down.forward(&activate(&self.gate.forward(x)?, activation, up.as_ref())?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn choice(count: usize, chosen: usize, normalised: bool) -> ExpertChoice {
        ExpertChoice::softmax(count, chosen, normalised)
    }

    fn router(choice: ExpertChoice) -> Router<()> {
        let correction = [0.0, -0.2, 0.1, 0.05, 0.3].into_iter().take(choice.count).collect();
        Router { logits: (), correction, choice }
    }

    #[test]
    fn the_device_chooses_what_the_host_does() {
        // Ties at the boundary, all equal, a masked expert, and a row without ties.
        let rows = [
            [1f32, 3.0, 3.0, 3.0, -1.0],
            [2.0, 2.0, 2.0, 2.0, 2.0],
            [f32::NEG_INFINITY, 0.5, f32::NEG_INFINITY, 0.5, 0.25],
            [0.1, 0.4, 0.3, 0.2, 90.0],
        ];
        let logits = Tensor::new(&rows, &Device::Cpu).expect("a matrix");
        let softmax = [choice(5, 2, true), choice(5, 2, false), choice(5, 5, true), choice(5, 1, false)];
        let sigmoid =
            softmax.map(|choice| ExpertChoice { scores: RouterScores::CorrectedSigmoid, scale: 2.5, ..choice });
        for choice in softmax.into_iter().chain(sigmoid) {
            let router = router(choice);
            let (weights, is_chosen) = expert_weights(&logits, &router).expect("runs");
            let weights: Vec<Vec<f32>> = weights.to_vec2().expect("a matrix");
            let is_chosen: Vec<Vec<u8>> = is_chosen.to_vec2().expect("a matrix");
            for ((row, weights), is_chosen) in rows.iter().zip(&weights).zip(&is_chosen) {
                let mut expected = [0f32; 5];
                let chosen = router.chosen(row);
                for (expert, weight) in &chosen {
                    expected[*expert] = *weight;
                }
                let experts: Vec<usize> = (0..5).filter(|expert| is_chosen[*expert] == 1).collect();
                assert_eq!(experts, chosen.iter().map(|(expert, _)| *expert).collect::<Vec<_>>(), "{row:?} {choice:?}");
                for (a, b) in weights.iter().zip(&expected) {
                    assert!((a - b).abs() <= 1e-6, "{weights:?} and {expected:?} of {row:?} {choice:?}");
                }
            }
        }
    }

    /// A mixture of three single-product experts, with weights scaled by 1, 2 and `last`.
    fn mixture(last: f32) -> FeedForwardWeights<DeviceLinear, DeviceNorm> {
        let linear = |rows: usize, factor: f32| {
            let weights = (0..rows * 4).map(|at| factor * ((at * 37 % 19) as f32 - 9.0) / 10.0).collect();
            DeviceLinear::from_floats(Tensor::from_vec(weights, (rows, 4), &Device::Cpu).expect("a matrix"))
        };
        let products = |factor| GatedProducts { gate: linear(4, factor), up: None, down: linear(4, factor) };
        FeedForwardWeights {
            router: None,
            products: [1.0, 2.0, last].map(products).into(),
            shared: None,
            shared_gate: None,
            norms: crate::weight_loader::PartNorms { stream: None, branch: None },
            activation: probity_kernels::Activation::Silu,
        }
    }

    #[test]
    fn both_groupings_are_the_same_sum_and_take_nothing_from_other_experts() {
        // In the second case no row chooses the last expert, whose results are not finite.
        for (last, chosen) in [(0.5, 2), (1e38, 1)] {
            let (mixture, router) = (mixture(last), router(choice(3, chosen, true)));
            let rows: Vec<f32> = (0..20).map(|at| (at * 23 % 17) as f32 / 8.0 - 1.0).collect();
            let x = Tensor::from_vec(rows, (5, 4), &Device::Cpu).expect("a matrix");
            let logits: Vec<Vec<f32>> = vec![vec![3.0, 2.0, if chosen == 1 { -9.0 } else { 2.5 }]; 5];
            let dense = mixture.dense(&x, &Tensor::new(logits.clone(), &Device::Cpu).expect("a matrix"), &router);
            let dense: Vec<Vec<f32>> = dense.and_then(|x| x.to_vec2()).expect("runs");
            let sparse = mixture.sparse(&x, &logits, &router).and_then(|x| x.to_vec2()).expect("runs");
            for (a, b) in dense.iter().flatten().zip(sparse.iter().flat_map(|row: &Vec<f32>| row)) {
                assert!(a.is_finite() && (a - b).abs() <= 1e-5 * a.abs().max(1.0), "{dense:?} and {sparse:?}");
            }
        }
    }

    #[test]
    fn rows_that_read_all_experts_anyway_go_through_all() {
        let (eight, many) = (choice(8, 2, true), choice(128, 8, true));
        let grouping = |rows, choice, dtype| Grouping::new(rows, choice, dtype);
        assert_eq!(grouping(3, eight, DType::F32), Grouping::Sparse);
        assert_eq!(grouping(4, eight, DType::F32), Grouping::Dense);
        assert_eq!(grouping(15, many, DType::BF16), Grouping::Sparse);
        assert_eq!(grouping(16, many, DType::BF16), Grouping::Dense);
        assert_eq!(grouping(64, many, DType::F32), Grouping::Dense);
        assert_eq!(grouping(65, many, DType::F32), Grouping::Sparse);
        assert_eq!(grouping(256, many, DType::BF16), Grouping::Dense);
        assert_eq!(grouping(257, many, DType::BF16), Grouping::Sparse);
        // The comparison of 512 experts with each other stays within the limit.
        assert_eq!(grouping(64, choice(512, 10, true), DType::BF16), Grouping::Dense);
        assert_eq!(grouping(65, choice(512, 10, true), DType::BF16), Grouping::Sparse);
    }

    #[test]
    fn rows_are_sorted_by_expert_and_found_again() {
        let logits = [vec![3.0, 1.0, 2.0], vec![0.0, 5.0, 5.0], vec![9.0, 1.0, 1.0]];
        let sorted = SortedRows::new(&logits, &router(choice(3, 2, true)));
        assert_eq!(sorted.rows, [0, 2, 1, 2, 0, 1]);
        assert_eq!(sorted.counts, [2, 2, 2]);
        assert_eq!(sorted.places, [0, 4, 2, 5, 1, 3]);
        assert_eq!(sorted.weights.len(), 6);
        assert!((sorted.weights[2] - 0.5).abs() < 1e-6);
    }
}
