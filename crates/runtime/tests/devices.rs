//! End-to-end comparison of candle's CPU device, or of a device from the environment, with our kernels.

#[path = "../../../tests/device/mod.rs"]
mod device;
#[path = "../../../tests/roster/mod.rs"]
mod roster;

use std::path::PathBuf;

use miette::Diagnostic as _;
use probity_lm::{
    Ask, GenerateRequest, LabelSet, LanguageModel, MaskedSequence, Message, Precision, Prompt, Role, ScoreRequest,
    TextEncoder,
};
use probity_runtime::hub::locate;
use probity_runtime::{Checkpoint, DeviceChoice, DeviceList, DryModel, LoadError, LoadOptions, Model, TextModel};
use roster::{Kind, Suite, golden_models};

/// Largest difference of a log-probability.
const TOLERANCE: f64 = 2e-4;

fn golden(name: &str) -> PathBuf {
    device::goldens().join("models").join(name)
}

fn load(model: &str, options: LoadOptions) -> Result<Model, LoadError> {
    Model::load(&locate(model).expect("a model lies there"), options)
}

fn on(device: DeviceChoice, model: &str) -> Model {
    load(model, LoadOptions { devices: device.into(), ..LoadOptions::default() }).expect("loads")
}

/// The golden checkpoints, and `SmolLM2` if downloaded.
fn models() -> Vec<String> {
    let rows = [Kind::Decoder, Kind::EncoderDecoder].into_iter().flat_map(|kind| golden_models(kind, Suite::Texts));
    let mut models: Vec<String> = rows
        .filter(|model| model.has(Suite::Devices))
        .map(|model| golden(&model.path()).to_str().expect("UTF-8 path").to_owned())
        .collect();
    match locate("smollm2-135m-instruct") {
        Ok(_) => models.push("smollm2-135m-instruct".to_owned()),
        Err(error) => println!("skipped: {error}"),
    }
    models
}

fn work_list(chats: bool) -> Vec<ScoreRequest> {
    let context = "The harbour froze in December, and the ferry did not run until the ice broke in March.";
    let texts = ["The ferry stopped for the winter.", "A ferry sank in March.", "Ice is cold."];
    let labels = LabelSet::from_words(["A", "B"]).expect("valid labels");
    let mut requests = Vec::new();
    for (i, a) in texts.iter().enumerate() {
        for (j, b) in texts.iter().enumerate().filter(|(j, _)| *j != i) {
            let prompt =
                Prompt::Text(format!("Text: {context}\nSummary A: {a}\nSummary B: {b}\nWhich summary is better?"));
            requests.push(ScoreRequest {
                id: format!("{i}-{j}"),
                prompt: prompt.clone(),
                ask: Ask::Labels(labels.clone()),
            });
            requests.push(ScoreRequest {
                id: format!("{i}-{j}-text"),
                prompt,
                ask: Ask::Continuation(" Summary A, I think".into()),
            });
            // An encoder-decoder reads one text and begins its answer with another.
            let question = Message::new(Role::User, format!("{context} {a} {b}"));
            requests.extend(chats.then(|| ScoreRequest {
                id: format!("{i}-{j}-prefix"),
                prompt: Prompt::chat(vec![question], "Summary"),
                ask: Ask::Labels(labels.clone()),
            }));
        }
    }
    requests
}

/// Every log-probability of the work list.
fn logprobs(model: &Model) -> Vec<f64> {
    let results = model.score_all(&work_list(model.encoder().has_source())).expect("scores");
    let of = |result: &probity_lm::ScoreResult| -> Vec<f64> {
        match (result.labels(), result.continuation()) {
            (Some(labels), _) => labels.labels.iter().map(|label| label.logprob).collect(),
            (_, Some(continuation)) => continuation.token_logprobs.clone(),
            _ => panic!("no answer: {:?}", result.outcome),
        }
    };
    results.iter().flat_map(of).collect()
}

#[test]
fn scores_agree_with_our_kernels_on_every_checkpoint() {
    for name in models() {
        let (kernels, candle) = (on(DeviceChoice::Cpu, &name), on(device::device(), &name));
        assert_eq!(
            (kernels.description().device.as_str(), candle.description().device.as_str()),
            ("cpu", device::device().to_string().as_str())
        );
        assert_eq!(kernels.description().fingerprint, candle.description().fingerprint);
        let (expected, got) = (logprobs(&kernels), logprobs(&candle));
        assert!(got.len() == expected.len() && got.len() > 12 + 12, "{name}: {} numbers", got.len());
        let largest = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{name}: {} log-probabilities, largest difference {largest:e}", got.len());
        assert!(largest <= TOLERANCE, "{name} differs by {largest}");
    }
}

#[test]
fn models_of_candle_transformers_answer_alike_whatever_is_shared() {
    for name in ["gemma", "phi"].map(golden) {
        let name = name.to_str().expect("UTF-8 path");
        let options = LoadOptions { devices: device::device().into(), ..LoadOptions::default() };
        let of = |share_prefixes| load(name, LoadOptions { share_prefixes, ..options }).expect("loads");
        let (shared, apart) = (of(true), of(false));
        assert!(
            shared.description().through.as_deref().is_some_and(|through| through.starts_with("candle-transformers "))
        );
        let (expected, got) = (logprobs(&apart), logprobs(&shared));
        let largest = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{name}: {} log-probabilities, largest difference {largest:e}", got.len());
        assert!(got.len() == expected.len() && got.len() > 12 + 12 && largest <= TOLERANCE, "{largest}");
        let requests = ["The ferry stopped", "The ferry ran to", "Ice is"]
            .map(|prompt| GenerateRequest::greedy(prompt, Prompt::Text(prompt.to_owned()), 20));
        let texts = |requests: &[GenerateRequest]| {
            let mut texts = vec![Vec::new(); requests.len()];
            let done = &mut |index: usize, result: probity_lm::GenerateResult| {
                texts[index] = result.token_ids;
                Ok(())
            };
            shared.generate(&mut requests.iter().cloned(), done).expect("generates");
            texts
        };
        let alone: Vec<Vec<u32>> = requests.iter().flat_map(|one| texts(std::slice::from_ref(one))).collect();
        assert!(alone.iter().any(|ids| ids.len() > 4));
        assert_eq!(texts(&requests), alone, "{name}: side by side");
    }
}

#[test]
fn a_model_of_candle_transformers_is_refused_where_our_kernels_would_run_it() {
    let path = golden("gemma");
    let error = load(path.to_str().expect("UTF-8 path"), LoadOptions::default()).err().expect("refused");
    assert_eq!(error.to_string(), "gemma models run only through candle-transformers, not on cpu");
    assert!(error.help().expect("a hint").to_string().starts_with("use --device candle-cpu"));
    let options =
        LoadOptions { devices: DeviceChoice::CandleCpu.into(), precision: Precision::Fast, ..LoadOptions::default() };
    let error = load(path.to_str().expect("UTF-8 path"), options).err().expect("refused");
    assert_eq!(error.to_string(), "gemma models run in exact precision only");
    // Planning fails the same check, without reading weights.
    let located = locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
    let planned = DryModel::check(&Checkpoint::open(&located).expect("opens"), options).err().expect("refused");
    assert_eq!(planned.to_string(), error.to_string());
}

#[test]
fn greedy_texts_are_those_of_our_kernels() {
    for name in models() {
        let request = |prompt: &str| GenerateRequest::greedy(prompt, Prompt::Text(prompt.to_owned()), 40);
        let requests = [request("The ferry stopped"), request("The ferry ran to"), request("Ice is")];
        let texts = |device| {
            let mut texts = vec![Vec::new(); requests.len()];
            let done = &mut |index: usize, result: probity_lm::GenerateResult| {
                texts[index] = result.token_ids;
                Ok(())
            };
            on(device, &name).generate(&mut requests.iter().cloned(), done).expect("generates");
            texts
        };
        let expected = texts(DeviceChoice::Cpu);
        assert!(expected.iter().any(|ids| ids.len() > 16), "{name}: too short to join spans");
        assert_eq!(texts(device::device()), expected, "{name}");
    }
}

#[test]
fn fast_on_a_device_is_bf16_near_the_exact_scores() {
    let path = golden("tiny-gguf-mixed/model.gguf");
    let name = path.to_str().expect("UTF-8 path");
    let exact = logprobs(&on(device::device(), name));
    let options =
        LoadOptions { devices: device::device().into(), precision: Precision::Fast, ..LoadOptions::default() };
    let fast = logprobs(&load(name, options).expect("loads"));
    let largest = exact.iter().zip(&fast).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("bf16: largest difference {largest:e}");
    assert!(largest > TOLERANCE && largest < 0.5, "differs by {largest}");
}

#[test]
fn an_encoder_decoder_in_bf16_is_near_the_exact_scores_however_the_work_is_cut() {
    let path = golden("tiny-flan-t5");
    let name = path.to_str().expect("UTF-8 path");
    let all = LoadOptions { devices: device::device().into(), ..LoadOptions::default() };
    let exact = logprobs(&on(DeviceChoice::Cpu, name));
    let furthest = |options| {
        let got = logprobs(&load(name, options).expect("loads"));
        got.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    for options in [
        LoadOptions { share_prefixes: false, ..all },
        LoadOptions { token_budget: Some(7), ..all },
        LoadOptions { token_budget: Some(1), threads: Some(1), ..all },
    ] {
        let largest = furthest(options);
        assert!(largest <= TOLERANCE, "differs by {largest}");
    }
    let fast = furthest(LoadOptions { precision: Precision::Fast, ..all });
    println!("bf16: largest difference {fast:e}");
    assert!(fast > TOLERANCE && fast < 0.5, "differs by {fast}");
}

#[test]
fn an_encoder_reads_texts_and_masks_as_our_kernels_do() {
    let path = golden("tiny-masked");
    let located = || locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
    let texts = ["The farmer planted apple trees.", "a", "My neighbour repaired wooden boats behind the house."];
    let read = |options| {
        let model = TextModel::load(&located(), options).expect("loads");
        assert_eq!(TextEncoder::config(&model).description.device, options.devices.to_string());
        let mask = model.tokenizer().framing().mask.expect("a mask");
        let ids = model.tokenizer().tokenize(&texts).expect("tokenizes");
        let masked: Vec<MaskedSequence> = ids
            .iter()
            .map(|ids| {
                let mut ids = model.tokenizer().framing().frame(ids, None).ids;
                ids[1] = mask;
                MaskedSequence { positions: vec![1], ids }
            })
            .collect();
        let mut predicted = vec![Vec::new(); texts.len()];
        let take = &mut |index: usize, ids| {
            predicted[index] = ids;
            Ok(())
        };
        model.predict_masked(&masked, take).expect("runs");
        (model.embed(&texts).expect("runs").concat(), predicted)
    };
    let (expected, tokens) = read(LoadOptions::default());
    let device = LoadOptions { devices: device::device().into(), ..LoadOptions::default() };
    for options in [device, LoadOptions { token_budget: Some(1), ..device }] {
        let (got, predicted) = read(options);
        let largest = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("embeddings: largest difference {largest:e}");
        assert!(got.len() == expected.len() && f64::from(largest) <= TOLERANCE, "{largest}");
        assert_eq!(predicted, tokens);
    }
}

#[test]
fn a_model_that_is_none_of_the_kind_is_refused_on_a_device_too() {
    let device = LoadOptions { devices: DeviceChoice::CandleCpu.into(), ..LoadOptions::default() };
    let path = golden("tiny-masked");
    let error = load(path.to_str().expect("UTF-8 path"), device).err().expect("refused");
    assert!(error.to_string().contains("is an encoder and cannot generate"), "{error}");
    let path = golden("tiny-flan-t5");
    let located = locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
    let error = TextModel::load(&located, device).err().expect("refused");
    assert!(error.to_string().contains("is not an encoder"), "{error}");
}

#[test]
fn a_precision_of_our_kernels_is_refused_elsewhere() {
    let path = golden("llama");
    for precision in [Precision::Dots, Precision::Tiles] {
        let options = LoadOptions { devices: DeviceChoice::CandleCpu.into(), precision, ..LoadOptions::default() };
        let error = load(path.to_str().expect("UTF-8 path"), options).err().expect("refused");
        assert_eq!(error.to_string(), format!("precision `{}` is available on cpu only", precision.as_str()));
        assert_eq!(error.help().expect("a hint").to_string(), "use exact or fast on candle-cpu");
    }
}

#[test]
fn a_model_with_recurrent_layers_is_refused_on_a_device_by_name() {
    for (name, layers) in [
        ("qwen3_next", "gated delta nets"),
        ("qwen3_5", "gated delta nets"),
        ("gguf-qwen35/model.gguf", "gated delta nets"),
        ("lfm2", "gated convolutions"),
    ] {
        let options = LoadOptions { devices: DeviceChoice::CandleCpu.into(), ..LoadOptions::default() };
        let error = load(golden(name).to_str().expect("UTF-8 path"), options).err().expect("refused");
        assert_eq!(error.to_string(), format!("{layers} are not computed on candle-cpu"), "{name}");
        assert_eq!(error.help().expect("a hint").to_string(), "use --device cpu", "{name}");
    }
}

#[test]
#[cfg(not(any(feature = "cuda", feature = "metal")))]
fn a_device_that_the_build_lacks_is_refused_with_the_way_to_it() {
    for (device, feature) in [(DeviceChoice::Cuda(1), "cuda"), (DeviceChoice::Metal, "metal")] {
        let options = LoadOptions { devices: device.into(), ..LoadOptions::default() };
        let path = golden("llama");
        let error = load(path.to_str().expect("UTF-8 path"), options).err().expect("refused");
        assert_eq!(error.to_string(), format!("this build cannot compute on {device}"));
        let hint = error.help().expect("a hint").to_string();
        assert!(hint.starts_with(&format!("cargo install --locked --path . --features {feature}, ")), "{hint}");
    }
}

fn copies(count: usize) -> DeviceList {
    vec!["candle-cpu"; count].join(",").parse().expect("devices")
}

#[test]
fn several_devices_answer_as_one_does() {
    for name in ["llama", "qwen3", "gemma2", "tiny-flan-t5", "tiny-gguf/model.gguf"].map(golden) {
        let name = name.to_str().expect("UTF-8 path");
        let expected = logprobs(&on(DeviceChoice::CandleCpu, name));
        // In one window, and in windows of few requests.
        for (count, window_tokens) in [(2, 2 << 20), (3, 200), (5, 1)] {
            let options =
                LoadOptions { devices: copies(count), window_tokens, threads: Some(2), ..LoadOptions::default() };
            let model = load(name, options).expect("loads");
            assert_eq!(model.description().device, vec!["candle-cpu"; count].join(","));
            assert_eq!(model.options().threads, Some(count.max(2)));
            let got = logprobs(&model);
            let largest = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!("{name} on {count}: largest difference {largest:e}");
            assert!(got.len() == expected.len() && largest <= 1e-5, "{name} on {count} differs by {largest}");
            assert!(model.progress().computed() > 0 && model.progress().left(0) == 0, "one progress for all devices");
        }
    }
}

#[test]
fn several_devices_write_the_texts_of_one_and_keep_prefixes() {
    let path = golden("llama");
    let text = |index: usize| GenerateRequest::greedy(index.to_string(), Prompt::Tokens(vec![1, 5 + index as u32]), 9);
    let requests: Vec<GenerateRequest> = (0..7).map(text).collect();
    let texts = |options| {
        let model = load(path.to_str().expect("UTF-8 path"), options).expect("loads");
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut ids = vec![Vec::new(); requests.len()];
            let take = &mut |index: usize, result: probity_lm::GenerateResult| {
                ids[index] = result.token_ids;
                Ok(())
            };
            model.generate(&mut requests.iter().cloned(), take).expect("generates");
            all.push(ids);
        }
        all
    };
    let one = LoadOptions { devices: copies(1), ..LoadOptions::default() };
    let kept_prefixes = probity_runtime::KeptPrefixBytes::Third;
    let expected = texts(one);
    assert!(expected[0].iter().all(|ids| !ids.is_empty()));
    assert_eq!(texts(LoadOptions { devices: copies(2), ..one }), expected);
    assert_eq!(texts(LoadOptions { devices: copies(3), kept_prefixes, ..one }), expected);
}

#[test]
fn a_plan_for_several_devices_counts_what_they_compute() {
    let path = golden("llama");
    for count in [1, 2, 4] {
        let options = LoadOptions { devices: copies(count), ..LoadOptions::default() };
        let model = load(path.to_str().expect("UTF-8 path"), options).expect("loads");
        let requests = work_list(false);
        let dry = DryModel::count(&model);
        dry.score(&mut requests.iter().cloned(), &mut |_, _| Ok(())).expect("plans");
        let plan = dry.into_cost();
        let usage = model.score(&mut requests.iter().cloned(), &mut |_, _| Ok(())).expect("scores");
        assert_eq!((plan.questions, plan.usage.tokens_computed), (12, usage.tokens_computed), "{count}");
        assert_eq!(plan.usage.tokens_unshared, usage.tokens_unshared, "{count}");
        assert!(model.estimate(&plan).expect("measured").seconds > 0.0);
    }
}

#[test]
fn an_encoder_computes_on_the_first_of_several_devices() {
    let path = golden("tiny-masked");
    let located = locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
    let model = TextModel::load(&located, LoadOptions { devices: copies(2), ..LoadOptions::default() }).expect("loads");
    assert_eq!(TextEncoder::config(&model).description.device, "candle-cpu");
}

#[test]
fn devices_that_cannot_share_the_work_are_refused_before_anything_is_loaded() {
    let located = || locate(golden("llama").to_str().expect("UTF-8 path")).expect("a model lies there");
    for (devices, error, hint) in [
        (
            "cpu,cpu",
            "cpu is listed twice",
            "use --device cpu once; it uses all processors, and --compute threads sets their number",
        ),
        (
            "cpu,candle-cpu", "`cpu,candle-cpu` mixes kinds of devices",
            "list devices of one kind, such as --device cuda:0,cuda:1",
        ),
        ("cuda:0,cuda:0", "cuda:0 is listed twice", "list each device once; cuda:all is every CUDA device"),
    ] {
        let options = LoadOptions { devices: devices.parse().expect("devices"), ..LoadOptions::default() };
        let refused = DryModel::check(&Checkpoint::open(&located()).expect("opens"), options).err().expect("refused");
        assert_eq!((refused.to_string().as_str(), refused.help().expect("a hint").to_string().as_str()), (error, hint));
        assert_eq!(
            load(golden("llama").to_str().expect("UTF-8 path"), options).err().expect("refused").to_string(),
            error
        );
    }
}
