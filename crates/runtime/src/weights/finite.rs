//! Checks that all weights are finite.

use std::path::Path;

use probity_kernels::WeightType;
use probity_models::RawTensor;
use rayon::prelude::*;

use super::WeightsError;

/// Blocks per task; whole blocks, so that none is split between tasks.
const BLOCKS_PER_TASK: usize = 1 << 16;

/// Fails at the first element that is infinite or NaN. Checks all floats, and the scales and minima of quantised
/// tensors.
///
/// One pass over the bytes on all threads of the current pool, limited by memory bandwidth.
pub fn check_finite(path: &Path, name: &str, tensor: &RawTensor) -> Result<(), WeightsError> {
    let weight_type = tensor.weight_type;
    let bytes: &[u8] = &tensor.bytes;
    let block_bytes = weight_type.block_bytes();
    let first_bad = bytes.par_chunks(block_bytes * BLOCKS_PER_TASK).enumerate().find_map_first(|(task, chunk)| {
        scan(weight_type, chunk).map(|(block, found)| (task * BLOCKS_PER_TASK + block, found))
    });
    match first_bad {
        None => Ok(()),
        Some((block, found)) => {
            let (path, name, index) = (path.to_owned(), name.to_owned(), block * weight_type.block_len());
            Err(WeightsError::NotFinite { path, name, weight_type, index, found })
        }
    }
}

/// The smallest exponent of `MXFP4` with which its largest 4-bit float, 6, exceeds f32; 255 is not a number.
const MXFP4_TOO_LARGE: u8 = 253;

/// Offsets of a type's f16 scales within a block.
fn scale_offsets(weight_type: WeightType) -> &'static [usize] {
    match weight_type {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 | WeightType::MXFP4 => &[],
        WeightType::Q8_0 | WeightType::Q4_0 | WeightType::Q5_0 => &[0],
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => &[0, 2],
        // After 128 bytes of low bits, 64 of high bits and 16 group scales.
        WeightType::Q6_K => &[208],
    }
}

/// The first bad block in a run of whole blocks, with a description of the value.
fn scan(weight_type: WeightType, bytes: &[u8]) -> Option<(usize, &'static str)> {
    // Exponent mask: a float with all exponent bits set is infinite or NaN.
    const HALF: u16 = 0x7c00;
    match weight_type {
        WeightType::F32 => scan_words(bytes, |word| u32::from_le_bytes(word) & 0x7f80_0000 == 0x7f80_0000, mantissa32),
        WeightType::F16 => {
            scan_words(bytes, |word| u16::from_le_bytes(word) & HALF == HALF, |w| u16::from_le_bytes(w) & 0x03ff != 0)
        }
        WeightType::BF16 => {
            scan_words(bytes, |word| u16::from_le_bytes(word) & 0x7f80 == 0x7f80, |w| u16::from_le_bytes(w) & 0x7f != 0)
        }
        WeightType::MXFP4 => {
            let mut blocks = bytes.chunks_exact(weight_type.block_bytes());
            let index = blocks.position(|block| block[0] >= MXFP4_TOO_LARGE)?;
            Some((index, name_of(bytes[index * weight_type.block_bytes()] == u8::MAX)))
        }
        _ => {
            // Only the scales: a block's integers can have any bits.
            let offsets = scale_offsets(weight_type);
            let scale = |block: &[u8], offset: usize| u16::from_le_bytes([block[offset], block[offset + 1]]);
            bytes.chunks_exact(weight_type.block_bytes()).enumerate().find_map(|(index, block)| {
                let bad = offsets.iter().map(|&offset| scale(block, offset)).find(|scale| scale & HALF == HALF)?;
                Some((index, name_of(bad & 0x03ff != 0)))
            })
        }
    }
}

fn mantissa32(word: [u8; 4]) -> bool {
    u32::from_le_bytes(word) & 0x007f_ffff != 0
}

fn name_of(nan: bool) -> &'static str {
    if nan { "not a number" } else { "an infinite value" }
}

/// Scans whole blocks of words without a branch per word, which compilers vectorise, and then locates the bad word.
fn scan_words<const N: usize>(
    bytes: &[u8],
    bad: impl Fn([u8; N]) -> bool,
    is_nan: impl Fn([u8; N]) -> bool,
) -> Option<(usize, &'static str)> {
    const STRETCH: usize = 4096;
    let word = |chunk: &[u8]| -> [u8; N] { chunk.try_into().expect("chunks of N bytes") };
    // `|` instead of `||`: an early exit would prevent vectorisation.
    let stretch_has_bad = |stretch: &[u8]| stretch.chunks_exact(N).fold(false, |any, chunk| any | bad(word(chunk)));
    let stretch = bytes.chunks(STRETCH).position(stretch_has_bad)?;
    let start = stretch * STRETCH;
    let at = bytes[start..].chunks_exact(N).position(|chunk| bad(word(chunk)))?;
    Some((start / N + at, name_of(is_nan(word(&bytes[start + at * N..start + (at + 1) * N])))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use probity_models::TensorBytes;

    use super::*;

    fn tensor(weight_type: WeightType, bytes: Vec<u8>) -> RawTensor {
        let elements = bytes.len() / weight_type.block_bytes() * weight_type.block_len();
        let range = 0..bytes.len();
        RawTensor {
            shape: vec![elements],
            weight_type,
            bytes: TensorBytes::slice(Arc::new(bytes), range).expect("inside"),
        }
    }

    fn bad_index(weight_type: WeightType, bytes: Vec<u8>) -> Option<usize> {
        match check_finite(Path::new("f"), "t", &tensor(weight_type, bytes)) {
            Ok(()) => None,
            Err(WeightsError::NotFinite { index, .. }) => Some(index),
            Err(other) => panic!("unexpected {other}"),
        }
    }

    #[test]
    fn the_first_bad_float_is_named() {
        let mut values = vec![1.5f32; 300_000];
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(bad_index(WeightType::F32, bytes(&values)), None);
        values[299_999] = f32::INFINITY;
        values[123_457] = f32::NAN;
        assert_eq!(bad_index(WeightType::F32, bytes(&values)), Some(123_457));
        values[123_457] = f32::MAX;
        assert_eq!(bad_index(WeightType::F32, bytes(&values)), Some(299_999));
    }

    #[test]
    fn halves_are_checked() {
        let mut f16 = vec![half::f16::MAX; 5000];
        let bytes = |values: &[half::f16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(bad_index(WeightType::F16, bytes(&f16)), None);
        f16[4999] = half::f16::NEG_INFINITY;
        assert_eq!(bad_index(WeightType::F16, bytes(&f16)), Some(4999));
        let bf16: Vec<u8> = [half::bf16::MAX, half::bf16::NAN].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(bad_index(WeightType::BF16, bf16), Some(1));
    }

    #[test]
    fn every_scale_of_every_block_type_is_checked() {
        let nan = half::f16::NAN.to_le_bytes();
        for weight_type in WeightType::ALL.into_iter().filter(|t| t.is_quantised()) {
            let size = weight_type.block_bytes();
            assert_eq!(bad_index(weight_type, vec![0x11; size * 70_000]), None);
            for &offset in scale_offsets(weight_type) {
                let mut bytes = vec![0x11; size * 70_000];
                bytes[size * 69_999 + offset..][..2].copy_from_slice(&nan);
                assert_eq!(
                    bad_index(weight_type, bytes),
                    Some(69_999 * weight_type.block_len()),
                    "{weight_type} at {offset}"
                );
            }
        }
    }

    #[test]
    fn exponents_without_finite_values_are_found() {
        let size = WeightType::MXFP4.block_bytes();
        for (exponent, found) in [(0, None), (252, None), (253, Some(32)), (254, Some(32)), (255, Some(32))] {
            let mut bytes = vec![0x77; 3 * size];
            (bytes[0], bytes[size], bytes[2 * size]) = (120, exponent, 120);
            assert_eq!(bad_index(WeightType::MXFP4, bytes), found, "{exponent}");
        }
    }

    #[test]
    fn quants_that_look_like_infinity_are_fine() {
        let mut block = vec![0u8; WeightType::Q8_0.block_bytes()];
        block[2..].fill(0xff);
        assert_eq!(bad_index(WeightType::Q8_0, block), None);
    }
}
