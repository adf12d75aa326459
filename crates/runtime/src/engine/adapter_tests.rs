//! Adapters compared with PEFT's merged models.

use std::path::{Path, PathBuf};

use probity_models::{Arithmetic, DeviceChoice, PackedDecoder, PackedSegment};

use super::golden_tests::{Tensors, folder, largest_difference};
use crate::Checkpoint;
use crate::hub::{LocatedModel, ModelOrigin, WeightFormat};

/// Largest logit difference explained by f32 rounding.
const TOLERANCE: f32 = 2e-4;

fn adapter(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/adapters").join(name)
}

fn located(name: &str) -> LocatedModel {
    let file = folder(name).join("model.gguf");
    let (path, format) =
        if file.is_file() { (file, WeightFormat::Gguf) } else { (folder(name), WeightFormat::Safetensors) };
    LocatedModel { name: name.to_owned(), path, format, origin: ModelOrigin::Path, adapter: None }
}

fn open(name: &str, adapter: Option<PathBuf>) -> Checkpoint {
    Checkpoint::open(&located(name).with_adapter(adapter)).expect("they fit")
}

fn load(checkpoint: &Checkpoint) -> Box<dyn PackedDecoder> {
    checkpoint.load(Arithmetic::Exact, DeviceChoice::Cpu).expect("complete")
}

/// Logits of all tokens of a golden file, after its source if it has one.
fn logits(model: &dyn PackedDecoder, golden: &Tensors, has_source: bool) -> Vec<f32> {
    let past = if has_source {
        let source = PackedSegment { past: Vec::new(), tokens: golden.ids("source"), wanted: Vec::new() };
        model.forward(&[source]).expect("runs").spans
    } else {
        Vec::new()
    };
    let tokens = golden.ids("tokens");
    let output = model.forward(&[PackedSegment { past, wanted: (0..tokens.len()).collect(), tokens }]).expect("runs");
    model.logits(&output.hidden).expect("runs").flatten_all().expect("a matrix").to_vec1().expect("floats")
}

#[test]
fn models_with_an_adapter_equal_those_that_peft_merged() {
    for name in ["llama", "tiny-gguf", "tiny-flan-t5"] {
        let golden = Tensors::open(&adapter(name).join("golden.safetensors"));
        let expected = golden.floats("logits");
        let (plain, adapted) = (open(name, None), open(name, Some(adapter(name))));
        let [without, with] =
            [&plain, &adapted].map(|checkpoint| logits(&*load(checkpoint), &golden, checkpoint.encoder.has_source()));
        let largest = largest_difference(&with, &expected);
        println!("{name}: largest difference {largest:e}");
        assert!(largest <= TOLERANCE, "{name} differs by {largest}");
        assert!(largest_difference(&without, &expected) > 0.1, "{name}: the adapter matters");
        assert_eq!(
            adapted.files.len(),
            plain.files.len() + 2,
            "the adapter's files are among those that the fingerprint is of"
        );
    }
}

#[test]
fn layers_that_an_adapter_changes_are_floats_and_others_stay_as_they_are() {
    let adapted = open("tiny-gguf", Some(adapter("tiny-gguf")));
    let types = probity_models::weight_types(&*adapted.source);
    let names: Vec<&str> = types.iter().map(|(weight_type, _)| weight_type.name()).collect();
    assert_eq!(names, ["F32", "Q8_0"]);
    let all: usize =
        adapted.source.names().iter().map(|name| adapted.source.tensor(name).expect("there").bytes.len()).sum();
    assert_eq!(types.iter().map(|(_, bytes)| bytes).sum::<usize>(), all);
}

#[test]
fn an_adapter_of_another_model_is_refused_with_the_tensor_that_does_not_fit() {
    for (model, of, told) in [
        ("llama", "tiny-flan-t5", "the model has no `decoder.block.0.layer.0.SelfAttention.k.weight`"),
        ("qwen2", "llama", "its shape is [4, 128], but the model needs [4, 160]"),
    ] {
        let Err(error) = Checkpoint::open(&located(model).with_adapter(Some(adapter(of)))) else {
            panic!("{of} does not fit {model}")
        };
        assert!(error.to_string().contains(told) && !crate::hint_of(&error).is_empty(), "{told}\n{error}");
    }
}
