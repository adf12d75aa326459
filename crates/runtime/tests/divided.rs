//! Layers divided over several devices: on candle's CPU device, results are bit-identical to one device under all other
//! options.

#[path = "../../../tests/device/mod.rs"]
mod device;

use miette::Diagnostic as _;
use probity_lm::{
    Ask, GenerateRequest, LabelSet, LanguageModel, Precision, Prompt, ScoreRequest, ScoreResult, TextEncoder,
};
use probity_models::{Arithmetic, KvSpan, LayerTaps, PackedDecoder, PackedSegment, Placement};
use probity_runtime::hub::{LocatedModel, locate};
use probity_runtime::{
    Checkpoint, DeviceChoice, DeviceList, DeviceShare, DryModel, KeptPrefixBytes, LoadError, LoadOptions, Model,
    ModelMemory, TextModel,
};

/// Two devices, and three if there are enough layers.
fn divisions(name: &str) -> impl Iterator<Item = &'static str> {
    [TWO, THREE].into_iter().filter(move |devices| match check(name, devices) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.to_string(), "the model has too few layers (2) for 3 devices", "{name}");
            false
        }
    })
}

const TWO: &str = "candle-cpu+candle-cpu";
const THREE: &str = "candle-cpu+candle-cpu+candle-cpu";

/// Several families, with windows in some layers, keys of other layers, experts, quantised weights, and an encoder.
const MODELS: [&str; 11] = [
    "llama", "qwen3", "gemma2", "gemma3_text", "gemma4_text", "mistral-window", "mixtral", "gguf-mixtral/model.gguf",
    "tiny-gguf/model.gguf", "tiny-flan-t5", "tiny-flan-t5-gguf/model.gguf",
];

fn golden(name: &str) -> LocatedModel {
    let path = device::goldens().join("models").join(name);
    locate(path.to_str().expect("UTF-8 path")).expect("a model lies there")
}

fn on(devices: &str) -> LoadOptions {
    LoadOptions { devices: devices.parse().expect("devices"), threads: Some(2), ..LoadOptions::default() }
}

fn check(name: &str, devices: &str) -> Result<DryModel<'static>, LoadError> {
    DryModel::check(&Checkpoint::open(&golden(name))?, on(devices))
}

fn load(name: &str, options: LoadOptions) -> Model {
    Model::load(&golden(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Prompts with a long shared prefix, of several lengths.
fn requests() -> Vec<ScoreRequest> {
    let labels = LabelSet::from_words(["A", "B"]).expect("valid labels");
    let context = "The harbour froze in December, and the ferry did not run until the ice broke in March. ".repeat(3);
    let request = |index: usize| {
        let prompt = Prompt::Text(format!("{context}{}\nWhich is better?", "Ice is cold. ".repeat(index % 4)));
        let ask = match index % 2 {
            0 => Ask::Labels(labels.clone()),
            _ => Ask::Continuation(format!(" Text {index}, I think")),
        };
        ScoreRequest { id: index.to_string(), prompt, ask }
    };
    (0..8).map(request).collect()
}

/// Every log-probability, as bits.
fn bits(results: &[ScoreResult]) -> Vec<u64> {
    let of = |result: &ScoreResult| -> Vec<f64> {
        match (result.labels(), result.continuation()) {
            (Some(labels), _) => labels.labels.iter().map(|label| label.logprob).collect(),
            (_, Some(continuation)) => continuation.token_logprobs.clone(),
            _ => panic!("no answer: {:?}", result.outcome),
        }
    };
    results.iter().flat_map(of).map(f64::to_bits).collect()
}

fn scores(model: &Model) -> Vec<u64> {
    bits(&model.score_all(&requests()).expect("scores"))
}

#[test]
fn scores_have_the_bits_of_one_device() {
    for name in MODELS {
        let ways = |options: LoadOptions| {
            [
                options,
                LoadOptions { precision: Precision::Fast, ..options },
                LoadOptions { share_prefixes: false, ..options },
                LoadOptions { token_budget: Some(7), ..options },
            ]
        };
        for (way, options) in ways(on("candle-cpu")).into_iter().enumerate() {
            let expected = scores(&load(name, options));
            for devices in divisions(name) {
                let model = load(name, LoadOptions { devices: devices.parse().expect("devices"), ..options });
                assert_eq!(model.description().device, devices);
                assert_eq!(scores(&model), expected, "{name} on {devices}, way {way}");
            }
        }
        // Divided copies behave like other copies.
        let copies = scores(&load(name, on("candle-cpu,candle-cpu")));
        assert_eq!(scores(&load(name, on(&format!("{TWO},{TWO}")))), copies, "{name}");
    }
}

#[test]
fn texts_and_kept_prefixes_are_those_of_one_device() {
    for name in ["llama", "gemma2", "mixtral", "tiny-gguf/model.gguf", "tiny-flan-t5"] {
        let text = |index: usize| {
            GenerateRequest::greedy(index.to_string(), Prompt::Tokens(vec![1, 7, 9, 5 + index as u32]), 40)
        };
        let run = |devices: &str| {
            let options = LoadOptions { kept_prefixes: KeptPrefixBytes::Third, side_by_side: 3, ..on(devices) };
            let model = load(name, options);
            // The second list reuses the prefix cache of the first.
            let again = [scores(&model), scores(&model)];
            let requests: Vec<GenerateRequest> = (0..5).map(text).collect();
            let mut texts = vec![Vec::new(); requests.len()];
            let take = &mut |index: usize, result: probity_lm::GenerateResult| {
                texts[index] = result.token_ids;
                Ok(())
            };
            let usage = model.generate(&mut requests.into_iter(), take).expect("generates");
            (again, texts, usage.tokens_computed)
        };
        let expected = run("candle-cpu");
        assert!(expected.1.iter().any(|ids| ids.len() > 20), "{name}: texts are too short to tell");
        for devices in divisions(name) {
            assert_eq!(run(devices), expected, "{name} on {devices}");
        }
    }
}

/// A decoder's output for a text in two spans, beside another text: logits, and states after layers.
fn computed(model: &dyn PackedDecoder, has_source: bool) -> (Vec<f32>, Vec<f32>) {
    let segment = |past: &[std::sync::Arc<KvSpan>], tokens: &[u32], wanted: &[usize]| PackedSegment {
        past: past.to_vec(),
        tokens: tokens.to_vec(),
        wanted: wanted.to_vec(),
    };
    let source =
        if has_source { model.forward(&[segment(&[], &[5, 6, 7, 8], &[])]).expect("reads").spans } else { Vec::new() };
    let mut states = Vec::new();
    let first = model.forward(&[segment(&source, &[9, 4, 11, 12, 13], &[4])]).expect("runs");
    let past: Vec<_> = source.iter().chain(&first.spans).cloned().collect();
    let mut see = |_: usize, x: &[f32]| states.extend_from_slice(x);
    let taps = &mut LayerTaps { layers: &[0, 1, 2], see: &mut see };
    let batch = [segment(&past, &[3, 2], &[0, 1]), segment(&past, &[6], &[0]), segment(&source, &[4, 9, 2], &[2])];
    let second = model.forward_tapped(&batch, taps).expect("runs");
    let logits = [first.hidden, second.hidden]
        .map(|hidden| model.logits(&hidden).and_then(|x| x.flatten_all()?.to_vec1::<f32>()).expect("logits"));
    (logits.concat(), states)
}

#[test]
fn layers_may_be_cut_anywhere_and_lie_on_devices_of_two_kinds() {
    for (name, layers, has_source) in
        [("llama", 3, false), ("gemma2", 4, false), ("mixtral", 3, false), ("tiny-flan-t5", 4, true)]
    {
        let checkpoint = Checkpoint::open(&golden(name)).expect("it is whole");
        let load = |place: Placement| checkpoint.load(Arithmetic::Exact, place).expect("loads");
        let expected = computed(&*load(DeviceChoice::CandleCpu.into()), has_source);
        // On a machine with a GPU: there and on the CPU. A tensor on the wrong device is an error.
        for devices in [[device::device(), DeviceChoice::CandleCpu], [DeviceChoice::CandleCpu, device::device()]] {
            for cut in 1..layers {
                let got = computed(&*load(Placement::new(&devices, &[0, cut])), has_source);
                if device::device() == DeviceChoice::CandleCpu {
                    assert_eq!(got, expected, "{name}, cut before layer {cut}");
                }
                let near =
                    |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(1.0));
                assert!(near(&got.0, &expected.0) && near(&got.1, &expected.1), "{name}, cut before layer {cut}");
            }
        }
    }
}

#[test]
fn encoders_are_divided_too() {
    let texts = ["Ice is cold.", "The ferry stopped for the winter."];
    let embed = |devices: &str| {
        let model = TextModel::load(&golden("tiny-masked"), on(devices)).expect("loads");
        assert_eq!(TextEncoder::config(&model).description.device, devices);
        model.embed(&texts).expect("runs").concat()
    };
    assert_eq!(embed(TWO), embed("candle-cpu"));
    let error = TextModel::load(&golden("tiny-masked"), on(THREE)).err().expect("refused");
    assert_eq!(error.to_string(), "the model has too few layers (2) for 3 devices");
}

#[test]
fn each_device_has_its_share_of_the_memory() {
    for name in MODELS {
        let checkpoint = Checkpoint::open(&golden(name)).expect("it is whole");
        let memory = |devices: &str| ModelMemory::new(&checkpoint, on(devices));
        let (whole, divided) = (memory("candle-cpu"), memory(TWO));
        assert_eq!((whole.shares.len(), divided.shares.len()), (1, 2));
        assert_eq!(divided.weights(), whole.weights(), "{name}");
        let cached =
            |memory: &ModelMemory| -> u64 { memory.shares.iter().filter_map(DeviceShare::cache_per_token).sum() };
        assert_eq!(cached(&divided), cached(&whole), "{name}");
        assert_eq!(whole.shares[0].layers, None);
        let [first, second] = &divided.shares[..] else { panic!("two devices") };
        let (first, second) = (first.layers.clone().expect("its layers"), second.layers.clone().expect("its layers"));
        assert!(first.start == 0 && !first.is_empty() && first.end == second.start && !second.is_empty(), "{name}");
        // Counted on the device that holds the most.
        let model = load(name, on(TWO));
        let most = divided.shares.iter().filter_map(DeviceShare::cache_per_token).max().expect("two devices");
        assert_eq!(model.cache_bytes(1000), 1000 * most, "{name}");
        let copies = memory(&format!("{TWO},{TWO}"));
        assert_eq!(copies.weights(), whole.weights());
        assert_eq!(copies.weights_in_one_memory(), 2 * whole.weights());
        assert!(copies.shares[0].free() < divided.shares[0].free(), "four places in one memory");
    }
}

#[test]
fn what_cannot_be_divided_is_refused_before_it_is_loaded() {
    let refused = |name: &str, devices: &str| {
        let error = check(name, devices).err().expect("refused");
        let loading = Model::load(&golden(name), on(devices)).err().expect("refused");
        assert_eq!(loading.to_string(), error.to_string());
        (error.to_string(), error.help().expect("a hint").to_string())
    };
    let (error, hint) = refused("llama", &[TWO, TWO].join("+"));
    assert_eq!(error, "the model has too few layers (3) for 4 devices");
    assert_eq!(hint, "join at most 3 devices with +; each needs at least one layer");
    #[cfg(feature = "candle-transformers")]
    {
        let (error, hint) = refused("phi", TWO);
        assert_eq!(error, "phi models run through candle-transformers, which does not divide layers among devices");
        assert_eq!(hint, "use --device candle-cpu");
    }
    let (error, _) = refused("llama", "cpu+cpu");
    assert_eq!(error, "cpu is listed twice");
    let uneven = "candle-cpu,candle-cpu+candle-cpu".parse::<DeviceList>().expect_err("not alike");
    assert!(uneven.help().expect("a hint").to_string().contains("cuda:0+cuda:1,cuda:2+cuda:3"));
}
