//! Results of `meta`, and errors of its options.

use std::fs;
use std::path::Path;

use probity_options::read;
use serde_json::{Value, json};

use super::{MetaFindings, MetaInputs, MetaParams};
use crate::error::AnalysisError;
use crate::table::Cell;

/// The findings with additional options.
fn found(folder: &Path, more: &Value) -> Result<MetaFindings, AnalysisError> {
    let mut given = json!({"scores": [folder.join("scores.csv")], "gold": folder.join("gold.csv")});
    given.as_object_mut().expect("one").extend(more.as_object().cloned().unwrap_or_default());
    let params: MetaParams = read(given.as_object().expect("options")).unwrap_or_else(|error| panic!("{error}"));
    MetaInputs::read(&params)?.evaluate(&params, true, &mut || Ok(()))
}

/// The findings for `ter`, `rouge-1` and `rouge-1.recall`, which all rank `a` before `b` as people do. `c` is only in
/// the first item.
fn judged(more: &Value) -> MetaFindings {
    let folder = tempfile::tempdir().expect("temporary folder");
    let rows: Vec<String> = (0..12).map(|k| format!("{k},a,10,0.9,0.9\n{k},b,60,0.{},0.1\n", k % 2 * 9)).collect();
    let scores = format!("item,candidate,ter,rouge-1,rouge-1.recall\n{}0,c,99,0.0,0.0\n", rows.concat());
    let gold: Vec<String> = (0..12).map(|k| format!("{k},a,2\n{k},b,1\n")).collect();
    fs::write(folder.path().join("scores.csv"), scores).expect("written");
    fs::write(folder.path().join("gold.csv"), format!("item,candidate,human\n{}0,c,0\n", gold.concat()))
        .expect("written");
    found(folder.path(), more).expect("compared")
}

#[test]
fn the_verdict_names_what_agrees_best_and_lower_is_better_where_it_is() {
    let summary = judged(&json!({}));
    let [found] = &summary.verdict[..] else { panic!("{:?}", summary.verdict) };
    assert_eq!(found.about.as_deref(), Some("human"));
    assert!(
        found.says.starts_with("Best agreement with people of 2 metrics: ter. Agrees with gold: Spearman 1.000"),
        "its part stands back behind rouge-1: {}",
        found.says
    );
    assert!(found.says.contains("Next: rouge-1 (0.4"), "{}", found.says);
    let metrics = summary.values["metrics"].as_array().expect("a list");
    assert_eq!(metrics[0]["pairwise"]["accuracy"], json!(1.0), "fewer edits, better text");
    assert_eq!(summary.values["lower_is_better"], json!(["ter"]));
    let part = judged(&json!({"metric": ["rouge-1.recall"]}));
    assert_eq!(part.verdict[0].about.as_deref(), Some("human, rouge-1.recall"));
}

/// The findings for a table of scores and one of gold.
fn compared(scores: &str, gold: &str) -> MetaFindings {
    let folder = tempfile::tempdir().expect("temporary folder");
    fs::write(folder.path().join("scores.csv"), scores).expect("written");
    fs::write(folder.path().join("gold.csv"), gold).expect("written");
    found(folder.path(), &json!({})).expect("compared")
}

#[test]
fn a_metric_in_capitals_is_turned_and_told_also_without_a_table_per_context() {
    let summary = compared("item,TER\n1,90\n2,50\n3,10\n", "item,human\n1,1\n2,2\n3,3\n");
    assert!(summary.headline[0].value.is_some_and(|rho| rho > 0.99), "fewer edits, better text");
    assert_eq!(summary.tables[1].title, "Correlation over all scores");
    let is_lower_better = |note: &String| note.starts_with("Lower is better: TER.");
    assert!(summary.tables[0].notes.iter().any(is_lower_better), "{:?}", summary.tables[0].notes);
}

#[test]
fn the_footnote_names_the_kinds_of_intervals_that_are_there() {
    let note = |summary: &MetaFindings| {
        let notes = &summary.tables.last().expect("tables").notes;
        notes.iter().find(|note| note.starts_with("In brackets")).cloned()
    };
    let three = "item,candidate,m\n1,a,1\n1,b,2\n1,c,3\n";
    assert_eq!(note(&compared(three, "item,candidate,human\n1,a,1\n1,b,3\n1,c,2\n")), None, "one context");
    let pairs = |column: &str| {
        let rows: Vec<String> = (0..4).map(|item| format!("{item},a,1\n{item},b,2\n")).collect();
        format!("item,candidate,{column}\n{}", rows.concat())
    };
    let expected = "In brackets: 95% intervals over whole contexts, of means of coefficients that are ±1 or 0 in \
                    each context (or, but for a few, at one end) by Clopper and Pearson.";
    assert_eq!(note(&compared(&pairs("m"), &pairs("human"))).as_deref(), Some(expected));
    let both = note(&judged(&json!({}))).expect("intervals");
    assert!(both.contains("jackknife with Student's t; of means of coefficients"), "{both}");
}

#[test]
fn systems_that_are_left_out_are_counted_for_readers() {
    let summary = judged(&json!({}));
    let counts = summary.tables.iter().find(|table| table.title == "What was compared").expect("there");
    assert_eq!(counts.columns.last().map(String::as_str), Some("systems left out"));
    assert!(counts.rows.iter().all(|row| row.last() == Some(&Cell::Count(1))), "{:?}", counts.rows);
}

#[test]
fn what_is_wrong_names_its_option() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("scores.csv", "item,candidate,m\n1,a,1\n1,b,2\n");
    let option = |more: &Value| found(folder.path(), more).err().expect("refused").option();
    assert_eq!(option(&json!({})), "gold");
    write("gold.csv", "item,candidate,human\n1,a,1\n1,b,3\n");
    assert_eq!(option(&json!({"metric": ["n"]})), "metric");
    assert_eq!(option(&json!({"attribute": ["n"]})), "attribute");
    assert_eq!(option(&json!({"compare": ["m"]})), "compare");
    write("gold.csv", "item,candidate,human\n2,a,1\n");
    assert_eq!(option(&json!({})), "scores");
    // Two scores of one candidate of gold.
    write("gold.csv", "item,human\n1,3\n");
    assert_eq!(option(&json!({})), "scores");
    write("gold.csv", "item,candidate,metric,attribute,score\n1,a,m,q,1\n1,a,n,q,2\n");
    assert_eq!(option(&json!({})), "gold");
}
