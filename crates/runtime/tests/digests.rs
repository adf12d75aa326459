//! Checks bit-identical results across machines: digests of the numbers for a fixed list of requests, stored in a file
//! that all processors are compared with.
//!
//! The models are all decoders of the roster in safetensors, and further keys of the file. `PROBITY_DIGESTS=write` adds
//! those of a new model. It rewrites the file, with the plain instruction set only, also after an intended change of
//! results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use probity_lm::Precision;
use probity_runtime::hub::locate;
use probity_runtime::{BitProbe, Isa, LoadOptions, Model, ProbeOrder, bit_digest};

use crate::roster::{Kind, Suite, golden_names};

#[path = "../../../tests/roster/mod.rs"]
mod roster;

/// It has weights of every type but MXFP4.
const ON_ALL: &str = "tiny-gguf-mixed/model.gguf";
/// A trained model, if downloaded: a GGUF file with many numbers.
const TRAINED: &str = "smollm2-135m-instruct";

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens")
}

/// The digest of a model's numbers, or why it has none.
fn digest(model: &str, precision: Precision, isa: Isa) -> String {
    let options = LoadOptions { precision, isa: Some(isa), ..LoadOptions::default() };
    let model = Model::load(&locate(model).expect("a model lies there"), options).expect("loads");
    let mut probe = BitProbe::built_in(&model);
    probe.retain_valid(&model);
    assert!(probe.len() > 3, "something is asked");
    let (numbers, _) = probe.numbers(&model, ProbeOrder::AsGiven, &|| Ok(())).expect("answers");
    bit_digest(&numbers)
}

#[test]
fn numbers_have_the_same_bits_on_every_machine() {
    let file = goldens().join("digests.json");
    let write = std::env::var_os("PROBITY_DIGESTS").is_some_and(|value| value == "write");
    let kept = fs::read_to_string(&file).expect("the file is there");
    let mut digests: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&kept).expect("digests");
    assert!(digests.contains_key(ON_ALL) && digests.contains_key(TRAINED));
    let isas: Vec<Isa> =
        Isa::ALL.into_iter().filter(|isa| isa.is_available() && (!write || *isa == Isa::Plain)).collect();
    println!("instruction sets: {}", isas.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", "));
    let decoders = golden_names(Kind::Decoder, Suite::Logits).map(str::to_owned);
    let models: BTreeSet<String> = digests.keys().cloned().chain(decoders).collect();
    for name in models {
        let path =
            if name == TRAINED { name.clone() } else { goldens().join("models").join(&name).display().to_string() };
        if let Err(error) = locate(&path) {
            assert_eq!(name, TRAINED, "{error}");
            println!("skipped: {error}");
            continue;
        }
        for precision in [Precision::Exact, Precision::Dots, Precision::Tiles] {
            // 32-bit weights are exact with it.
            if precision == Precision::Dots && !(name.contains("gguf") || name == TRAINED) {
                continue;
            }
            // One model runs on all of them. The kernels' own tests find differences between instruction sets sooner.
            for isa in isas.iter().copied().filter(|isa| write || name == ON_ALL || *isa == Isa::best()) {
                let got = digest(&path, precision, isa);
                if write {
                    digests.entry(name.clone()).or_default().insert(precision.as_str().to_owned(), got);
                } else {
                    let expected = digests.get(&name).and_then(|of| of.get(precision.as_str()));
                    let place = format!("{name} in {} on {}", precision.as_str(), isa.name());
                    assert!(expected.is_some(), "no digest of {place}; PROBITY_DIGESTS=write adds it");
                    assert_eq!(Some(&got), expected, "{place}");
                }
            }
        }
    }
    if write {
        let mut text = serde_json::to_string_pretty(&digests).expect("JSON");
        text.push('\n');
        fs::write(&file, text).expect("written");
    }
}
