//! Number of operations of a batch on a device, bytes written, and requests that are rejected before the first
//! operation. Candle counts operations and the allocator counts bytes, both per process, so only one test may run in
//! it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device, Tensor};
use probity_models::{KvSpan, PackedDecoder, PackedSegment};
use probity_runtime::hub::locate;
use probity_runtime::{Checkpoint, DeviceChoice};

/// Bytes in allocations of at least 1 KiB so far. A candle operation on the CPU allocates its output.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// The system allocator with a counter.
struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= 1024 {
            ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's guarantees are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of tensors created so far, including views.
fn tensors_made() -> usize {
    let tensor = Tensor::zeros(1, DType::F32, &Device::Cpu).expect("a number");
    let id = format!("{:?}", tensor.id());
    id.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("ids are numbers")
}

/// Operations of a batch of texts that continue a context.
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

fn checkpoint(name: &str) -> Checkpoint {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens");
    let folder = if name.contains('/') { folder.join(name) } else { folder.join("models").join(name) };
    Checkpoint::open(&locate(folder.to_str().expect("UTF-8")).expect("is there")).expect("opens")
}

/// A small model on `candle-cpu`.
fn load(name: &str) -> Box<dyn PackedDecoder> {
    checkpoint(name).load(probity_models::Arithmetic::Exact, DeviceChoice::CandleCpu).expect("loads")
}

/// Keys and values of a context.
fn context(model: &dyn PackedDecoder) -> Vec<Arc<KvSpan>> {
    let context = PackedSegment { past: Vec::new(), tokens: (0..96).collect(), wanted: Vec::new() };
    model.forward(&[context]).expect("runs").spans
}

fn operations_follow_rows() {
    for (name, layers) in [("llama", 2), ("mistral-window", 2), ("gemma2", 4)] {
        let model = load(name);
        let context = context(&*model);
        // Texts of one token, as during generation, and of several. The first batch grows the pool.
        for len in [1, 9] {
            operations(&*model, &context, 120, len);
            let counts = [4, 8, 60, 120].map(|texts| operations(&*model, &context, texts, len));
            println!("{name}: texts of {len} tokens, {counts:?} operations");
            assert!(counts.iter().all(|count| *count == counts[0]), "{name}: {counts:?}");
            // Including views.
            assert!(counts[0] <= 160 * layers, "{name}: {counts:?}");
        }
    }
}

/// A batch of the job of 240 comparisons (`scripts/bench/work.py`): a context of 400 tokens and a first candidate of 60
/// are cached, and each text is a second candidate of 60 with a question of 40.
fn operations_of_comparisons_are_those_of_one_layer_each() {
    let model = load("llama");
    let tokens = |count: usize| (0..count).map(|at| (at * 7 % 200) as u32).collect::<Vec<_>>();
    let next = |past: &[Arc<KvSpan>], count| {
        let text = PackedSegment { past: past.to_vec(), tokens: tokens(count), wanted: Vec::new() };
        [past.to_vec(), model.forward(&[text]).expect("runs").spans].concat()
    };
    let past = next(&next(&[], 400), 60);
    operations(&*model, &past, 60, 100);
    let counts = [10, 20, 40, 60].map(|texts| operations(&*model, &past, texts, 100));
    println!("comparisons: {counts:?} operations and views in two layers and the rest");
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    // More than half are views: 72 operations per layer, see docs/devices.md, and shared ones.
    assert!(counts[0] <= 2 * 200, "{counts:?}");
}

/// Megabytes written by the job of 240 comparisons at this number of texts per batch, and its operations and views.
/// Excludes the output head, whose rows do not depend on sharing.
fn written_by_comparisons(model: &dyn PackedDecoder, at_once: usize) -> (f64, usize) {
    let segment = |past: &[Arc<KvSpan>], first: usize, count: usize| PackedSegment {
        past: past.to_vec(),
        tokens: (first..first + count).map(|at| (at * 7 % 200) as u32).collect(),
        wanted: vec![count - 1],
    };
    let (bytes, tensors) = (ALLOCATED.load(Ordering::Relaxed), tensors_made());
    let context = model.forward(&[segment(&[], 0, 400)]).expect("runs").spans;
    let firsts: Vec<PackedSegment> = (0..16).map(|at| segment(&context, 400 + 60 * at, 60)).collect();
    let firsts = model.forward(&firsts).expect("runs").spans;
    let text = |at: usize| segment(&[context[0].clone(), firsts[at / 15].clone()], 1400 + 100 * at, 100);
    let texts: Vec<PackedSegment> = (0..240).map(text).collect();
    for batch in texts.chunks(at_once) {
        model.forward(batch).expect("runs");
    }
    ((ALLOCATED.load(Ordering::Relaxed) - bytes) as f64 / 1e6, tensors_made() - tensors)
}

fn comparisons_write_little_beside_what_layers_make() {
    // PROBITY_COUNTED names another model, with figures in docs/devices.md.
    let model = match std::env::var("PROBITY_COUNTED") {
        Ok(folder) => Checkpoint::open(&locate(&folder).expect("is there"))
            .and_then(|checkpoint| checkpoint.load(probity_models::Arithmetic::Exact, DeviceChoice::CandleCpu))
            .expect("loads"),
        Err(_) => load("llama"),
    };
    for at_once in [10, 80] {
        let (written, operations) = written_by_comparisons(&*model, at_once);
        println!("240 comparisons, {at_once} at once: {written:.1} MB written, {operations} operations and views");
        // 2305 and 2619 for this model; of the attention scores only the products, the weights, and a few others.
        assert!(std::env::var_os("PROBITY_COUNTED").is_some() || written < 2800.0, "{written} MB");
    }
}

fn operations_of_experts_follow_their_number() {
    for (name, experts) in [("mixtral", 5), ("qwen3_moe", 6), ("glm4_moe", 6)] {
        let model = load(name);
        let context = context(&*model);
        operations(&*model, &context, 200, 1);
        // Up to 64 rows in f32, the choice of experts stays on the device and all experts run.
        let few = [4, 8, 60].map(|texts| operations(&*model, &context, texts, 1));
        let many = [100, 150, 200].map(|texts| operations(&*model, &context, texts, 1));
        println!("{name}: {few:?} operations with few rows, {many:?} with many");
        assert!(few.iter().all(|count| *count == few[0]), "{name}: {few:?}");
        assert!(many.iter().all(|count| *count == many[0]), "{name}: {many:?}");
        assert!(few[0].max(many[0]) <= 2 * (160 + 32 * experts), "{name}: {few:?} {many:?}");
    }
}

/// Asserts that a token is rejected before anything is computed.
fn refuses_token<T>(name: &str, refused: impl FnOnce() -> candle_core::Result<T>) {
    let before = tensors_made();
    let error = refused().err().unwrap_or_else(|| panic!("{name} takes a token that there is none of"));
    // The counter creates one, and an encoder creates an empty one for results.
    let made = tensors_made() - before;
    assert!(made <= 2, "{name}: {made} tensors");
    let message = error.to_string();
    assert!(message.starts_with("token 9999999 is outside the vocabulary of "), "{name}: {message}");
}

fn tokens_that_there_are_none_of_reach_no_device() {
    let (good, bad) = (vec![1, 2, 3], vec![1, 9_999_999, 3]);
    let text = |past: &[Arc<KvSpan>], tokens: &[u32], wanted: Vec<usize>| PackedSegment {
        past: past.to_vec(),
        tokens: tokens.to_vec(),
        wanted,
    };
    // One of ours, one of candle-transformers, and one with classes.
    for name in ["llama", "mixtral", "helium", "classifiers/bert-nli", "classifiers/bart-nli"] {
        let model = load(name);
        refuses_token(name, || model.forward(&[text(&[], &good, vec![2]), text(&[], &bad, vec![2])]));
    }
    let model = load("llama");
    let past = context(&*model);
    refuses_token("llama with a past", || model.forward(&[text(&past, &bad, vec![0])]));
    let hidden = model.forward(&[text(&past, &good, vec![2])]).expect("runs").hidden;
    let error = model.head(&hidden, &[vec![9_999_999]]).expect_err("no such token");
    assert!(error.to_string().starts_with("token 9999999 is outside the vocabulary of "), "{error}");
    let model = load("tiny-flan-t5");
    refuses_token("a source", || model.forward(&[text(&[], &bad, Vec::new())]));
    let source = model.forward(&[text(&[], &good, Vec::new())]).expect("runs").spans;
    refuses_token("a text with a source", || model.forward(&[text(&source, &bad, vec![0])]));
    let encoder = checkpoint("tiny-masked").load_encoder(probity_models::Arithmetic::Exact, DeviceChoice::CandleCpu);
    let encoder = encoder.expect("loads");
    refuses_token("tiny-masked", || encoder.encode(&[good.clone(), bad.clone()], &[1]));
    refuses_token("tiny-masked", || encoder.last_states(std::slice::from_ref(&bad)));
    refuses_token("tiny-masked", || encoder.masked(std::slice::from_ref(&bad), &[vec![1]]));
    // A row after the end of its text must not be read from the next text.
    let error =
        load("llama").forward(&[text(&[], &good, vec![3]), text(&[], &good, vec![2])]).expect_err("no such row");
    assert!(error.to_string().starts_with("row 3 of a text of 3 tokens"), "{error}");
}

#[test]
fn operations_do_not_grow_with_the_number_of_texts() {
    tokens_that_there_are_none_of_reach_no_device();
    operations_follow_rows();
    operations_of_comparisons_are_those_of_one_layer_each();
    comparisons_write_little_beside_what_layers_make();
    operations_of_experts_follow_their_number();
}
