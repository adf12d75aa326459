//! Missing scores, unreliable judges, and the ends of the scale.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{GateOptions, GateOutcome, Gated, gate};
use crate::AnalysisError;

fn write(folder: &Path, name: &str, rows: &[Value]) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    path
}

/// A table with one score for each of eight items, for each of these metrics.
fn table(folder: &Path, name: &str, metrics: &[&str], score: Option<f64>) -> PathBuf {
    let row = |item: usize, metric: &str| {
        let score = score.map(|score| score + (item % 3) as f64);
        json!({"item": format!("i{item}"), "candidate": "c", "metric": metric, "score": score})
    };
    let rows: Vec<Value> = (0..8).flat_map(|item| metrics.iter().map(move |metric| row(item, metric))).collect();
    write(folder, name, &rows)
}

#[test]
fn a_run_without_any_score_says_how_many_items_had_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = table(folder.path(), "before.jsonl", &["q"], Some(1.0));
    let now = table(folder.path(), "now.jsonl", &["q"], None);
    let error = gate(&now, Some(&before), &GateOptions::default()).expect_err("no score");
    assert!(matches!(error, AnalysisError::NoScoreNow { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.ends_with("now.jsonl has a score now; 8 items of its baseline have one"), "{told}");
    let other = table(folder.path(), "other.jsonl", &["r"], Some(1.0));
    let error = gate(&other, Some(&before), &GateOptions::default()).expect_err("another metric");
    assert!(matches!(error, AnalysisError::NothingPaired { .. }), "{error:?}");
}

#[test]
fn a_metric_that_is_gone_is_missing_and_no_number_of_items_decides_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = table(folder.path(), "before.jsonl", &["q", "r"], Some(1.0));
    let now = table(folder.path(), "now.jsonl", &["q"], Some(1.0));
    let of_r = |missing: bool| {
        let options = GateOptions { missing, ..GateOptions::default() };
        let Gated { attributes, .. } = gate(&now, Some(&before), &options).expect("one is there");
        attributes.into_iter().find(|one| one.name == "r").expect("it is reported")
    };
    let gone = of_r(false);
    assert_eq!((gone.outcome, gone.items, gone.items_to_decide), (GateOutcome::Missing, 0, None));
    let allowed = of_r(true);
    assert_eq!((allowed.outcome, allowed.items_to_decide), (GateOutcome::Undecided, None));
    assert_eq!(allowed.why.as_deref(), Some("no item has a score on both sides"));
}

/// A folder of comparisons in which `new` beats `old` if `wins` is true for the item.
fn compared(folder: &Path, items: usize, wins: impl Fn(usize) -> bool) {
    let row = |item: usize| {
        let p = if wins(item) { 1.0 } else { 0.0 };
        json!({"item": format!("i{item}"), "candidate_i": "new", "candidate_j": "old", "p": p})
    };
    write(folder, "comparisons.jsonl", &(0..items).map(row).collect::<Vec<_>>());
}

fn by_candidates(run: &Path) -> Gated {
    let candidates = Some(("new".to_owned(), "old".to_owned()));
    gate(run, None, &GateOptions { candidates, ..GateOptions::default() }).expect("compared")
}

#[test]
fn an_interval_of_shares_ends_where_the_scale_does() {
    let folder = tempfile::tempdir().expect("a folder");
    compared(folder.path(), 10, |item| item > 1);
    let interval = by_candidates(folder.path()).attributes[0].interval.expect("an interval");
    assert!((interval.high - 1.0).abs() < f64::EPSILON, "{interval:?}");
}

#[test]
fn a_run_that_calls_its_judge_unreliable_is_said_to_be_so() {
    let folder = tempfile::tempdir().expect("a folder");
    compared(folder.path(), 10, |item| item % 2 == 0);
    assert!(!by_candidates(folder.path()).unreliable, "nothing is known of it");
    let manifest = json!({
        "probity_run": 1, "status": "finished", "started": "2026-01-01T00:00:00Z", "command": "compare",
        "arguments_given": [], "arguments_in_force": {}, "versions": {}, "seeds": {},
        "model": null, "machine": {"os": "linux", "arch": "x86_64", "cpus": 2}, "files": [], "contents": {},
    });
    write(folder.path(), "manifest.json", &[manifest]);
    for (trust, unreliable) in [("unreliable", true), ("fair", false)] {
        let summary = json!({"verdict": [{"about": null, "trust": trust, "because": "it answers with a place"}]});
        write(folder.path(), "summary.json", &[summary]);
        let gated = by_candidates(folder.path());
        assert_eq!((gated.unreliable, gated.caveats.len()), (unreliable, usize::from(unreliable)), "{trust}");
    }
}
