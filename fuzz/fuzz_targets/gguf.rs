//! A GGUF file with arbitrary bytes is read or rejected: header, tensors, configuration, tokenizer.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use probity_models::WeightSource as _;
use probity_runtime::gguf_config;
use probity_runtime::tokenizer::Tokenizer;
use probity_runtime::weights::{GgufFile, check_finite};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = GgufFile::from_bytes(Path::new("fuzzed.gguf"), data.to_vec()) else { return };
    for name in file.names() {
        if let Ok(tensor) = file.tensor(&name) {
            let _ = check_finite(Path::new("f"), &name, &tensor);
        }
    }
    let _ = gguf_config(&file);
    if let Ok(tokenizer) = Tokenizer::from_gguf(&file) {
        let ids = tokenizer.encode_text("a <|im_end|> b\n\n12").unwrap_or_default();
        assert!(ids.iter().all(|&id| !tokenizer.is_special(id) || tokenizer.unknown() == Some(id)));
        let _ = tokenizer.decode(&ids);
    }
});
