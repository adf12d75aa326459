//! How many operations a batch takes on a device. The counter is candle's own, of all tensors of the process: one test alone
//! may run in it.

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use probity_models::{KvSpan, PackedDecoder, PackedSegment};
use probity_runtime::hub::locate;
use probity_runtime::{Checkpoint, DeviceChoice};

/// Tensors that were made so far, views among them.
fn tensors_made() -> usize {
    let tensor = Tensor::zeros(1, DType::F32, &Device::Cpu).expect("a number");
    let id = format!("{:?}", tensor.id());
    id.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("ids are numbers")
}

/// The operations of a batch of texts that continue a context.
fn operations(model: &dyn PackedDecoder, context: &[Arc<KvSpan>], texts: usize, len: usize) -> usize {
    let segment = |text: usize| PackedSegment {
        past: context.to_vec(),
        tokens: (0..len).map(|at| ((text * 31 + at * 7) % 200) as u32).collect(),
        wanted: vec![len - 1],
    };
    let segments: Vec<PackedSegment> = (0..texts).map(segment).collect();
    let before = tensors_made();
    let output = model.forward(&segments).expect("runs");
    let made = tensors_made() - before;
    assert_eq!(output.spans.len(), texts);
    made
}

#[test]
fn operations_do_not_grow_with_the_number_of_texts() {
    for (name, layers) in [("llama", 2), ("mistral-window", 2), ("gemma2", 4)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models").join(name);
        let checkpoint = Checkpoint::open(&locate(folder.to_str().expect("UTF-8")).expect("is there")).expect("opens");
        let model = checkpoint.load(probity_models::Arithmetic::Exact, DeviceChoice::CandleCpu).expect("loads");
        let context = PackedSegment { past: Vec::new(), tokens: (0..96).collect(), wanted: Vec::new() };
        let context = model.forward(&[context]).expect("runs").spans;
        // Texts of one token, as while writing, and of several; the first batch makes the pool grow.
        for len in [1, 9] {
            operations(&*model, &context, 120, len);
            let counts = [4, 8, 60, 120].map(|texts| operations(&*model, &context, texts, len));
            println!("{name}: texts of {len} tokens, {counts:?} operations");
            assert!(counts.iter().all(|count| *count == counts[0]), "{name}: {counts:?}");
            // Views are counted too.
            assert!(counts[0] <= 160 * layers, "{name}: {counts:?}");
        }
    }
}
