//! Results that do not depend on the order of rows.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};

use probity_options::read;

use crate::{AnalysisError, GateOptions, MetaInputs, MetaParams, gate};

/// Rows of a table in random order.
fn shuffled(rows: &[String], seed: u64) -> String {
    let mut rows = rows.to_vec();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for last in (1..rows.len()).rev() {
        rows.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    rows.concat()
}

/// Scores by two metrics, gold for two attributes, and labels, for items with three candidates each.
fn tables(items: usize) -> [Vec<String>; 3] {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut draw = |below: u64| random.next_u64() % below;
    let (mut scores, mut gold, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for item in 0..items {
        for candidate in ["a", "b", "c"] {
            let quality = draw(5);
            for metric in ["m", "n"] {
                let score = (quality + draw(4)) as f64 / 3.0;
                scores.push(
                    json!({"item": item.to_string(), "candidate": candidate, "metric": metric, "score": score})
                        .to_string()
                        + "\n",
                );
            }
            // Half of the items have gold, so that there are guarantees for the rest.
            if item % 2 == 0 {
                gold.push(
                    json!({"item": item.to_string(), "candidate": candidate, "attribute": "x", "score": quality})
                        .to_string()
                        + "\n",
                );
                gold.push(
                    json!({"item": item.to_string(), "candidate": candidate, "attribute": "y", "score": draw(5)})
                        .to_string()
                        + "\n",
                );
            }
        }
        if item % 3 == 1 {
            labels.push(json!({"item": item.to_string(), "attribute": "x", "candidate_i": "a", "candidate_j": "c", "preferred": if draw(2) == 0 { "a" } else { "c" }}).to_string() + "\n");
        }
    }
    [scores, gold, labels]
}

fn evaluated(folder: &Path) -> (Value, String) {
    let given = json!({
        "scores": [folder.join("scores.jsonl")], "gold": folder.join("gold.jsonl"), "labels": [folder.join("labels.jsonl")],
        "compare": ["m,n"], "rounds": 50, "alpha": 0.4,
    });
    let params: MetaParams = read(given.as_object().expect("options")).unwrap_or_else(|error| panic!("{error}"));
    let inputs = MetaInputs::read(&params).unwrap_or_else(|error| panic!("{error}"));
    let mut found =
        inputs.evaluate::<AnalysisError>(&params, true, &mut || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    // Notes contain line numbers.
    found.values["notes"].take();
    (json!({"values": found.values, "verdict": found.verdict}), format!("{:?}", found.to_label))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn meta_says_the_same_in_any_order_of_scores_gold_and_labels(seed in any::<u64>()) {
        let [scores, gold, labels] = tables(24);
        let folder = tempfile::tempdir().expect("temporary folder");
        let write = |seed: Option<u64>| {
            for (place, (name, rows)) in [("scores", &scores), ("gold", &gold), ("labels", &labels)].into_iter().enumerate() {
                let text = seed.map_or_else(|| rows.concat(), |seed| shuffled(rows, seed ^ place as u64));
                fs::write(folder.path().join(format!("{name}.jsonl")), text).expect("written");
            }
        };
        write(None);
        let expected = evaluated(folder.path());
        write(Some(seed));
        prop_assert_eq!(evaluated(folder.path()), expected);
    }

    #[test]
    fn gate_says_the_same_in_any_order_of_both_tables(seed in any::<u64>()) {
        let [scores, ..] = tables(24);
        let folder = tempfile::tempdir().expect("temporary folder");
        let (now, before) = (folder.path().join("now.jsonl"), folder.path().join("before.jsonl"));
        let gated = |seed: Option<u64>| {
            let text = |place: u64| seed.map_or_else(|| scores.concat(), |seed| shuffled(&scores, seed ^ place));
            fs::write(&before, text(0)).expect("written");
            fs::write(&now, text(1).replace(":1.0}", ":0.5}")).expect("written");
            let found = gate(&now, Some(&before), &GateOptions::default()).unwrap_or_else(|error| panic!("{error}"));
            serde_json::to_string(&found).expect("plain values")
        };
        prop_assert_eq!(gated(Some(seed)), gated(None));
    }
}

#[test]
fn a_gate_decides_from_six_items_that_changed() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let outcome = |now: &[f64]| {
        let write = |name: &str, scores: &mut dyn Iterator<Item = f64>| {
            let rows: Vec<String> = scores.enumerate().map(|(item, score)| format!("{item},a,{score}\n")).collect();
            let path = folder.path().join(name);
            fs::write(&path, format!("item,candidate,m\n{}", rows.concat())).expect("written");
            path
        };
        let before = write("before.csv", &mut now.iter().map(|_| 1.0));
        let now = write("now.csv", &mut now.iter().copied());
        gate(&now, Some(&before), &GateOptions::default())
            .unwrap_or_else(|error| panic!("{error}"))
            .attributes
            .remove(0)
    };
    let name = |now: &[f64]| outcome(now).outcome.name();
    let two = outcome(&[0.0; 2]);
    assert_eq!((two.outcome.name(), two.interval, two.items_to_decide), ("undecided", None, Some(6)));
    assert_eq!(
        two.why.as_deref(),
        Some("only 2 items changed, for which a sign test has p 0.500 at best: it can decide from 6 items")
    );
    assert_eq!(name(&[0.0; 5]), "undecided", "p is 0.0625");
    assert_eq!((name(&[0.0; 6]), name(&[2.0; 6])), ("worse", "better"), "p is 0.031");
    assert_eq!((name(&[0.0]), name(&[1.0; 2])), ("undecided", "same"));
    // Unchanged items, and differences that are only nearly equal, give no stronger decision.
    let beside = |same: usize| [vec![0.5; 5], vec![1.0; same]].concat();
    assert_eq!((name(&beside(1)), name(&beside(15)), name(&[0.5, 0.4999])), ("undecided", "undecided", "undecided"));
}
