//! Gemma 3 270M, if downloaded, on a text longer than its window, compared with transformers and llama.cpp
//! (`scripts/goldens/make_gemma3.py`).

use std::sync::Arc;

use probity_models::{Arithmetic, KvSpan, PackedDecoder, PackedSegment};

use super::golden_tests::{TOLERANCE, Tensors, folder, known, load_gguf};
use crate::tokenizer::Tokenizer;
use crate::weights::GgufFile;

/// Tokens per pass: a row of logits takes a megabyte.
const SPAN: usize = 84;

/// Log-probabilities at each position.
struct Logprobs {
    /// Of some ids.
    subset: Vec<f32>,
    /// Of the next token.
    next: Vec<f32>,
    /// The last span's logits.
    last: Vec<Vec<f32>>,
}

fn logprobs(model: &dyn PackedDecoder, tokens: &[u32], ids: &[u32]) -> Logprobs {
    let mut past: Vec<Arc<KvSpan>> = Vec::new();
    let mut all = Logprobs { subset: Vec::new(), next: Vec::new(), last: Vec::new() };
    for (span, start) in tokens.chunks(SPAN).zip((0..).step_by(SPAN)) {
        let segment = PackedSegment { past: past.clone(), wanted: (0..span.len()).collect(), tokens: span.to_vec() };
        let output = model.forward(&[segment]).expect("runs");
        past.extend(output.spans);
        all.last = model.logits(&output.hidden).expect("runs").to_vec2().expect("a matrix");
        for (position, row) in (start..).zip(&all.last) {
            let total = row.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln();
            let logprob = |id: u32| (f64::from(row[id as usize]) - total) as f32;
            all.subset.extend(ids.iter().map(|id| logprob(*id)));
            all.next.extend(tokens.get(position + 1).map(|id| logprob(*id)));
        }
    }
    all
}

/// Mean and largest difference.
fn difference(got: &[f32], expected: &[f32]) -> (f32, f32) {
    assert_eq!(got.len(), expected.len());
    let all = || got.iter().zip(expected).map(|(a, b)| (a - b).abs());
    (all().sum::<f32>() / got.len() as f32, all().fold(0.0, f32::max))
}

#[test]
fn gemma_3_on_a_text_longer_than_its_window_equals_transformers_and_nearly_llama_cpp() {
    let Some(path) = known("gemma3-270m") else { return };
    let golden = Tensors::open(&folder("../gemma3-270m").join("golden.safetensors"));
    let (tokens, ids) = (golden.ids("tokens"), golden.ids("subset_ids"));
    assert!(tokens.len() > 512 + SPAN && tokens.len().is_multiple_of(SPAN), "{} tokens", tokens.len());
    let model = load_gguf(&path, Arithmetic::Exact);
    let exact = logprobs(&*model, &tokens, &ids);
    for (name, got) in [("subset_logprobs", &exact.subset), ("next_logprobs", &exact.next)] {
        let (mean, largest) = difference(got, &golden.floats(name));
        println!("{name}: mean difference {mean:e}, largest {largest:e}");
        assert!(largest <= TOLERANCE, "{name} differ by {largest}");
    }
    let wanted = tokens.len() - SPAN..tokens.len();
    let whole = PackedSegment { past: Vec::new(), wanted: wanted.collect(), tokens: tokens.clone() };
    let whole = model.forward(&[whole]).expect("runs");
    let whole = model.logits(&whole.hidden).expect("runs").to_vec2::<f32>().expect("a matrix");
    assert_eq!(whole, exact.last, "bits depend on spans");

    let (unrounded, _) = difference(&exact.next, &golden.floats("llama_cpp_f32_next_logprobs"));
    let (rounded, _) = difference(&exact.next, &golden.floats("llama_cpp_next_logprobs"));
    let dots = logprobs(&*load_gguf(&path, Arithmetic::Dots), &tokens, &ids);
    let (own, _) = difference(&dots.next, &exact.next);
    println!("llama.cpp: mean difference {unrounded:e} with f32 weights, {rounded:e}; dots from exact {own:e}");
    // llama.cpp rounds activations of quantised layers to 8 bits, as `dots` does.
    assert!(unrounded < 1e-3 && rounded < 3.0 * own && own < 3.0 * rounded, "{unrounded}, {rounded}, {own}");
}

#[test]
fn gemma_3s_ids_are_llama_cpps() {
    let Some(path) = known("gemma3-270m") else { return };
    let tokens = Tensors::open(&folder("../gemma3-270m").join("golden.safetensors")).ids("tokens");
    let tokenizer = Tokenizer::from_gguf(&GgufFile::open(&path).expect("valid GGUF")).expect("valid vocabulary");
    let text = tokenizer.decode(&tokens[1..]).expect("decodable");
    assert_eq!(tokenizer.encode_text(&text).expect("encodable"), tokens[1..]);
}
