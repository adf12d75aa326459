//! The tensors of single experts in checkpoints that store all experts of a layer together, as `gpt_oss` does.
//!
//! The rows of gate and up alternate. Weights are `MXFP4` blocks beside their exponents (`…_blocks`, `…_scales`), or
//! floats `(experts, in_features, out_features)`.

use std::path::PathBuf;
use std::sync::Arc;

use probity_kernels::WeightType;
use rayon::prelude::*;
use serde_json::Value;

use crate::source::{ByteTensor, RawTensor, SourceError, TensorBytes, WeightSource};

/// Bytes of the codes in a block.
const CODES: usize = 16;
/// Above any real model. The names of all experts are listed before their tensors are read.
const MOST_EXPERTS: usize = 1 << 12;
/// Names between the layer's number and the names below.
const INSIDE: &str = ".mlp.experts.";
/// Names of the tensors of all experts, with those of each expert: the first row and the distance between rows.
const TOGETHER: [(&str, &[(&str, usize)]); 2] =
    [("gate_up_proj", &[("gate_proj", 0), ("up_proj", 1)]), ("down_proj", &[("down_proj", 0)])];

/// The tensors of a safetensors checkpoint with this `config.json`. If it stores all experts together, each expert has
/// tensors of its own: `….mlp.experts.7.up_proj.weight` and `.bias`. They are copied when they are read.
pub fn experts_apart<S: WeightSource + Send + Sync + 'static>(
    config: &Value,
    source: S,
) -> Box<dyn WeightSource + Send + Sync> {
    if config["model_type"] == "gpt_oss" { Box::new(ExpertTensors(source)) } else { Box::new(source) }
}

struct ExpertTensors<S>(S);

/// Where the tensor of an expert is.
struct ExpertRows {
    /// The name of the tensor of all experts, without its ending.
    stem: String,
    expert: usize,
    first: usize,
    step: usize,
    is_bias: bool,
}

impl ExpertRows {
    fn parse(name: &str) -> Option<Self> {
        let (layer, rest) = name.split_once(INSIDE)?;
        let mut parts = rest.split('.');
        let (expert, part, ending) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let is_bias = match ending {
            "weight" => false,
            "bias" => true,
            _ => return None,
        };
        let (together, rows) = TOGETHER.iter().find(|(_, rows)| rows.iter().any(|(name, _)| *name == part))?;
        let (_, first) = rows.iter().find(|(name, _)| *name == part)?;
        let stem = format!("{layer}{INSIDE}{together}");
        Some(Self { stem, expert, first: *first, step: rows.len(), is_bias })
    }

    /// The indices of its rows among `rows`.
    fn among(&self, rows: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
        (self.first..rows).step_by(self.step)
    }
}

/// A tensor of all experts.
enum Stored {
    /// `(experts, rows)`.
    Bias(RawTensor),
    /// `(experts, rows, blocks, 16)` and `(experts, rows, blocks)`.
    Blocks(ByteTensor, ByteTensor),
    /// `(experts, in_features, rows)`.
    Floats(RawTensor),
}

impl Stored {
    fn shape(&self) -> &[usize] {
        match self {
            Self::Bias(raw) | Self::Floats(raw) => &raw.shape,
            Self::Blocks(blocks, _) => &blocks.shape,
        }
    }
}

impl<S: WeightSource> ExpertTensors<S> {
    fn find(&self, rows: &ExpertRows) -> Result<Stored, SourceError> {
        let ending = |ending: &str| format!("{}{ending}", rows.stem);
        let invalid = |name: String, why: String| Err(SourceError::Invalid { name, path: self.0.path(), why });
        let (name, dims, stored) = if rows.is_bias {
            (ending("_bias"), 2, Stored::Bias(self.0.tensor(&ending("_bias"))?))
        } else if self.0.contains(&ending("_blocks")) {
            let (blocks, scales) = (self.0.bytes(&ending("_blocks"))?, self.0.bytes(&ending("_scales"))?);
            if blocks.shape != [&scales.shape[..], &[CODES]].concat() {
                let why = format!("blocks {:?} with exponents {:?}", blocks.shape, scales.shape);
                return invalid(ending("_blocks"), why);
            }
            (ending("_blocks"), 4, Stored::Blocks(blocks, scales))
        } else {
            (ending(""), 3, Stored::Floats(self.0.tensor(&ending(""))?))
        };
        let shape = stored.shape();
        if shape.len() != dims {
            return invalid(name, format!("expected {dims} dimensions, found {shape:?}"));
        }
        if shape[0] <= rows.expert {
            return invalid(name, format!("there are {} experts, not {}", shape[0], rows.expert + 1));
        }
        let all = shape[if dims == 3 { 2 } else { 1 }];
        if !all.is_multiple_of(rows.step) {
            return invalid(name, format!("{all} rows are not as many of the gate as of what it gates"));
        }
        if let Stored::Floats(raw) | Stored::Bias(raw) = &stored
            && raw.weight_type.is_quantised()
        {
            return invalid(name, format!("expected floats, found {}", raw.weight_type));
        }
        Ok(stored)
    }

    /// The type and shape of an expert's tensor.
    fn described(stored: &Stored, rows: &ExpertRows) -> (WeightType, Vec<usize>) {
        match (stored, stored.shape()) {
            (Stored::Bias(raw), [_, all]) => (raw.weight_type, vec![all / rows.step]),
            (Stored::Blocks(..), [_, all, blocks, _]) => {
                (WeightType::MXFP4, vec![all / rows.step, blocks * WeightType::MXFP4.block_len()])
            }
            (Stored::Floats(raw), [_, width, all]) => (raw.weight_type, vec![all / rows.step, *width]),
            _ => unreachable!("the number of dimensions was checked"),
        }
    }
}

impl<S: WeightSource> WeightSource for ExpertTensors<S> {
    fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
        let Some(rows) = ExpertRows::parse(name) else { return self.0.tensor(name) };
        let stored = self.find(&rows)?;
        let (weight_type, shape) = Self::described(&stored, &rows);
        let copied = match &stored {
            Stored::Bias(raw) => bias(raw, &rows),
            Stored::Blocks(blocks, scales) => interleaved(blocks, scales, &rows),
            Stored::Floats(raw) => transposed(raw, &rows),
        };
        let all = 0..copied.len();
        let bytes = TensorBytes::slice(Arc::new(copied), all).expect("all of it");
        Ok(RawTensor { shape, weight_type, bytes })
    }

    fn stored(&self, name: &str) -> Result<(WeightType, usize), SourceError> {
        let Some(rows) = ExpertRows::parse(name) else { return self.0.stored(name) };
        let (weight_type, shape) = Self::described(&self.find(&rows)?, &rows);
        let elements: usize = shape.iter().product();
        Ok((weight_type, elements / weight_type.block_len() * weight_type.block_bytes()))
    }

    fn contains(&self, name: &str) -> bool {
        match ExpertRows::parse(name) {
            Some(rows) => self.find(&rows).is_ok(),
            // A tensor of all experts is only seen as its parts.
            None => self.0.contains(name) && self.apart(name) == [name],
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.names().iter().flat_map(|name| self.apart(name)).collect();
        names.sort();
        names
    }

    fn path(&self) -> PathBuf {
        self.0.path()
    }
}

impl<S: WeightSource> ExpertTensors<S> {
    /// The names of the experts' tensors in a stored tensor. Other names stay as they are.
    fn apart(&self, name: &str) -> Vec<String> {
        let of_experts = || {
            let (layer, rest) = name.split_once(INSIDE)?;
            let (together, rows) = TOGETHER.iter().find(|(together, _)| rest.starts_with(together))?;
            let (ending, experts) = match &rest[together.len()..] {
                "" => ("weight", self.0.tensor(name).ok()?.shape.first().copied()?),
                "_bias" => ("bias", self.0.tensor(name).ok()?.shape.first().copied()?),
                "_blocks" => ("weight", self.0.bytes(name).ok()?.shape.first().copied()?),
                // Read with the blocks.
                "_scales" if self.0.contains(&format!("{layer}{INSIDE}{together}_blocks")) => ("", 0),
                _ => return None,
            };
            if experts > MOST_EXPERTS {
                return None;
            }
            let of_expert = |expert: usize| rows.iter().map(move |(part, _)| (expert, *part));
            let name = |(expert, part)| format!("{layer}{INSIDE}{expert}.{part}.{ending}");
            Some((0..experts).flat_map(of_expert).map(name).collect())
        };
        of_experts().unwrap_or_else(|| vec![name.to_owned()])
    }
}

fn bias(raw: &RawTensor, rows: &ExpertRows) -> Vec<u8> {
    let (all, size) = (raw.shape[1], raw.weight_type.block_bytes());
    let of_expert = &raw.bytes[rows.expert * all * size..][..all * size];
    rows.among(all).flat_map(|row| of_expert[row * size..][..size].iter().copied()).collect()
}

/// Rows of an expert's blocks, each with its exponent first and its codes in ggml's order: the first half of the block
/// is in the lower halves of the bytes. In the file, neighbours share a byte.
fn interleaved(blocks: &ByteTensor, scales: &ByteTensor, rows: &ExpertRows) -> Vec<u8> {
    let (all, per_row) = (scales.shape[1], scales.shape[2]);
    let row_bytes = per_row * WeightType::MXFP4.block_bytes();
    let mut copied = vec![0; all / rows.step * row_bytes];
    let (blocks_of, scales_of) = (&*blocks.bytes, &*scales.bytes);
    copied.par_chunks_mut(row_bytes.max(1)).enumerate().for_each(|(index, copied)| {
        let at = (rows.expert * all + rows.first + index * rows.step) * per_row;
        let exponents = &scales_of[at..][..per_row];
        let codes = blocks_of[at * CODES..].as_chunks::<CODES>().0;
        for ((to, exponent), codes) in
            copied.chunks_exact_mut(WeightType::MXFP4.block_bytes()).zip(exponents).zip(codes)
        {
            to[0] = *exponent;
            for (index, to) in to[1..].iter_mut().enumerate() {
                let code = |byte: u8| byte >> (index % 2 * 4) & 15;
                *to = code(codes[index / 2]) | code(codes[CODES / 2 + index / 2]) << 4;
            }
        }
    });
    // Its file pages would keep it in memory a second time.
    let of_expert = |tensor: &ByteTensor| {
        let len = tensor.bytes.len() / tensor.shape[0];
        tensor.bytes.part(rows.expert * len..(rows.expert + 1) * len).release();
    };
    of_expert(blocks);
    of_expert(scales);
    copied
}

/// An expert's floats `(rows, in_features)`.
fn transposed(raw: &RawTensor, rows: &ExpertRows) -> Vec<u8> {
    let (width, all, size) = (raw.shape[1], raw.shape[2], raw.weight_type.block_bytes());
    let of_expert = raw.bytes.part(rows.expert * width * all * size..(rows.expert + 1) * width * all * size);
    let (from, mut copied) = (&*of_expert, vec![0; all / rows.step * width * size]);
    copied.par_chunks_mut((width * size).max(1)).enumerate().for_each(|(index, copied)| {
        let row = rows.first + index * rows.step;
        for (column, to) in copied.chunks_exact_mut(size).enumerate() {
            to.copy_from_slice(&from[(column * all + row) * size..][..size]);
        }
    });
    of_expert.release();
    copied
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Shapes and bytes, by name.
    type Tensors = BTreeMap<&'static str, (Vec<usize>, Vec<u8>)>;

    struct Bytes(Tensors);

    impl WeightSource for Bytes {
        fn tensor(&self, name: &str) -> Result<RawTensor, SourceError> {
            let ByteTensor { shape, bytes } = self.bytes(name)?;
            let halves = [&shape[..shape.len() - 1], &[shape[shape.len() - 1] / 2]].concat();
            Ok(RawTensor { shape: halves, weight_type: WeightType::BF16, bytes })
        }

        fn bytes(&self, name: &str) -> Result<ByteTensor, SourceError> {
            let missing = || SourceError::Missing { name: name.to_owned(), path: self.path(), held: 0, nearest: None };
            let (shape, bytes) = self.0.get(name).ok_or_else(missing)?.clone();
            let all = 0..bytes.len();
            Ok(ByteTensor { shape, bytes: TensorBytes::slice(Arc::new(bytes), all).expect("all of it") })
        }

        fn contains(&self, name: &str) -> bool {
            self.0.contains_key(name)
        }

        fn names(&self) -> Vec<String> {
            self.0.keys().map(|name| (*name).to_owned()).collect()
        }

        fn path(&self) -> PathBuf {
            PathBuf::from("made")
        }
    }

    const BLOCKS: &str = "l.0.mlp.experts.gate_up_proj_blocks";
    const SCALES: &str = "l.0.mlp.experts.gate_up_proj_scales";
    const BIAS: &str = "l.0.mlp.experts.gate_up_proj_bias";
    const DOWN: &str = "l.0.mlp.experts.down_proj";

    fn numbered(shape: &[usize]) -> (Vec<usize>, Vec<u8>) {
        (shape.to_vec(), (0..shape.iter().product::<usize>()).map(|at| at as u8).collect())
    }

    /// Two experts of two rows each for the gate and for what it gates, and of three rows of two inputs.
    fn made() -> Tensors {
        BTreeMap::from([
            (BLOCKS, numbered(&[2, 4, 1, 16])),
            (SCALES, numbered(&[2, 4, 1])),
            (BIAS, numbered(&[2, 8])),
            (DOWN, numbered(&[2, 2, 6])),
            ("l.0.norm.weight", numbered(&[4])),
        ])
    }

    #[test]
    fn an_expert_has_its_own_rows_in_the_order_of_ggml() {
        let source = ExpertTensors(Bytes(made()));
        let raw = source.tensor("l.0.mlp.experts.1.up_proj.weight").expect("is there");
        assert_eq!((&raw.shape[..], raw.weight_type, raw.bytes.len()), (&[2, 32][..], WeightType::MXFP4, 2 * 17));
        // Row 3 of expert 1: block 7, whose bytes begin with 0x70.
        let row = &raw.bytes[17..];
        assert_eq!(row[..5], [7, 0x80, 0x77, 0x91, 0x77][..]);
        // The last code is that of element 31, the upper half of byte 15, and that of element 15, of byte 7.
        assert_eq!(row[16], 0x77);
        let bias = source.tensor("l.0.mlp.experts.1.gate_proj.bias").expect("is there");
        assert_eq!((&bias.shape[..], &bias.bytes[..]), (&[2][..], &[8, 9, 12, 13][..]));
        let down = source.tensor("l.0.mlp.experts.1.down_proj.weight").expect("is there");
        assert_eq!((&down.shape[..], &down.bytes[..4]), (&[3, 2][..], &[12, 13, 18, 19][..]));
        for name in source.names() {
            let raw = source.tensor(&name).expect("is there");
            assert_eq!(source.stored(&name).expect("is there"), (raw.weight_type, raw.bytes.len()), "{name}");
            assert!(source.contains(&name), "{name}");
        }
        assert_eq!(source.names().len(), 2 * 5 + 1);
    }

    #[test]
    fn experts_that_do_not_fit_together_are_refused_by_name() {
        let error = |change: &dyn Fn(&mut Tensors), name: &str| {
            let mut tensors = made();
            change(&mut tensors);
            let source = ExpertTensors(Bytes(tensors));
            assert!(!source.contains(name));
            source.tensor(name).err().expect("refused").to_string()
        };
        let gate = "l.0.mlp.experts.0.gate_proj.weight";
        let scales = error(&|tensors| drop(tensors.insert(SCALES, numbered(&[2, 3, 1]))), gate);
        assert!(scales.contains(BLOCKS) && scales.contains("[2, 3, 1]"), "{scales}");
        let missing = error(&|tensors| drop(tensors.remove(SCALES)), gate);
        assert!(missing.contains(SCALES) && missing.contains("not found"), "{missing}");
        let none = error(&|tensors| drop(tensors.remove(BLOCKS)), gate);
        assert!(none.contains("`l.0.mlp.experts.gate_up_proj`"), "{none}");
        let third = error(&|_| (), "l.0.mlp.experts.2.gate_proj.weight");
        assert!(third.contains("2 experts, not 3"), "{third}");
        let odd = error(&|tensors| drop(tensors.insert(BIAS, numbered(&[2, 6]))), "l.0.mlp.experts.0.up_proj.bias");
        assert!(odd.contains(BIAS) && odd.contains("3 rows"), "{odd}");
        let flat =
            error(&|tensors| drop(tensors.insert(DOWN, numbered(&[4, 6]))), "l.0.mlp.experts.0.down_proj.weight");
        assert!(flat.contains("3 dimensions"), "{flat}");
    }
}
