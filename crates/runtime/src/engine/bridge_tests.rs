//! Models run by candle-transformers, compared with transformers (`scripts/goldens`) and with themselves under other
//! splits.

use probity_models::{
    Arithmetic, DeviceChoice, DeviceError, ModelConfig, PackedDecoder, PackedSegment, load_bridged, read_config,
};

use super::golden_tests::{TOLERANCE, folder, golden, in_pieces, largest_difference};
use crate::test_roster::{Kind, Suite, golden_names};
use crate::weights::SafetensorsFiles;

fn load(name: &str, device: DeviceChoice, arithmetic: Arithmetic) -> Result<Box<dyn PackedDecoder>, DeviceError> {
    let json = std::fs::read(folder(name).join("config.json")).expect("goldens are part of the repository");
    let json = serde_json::from_slice(&json).expect("valid JSON");
    let ModelConfig::Bridged(config) = read_config(&json).expect("supported") else { panic!("{name} is ours") };
    load_bridged(device, &SafetensorsFiles::open(&folder(name)).expect("valid checkpoint"), &config, arithmetic)
}

#[test]
fn logits_equal_transformers_however_a_text_is_cut() {
    for name in golden_names(Kind::Bridged, Suite::Logits) {
        let model = load(name, DeviceChoice::CandleCpu, Arithmetic::Exact).expect("complete checkpoint");
        let golden = golden(name);
        let all = golden.tokens.len();
        let whole = in_pieces(&*model, &golden.tokens, &[all]);
        let mut largest = largest_difference(whole.iter().flatten(), golden.logits.iter().flatten());
        // Logits only after each span, so that all tokens of a span are computed at once after the previous ones.
        for pieces in [vec![all], vec![30, 1, 17, all - 48], vec![2; all / 2]] {
            let (mut past, mut end) = (Vec::new(), 0);
            for len in pieces {
                let tokens = golden.tokens[end..end + len].to_vec();
                end += len;
                let segment = PackedSegment { past: past.clone(), tokens, wanted: vec![len - 1] };
                let output = model.forward(&[segment]).expect("runs");
                let logits = model.logits(&output.hidden).expect("runs").to_vec2::<f32>().expect("a matrix");
                largest = largest.max(largest_difference(&logits[0], &golden.logits[end - 1]));
                past.extend(output.spans);
            }
        }
        println!("{name}: largest difference {largest:e}");
        assert!(largest <= TOLERANCE, "{name} differs by {largest}");
    }
}

#[test]
fn texts_that_go_on_side_by_side_do_not_mix() {
    let model = load("gemma", DeviceChoice::CandleCpu, Arithmetic::Exact).expect("complete checkpoint");
    let golden = golden("gemma");
    // Both share a prefix; the second continues from the shared span.
    let (shared, rest) = golden.tokens.split_at(40);
    let run = |past: &[_], tokens: &[u32]| {
        let wanted = vec![tokens.len() - 1];
        let output = model.forward(&[PackedSegment { past: past.to_vec(), tokens: tokens.to_vec(), wanted }]);
        let output = output.expect("runs");
        (output.spans, output.hidden.to_vec2::<f32>().expect("a matrix").remove(0))
    };
    let (begun, _) = run(&[], shared);
    let (mut one, mut other) = (begun.clone(), begun.clone());
    let backwards: Vec<u32> = rest.iter().rev().copied().collect();
    let mut last = Vec::new();
    for (a, b) in rest.iter().zip(&backwards) {
        let (span, logits) = run(&one, &[*a]);
        one.extend(span);
        last = logits;
        other.extend(run(&other, &[*b]).0);
    }
    assert!(largest_difference(&last, &golden.logits[95]) <= TOLERANCE);
    let alone = run(&[], &[shared, &backwards[..]].concat()).1;
    let joined = model.join(&other, 95).expect("joins");
    let joined = run(&[joined], &backwards[55..]).1;
    assert!(largest_difference(&joined, &alone) <= TOLERANCE && largest_difference(&alone, &last) > 1.0);
}

#[test]
fn what_they_do_not_run_with_is_refused() {
    let refused = |device, arithmetic| load("gemma", device, arithmetic).err().expect("refused");
    let error = refused(DeviceChoice::Cpu, Arithmetic::Exact);
    assert!(matches!(error, DeviceError::BridgedOnCpu { architecture: "gemma" }), "{error}");
    let error = refused(DeviceChoice::CandleCpu, Arithmetic::Tiles);
    assert!(matches!(error, DeviceError::BridgedPrecision { architecture: "gemma" }), "{error}");
}
