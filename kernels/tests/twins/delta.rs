//! Gated delta nets: the same bits on every instruction set and for every cut of a text, and the right values.

use probity_kernels::{DeltaInputs, DeltaRoom, DeltaShape, DeltaText, DeltaWeights, Isa, gated_delta};

use crate::{Random, bits, isas};

/// Inputs and weights with seeded values.
struct Net {
    shape: DeltaShape,
    convolution: Vec<f32>,
    decay: Vec<f32>,
    step_bias: Vec<f32>,
    mixed: Vec<f32>,
    rates: Vec<f32>,
    steps: Vec<f32>,
}

impl Net {
    fn new(shape: DeltaShape, rows: usize, random: &mut Random) -> Self {
        Self {
            shape,
            convolution: random.floats(shape.width * shape.channels()),
            decay: random.floats(shape.value_heads).iter().map(|x| -0.1 - x * x).collect(),
            step_bias: random.floats(shape.value_heads),
            mixed: random.floats(rows * shape.channels()).iter().map(|x| 2.0 * x).collect(),
            rates: random.floats(rows * shape.value_heads).iter().map(|x| 3.0 * x).collect(),
            steps: random.floats(rows * shape.value_heads).iter().map(|x| 25.0 * x).collect(),
        }
    }

    /// Results and states of texts of these lengths, each cut after every `cut` tokens.
    fn run(&self, isa: Isa, lens: &[usize], cut: usize) -> (Vec<u32>, Vec<Vec<u32>>) {
        let (channels, heads) = (self.shape.channels(), self.shape.value_heads);
        let weights = DeltaWeights { convolution: &self.convolution, decay: &self.decay, step_bias: &self.step_bias };
        let firsts: Vec<usize> = lens.iter().scan(0, |next, len| Some(std::mem::replace(next, *next + len))).collect();
        let mut y = vec![0.0; lens.iter().sum::<usize>() * self.shape.values()];
        let mut states: Vec<Option<Vec<f32>>> = vec![None; lens.len()];
        let mut room = DeltaRoom::default();
        for start in (0..*lens.iter().max().expect("a text")).step_by(cut) {
            // The parts of all texts that are so long, in one batch.
            let parts: Vec<(usize, usize)> = (0..lens.len())
                .filter(|text| lens[*text] > start)
                .map(|text| (text, cut.min(lens[text] - start)))
                .collect();
            let gather = |from: &[f32], width: usize| -> Vec<f32> {
                let rows =
                    |(text, len): &(usize, usize)| from[(firsts[*text] + start) * width..][..len * width].to_vec();
                parts.iter().flat_map(rows).collect()
            };
            let (mixed, rates) = (gather(&self.mixed, channels), gather(&self.rates, heads));
            let steps = gather(&self.steps, heads);
            let inputs = DeltaInputs { mixed: &mixed, rates: &rates, steps: &steps };
            let mut after = vec![vec![f32::NAN; self.shape.state_len()]; parts.len()];
            let mut texts: Vec<DeltaText<'_>> = parts
                .iter()
                .zip(&mut after)
                .map(|((text, rows), after)| DeltaText { rows: *rows, before: states[*text].as_deref(), after })
                .collect();
            let mut part = vec![f32::NAN; rates.len() / heads * self.shape.values()];
            gated_delta(isa, &self.shape, weights, inputs, &mut texts, &mut room, &mut part);
            let mut rest = &part[..];
            for ((text, len), after) in parts.iter().zip(after) {
                let (own, others) = rest.split_at(len * self.shape.values());
                y[(firsts[*text] + start) * self.shape.values()..][..own.len()].copy_from_slice(own);
                (rest, states[*text]) = (others, Some(after));
            }
        }
        (bits(&y), states.iter().flatten().map(|state| bits(state)).collect())
    }

    /// The definition in f64, for one text.
    fn exact(&self, rows: usize) -> Vec<f64> {
        let s = self.shape;
        let (channels, keys) = (s.channels(), s.key_heads * s.key_dim);
        let at = |row: usize, channel: usize| -> f64 {
            let taps = (0..s.width).filter(|back| *back <= row).map(|back| {
                f64::from(self.mixed[(row - back) * channels + channel])
                    * f64::from(self.convolution[(s.width - 1 - back) * channels + channel])
            });
            let sum: f64 = taps.sum();
            sum / (1.0 + (-sum).exp())
        };
        let mut y = vec![0.0; rows * s.values()];
        for head in 0..s.value_heads {
            let key_head = if s.tiled { head % s.key_heads } else { head * s.key_heads / s.value_heads };
            let mut state = vec![vec![0.0; s.value_dim]; s.key_dim];
            for row in 0..rows {
                let unit = |first: usize| -> Vec<f64> {
                    let x: Vec<f64> = (0..s.key_dim).map(|i| at(row, first + key_head * s.key_dim + i)).collect();
                    let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter().map(|x| x / length).collect()
                };
                let (query, key) = (unit(0), unit(keys));
                let step = f64::from(self.steps[row * s.value_heads + head] + self.step_bias[head]);
                let decay = (f64::from(self.decay[head]) * step.exp().ln_1p()).exp();
                let rate = 1.0 / (1.0 + (-f64::from(self.rates[row * s.value_heads + head])).exp());
                for j in 0..s.value_dim {
                    let value = at(row, 2 * keys + head * s.value_dim + j);
                    let known: f64 = (0..s.key_dim).map(|i| decay * state[i][j] * key[i]).sum();
                    for i in 0..s.key_dim {
                        state[i][j] = decay * state[i][j] + key[i] * (value - known) * rate;
                    }
                    y[row * s.values() + head * s.value_dim + j] =
                        (0..s.key_dim).map(|i| state[i][j] * query[i]).sum::<f64>() / (s.key_dim as f64).sqrt();
                }
            }
        }
        y
    }
}

const SHAPES: [DeltaShape; 3] = [
    DeltaShape { key_heads: 2, value_heads: 4, key_dim: 16, value_dim: 32, width: 4, tiled: false },
    DeltaShape { key_heads: 3, value_heads: 6, key_dim: 7, value_dim: 21, width: 3, tiled: true },
    DeltaShape { key_heads: 1, value_heads: 1, key_dim: 1, value_dim: 1, width: 1, tiled: false },
];

#[test]
fn states_and_results_have_the_same_bits_on_every_instruction_set_and_for_every_cut() {
    let mut random = Random(30);
    for shape in SHAPES {
        let lens = [9, 1, 5];
        let net = Net::new(shape, lens.iter().sum(), &mut random);
        let plain = net.run(Isa::Plain, &lens, 9);
        for isa in isas() {
            for cut in 1..=9 {
                assert_eq!(net.run(isa, &lens, cut), plain, "{shape:?} on {} in parts of {cut}", isa.name());
            }
        }
    }
}

#[test]
fn results_are_those_of_the_definition() {
    let mut random = Random(31);
    for shape in SHAPES {
        let net = Net::new(shape, 40, &mut random);
        let results: Vec<f32> = net.run(Isa::Plain, &[40], 40).0.into_iter().map(f32::from_bits).collect();
        let expected = net.exact(40);
        let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        for (at, (y, expected)) in results.iter().zip(&expected).enumerate() {
            assert!((f64::from(*y) - expected).abs() < 1e-5 * largest.max(1.0), "{shape:?}, {at}: {y} for {expected}");
        }
        assert!(largest > 0.01, "{shape:?}: results are not all zero");
    }
}
