//! The GGUF reader on valid, invalid and hostile files.

mod builder;
mod error_text;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use builder::{Gguf, Meta};
use error_text::error_text;
use miette::Diagnostic as _;
use probity_kernels::WeightType;
use probity_models::{SourceError, WeightSource as _};
use probity_runtime::gguf_config;
use probity_runtime::tokenizer::Tokenizer;
use probity_runtime::weights::{GgufFile, GgufHeader, WeightsError};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes held by each thread.
struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged; the counters are thread-local and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.with(|live| {
            live.set(live.get().saturating_add(layout.size()));
            live.get()
        });
        PEAK.with(|peak| peak.set(peak.get().max(live)));
        // SAFETY: the caller's guarantees are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.with(|live| live.set(live.get().saturating_sub(layout.size())));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak bytes held during `work`.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, PEAK.with(Cell::get) - before)
}

fn open(gguf: &Gguf) -> Result<GgufFile, WeightsError> {
    GgufFile::from_bytes(Path::new("demo.gguf"), gguf.bytes())
}

/// A one-layer Llama with all required metadata and a byte-level tokenizer of four tokens.
fn small() -> Gguf {
    let words = ["<|end|>", "a", "b", "ab"].map(str::to_owned).to_vec();
    Gguf::default()
        .text("general.architecture", "llama")
        .number("llama.block_count", 1)
        .number("llama.context_length", 128)
        .number("llama.embedding_length", 32)
        .number("llama.feed_forward_length", 64)
        .number("llama.attention.head_count", 4)
        .number("llama.attention.head_count_kv", 2)
        .meta("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5))
        .meta("llama.rope.freq_base", Meta::F32(500_000.0))
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", Meta::Strs(words))
        .meta("tokenizer.ggml.token_type", Meta::I32s(vec![3, 1, 1, 1]))
        .meta("tokenizer.ggml.merges", Meta::Strs(vec!["a b".into()]))
        .number("tokenizer.ggml.eos_token_id", 0)
        .tensor("token_embd.weight", &[32, 4], 8, &[0; 4 * 34])
        .tensor("output_norm.weight", &[32], 0, &1.5f32.to_le_bytes().repeat(32))
        .tensor("blk.0.attn_q.weight", &[32, 32], 2, &[0; 32 * 18])
}

/// Replaces or removes a metadata entry.
fn with(mut gguf: Gguf, key: &str, value: Option<Meta>) -> Gguf {
    gguf.metadata.retain(|(other, _)| other != key.as_bytes());
    if let Some(value) = value {
        gguf = gguf.meta(key, value);
    }
    gguf
}

#[test]
fn tensors_are_found_by_hugging_face_names_with_their_shape_outermost_first() {
    let file = open(&small()).expect("valid");
    let embedding = file.tensor("model.embed_tokens.weight").expect("there");
    assert_eq!((embedding.shape, embedding.weight_type, embedding.bytes.len()), (vec![4, 32], WeightType::Q8_0, 136));
    let norm = file.tensor("model.norm.weight").expect("there");
    assert_eq!(norm.bytes[..4], 1.5f32.to_le_bytes());
    assert!(file.contains("model.layers.0.self_attn.q_proj.weight") && !file.contains("lm_head.weight"));
    assert_eq!(
        file.names(),
        ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]
    );
    assert_eq!(file.tensors()[2].name, "blk.0.attn_q.weight");
}

#[test]
fn a_missing_tensor_names_the_file_and_the_nearest() {
    let file = open(&small()).expect("valid");
    let error = file.tensor("model.layers.0.self_attn.k_proj.weight").err().expect("missing");
    let text = error.to_string();
    assert!(matches!(error, SourceError::Missing { .. }), "{text}");
    assert!(
        text.contains("blk.0.attn_k.weight") && text.contains("demo.gguf") && text.contains("blk.0.attn_q.weight"),
        "{text}"
    );
}

#[test]
fn types_without_kernels_are_listed_but_not_loaded() {
    let file = open(&small().tensor("blk.0.attn_k.weight", &[256, 2], 23, &[0; 2 * 136])).expect("the header is valid");
    let listed = file.tensors().into_iter().find(|t| t.name == "blk.0.attn_k.weight").expect("listed");
    assert_eq!((listed.type_name, listed.bytes), ("IQ4_XS", 272));
    let error = file.tensor("model.layers.0.self_attn.k_proj.weight").err().expect("unsupported");
    assert!(error.to_string().contains("IQ4_XS"), "{error}");
    assert!(error.help().is_some_and(|hint| hint.to_string().contains("Q4_K")), "{error:?}");
}

/// Asserts that the file is rejected with a message that contains `words`.
fn refused(gguf: &Gguf, words: &[&str]) {
    let bytes = gguf.bytes();
    let len = bytes.len();
    let (result, peak) = peak_of(|| GgufHeader::parse(&bytes).map(|_| ()));
    let error = result.expect_err("must be refused");
    let found = format!("{}: {}", error.what, error.why);
    assert!(words.iter().all(|word| found.contains(word)), "expected {words:?} in {found:?}");
    assert!(peak <= allowance(len), "{peak} bytes for a file of {len}: {found}");
    let error = open(gguf).err().expect("refused as a file too");
    assert!(error.to_string().contains("demo.gguf") && error.help().is_some(), "{error:?}");
}

/// Memory allowed for reading a header: a multiple of the file's size plus room for messages.
fn allowance(len: usize) -> usize {
    64 * len + 16_384
}

#[test]
fn claims_beyond_the_file_are_refused_before_anything_is_allocated() {
    let huge = 1u64 << 40;
    refused(&Gguf { tensor_count: Some(huge), ..small() }, &["number of tensors", &huge.to_string()]);
    refused(&Gguf { metadata_count: Some(u64::MAX), ..small() }, &["number of metadata entries"]);
    let claim = |element: u32, count: u64| {
        let raw = [9u32.to_le_bytes().as_slice(), &element.to_le_bytes(), &count.to_le_bytes()].concat();
        with(small(), "x", Some(Meta::Raw(raw)))
    };
    for element in [0, 4, 6, 7, 8, 9, 10, 12] {
        refused(&claim(element, 1_000_000_000), &["metadata `x`"]);
        refused(&claim(element, u64::MAX), &["metadata `x`"]);
    }
    let long = [8u32.to_le_bytes().as_slice(), &u64::MAX.to_le_bytes()].concat();
    refused(&with(small(), "x", Some(Meta::Raw(long))), &["metadata `x`"]);
    refused(&small().tensor("big", &[1 << 20, 1 << 14], 0, &[]), &["tensor `big`", "needs"]);
}

#[test]
fn bad_dimensions_offsets_and_types_are_refused() {
    refused(&small().tensor("t", &[1 << 33, 1 << 33], 0, &[]), &["tensor `t`", "overflow"]);
    refused(&small().tensor("t", &[u64::MAX], 0, &[]), &["tensor `t`", "overflow"]);
    refused(&small().tensor("t", &[0, 4], 0, &[]), &["tensor `t`", "zero"]);
    refused(&small().tensor("t", &[], 0, &[]), &["tensor `t`", "dimensions"]);
    refused(&small().tensor("t", &[1; 5], 0, &[]), &["tensor `t`", "5"]);
    refused(&small().tensor("t", &[33, 2], 8, &[0; 68]), &["tensor `t`", "33", "Q8_0"]);
    refused(&small().tensor("t", &[32], 99, &[0; 128]), &["tensor `t`", "type 99"]);
    let moved = |offset: u64| {
        let mut gguf = small().tensor("t", &[32], 0, &[0; 128]);
        gguf.tensors.last_mut().expect("just added").3 = offset;
        gguf
    };
    refused(&moved(1 << 40), &["tensor `t`", "the file has"]);
    refused(&moved(u64::MAX - 31), &["tensor `t`", "the file has"]);
    refused(&moved(7), &["tensor `t`", "alignment"]);
    refused(&moved(0), &["overlap", "token_embd.weight"]);
}

/// Published attacks on other readers of the format, each as a minimal file.
#[test]
fn published_attacks_on_other_readers_are_refused() {
    // CVE-2025-53630: tensor sizes whose sum wraps around, so that too little is allocated.
    let half = 1 << 61;
    refused(&small().tensor("a", &[half], 0, &[]), &["tensor `a`"]);
    refused(&small().tensor("a", &[half / 4, 2], 0, &[]).tensor("b", &[half / 4, 2], 0, &[]), &["tensor `a`", "needs"]);
    // CVE-2026-27940: the size of the containing context wraps around, through the number of tensors.
    for count in [u64::MAX, u64::MAX / 368 + 1, 1 << 61, i64::MAX as u64] {
        refused(&Gguf { tensor_count: Some(count), ..small() }, &["number of tensors", &count.to_string()]);
    }
    // llama.cpp #24759: a size that wraps to zero when padded (2^64 - 4 bytes), and nearby values.
    for floats in [(u64::MAX - 3) / 4, u64::MAX / 4, (u64::MAX - 31) / 4, (u64::MAX >> 1) / 4] {
        refused(&small().tensor("t", &[floats], 0, &[]), &["tensor `t`"]);
    }
    // #27203: dimensions whose product wraps around.
    for dims in [
        &[i64::MAX as u64, 2, 1, 1][..],
        &[1 << 32, 1 << 32, 1, 1],
        &[u64::MAX, u64::MAX, u64::MAX, u64::MAX],
        &[3, 1 << 63],
    ] {
        refused(&small().tensor("t", dims, 0, &[]), &["tensor `t`", "overflow"]);
    }
    // #26318: an alignment that is not a positive number.
    let alignments = [
        Meta::Raw([10u32.to_le_bytes().as_slice(), &(1u64 << 32).to_le_bytes()].concat()),
        Meta::Raw([5u32.to_le_bytes().as_slice(), &(-32i32).to_le_bytes()].concat()),
        Meta::Str("32".into()),
        Meta::F32(32.0),
        Meta::Bool(1),
        Meta::F32s(vec![32.0]),
    ];
    for alignment in alignments {
        refused(&with(small(), "general.alignment", Some(alignment)), &["general.alignment"]);
    }
    // #15711: so many tensors that their descriptions alone exhaust memory.
    refused(&Gguf { tensor_count: Some(1 << 33), ..small() }, &["number of tensors"]);
    // #19856: strings and arrays whose claimed length exceeds the file.
    for claim in [1u64 << 31, 1 << 40, u64::MAX - 8] {
        let text = [8u32.to_le_bytes().as_slice(), &claim.to_le_bytes()].concat();
        refused(&with(small(), "x", Some(Meta::Raw(text))), &["metadata `x`"]);
        let texts = [9u32.to_le_bytes().as_slice(), &8u32.to_le_bytes(), &claim.to_le_bytes()].concat();
        refused(&with(small(), "x", Some(Meta::Raw(texts))), &["metadata `x`"]);
    }
    // CVE-2026-7482: dimensions that exceed the data, by a row and by nearly everything.
    refused(&small().tensor("t", &[32, 5], 8, &[0; 4 * 34]), &["tensor `t`", "the file has"]);
    refused(&small().tensor("t", &[32, 1 << 24], 8, &[0; 4 * 34]), &["tensor `t`"]);
}

#[test]
fn bad_names_strings_and_nesting_are_refused() {
    refused(&Gguf { magic: *b"GGML", ..small() }, &["magic", "GGML"]);
    refused(&Gguf { version: 1, ..small() }, &["version", "1"]);
    refused(&Gguf { version: 3u32.swap_bytes(), ..small() }, &["big-endian"]);
    refused(&small().number("llama.block_count", 2), &["llama.block_count", "twice"]);
    refused(&small().tensor("output_norm.weight", &[32], 0, &[0; 128]), &["output_norm.weight", "twice"]);
    let mut nameless = small();
    nameless.metadata.push((vec![0xff, 0xfe], Meta::U32(1)));
    refused(&nameless, &["key", "UTF-8"]);
    nameless.metadata.last_mut().expect("just added").0.clear();
    refused(&nameless, &["key", "length of 0"]);
    nameless.metadata.last_mut().expect("just added").0.extend(b"\0a");
    refused(&nameless, &["key", "control characters"]);
    refused(&with(small(), "x", Some(Meta::Bool(2))), &["metadata `x`", "boolean"]);
    refused(&with(small(), "x", Some(Meta::Raw(77u32.to_le_bytes().to_vec()))), &["metadata `x`", "77"]);
    let level = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat();
    let nested = [9u32.to_le_bytes().to_vec(), level.repeat(1000), vec![0; 64]].concat();
    refused(&with(small(), "x", Some(Meta::Raw(nested))), &["metadata `x`", "nested"]);
    for alignment in [0, 3, 1 << 30] {
        refused(
            &with(small(), "general.alignment", Some(Meta::U32(alignment))),
            &["general.alignment", &alignment.to_string()],
        );
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = small().bytes();
    for len in 0..bytes.len() {
        assert!(GgufHeader::parse(&bytes[..len]).is_err(), "cut at {len} of {}", bytes.len());
    }
    let cut = GgufFile::from_bytes(Path::new("demo.gguf"), bytes[..bytes.len() - 1].to_vec()).err().expect("cut");
    let cut = error_text(&cut);
    assert!(cut.contains("probity model verify"), "{cut}");
}

#[test]
fn what_goes_on_behind_the_last_tensor_is_refused_but_for_the_zeros_that_align_it() {
    let bytes = small().bytes();
    let with = |more: &[u8]| GgufHeader::parse(&[bytes.as_slice(), more].concat());
    let aligned = bytes.len().next_multiple_of(32) - bytes.len();
    assert!(with(&vec![0; aligned]).is_ok());
    for more in [vec![0; aligned + 1], vec![0; 8 << 10], vec![1; aligned.max(1)]] {
        let error = with(&more).expect_err("goes on");
        assert!(error.why.contains("it is the last and ends at"), "{error:?}");
    }
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let missing = GgufFile::open(Path::new("no/such/file.gguf")).err().expect("missing").to_string();
    assert!(missing.contains("no/such/file.gguf"), "{missing}");
    let folder = tempfile::tempdir().expect("temporary folder");
    let error = GgufFile::open(folder.path()).err().expect("a folder").to_string();
    assert!(error.contains("folder"), "{error}");
    let empty = folder.path().join("empty.gguf");
    std::fs::write(&empty, b"").expect("written");
    assert!(GgufFile::open(&empty).is_err());
}

#[test]
fn configuration_is_what_hugging_face_has() {
    let config = gguf_config(&open(&small()).expect("valid")).expect("complete");
    let expected = json!({
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 64, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "vocab_size": 4, "rope_theta": 500_000.0,
        "probity.rope_interleaved": true, "model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 0
    });
    let sorted = |json: &Json| {
        json.as_object()
            .expect("object")
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(sorted(&config), sorted(&expected));
}

#[test]
fn rope_scaling_window_and_untied_output_are_told() {
    let scaled = small()
        .text("llama.rope.scaling.type", "yarn")
        .meta("llama.rope.scaling.factor", Meta::F32(4.0))
        .number("llama.rope.scaling.original_context_length", 32)
        .number("llama.attention.sliding_window", 64)
        .tensor("output.weight", &[32, 4], 0, &[0; 512])
        .tensor("rope_freqs.weight", &[4], 0, &[0; 16]);
    let config = gguf_config(&open(&scaled).expect("valid")).expect("complete");
    assert_eq!(
        config["rope_scaling"],
        json!({
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "attention_factor": 0.1 * 4f64.ln() + 1.0,
        })
    );
    assert_eq!((&config["model_type"], &config["sliding_window"]), (&json!("mistral"), &json!(64)));
    assert_eq!((&config["tie_word_embeddings"], &config["probity.rope_freq_factors"]), (&json!(false), &json!(true)));
}

#[test]
fn metadata_that_cannot_be_honoured_is_refused_by_key() {
    let refused = |gguf: Gguf, key: &str| {
        let error = gguf_config(&open(&gguf).expect("a valid header")).expect_err("refused").to_string();
        assert!(error.contains(key) && error.contains("demo.gguf"), "{key}: {error}");
    };
    for key in [
        "general.architecture", "llama.block_count", "llama.embedding_length", "llama.attention.layer_norm_rms_epsilon",
    ] {
        refused(with(small(), key, None), key);
        refused(with(small(), key, Some(Meta::Bool(1))), key);
    }
    for key in
        ["llama.block_count", "llama.attention.head_count", "llama.context_length", "llama.attention.head_count_kv"]
    {
        refused(with(small(), key, Some(Meta::U32(0))), key);
        refused(with(small(), key, Some(Meta::U32(u32::MAX))), key);
    }
    refused(with(small(), "general.architecture", Some(Meta::Str("mamba".into()))), "`general.architecture`: `mamba`");
    refused(small().number("llama.vocab_size", 5), "llama.vocab_size");
    refused(with(small(), "llama.attention.head_count_kv", Some(Meta::U32(3))), "llama.attention.head_count_kv");
    refused(with(small(), "llama.attention.head_count", Some(Meta::U32(5))), "llama.attention.head_count");
    refused(with(small(), "llama.rope.freq_base", Some(Meta::F32(f32::NAN))), "llama.rope.freq_base");
    refused(with(small(), "llama.rope.dimension_count", Some(Meta::U32(4))), "llama.rope.dimension_count");
    refused(with(small(), "llama.expert_count", Some(Meta::U32(8))), "llama.expert_used_count");
    refused(with(small(), "llama.expert_group_count", Some(Meta::U32(8))), "llama.expert_group_count");
    refused(with(small(), "llama.rope.scaling.attn_factor", Some(Meta::F32(1.2))), "llama.rope.scaling.attn_factor");
    refused(with(small(), "general.type", Some(Meta::Str("adapter".into()))), "`adapter` is not a complete model");
    let neutral = with(small(), "llama.expert_count", Some(Meta::U32(0)));
    assert!(gguf_config(&open(&neutral).expect("valid")).is_ok());
}

/// Metadata of an architecture with these keys, prefixed with its name.
fn metadata_of(architecture: &str, keys: &[(&str, Meta)]) -> Gguf {
    let named = Gguf::default().text("general.architecture", architecture);
    let embedding = named.tensor("token_embd.weight", &[32, 4], 0, &[0; 512]);
    keys.iter().fold(embedding, |gguf, (key, value)| gguf.meta(&format!("{architecture}.{key}"), value.clone()))
}

#[test]
fn a_bert_says_that_it_is_not_causal_and_has_no_class_head() {
    let config = |gguf: Gguf| gguf_config(&open(&gguf).expect("a valid header"));
    // As written by llama.cpp's converter.
    let bert = |causal: Meta| {
        metadata_of(
            "bert",
            &[
                ("block_count", Meta::U32(1)),
                ("context_length", Meta::U32(512)),
                ("embedding_length", Meta::U32(32)),
                ("feed_forward_length", Meta::U32(64)),
                ("attention.head_count", Meta::U32(4)),
                ("attention.layer_norm_epsilon", Meta::F32(1e-12)),
                ("pooling_type", Meta::U32(1)),
                ("attention.causal", causal),
            ],
        )
    };
    assert_eq!(config(bert(Meta::Bool(0))).expect("a bert")["max_position_embeddings"], json!(512));
    let refused = config(bert(Meta::Bool(1))).expect_err("a causal bert").to_string();
    assert!(refused.contains("bert.attention.causal"), "{refused}");
    // As written for a model with a class head, whose labels are not always there.
    let classes = bert(Meta::Bool(0)).tensor("cls.output.weight", &[32, 3], 0, &[0; 384]);
    let labels = Meta::Strs(["no", "maybe", "yes"].map(str::to_owned).to_vec());
    for classes in [with(classes.clone(), "bert.classifier.output_labels", Some(labels)), classes] {
        let refused = config(classes).expect_err("a class head").to_string();
        assert!(refused.contains("class heads are not read from GGUF files"), "{refused}");
    }
    let llama = |causal: u8| config(with(small(), "llama.attention.causal", Some(Meta::Bool(causal))));
    assert!(llama(1).is_ok());
    assert!(llama(0).expect_err("not causal").to_string().contains("llama.attention.causal"));
}

#[test]
fn a_gemma_4_describes_each_layer_and_what_does_not_fit_is_refused_by_key() {
    let refused = |changed: &str, value: Option<Meta>| {
        let mut keys = vec![
            ("block_count", Meta::U32(4)),
            ("context_length", Meta::U32(512)),
            ("embedding_length", Meta::U32(32)),
            ("feed_forward_length", Meta::I32s(vec![64, 64, 128, 128])),
            ("attention.head_count", Meta::U32(4)),
            ("attention.head_count_kv", Meta::I32s(vec![2, 1, 2, 1])),
            ("attention.key_length", Meta::U32(16)),
            ("attention.value_length", Meta::U32(16)),
            ("attention.key_length_swa", Meta::U32(8)),
            ("attention.value_length_swa", Meta::U32(8)),
            ("attention.layer_norm_rms_epsilon", Meta::F32(1e-6)),
            ("attention.sliding_window", Meta::U32(24)),
            ("attention.sliding_window_pattern", Meta::I32s(vec![1, 0, 1, 0])),
            ("attention.shared_kv_layers", Meta::U32(2)),
            ("embedding_length_per_layer_input", Meta::U32(0)),
            ("rope.dimension_count", Meta::U32(16)),
            ("rope.dimension_count_swa", Meta::U32(8)),
            ("rope.freq_base", Meta::F32(1e6)),
            ("rope.freq_base_swa", Meta::F32(1e4)),
        ];
        keys.retain(|(key, _)| *key != changed);
        keys.extend(value.map(|value| (changed, value)));
        gguf_config(&open(&metadata_of("gemma4", &keys)).expect("a valid header"))
    };
    let config = refused("expert_count", None).expect("nothing changed");
    let sizes = ["intermediate_size", "num_kv_shared_layers", "head_dim"].map(|field| &config[field]);
    assert_eq!(sizes, [&json!(64), &json!(2), &json!(8)]);
    assert_eq!(config["use_double_wide_mlp"], json!(true));
    assert_eq!(config["per_layer_config"]["3"], json!({ "head_dim": 16, "num_key_value_heads": 1 }));
    // No layer has a tensor for values.
    assert_eq!(config["attention_k_eq_v"], json!(true));
    for (key, value) in [
        ("expert_count", Some(Meta::U32(8))),
        ("feed_forward_length", Some(Meta::I32s(vec![64, 128, 128, 128]))),
        ("feed_forward_length", Some(Meta::I32s(vec![64, 64]))),
        ("feed_forward_length", Some(Meta::I32s(vec![-1; 4]))),
        ("attention.head_count_kv", None),
        ("attention.value_length", Some(Meta::U32(8))),
        ("attention.sliding_window", Some(Meta::U32(0))),
        ("attention.sliding_window_pattern", None),
        ("attention.sliding_window_pattern", Some(Meta::Strs(vec!["yes".into(); 4]))),
        ("embedding_length_per_layer_input", None),
        ("rope.dimension_count_swa", Some(Meta::U32(4))),
        ("rope.freq_base_swa", None),
    ] {
        let error = refused(key, value).expect_err(key).to_string();
        assert!(error.contains(&format!("gemma4.{key}")), "{key}: {error}");
    }
}

#[test]
fn both_names_of_a_t5s_epsilon_are_read_and_must_agree() {
    let config = |epsilons: &[(&str, f32)]| {
        let mut keys = vec![
            ("block_count", Meta::U32(1)),
            ("embedding_length", Meta::U32(32)),
            ("feed_forward_length", Meta::U32(64)),
            ("attention.key_length", Meta::U32(8)),
            ("attention.head_count", Meta::U32(4)),
            ("attention.relative_buckets_count", Meta::U32(32)),
        ];
        keys.extend(epsilons.iter().map(|(key, value)| (*key, Meta::F32(*value))));
        gguf_config(&open(&metadata_of("t5", &keys)).expect("a valid header"))
    };
    let (plain, rms) = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon");
    for (epsilons, expected) in [
        (vec![], 1e-6),
        (vec![(rms, 1e-5)], 1e-5),
        (vec![(plain, 1e-5)], 1e-5),
        (vec![(plain, 1e-5), (rms, 1e-5)], 1e-5),
    ] {
        assert_eq!(config(&epsilons).expect("a t5")["layer_norm_epsilon"], json!(expected), "{epsilons:?}");
    }
    let refused = config(&[(plain, 1e-5), (rms, 1e-6)]).expect_err("which of the two?").to_string();
    assert!(refused.contains("t5.attention.layer_norm_epsilon"), "{refused}");
}

/// The keys of every decoder, with two layers.
fn decoder_keys() -> Vec<(&'static str, Meta)> {
    vec![
        ("block_count", Meta::U32(2)),
        ("context_length", Meta::U32(128)),
        ("embedding_length", Meta::U32(32)),
        ("feed_forward_length", Meta::U32(64)),
        ("attention.head_count", Meta::U32(4)),
        ("attention.layer_norm_rms_epsilon", Meta::F32(1e-5)),
    ]
}

#[test]
fn parts_of_a_glm_that_are_not_computed_are_left_out_or_refused_by_key() {
    let config = |architecture: &str, more: &[(&'static str, Meta)]| {
        let mut keys = decoder_keys();
        if architecture == "glm4moe" {
            let experts = ["expert_count", "expert_used_count", "expert_shared_count", "expert_feed_forward_length"];
            keys.extend(experts.map(|key| (key, Meta::U32(2))));
        }
        keys.retain(|(key, _)| more.iter().all(|(other, _)| other != key));
        keys.extend(more.iter().cloned());
        gguf_config(&open(&metadata_of(architecture, &keys)).expect("a valid header"))
    };
    // llama.cpp's defaults.
    let plain = config("glm4moe", &[]).expect("complete");
    assert_eq!((&plain["norm_topk_prob"], &plain["routed_scaling_factor"]), (&json!(false), &json!(1.0)));
    assert_eq!((&plain["first_k_dense_replace"], &plain["num_hidden_layers"]), (&json!(0), &json!(2)));
    let next = config("glm4moe", &[("nextn_predict_layers", Meta::U32(1))]).expect("without its last layer");
    assert_eq!((&next["num_hidden_layers"], &next["num_nextn_predict_layers"]), (&json!(1), &json!(1)));
    for (architecture, key, value) in [
        ("glm4moe", "nextn_predict_layers", Meta::U32(2)),
        ("glm4moe", "expert_gating_func", Meta::U32(1)),
        ("glm4moe", "expert_shared_count", Meta::U32(0)),
        ("glm4moe", "rope.dimension_sections", Meta::I32s(vec![8, 12, 12, 0])),
        ("glm4moe", "attention.sliding_window", Meta::U32(64)),
        ("glm4", "rope.dimension_sections", Meta::I32s(vec![8, 12, 12, 0])),
        ("glm4", "nextn_predict_layers", Meta::U32(1)),
        ("glm4", "attention.sliding_window", Meta::U32(64)),
    ] {
        let error = config(architecture, &[(key, value)]).expect_err(key).to_string();
        assert!(error.contains(&format!("{architecture}.{key}")), "{error}");
    }
}

#[test]
fn a_granite_without_mamba_may_have_its_sizes_and_no_positions() {
    let config = |more: &[(&'static str, Meta)]| {
        let keys = [decoder_keys(), more.to_vec()].concat();
        gguf_config(&open(&metadata_of("granite", &keys)).expect("a valid header"))
    };
    // As written by llama.cpp's converter of hybrid models.
    let of_hybrid = [
        ("attention.head_count_kv", Meta::I32s(vec![2, 2])),
        ("ssm.conv_kernel", Meta::U32(4)),
        ("expert_shared_feed_forward_length", Meta::U32(64)),
        ("expert_count", Meta::U32(0)),
        ("rope.scaling.finetuned", Meta::Bool(1)),
    ];
    let dense = config(&of_hybrid).expect("complete");
    assert_eq!((&dense["num_key_value_heads"], dense.get("position_embedding_type")), (&json!(2), None));
    let finetuned = ("rope.scaling.finetuned", Meta::Bool(0));
    let without = config(&[finetuned]).expect("complete");
    assert_eq!(without["position_embedding_type"], "nope");
    let error = config(&[("attention.head_count_kv", Meta::I32s(vec![0, 2]))]).expect_err("mamba").to_string();
    assert!(error.contains("granite.attention.head_count_kv"), "{error}");
    let hybrid = gguf_config(&open(&metadata_of("granitehybrid", &decoder_keys())).expect("a valid header"));
    assert!(hybrid.expect_err("mamba").to_string().contains("`granitehybrid` is not supported"));
}

#[test]
fn a_mistral3_is_a_ministral3_if_its_scores_grow() {
    let config = |more: &[(&'static str, Meta)]| {
        let keys = [decoder_keys(), more.to_vec()].concat();
        gguf_config(&open(&metadata_of("mistral3", &keys)).expect("a valid header"))
    };
    assert_eq!(config(&[]).expect("complete")["model_type"], "llama");
    let (growth, log) = ("attention.temperature_scale", "rope.scaling.yarn_log_multiplier");
    let yarn = |more: &[(&'static str, Meta)]| {
        let yarn = [
            ("rope.scaling.type", Meta::Str("yarn".into())),
            ("rope.scaling.factor", Meta::F32(4.0)),
            ("rope.scaling.original_context_length", Meta::U32(32)),
        ];
        config(&[yarn.to_vec(), more.to_vec()].concat())
    };
    let grown = yarn(&[(growth, Meta::F32(0.1)), (log, Meta::F32(1.0))]).expect("complete");
    assert_eq!(grown["model_type"], "ministral3");
    let scaling = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    });
    assert_eq!(grown["rope_scaling"], scaling);
    let own = yarn(&[(growth, Meta::F32(0.1)), (log, Meta::F32(0.0))]).expect("complete");
    assert_eq!(own["rope_scaling"]["attention_factor"], json!(0.1 * 4f64.ln() + 1.0));
    for (result, key) in [
        (config(&[(growth, Meta::F32(0.1)), (log, Meta::F32(1.0))]), "mistral3.rope.scaling.type"),
        (yarn(&[(growth, Meta::F32(0.1))]), "mistral3.rope.scaling.yarn_log_multiplier"),
        (yarn(&[(log, Meta::F32(1.0))]), "mistral3.attention.temperature_scale"),
        (config(&[("attention.temperature_length", Meta::U32(64))]), "mistral3.attention.temperature_length"),
    ] {
        let error = result.expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn broken_vocabularies_are_refused_by_key() {
    let refused = |gguf: Gguf, word: &str| {
        let error = Tokenizer::from_gguf(&open(&gguf).expect("a valid header")).err().expect("refused").to_string();
        assert!(error.contains(word) && error.contains("demo.gguf"), "{word}: {error}");
    };
    refused(with(small(), "tokenizer.ggml.pre", Some(Meta::Str("no-such".into()))), "llama-bpe");
    refused(with(small(), "tokenizer.ggml.model", Some(Meta::Str("wordpiece".into()))), "wordpiece");
    refused(with(small(), "tokenizer.ggml.tokens", None), "tokenizer.ggml.tokens");
    refused(with(small(), "tokenizer.ggml.token_type", Some(Meta::I32s(vec![1]))), "tokenizer.ggml.token_type");
    refused(with(small(), "tokenizer.ggml.token_type", Some(Meta::I32s(vec![1, 1, 0, 3]))), "token 2 has type 0");
    refused(with(small(), "tokenizer.ggml.merges", Some(Meta::Strs(vec!["a c".into()]))), "tokenizer.ggml.merges");
    refused(with(small(), "tokenizer.ggml.merges", Some(Meta::Strs(vec!["ab".into()]))), "tokenizer.ggml.merges");
    refused(with(small(), "tokenizer.ggml.eos_token_id", Some(Meta::U32(4))), "eos_token_id");
    let spm = with(small(), "tokenizer.ggml.model", Some(Meta::Str("llama".into())));
    refused(spm.clone(), "tokenizer.ggml.scores");
    refused(with(spm.clone(), "tokenizer.ggml.scores", Some(Meta::F32s(vec![0.0]))), "tokenizer.ggml.scores");
    refused(with(spm, "tokenizer.ggml.scores", Some(Meta::F32s(vec![0.0, f32::NAN, 0.0, 0.0]))), "token 1");
}

#[test]
fn a_character_without_a_piece_never_becomes_a_token_that_ends_the_text() {
    let scored = with(small(), "tokenizer.ggml.scores", Some(Meta::F32s(vec![0.0, -1.0, -2.0, -3.0])));
    let spm = with(scored, "tokenizer.ggml.model", Some(Meta::Str("llama".into())))
        .number("tokenizer.ggml.unknown_token_id", 0);
    let tokenizer = Tokenizer::from_gguf(&open(&spm).expect("valid")).expect("a vocabulary");
    assert_eq!(tokenizer.encode_text("a日b"), Ok(vec![1, 2]));
    assert_eq!((tokenizer.unknown(), tokenizer.eos()), (None, Some(0)));
}

/// Runs every reader on a file that passed the header check.
fn read_all(bytes: Vec<u8>) {
    let Ok(file) = GgufFile::from_bytes(Path::new("mutated.gguf"), bytes) else { return };
    for name in file.names() {
        if let Ok(tensor) = file.tensor(&name) {
            let rows: usize = tensor.shape[..tensor.shape.len() - 1].iter().product();
            let row = tensor.weight_type.row_bytes(tensor.shape[tensor.shape.len() - 1]).expect("whole blocks");
            assert_eq!(tensor.bytes.len(), rows * row);
            let _ = probity_runtime::weights::check_finite(std::path::Path::new("f.gguf"), &name, &tensor);
        }
    }
    let _ = gguf_config(&file);
    if let Ok(tokenizer) = Tokenizer::from_gguf(&file) {
        let _ = tokenizer.encode_text("ab <|end|> aab");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic_and_never_take_more_memory_than_their_size_allows(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        sentencepiece in any::<bool>(),
    ) {
        let scored = with(small(), "tokenizer.ggml.scores", Some(Meta::F32s(vec![0.0, -1.0, -2.0, -3.0])));
        let base = if sentencepiece { with(scored, "tokenizer.ggml.model", Some(Meta::Str("llama".into()))) } else { small() };
        let mut bytes = base.bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (_, peak) = peak_of(|| GgufHeader::parse(&bytes).map(|_| ()));
        prop_assert!(peak <= allowance(bytes.len()), "{} bytes for {}", peak, bytes.len());
        read_all(bytes);
    }
}
