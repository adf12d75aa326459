//! A safetensors file with arbitrary bytes is read or rejected.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use probity_models::{WeightSource as _, experts_apart};
use probity_runtime::weights::{SafetensorsFiles, check_finite};

fuzz_target!(|data: &[u8]| {
    let Ok(files) = SafetensorsFiles::from_bytes(Path::new("fuzzed.safetensors"), data.to_vec()) else { return };
    for name in files.names() {
        if let Ok(tensor) = files.tensor(&name) {
            let _ = check_finite(Path::new("f"), &name, &tensor);
        }
    }
    let apart = experts_apart(&serde_json::json!({ "model_type": "gpt_oss" }), files);
    for name in apart.names() {
        if let Ok(tensor) = apart.tensor(&name) {
            let stored = apart.stored(&name).expect("it was read");
            assert_eq!(stored, (tensor.weight_type, tensor.bytes.len()));
            let _ = check_finite(Path::new("f"), &name, &tensor);
        }
    }
});
