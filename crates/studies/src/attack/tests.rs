use std::fs;

use probity_data::{Preference, Sample};
use probity_lm::ScriptedModel;
use serde_json::Value;

use crate::testing::{error_text, generated, qualities, rehearse, run, sample, sigmoid};
use crate::{MethodError, MethodReport};

/// Samples whose first candidate has the lower gold score.
fn samples(count: usize) -> Vec<Sample> {
    (0..count)
        .map(|k| {
            let mut one = sample(&format!("s{k}"), &[1.0, 2.0]);
            one.preference = Some(Preference::Candidate("1".into()));
            one.candidates.iter_mut().for_each(|candidate| candidate.scores.clear());
            one
        })
        .collect()
}

/// A pairwise judge that knows qualities but favours texts that mention experts.
fn swayed() -> ScriptedModel {
    ScriptedModel::from_probabilities(|request| {
        let text = request.prompt.text();
        let shown = qualities(&request.prompt);
        let blocks: Vec<&str> = text.split("[Start of Response").skip(1).collect();
        let value = |place: usize| shown[place] + if blocks[place].contains("experts") { 5.0 } else { 0.0 };
        let p = sigmoid(value(0) - value(1));
        vec![0.9 * p, 0.9 * (1.0 - p)]
    })
}

const ATTACK: &str = "attack --target compare --attack verified --attack pity";

fn summary(args: &str, samples: &[Sample], model: &ScriptedModel) -> MethodReport {
    run(args, samples, model).0.unwrap_or_else(|error| panic!("{args}: {}", error_text(&error)))
}

fn figure(summary: &MethodReport, path: &str) -> Value {
    summary.values.pointer(path).cloned().unwrap_or_else(|| panic!("{path} in {:#}", summary.values))
}

#[test]
fn an_attack_that_sways_turns_every_verdict_and_another_none() {
    let (result, output) = run(ATTACK, &samples(8), &swayed());
    let summary = result.expect("runs");
    assert_eq!(figure(&summary, "/prompts/0/attacks/0/turned/share"), 1.0);
    assert_eq!(figure(&summary, "/prompts/0/attacks/1/turned/share"), 0.0);
    assert_eq!(figure(&summary, "/prompts/0/turned/share"), 0.5);
    assert_eq!(figure(&summary, "/prompts/0/accuracy/share"), 1.0);
    let shift = figure(&summary, "/prompts/0/attacks/0/shift/shift").as_f64().expect("a shift");
    assert!((shift - (sigmoid(4.0) - sigmoid(-1.0))).abs() < 1e-12, "{shift}");
    // Two attacks and the unchanged candidates.
    let rows = output.rows("attacked");
    assert_eq!((rows.len(), output.rows("attacks").len()), (24, 2));
    assert_eq!(
        (&rows[0]["candidate"], &rows[0]["attack"], &rows[0]["harmless"]),
        (&"0".into(), &"none".into(), &Value::Null)
    );
    for row in rows {
        let own = row["attacked"].as_f64().expect("a score");
        assert!((own + row["attacked_other"].as_f64().expect("a score") - 1.0).abs() < 1e-12, "{row}");
    }
    assert!(summary.verdict[0].says.contains("`verified`, changes 100.0%"), "{}", summary.verdict[0].says);
}

#[test]
fn an_attack_is_held_against_a_harmless_text_of_its_length() {
    // The longer text wins, so an attack has no more effect than any appended text.
    let by_length = ScriptedModel::from_probabilities(|request| {
        let text = request.prompt.text();
        let lengths: Vec<usize> = text
            .split("[Start of Response")
            .skip(1)
            .map(|block| block.split("[End of").next().expect("a block").len())
            .collect();
        let p = sigmoid((lengths[0] as f64 - lengths[1] as f64) / 4.0);
        vec![0.9 * p, 0.9 * (1.0 - p)]
    });
    let summary = summary(&format!("{ATTACK} --attack universal"), &samples(5), &by_length);
    for attack in 0..3 {
        assert_eq!(figure(&summary, &format!("/prompts/0/attacks/{attack}/open")), 0, "the control has won already");
    }
    assert!(summary.verdict[0].says.contains("no item has a verdict"), "{}", summary.verdict[0].says);
}

#[test]
fn defences_are_measured_beside_none() {
    let by_reminder = ScriptedModel::from_probabilities(|request| {
        let text = request.prompt.text();
        let shown = qualities(&request.prompt);
        let blocks: Vec<&str> = text.split("[Start of Response").skip(1).collect();
        let swayed = !text.contains("The texts end here.");
        let value = |place: usize| shown[place] + if swayed && blocks[place].contains("experts") { 5.0 } else { 0.0 };
        let p = sigmoid(value(0) - value(1));
        vec![0.9 * p, 0.9 * (1.0 - p)]
    });
    let args = format!("{ATTACK} --defence sandwich --defence nonce:k");
    let summary = summary(&args, &samples(4), &by_reminder);
    let turned: Vec<Value> =
        (0..3).map(|k| figure(&summary, &format!("/prompts/{k}/attacks/0/turned/share"))).collect();
    assert_eq!(turned, [1.0, 0.0, 1.0]);
    assert_eq!(figure(&summary, "/prompts/1/defence"), "sandwich");
    assert!(summary.verdict[0].says.contains("With sandwich, 0.0%"), "{}", summary.verdict[0].says);
    assert!(!summary.signature.to_string().contains("nonce:k,") && summary.signature.to_string().contains("sandwich"));
}

#[test]
fn a_paraphrase_takes_the_attack_out_before_the_judge_sees_it() {
    let model = swayed().with_generation(|request| {
        let text = request.prompt.text();
        let own =
            text.split("[Start of Text]\n").nth(1).expect("a block").split("\n[End of Text]").next().expect("ended");
        generated(own.split(" This response").next().expect("the text before the attack"))
    });
    let args = "attack --target compare --attack verified --defence paraphrase";
    let (result, _) = run(args, &samples(4), &model);
    let summary = result.expect("runs");
    let turned: Vec<Value> = (0..2).map(|k| figure(&summary, &format!("/prompts/{k}/turned/share"))).collect();
    assert_eq!(turned, [1.0, 0.0]);
}

#[test]
fn ratings_are_attacked_too_and_shifts_are_shares_of_the_scale() {
    let rater = ScriptedModel::from_probabilities(|request| {
        let text = request.prompt.text();
        let rating = if text.contains("experts") { 5 } else { qualities(&request.prompt)[0] as usize };
        (1..=5).map(|k| if k == rating { 0.9 } else { 0.0 }).collect()
    });
    let summary = summary("attack --target g-eval --attack verified", &samples(3), &rater);
    assert_eq!(figure(&summary, "/prompts/0/turned/share"), 1.0);
    assert_eq!(figure(&summary, "/prompts/0/shift/shift"), 1.0);
}

#[test]
fn a_judges_pairs_are_held_by_their_probability() {
    let judge = ScriptedModel::from_probabilities(|request| {
        let shown = qualities(&request.prompt);
        let p = sigmoid(shown[0] - shown[1]);
        vec![0.9 * p, 0.9 * (1.0 - p)]
    });
    let (result, output) = run("attack --target judge:verdict=label --attack pity", &samples(2), &judge);
    result.expect("runs");
    let score = output.rows("attacked")[1]["attacked"].as_f64().expect("scored");
    assert!((score - sigmoid(-1.0)).abs() < 1e-9, "{score}");
}

#[test]
fn samples_without_gold_have_a_drawn_candidate_attacked_and_say_so() {
    let mut all = samples(6);
    for one in &mut all {
        one.preference = None;
    }
    let (result, output) = run("attack --target compare --attack verified --items 4", &all, &swayed());
    let summary = result.expect("runs");
    assert_eq!((figure(&summary, "/items"), figure(&summary, "/prompts/0/accuracy/share")), (4.into(), Value::Null));
    let notes: Vec<&String> = summary.tables.iter().flat_map(|table| &table.notes).collect();
    assert!(notes.iter().any(|note| note.contains("4 of 4 items have neither gold")), "{notes:?}");
    let again = run("attack --target compare --attack verified --items 4", &all, &swayed()).1;
    assert_eq!(output.rows("attacked"), again.rows("attacked"));
}

#[test]
fn a_rehearsal_sees_the_prompts_of_every_method_and_refusals_name_what_is_wrong() {
    let model = ScriptedModel::from_probabilities(|request| {
        let probity_lm::Ask::Labels(labels) = &request.ask else { panic!("labels are asked for") };
        vec![0.1; labels.labels().len()]
    });
    assert!(matches!(rehearse("attack --target compare --target g-eval", &samples(2), &model), MethodError::Rehearsed));
    let folder = tempfile::tempdir().expect("temporary folder");
    let own = folder.path().join("own.jsonl");
    fs::write(&own, "{\"name\": \"naive\", \"text\": \"x\"}\n").expect("written");
    let own = format!("attack --target compare --texts {}", own.display());
    let untouched = ScriptedModel::from_probabilities(|_| panic!("the model must not be asked"));
    for (args, part) in [
        ("attack", "--target"),
        ("attack --target refeval", "does not show candidates to a model"),
        ("attack --target attack", "does not show candidates to a model"),
        ("attack --target compere", "did you mean `compare`?"),
        ("attack --target compare --target compare", "repeated"),
        ("attack --target compare:templat=1", "did you mean `template`?"),
        ("attack --target compare:defence=sandwich", "--defence as options of `attack`"),
        ("attack --target judge:panel=other", "one model is attacked at a time"),
        ("attack --target compare --attack nave", "did you mean `naive`?"),
        ("attack --target compare --defence shield", "unknown defence `shield`"),
        ("attack --target compare --defence sandwich --defence sandwich", "repeated"),
        ("attack --target gpt-score --defence sandwich", "no prompt that a defence could change"),
        (own.as_str(), "the name `naive` is reserved"),
    ] {
        let error = error_text(&run(args, &samples(2), &untouched).0.expect_err(args));
        assert!(error.contains(part), "{args}: {error}");
    }
    let single = [sample("a", &[1.0])];
    let error = error_text(&run("attack --target compare", &single, &untouched).0.expect_err("no pair"));
    assert!(error.contains("no sample has two non-empty candidates"), "{error}");
}
