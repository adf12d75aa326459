//! The contract on candle's CPU device against our kernels, end to end.

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use probity_lm::{Ask, GenerateRequest, LabelSet, LanguageModel, Precision, Prompt, ScoreRequest};
use probity_runtime::hub::locate;
use probity_runtime::{DeviceChoice, LoadError, LoadOptions, Model};

/// Largest difference of a log-probability.
const TOLERANCE: f64 = 2e-4;

const TINY: [&str; 26] = [
    "llama", "llama3-rope", "llama-head-dim", "mistral-window", "mistral-yarn", "qwen2", "qwen3", "granite", "olmo2",
    "smollm3", "phi3", "gemma2", "gemma3_text", "ministral", "mixtral", "qwen3_moe", "tiny-gguf/model.gguf",
    "tiny-gguf-mixed/model.gguf", "tiny-gguf-qwen3/model.gguf", "gguf-granite/model.gguf", "gguf-olmo2/model.gguf",
    "gguf-smollm3/model.gguf", "gguf-gemma2/model.gguf", "gguf-gemma3/model.gguf", "gguf-mixtral/model.gguf",
    "gguf-qwen3-moe/model.gguf",
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models").join(name)
}

fn load(model: &str, options: LoadOptions) -> Result<Model, LoadError> {
    Model::load(&locate(model).expect("a model lies there"), options)
}

fn on(device: DeviceChoice, model: &str) -> Model {
    load(model, LoadOptions { device, ..LoadOptions::default() }).expect("loads")
}

/// The golden checkpoints, and `SmolLM2` where it was fetched.
fn models() -> Vec<String> {
    let mut models: Vec<String> =
        TINY.iter().map(|name| golden(name).to_str().expect("UTF-8 path").to_owned()).collect();
    match locate("smollm2-135m-instruct") {
        Ok(_) => models.push("smollm2-135m-instruct".to_owned()),
        Err(error) => println!("skipped: {error}"),
    }
    models
}

fn work_list() -> Vec<ScoreRequest> {
    let context = "The harbour froze in December, and the ferry did not run until the ice broke in March.";
    let texts = ["The ferry stopped for the winter.", "A ferry sank in March.", "Ice is cold."];
    let labels = LabelSet::words(["A", "B"]).expect("valid labels");
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
        }
    }
    requests
}

/// Every log-probability of the work list.
fn logprobs(model: &Model) -> Vec<f64> {
    let results = model.score_all(&work_list()).expect("scores");
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
        let (kernels, candle) = (on(DeviceChoice::Cpu, &name), on(DeviceChoice::CandleCpu, &name));
        assert_eq!(
            (kernels.description().device.as_str(), candle.description().device.as_str()),
            ("cpu", "candle-cpu")
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
        assert_eq!(texts(DeviceChoice::CandleCpu), expected, "{name}");
    }
}

#[test]
fn fast_on_a_device_is_bf16_near_the_exact_scores() {
    let path = golden("tiny-gguf-mixed/model.gguf");
    let name = path.to_str().expect("UTF-8 path");
    let exact = logprobs(&on(DeviceChoice::CandleCpu, name));
    let options = LoadOptions { device: DeviceChoice::CandleCpu, precision: Precision::Fast, ..LoadOptions::default() };
    let fast = logprobs(&load(name, options).expect("loads"));
    let largest = exact.iter().zip(&fast).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    println!("bf16: largest difference {largest:e}");
    assert!(largest > TOLERANCE && largest < 0.5, "differs by {largest}");
}

#[test]
fn a_precision_of_our_kernels_is_refused_elsewhere() {
    let path = golden("llama");
    for precision in [Precision::Dots, Precision::Tiles] {
        let options = LoadOptions { device: DeviceChoice::CandleCpu, precision, ..LoadOptions::default() };
        let error = load(path.to_str().expect("UTF-8 path"), options).err().expect("refused");
        assert_eq!(error.to_string(), format!("precision `{}` exists on cpu alone", precision.as_str()));
        assert_eq!(error.help().expect("a hint").to_string(), "candle-cpu has exact and fast");
    }
}

#[test]
#[cfg(not(any(feature = "cuda", feature = "metal")))]
fn a_device_that_the_build_lacks_is_refused_with_the_way_to_it() {
    for (device, feature) in [(DeviceChoice::Cuda(1), "cuda"), (DeviceChoice::Metal, "metal")] {
        let options = LoadOptions { device, ..LoadOptions::default() };
        let path = golden("llama");
        let error = load(path.to_str().expect("UTF-8 path"), options).err().expect("refused");
        assert_eq!(error.to_string(), format!("this build cannot compute on {device}"));
        assert_eq!(error.help().expect("a hint").to_string(), format!("cargo install --path . --features {feature}"));
    }
}
