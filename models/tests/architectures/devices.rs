//! Encoders and encoder-decoders on candle operations, compared with our kernels and transformers, on candle's CPU
//! device or the one named by the environment.

use std::sync::Arc;

use candle_core::Tensor;
use probity_models::{
    Arithmetic, DeviceChoice, KvSpan, LayerTaps, ModelConfig, PackedDecoder, PackedEncoder, PackedSegment,
    load_encoder_decoder_on, load_encoder_on,
};

use crate::checkpoints::{Checkpoint, Golden, largest_difference};
use crate::device::device;
use crate::roster::{Kind, Suite, golden_names};

const TOLERANCE: f32 = 2e-4;
const LAYERS: [usize; 4] = [2, 0, 1, 2];

fn encoder(checkpoint: &Checkpoint, device: DeviceChoice, arithmetic: Arithmetic) -> Box<dyn PackedEncoder> {
    let ModelConfig::Encoder(config) = checkpoint.read_config() else { panic!("an encoder") };
    load_encoder_on(device, checkpoint, &config, arithmetic).expect("complete checkpoint")
}

fn encoder_decoder(checkpoint: &Checkpoint, device: DeviceChoice, arithmetic: Arithmetic) -> Box<dyn PackedDecoder> {
    let ModelConfig::EncoderDecoder(config) = checkpoint.read_config() else { panic!("an encoder-decoder") };
    load_encoder_decoder_on(device, checkpoint, &config, arithmetic).expect("complete checkpoint")
}

/// The same checkpoint on our kernels and on candle operations.
fn both<T>(name: &str, load: fn(&Checkpoint, DeviceChoice, Arithmetic) -> T) -> [T; 2] {
    let checkpoint = Checkpoint::golden(name);
    [DeviceChoice::Cpu, device()].map(|device| load(&checkpoint, device, Arithmetic::Exact))
}

fn all_layers(name: &str) -> Vec<usize> {
    (0..=Checkpoint::golden(name).read_config().layers().expect("layers")).collect()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|x| x.to_vec1()).expect("f32 in memory")
}

#[track_caller]
fn assert_close(what: &str, got: &[f32], expected: &[f32]) {
    assert!(got.len() == expected.len() && !got.is_empty(), "{what}: {} and {}", got.len(), expected.len());
    let largest = largest_difference(got, expected);
    println!("{what}: {} numbers, largest difference {largest:e}", got.len());
    assert!(largest <= TOLERANCE, "{what} differs by {largest}");
}

#[test]
fn hidden_states_and_masked_heads_are_those_of_our_kernels_and_of_transformers() {
    for name in golden_names(Kind::Encoder, Suite::Logits) {
        let ([kernels, candle], golden) = (both(name, encoder), Golden::open(name));
        let (long, short) = (golden.ids("tokens0"), golden.ids("tokens1"));
        let texts = [short.clone(), long.clone(), short[..1].to_vec()];
        let states = candle.encode(&texts, &LAYERS).expect("runs");
        for ((state, expected), layer) in states.iter().zip(kernels.encode(&texts, &LAYERS).expect("runs")).zip(LAYERS)
        {
            assert_eq!(state.dims(), expected.dims());
            assert_close(&format!("{name}, layer {layer}"), &floats(state), &floats(&expected));
        }
        let alone = candle.encode(std::slice::from_ref(&long), &all_layers(name)).expect("runs");
        let alone: Vec<f32> = alone.iter().flat_map(floats).collect();
        assert_close(&format!("{name} and transformers"), &alone, &golden.floats("hidden0"));

        let [last, expected] = [&candle, &kernels].map(|model| floats(&model.last_states(&texts).expect("runs")));
        assert_close(&format!("{name}, behind the last norm"), &last, &expected);
        let wanted = [vec![], vec![3, 40, 169], vec![0]];
        let [masked, expected] = [&candle, &kernels].map(|model| model.masked(&texts, &wanted).expect("has a head"));
        assert_close(&format!("{name}, masked"), &floats(&masked), &floats(&expected));
        let asked = vec![vec![7, 5], vec![], vec![95], vec![0]];
        let [rows, others] =
            [(&candle, &masked), (&kernels, &expected)].map(|(model, x)| model.head(x, &asked).expect("runs"));
        let logits = candle.logits(&masked).expect("runs").to_vec2::<f32>().expect("a matrix");
        for ((row, other), (logits, asked)) in rows.iter().zip(&others).zip(logits.iter().zip(&asked)) {
            assert_eq!(row.greedy, other.greedy, "{name}");
            assert!((row.normaliser - other.normaliser).abs() <= f64::from(TOLERANCE), "{name}");
            assert_eq!(row.logits, asked.iter().map(|id| logits[*id as usize]).collect::<Vec<_>>(), "{name}");
        }
        let all = candle.masked(std::slice::from_ref(&long), &[(0..long.len()).collect()]).expect("has a head");
        let logits = floats(&candle.logits(&all).expect("runs"));
        assert_close(&format!("{name}, logits and transformers"), &logits, &golden.floats("logits0"));
    }
}

#[test]
fn an_encoder_refuses_what_makes_no_sense_with_the_words_of_our_kernels() {
    let models = both("roberta", encoder);
    let told = |call: &dyn Fn(&dyn PackedEncoder) -> candle_core::Result<Vec<Tensor>>| {
        let [kernels, candle] = models.each_ref().map(|model| {
            let error = call(&**model).expect_err("refused").to_string();
            // The following lines are a backtrace.
            error.lines().next().map(str::to_owned).expect("a line")
        });
        assert_eq!(candle, kernels);
        candle
    };
    assert!(told(&|model| model.encode(&[vec![]], &[0])).contains("without tokens"));
    assert!(told(&|model| model.encode(&[vec![5]], &[3])).contains("layer 3"));
    assert!(told(&|model| model.encode(&[vec![5; 199]], &[0])).contains("beyond the 198"));
    assert!(told(&|model| model.encode(&[vec![96]], &[0])).contains("token 96 is outside"));
    assert!(told(&|model| model.masked(&[vec![5]], &[vec![1]]).map(|x| vec![x])).contains("offsets"));
    for model in &models {
        assert_eq!(model.encode(&[vec![5; 198]], &[0]).expect("fits")[0].dims(), [198, 32]);
        assert_eq!(model.encode(&[], &[0]).expect("no text is no error")[0].dims(), [0, 32]);
        assert_eq!(model.masked(&[vec![5]], &[vec![]]).expect("nothing wanted is no error").dims(), [0, 32]);
    }
    let headless = Checkpoint::golden("bert").renamed(|name| name.replace("cls.predictions", "elsewhere"));
    let model = encoder(&headless, device(), Arithmetic::Exact);
    assert!(!model.has_masked_head());
    assert!(model.masked(&[vec![5]], &[vec![0]]).expect_err("no head").to_string().contains("no masked-language head"));
}

#[test]
fn names_of_other_exports_are_read() {
    let texts = [vec![5, 6, 7]];
    let run = |checkpoint: &Checkpoint| {
        let model = encoder(checkpoint, device(), Arithmetic::Exact);
        floats(&model.masked(&texts, &[vec![0, 1]]).expect("has a head"))
    };
    let renames: [fn(&str) -> String; 2] = [
        |name| name.strip_prefix("bert.").unwrap_or(name).to_owned(),
        |name| {
            name.replace("gamma", "weight")
                .replace("beta", "bias")
                .replace("predictions.bias", "predictions.decoder.bias")
        },
    ];
    for rename in renames {
        assert_eq!(run(&Checkpoint::golden("bert").renamed(rename)), run(&Checkpoint::golden("bert")));
    }
    let run = |checkpoint: &Checkpoint| {
        let model = encoder_decoder(checkpoint, device(), Arithmetic::Exact);
        let source = read(&*model, &[5, 6, 7]);
        in_pieces(&*model, &source, &[2, 30], &[2])
    };
    let cases = [
        ("bart", (|name| name.strip_prefix("model.").unwrap_or(name).to_owned()) as fn(&str) -> String),
        ("bart", |name| name.replace("model.shared", "model.decoder.embed_tokens")),
        ("t5", |name| name.replace("shared", "encoder.embed_tokens")),
    ];
    for (name, rename) in cases {
        assert_eq!(run(&Checkpoint::golden(name).renamed(rename)), run(&Checkpoint::golden(name)), "{name}");
    }
}

fn source(tokens: &[u32]) -> PackedSegment {
    PackedSegment { past: Vec::new(), tokens: tokens.to_vec(), wanted: Vec::new() }
}

fn read(model: &dyn PackedDecoder, tokens: &[u32]) -> Arc<KvSpan> {
    model.forward(&[source(tokens)]).expect("runs").spans.remove(0)
}

/// Logits of all positions of a decoder text, run in pieces of these lengths.
fn in_pieces(model: &dyn PackedDecoder, source: &Arc<KvSpan>, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    let (mut past, mut logits, mut start) = (vec![source.clone()], Vec::new(), 0);
    for len in pieces {
        let tokens = tokens[start..start + len].to_vec();
        let output = model.forward(&[PackedSegment { past: past.clone(), wanted: (0..*len).collect(), tokens }]);
        let output = output.expect("runs");
        logits.extend(floats(&model.logits(&output.hidden).expect("runs")));
        past.extend(output.spans);
        start += len;
    }
    assert_eq!(start, tokens.len(), "pieces make the whole");
    logits
}

#[test]
fn an_encoder_decoder_s_logits_are_transformers_in_one_pass_token_by_token_and_in_pieces() {
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let ([_, candle], golden) = (both(name, encoder_decoder), Golden::open(name));
        for k in 0..2 {
            let (text, tokens) = (golden.ids(&format!("source{k}")), golden.ids(&format!("tokens{k}")));
            let source = read(&*candle, &text);
            assert_eq!(source.len(), text.len());
            for pieces in [vec![tokens.len()], vec![1; tokens.len()], vec![17, 1, tokens.len() - 18]] {
                let got = in_pieces(&*candle, &source, &tokens, &pieces);
                let what = format!("{name} {k} in {} pieces", pieces.len());
                assert_close(&what, &got, &golden.floats(&format!("logits{k}")));
            }
        }
    }
}

#[test]
fn what_a_layer_shows_of_a_decoders_text_is_what_our_kernels_show() {
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let golden = Golden::open(name);
        let seen = both(name, encoder_decoder).map(|model| {
            let span = read(&*model, &golden.ids("source1"));
            let text = PackedSegment { past: vec![span], tokens: golden.ids("tokens1"), wanted: vec![] };
            let mut seen = vec![Vec::new(); 2];
            let taps = &mut LayerTaps { layers: &[0, 1], see: &mut |place, rows| seen[place] = rows.to_vec() };
            // The rows of a source are omitted.
            model.forward_tapped(&[source(&[5, 6]), text], taps).expect("runs");
            seen.concat()
        });
        assert_close(name, &seen[1], &seen[0]);
    }
}

#[test]
fn bf16_is_near_and_not_the_same() {
    for name in golden_names(Kind::EncoderDecoder, Suite::Logits) {
        let golden = Golden::open(name);
        let model = encoder_decoder(&Checkpoint::golden(name), device(), Arithmetic::Tiles);
        let tokens = golden.ids("tokens1");
        let got = in_pieces(&*model, &read(&*model, &golden.ids("source1")), &tokens, &[tokens.len()]);
        let largest = largest_difference(&got, &golden.floats("logits1"));
        println!("{name}: bf16 differs by {largest:e}");
        assert!(largest > TOLERANCE && largest < 0.5, "{name}: {largest}");
    }
    for name in golden_names(Kind::Encoder, Suite::Logits) {
        let golden = Golden::open(name);
        let model = encoder(&Checkpoint::golden(name), device(), Arithmetic::Tiles);
        let states = model.encode(&[golden.ids("tokens1")], &all_layers(name)).expect("runs");
        let largest =
            largest_difference(&states.iter().flat_map(floats).collect::<Vec<_>>(), &golden.floats("hidden1"));
        println!("{name}: bf16 differs by {largest:e}");
        assert!(largest > TOLERANCE && largest < 0.2, "{name}: {largest}");
    }
}

#[test]
fn an_encoder_decoder_refuses_what_makes_no_sense() {
    for model in both("t5", encoder_decoder) {
        let error = |segment| model.forward(&[segment]).expect_err("refused").to_string();
        assert!(error(PackedSegment { wanted: vec![0], ..source(&[5, 6]) }).contains("source"));
        assert!(error(source(&[96])).contains("token 96 is outside the vocabulary"));
        let text = PackedSegment { past: vec![read(&*model, &[5])], ..source(&[96]) };
        assert!(error(text).contains("token 96 is outside the vocabulary"));
        let output = model.forward(&[source(&[5, 6])]).expect("runs");
        assert_eq!(output.hidden.dim(0).expect("a matrix"), 0);
        assert!(model.head(&output.hidden, &[]).expect("nothing is no error").is_empty());
    }
}
