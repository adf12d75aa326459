//! A `config.json` with arbitrary bytes, or with changed fields of a real architecture, is read or rejected. If it is
//! read, the tiny model of that architecture loads or is rejected.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_fuzz::{Input, Word, show};
use probity_models::{
    Arithmetic, ModelConfig, load_decoder, load_encoder, load_encoder_decoder, read_config, text_part,
};
use probity_runtime::weights::SafetensorsFiles;
use serde_json::{Map, Value, json};

struct Base {
    config: Map<String, Value>,
    weights: SafetensorsFiles,
}

/// Golden models in safetensors that run on our kernels.
static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/models");
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../tests/goldens/roster.json")).expect("rows");
    let ours = |row: &&Value| {
        row["file"].is_null() && ["decoder", "encoder", "encoder-decoder"].iter().any(|kind| row["kind"] == *kind)
    };
    let base = |row: &Value| {
        let folder = models.join(row["name"].as_str().expect("a name"));
        let config = std::fs::read(folder.join("config.json")).expect("a configuration");
        Base {
            config: serde_json::from_slice(&config).expect("a configuration"),
            weights: SafetensorsFiles::open(&folder).expect("weights"),
        }
    };
    rows.iter().filter(ours).map(base).collect()
});

#[derive(Arbitrary)]
struct Edit {
    field: u8,
    /// Use a field of another architecture.
    foreign: bool,
    to: To,
}

#[derive(Arbitrary)]
enum To {
    Nothing,
    Null,
    Flag(bool),
    Small(i8),
    Integer(i64),
    Number(f64),
    Text(Word),
    Twice,
    OneMore,
    Half,
    Negative,
    List(Vec<u8>),
    /// The value of another field.
    Other(u8),
    Rope {
        kind: u8,
        factor: f32,
        low: f32,
        high: f32,
        original: u16,
    },
}

const ROPES: [&str; 6] = ["default", "linear", "dynamic", "llama3", "yarn", "longrope"];

impl Edit {
    fn apply(&self, config: &mut Map<String, Value>, other: &Map<String, Value>) {
        let keys = if self.foreign { other } else { &*config };
        let Some(key) = keys.keys().nth(usize::from(self.field) % keys.len().max(1)).cloned() else { return };
        let old = config.get(&key).and_then(Value::as_f64).unwrap_or(1.0);
        let new = match &self.to {
            To::Nothing => {
                config.remove(&key);
                return;
            }
            To::Null => Value::Null,
            To::Flag(flag) => json!(flag),
            To::Small(number) => json!(number),
            To::Integer(number) => json!(number),
            To::Number(number) => json!(number),
            To::Text(word) => json!(word),
            To::Twice => json!((old * 2.0) as i64),
            To::OneMore => json!((old as i64).saturating_add(1)),
            To::Half => json!((old / 2.0) as i64),
            To::Negative => json!((-old) as i64),
            To::List(list) => json!(list),
            To::Other(field) => {
                config.values().nth(usize::from(*field) % config.len().max(1)).cloned().unwrap_or_default()
            }
            To::Rope { kind, factor, low, high, original } => {
                let kind = ROPES[usize::from(*kind) % ROPES.len()];
                let rope = json!({
                    "rope_type": kind, "factor": factor, "low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original,
                });
                config.insert("rope_scaling".to_owned(), rope);
                return;
            }
        };
        config.insert(key, new);
    }
}

type Edits = (u8, u8, Vec<Edit>);

fuzz_target!(|data: &[u8]| {
    let (config, weights) = match Input::<Edits>::new(data) {
        Some(Input::Text(text)) => match serde_json::from_slice(text) {
            Ok(config) => (config, &BASES[0].weights),
            Err(_) => return,
        },
        Some(Input::Made(made)) => {
            let (base, other, edits) = *made;
            let [base, other] = [base, other].map(|at| &BASES[usize::from(at) % BASES.len()]);
            let mut config = base.config.clone();
            edits.iter().for_each(|edit| edit.apply(&mut config, &other.config));
            (Value::Object(config), &base.weights)
        }
        None => return,
    };
    show(&config);
    let config = match text_part(&config) {
        Ok(Some(text)) => text,
        Ok(None) => config,
        Err(_) => return,
    };
    let Ok(read) = read_config(&config) else { return };
    let _ = (read.vocab_size(), read.context_length(), read.is_spare("lm_head.weight"));
    let _ = match read {
        ModelConfig::Decoder(config) => load_decoder(weights, *config, Arithmetic::Exact).map(drop),
        ModelConfig::EncoderDecoder(config) => load_encoder_decoder(weights, &config, Arithmetic::Exact).map(drop),
        ModelConfig::Encoder(config) => load_encoder(weights, &config, Arithmetic::Exact).map(drop),
        // Only reading the configuration is our code.
        ModelConfig::Bridged(_) => Ok(()),
    };
});
