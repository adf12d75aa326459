//! Encoder-decoders compared with transformers (`scripts/goldens/make_encoder_models.py`), and with other divisions of
//! the same input.

use std::sync::Arc;

use crate::checkpoints::{Checkpoint, Golden, largest_difference};
use crate::roster::{Kind, Suite, golden_names};
use probity_models::{
    Arithmetic, Compute, Isa, KvSpan, ModelConfig, PackedDecoder, PackedSegment, load_encoder_decoder,
};

const TOLERANCE: f32 = 2e-4;

fn models() -> impl Iterator<Item = &'static str> {
    golden_names(Kind::EncoderDecoder, Suite::Logits)
}

fn load(name: &str, compute: impl Into<Compute>) -> Box<dyn PackedDecoder> {
    let checkpoint = Checkpoint::golden(name);
    load_checkpoint(&checkpoint, compute)
}

fn load_checkpoint(checkpoint: &Checkpoint, compute: impl Into<Compute>) -> Box<dyn PackedDecoder> {
    let ModelConfig::EncoderDecoder(config) = checkpoint.read_config() else { panic!("an encoder-decoder") };
    load_encoder_decoder(checkpoint, &config, compute).expect("complete checkpoint")
}

fn source(tokens: &[u32]) -> PackedSegment {
    PackedSegment { past: Vec::new(), tokens: tokens.to_vec(), wanted: Vec::new() }
}

fn read(model: &dyn PackedDecoder, tokens: &[u32]) -> Arc<KvSpan> {
    model.forward(&[source(tokens)]).expect("runs").spans.remove(0)
}

/// Hidden states of all positions of a decoder text, run in pieces of these lengths.
fn in_pieces(model: &dyn PackedDecoder, source: &Arc<KvSpan>, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    let mut past = vec![source.clone()];
    let mut hidden = Vec::new();
    let mut start = 0;
    for len in pieces {
        let segment = PackedSegment {
            past: past.clone(),
            tokens: tokens[start..start + len].to_vec(),
            wanted: (0..*len).collect(),
        };
        let output = model.forward(&[segment]).expect("runs");
        hidden.extend(output.hidden.flatten_all().expect("contiguous").to_vec1::<f32>().expect("floats"));
        past.extend(output.spans);
        start += len;
    }
    assert_eq!(start, tokens.len(), "pieces make the whole");
    hidden
}

fn logits(model: &dyn PackedDecoder, hidden: &[f32], rows: usize) -> Vec<f32> {
    let hidden = candle_core::Tensor::from_vec(hidden.to_vec(), (rows, hidden.len() / rows), &candle_core::Device::Cpu)
        .expect("a matrix");
    model.logits(&hidden).expect("runs").flatten_all().expect("contiguous").to_vec1().expect("floats")
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn logits_equal_transformers_in_one_pass_token_by_token_and_in_pieces() {
    for name in models() {
        let (model, golden) = (load(name, Arithmetic::Exact), Golden::open(name));
        for k in 0..2 {
            let (text, tokens) = (golden.ids(&format!("source{k}")), golden.ids(&format!("tokens{k}")));
            let source = read(&*model, &text);
            assert_eq!(source.len(), text.len());
            let whole = in_pieces(&*model, &source, &tokens, &[tokens.len()]);
            let largest =
                largest_difference(&logits(&*model, &whole, tokens.len()), &golden.floats(&format!("logits{k}")));
            println!(
                "{name} {k}: {} source tokens, {} of the decoder, largest difference {largest:e}",
                text.len(),
                tokens.len()
            );
            assert!(largest <= TOLERANCE, "{name} {k} differs by {largest}");
            for pieces in [vec![1; tokens.len()], vec![tokens.len() - 1, 1], vec![17, 1, tokens.len() - 18]] {
                assert_eq!(
                    bits(&in_pieces(&*model, &source, &tokens, &pieces)),
                    bits(&whole),
                    "{name} {k} in pieces of {pieces:?}"
                );
            }
        }
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_of_both_kinds() {
    for (name, arithmetic) in models().flat_map(|name| [(name, Arithmetic::Exact), (name, Arithmetic::Tiles)]) {
        let (model, golden) = (load(name, arithmetic), Golden::open(name));
        let texts = [golden.ids("source0"), golden.ids("source1")];
        let tokens = [golden.ids("tokens0"), golden.ids("tokens1")];
        let alone: Vec<Arc<KvSpan>> = texts.iter().map(|text| read(&*model, text)).collect();
        let expected: Vec<Vec<f32>> =
            (0..2).map(|k| in_pieces(&*model, &alone[k], &tokens[k], &[tokens[k].len()])).collect();
        let width = expected[0].len() / tokens[0].len();

        // A mix of sources and decoder texts: one has a past, one wants some of its rows, one none.
        let past = model.forward(&[PackedSegment {
            past: vec![alone[0].clone()],
            tokens: tokens[0][..50].to_vec(),
            wanted: vec![],
        }]);
        let past = past.expect("runs").spans.remove(0);
        let later = PackedSegment {
            past: vec![alone[0].clone(), past],
            tokens: tokens[0][50..].to_vec(),
            wanted: vec![0, 7, 89],
        };
        let other =
            PackedSegment { past: vec![alone[1].clone()], tokens: tokens[1].clone(), wanted: (0..30).collect() };
        let silent = PackedSegment { past: vec![alone[1].clone()], tokens: tokens[1][..4].to_vec(), wanted: vec![] };
        let output = model.forward(&[source(&texts[1]), later, silent, source(&texts[0]), other]).expect("runs");
        let hidden = output.hidden.to_vec2::<f32>().expect("a matrix").concat();
        let row = |k: usize, row: usize| &expected[k][row * width..(row + 1) * width];
        let rows = [50, 57, 139].map(|r| row(0, r)).concat();
        assert_eq!(bits(&hidden[..3 * width]), bits(&rows), "{name} in {arithmetic:?}: wanted rows over a past");
        assert_eq!(bits(&hidden[3 * width..]), bits(&expected[1]), "{name} in {arithmetic:?}: a whole text");
        for (k, span) in [(1, 0), (0, 3)] {
            let again = in_pieces(&*model, &output.spans[span], &tokens[k], &[tokens[k].len()]);
            assert_eq!(
                bits(&again),
                bits(&expected[k]),
                "{name} in {arithmetic:?}: over a source that was read among others"
            );
        }
    }
}

#[test]
fn joined_spans_and_output_rows_are_those_of_the_parts() {
    for name in models() {
        let (model, golden) = (load(name, Arithmetic::Exact), Golden::open(name));
        let (source, tokens) = (read(&*model, &golden.ids("source1")), golden.ids("tokens1"));
        let expected = in_pieces(&*model, &source, &tokens, &[tokens.len()]);
        let mut past = vec![source.clone()];
        for piece in tokens[..24].chunks(8) {
            let segment = PackedSegment { past: past.clone(), tokens: piece.to_vec(), wanted: vec![] };
            past.extend(model.forward(&[segment]).expect("runs").spans);
        }
        let joined = model.join(&past[1..], 24).expect("joins");
        assert_eq!(joined.len(), 24);
        let rest =
            PackedSegment { past: vec![source, joined], tokens: tokens[24..].to_vec(), wanted: (0..6).collect() };
        let hidden = model.forward(&[rest]).expect("runs").hidden;
        let width = expected.len() / tokens.len();
        assert_eq!(bits(&hidden.to_vec2::<f32>().expect("a matrix").concat()), bits(&expected[24 * width..]), "{name}");

        let asked: Vec<Vec<u32>> = (0..6).map(|row| vec![row, 95]).collect();
        let all = logits(&*model, &expected[24 * width..], 6);
        for (row, short) in model.head(&hidden, &asked).expect("runs").iter().enumerate() {
            let logits = &all[row * 96..][..96];
            assert_eq!(bits(&short.logits), bits(&[logits[row], logits[95]]), "{name}");
            let normaliser = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            assert!((short.normaliser - normaliser).abs() < 1e-6, "{name}: {} for {normaliser}", short.normaliser);
        }
    }
}

#[test]
fn bits_depend_neither_on_threads_nor_on_the_instruction_set() {
    for (name, arithmetic) in models().flat_map(|name| [(name, Arithmetic::Exact), (name, Arithmetic::Tiles)]) {
        let golden = Golden::open(name);
        let (text, tokens) = (golden.ids("source0"), golden.ids("tokens0"));
        let run = |isa, threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| {
                let model = load(name, Compute { arithmetic, isa });
                bits(&in_pieces(&*model, &read(&*model, &text), &tokens, &[tokens.len()]))
            })
        };
        let plain = run(Isa::Plain, 1);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert_eq!(run(isa, 2), plain, "{name} in {arithmetic:?} on {}", isa.name());
        }
    }
}

#[test]
fn names_of_other_exports_are_read() {
    let cases = [
        ("bart", (|name| name.strip_prefix("model.").unwrap_or(name).to_owned()) as fn(&str) -> String),
        ("bart", |name| name.replace("model.shared", "model.decoder.embed_tokens")),
        ("t5", |name| name.replace("shared", "encoder.embed_tokens")),
    ];
    for (name, rename) in cases {
        let run = |checkpoint: Checkpoint| {
            let model = load_checkpoint(&checkpoint, Arithmetic::Exact);
            let source = read(&*model, &[5, 6, 7]);
            bits(&logits(&*model, &in_pieces(&*model, &source, &[2, 30], &[2]), 2))
        };
        assert_eq!(run(Checkpoint::golden(name).renamed(rename)), run(Checkpoint::golden(name)), "{name}");
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let model = load("t5", Arithmetic::Exact);
    let wanted = PackedSegment { wanted: vec![0], ..source(&[5, 6]) };
    assert!(model.forward(&[wanted]).expect_err("no hidden state of a source").to_string().contains("source"));
    assert!(model.forward(&[source(&[96])]).expect_err("outside the vocabulary").to_string().contains("token 96"));
}
