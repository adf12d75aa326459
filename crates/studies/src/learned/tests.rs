use std::path::Path;

use probity_data::{Preference, Sample};
use probity_lm::{LanguageModel, ScriptedModel};
use serde_json::{Value, json};

use super::head_file::LearnedHead;
use crate::testing::{error_text, rehearse, run, run_from, sample};
use crate::{MemoryOutput, MethodError, MethodReport};

/// A model whose states encode the numbers of capitals, digits and vowels.
fn model() -> ScriptedModel {
    ScriptedModel::from_probabilities(|_| panic!("no labels are asked for"))
}

/// Contexts with four candidates of equal length, labelled by their vowels, which only the states encode.
fn samples(contexts: usize) -> Vec<Sample> {
    let of = |context: usize| {
        let qualities: Vec<f64> = (0..4).map(|k| f64::from((context * 3 + k * 5) as u32 % 7)).collect();
        let mut one = sample(&format!("s{context}"), &qualities);
        for (candidate, quality) in one.candidates.iter_mut().zip(&qualities) {
            let vowels = *quality as usize;
            candidate.text = format!("{}{} nd mr", "a".repeat(vowels), "x".repeat(6 - vowels)).into();
        }
        one
    };
    (0..contexts).map(of).collect()
}

fn refused(args: &str, samples: &[Sample]) -> String {
    error_text(&run(args, samples, &model()).0.expect_err("refused"))
}

fn learnt(args: &str, samples: &[Sample]) -> (MethodReport, MemoryOutput) {
    let (result, output) = run(args, samples, &model());
    (result.expect("learns"), output)
}

/// Writes a table like a run folder.
fn write(folder: &Path, output: &MemoryOutput, table: &str) {
    let lines: Vec<String> = output.rows(table).iter().map(std::string::ToString::to_string).collect();
    std::fs::write(folder.join(format!("{table}.jsonl")), lines.join("\n")).expect("writable");
}

const LEARN: &str = "learn --attribute coherence --features likelihood,state";

#[test]
fn what_states_tell_is_learnt_and_scores_texts_that_were_not_seen() {
    let all = samples(30);
    let (summary, output) = learnt(LEARN, &all);
    let found = &summary.first_figures["cross_validation"]["coherence"];
    assert!(found["spearman_per_context"].as_f64().expect("a figure") > 0.95, "{found:#}");
    assert!(found["usable"] == true && found["uses"] == "learnt" && found["labels"] == 120, "{found:#}");
    // Candidates 0 to 3 occur in each context, so they may be systems.
    assert!(found["unseen_systems"]["spearman_per_context"].as_f64().expect("a figure") > 0.9, "{found:#}");
    assert_eq!(output.rows("predictions").len(), 120);
    assert_eq!(summary.verdict[0].trust, crate::Trust::Reliable, "{:?}", summary.verdict);

    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &output, "head");
    let new: Vec<Sample> = samples(40).split_off(30);
    let (result, scored) = run(&format!("learned --head {}", folder.path().display()), &new, &model());
    let summary = result.expect("scores");
    assert!(summary.values["gold"][0]["figures"]["spearman"]["mean"].as_f64().expect("a figure") > 0.95);
    let row = scored.rows("scores")[0];
    assert!(row["item"] == "s30" && row["attribute"] == "coherence" && row["score"].is_f64(), "{row}");
    // Scoring the training samples again is no test.
    let summary = run(&format!("learned --head {}", folder.path().display()), &all, &model()).0.expect("scores");
    assert_eq!(summary.verdict[0].trust, crate::Trust::Caution);
    assert!(summary.verdict[0].because.contains("no test"), "{:?}", summary.verdict);
}

#[test]
fn where_length_says_as_much_it_is_what_scores() {
    let mut all = samples(30);
    for candidate in all.iter_mut().flat_map(|sample| &mut sample.candidates) {
        let quality = candidate.scores["coherence"] as usize;
        candidate.text = "word ".repeat(quality + 1).into();
    }
    let (summary, output) = learnt("learn --attribute coherence", &all);
    let found = &summary.first_figures["cross_validation"]["coherence"];
    assert!(found["usable"] == false && found["spearman_per_context"].as_f64().expect("a figure") > 0.9, "{found:#}");
    let uses = found["uses"].as_str().expect("a way");
    assert!(["surface", "length"].contains(&uses), "{uses}");
    assert!(summary.verdict[0].says.starts_with("Learning from"), "{:?}", summary.verdict);
    let head = output.rows("head")[0];
    assert!(head["usable"] == false && head["uses"] == uses, "{head}");
    // This head does not query the model.
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &output, "head");
    let summary = run(&format!("learned --head {}", folder.path().display()), &all, &model()).0.expect("scores");
    assert_eq!(summary.cost.requests, 0);
    assert!(summary.values["gold"][0]["figures"]["spearman"]["mean"].as_f64().expect("a figure") > 0.9);
}

#[test]
fn preferences_are_learnt_and_scores_differ_by_log_odds() {
    let mut all = samples(30);
    for sample in &mut all {
        let best = |s: &Sample| {
            let order = |a: &&probity_data::Candidate, b: &&probity_data::Candidate| {
                a.scores["coherence"].total_cmp(&b.scores["coherence"])
            };
            s.candidates.iter().max_by(order).expect("some").id.clone()
        };
        sample.preference = Some(Preference::Candidate(best(sample)));
        sample.candidates.iter_mut().for_each(|candidate| candidate.scores.clear());
    }
    let (summary, output) = learnt("learn --features likelihood,state", &all);
    let found = &summary.first_figures["cross_validation"]["preference"];
    assert!(found["accuracy"].as_f64().expect("a figure") > 0.9 && found["labels"] == 90, "{found:#}");
    let row = output.rows("predictions")[0];
    assert!(row["label"] == 1.0 && row["other"].is_string(), "{row}");
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &output, "head");
    let (result, scored) = run(&format!("learned --head {}", folder.path().display()), &all, &model());
    result.expect("scores");
    let scores: Vec<f64> = scored.rows("scores").iter().map(|row| row["score"].as_f64().expect("scored")).collect();
    let right = all.iter().zip(scores.chunks(4)).filter(|(sample, scores)| {
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let place = scores.iter().position(|score| *score == most).expect("some");
        sample.preference == Some(Preference::Candidate(sample.candidates[place].id.clone()))
    });
    let right = right.count();
    assert!(right >= 27, "{right} {scores:?} {}", output.rows("head")[0]);
}

#[test]
fn states_of_comparisons_are_features_of_samples_with_two_candidates() {
    let mut all = samples(30);
    for sample in &mut all {
        sample.candidates.truncate(2);
        let [first, second] = [0, 1].map(|place| sample.candidates[place].scores["coherence"]);
        sample.preference = Some(Preference::Candidate(if first > second { "0" } else { "1" }.to_owned()));
    }
    // The states here are those of the answer, which is always the same.
    let (summary, output) = learnt("learn --features comparison", &all);
    let row = output.rows("features")[0];
    assert!(row["comparison"]["values"].is_string() && row["state"].is_null(), "{row}");
    assert_eq!(summary.first_figures["cross_validation"]["preference"]["ways"][0]["value"], 0.5);
    assert_eq!(summary.cost.requests, 180);
    assert!(refused("learn --features comparison --attribute coherence", &samples(12)).contains("two candidates"));
}

#[test]
fn labels_that_teach_nothing_are_refused_by_name() {
    let all = samples(12);
    let with = |change: &dyn Fn(usize, usize, &mut Sample)| {
        let mut all = all.clone();
        for (item, sample) in all.iter_mut().enumerate() {
            (0..4).for_each(|candidate| change(item, candidate, sample));
        }
        all
    };
    let unlabel = |sample: &mut Sample, candidate: usize| sample.candidates[candidate].scores.clear();
    let one = with(&|item, candidate, sample| {
        if (item, candidate) != (3, 1) {
            unlabel(sample, candidate);
        }
    });
    assert!(refused(LEARN, &one).contains("a single label"), "{}", refused(LEARN, &one));
    let constant = with(&|_, candidate, sample| {
        sample.candidates[candidate].scores.insert("coherence".into(), 3.0);
    });
    assert!(refused(LEARN, &constant).contains("all 48 labels are equal"), "{}", refused(LEARN, &constant));
    let alone = with(&|item, candidate, sample| {
        if item != 2 {
            unlabel(sample, candidate);
        }
    });
    assert!(refused(LEARN, &alone).contains("all labels belong to one context"), "{}", refused(LEARN, &alone));
    let without = refused("learn", &with(&|_, candidate, sample| unlabel(sample, candidate)));
    assert!(without.contains("no sample has a preference"), "{without}");
    assert!(refused("learn --attribute coherance", &all).contains("did you mean `coherence`"));
    assert!(refused("learn --attribute coherence --layer 3", &all).contains("has 3 layers"));
    assert!(refused("learn --attribute coherence --layer 1 --features surface", &all).contains("--layer"));
    assert!(refused("learn --attribute coherence --features state,state", &all).contains("repeated"));
}

#[test]
fn the_learning_curve_is_of_what_is_learnt_from() {
    let all = samples(30);
    let curve = |features: &str| {
        let (summary, _) = learnt(&format!("learn --attribute coherence --curve 40 --features {features}"), &all);
        summary.first_figures["cross_validation"]["coherence"]["curve"][0]["mean"].as_f64().expect("a point")
    };
    // Only the states encode vowels.
    assert!(curve("state") > 0.9 && curve("likelihood") < 0.5, "{} {}", curve("state"), curve("likelihood"));
}

#[test]
fn few_labels_are_told_and_keep_it_from_being_reliable() {
    let (summary, _) = learnt(LEARN, &samples(11));
    assert_eq!(summary.verdict[0].trust, crate::Trust::Caution, "{:?}", summary.verdict);
    assert!(summary.verdict[0].because.contains("fewer than 50 labels"), "{:?}", summary.verdict);
}

#[test]
fn features_that_are_no_numbers_and_states_of_another_layer_are_refused() {
    let all = samples(12);
    let (_, output) = learnt(LEARN, &all);
    let rows = |change: &dyn Fn(&mut Value)| {
        let mut rows: Vec<Value> = output.rows("features").into_iter().cloned().collect();
        change(&mut rows[5]);
        rows
    };
    let given = |rows: &[Value]| run_from(LEARN, &all, &model(), "features", rows);
    let again = given(&rows(&|_| {})).expect("its own table");
    assert_eq!(again.first_figures, learnt(LEARN, &all).0.first_figures);
    let told = given(&rows(&|row| row["likelihood"]["q10"] = Value::Null)).expect_err("not a number");
    assert!(told.contains("likelihood.q10") && told.contains("t:6"), "{told}");
    let told = given(&rows(&|row| row["state"]["layer"] = json!(1))).expect_err("another layer");
    assert!(told.contains("state.layer"), "{told}");
    let told = given(&rows(&|row| row["state"]["values"] = json!("AADAfwAAwH8="))).expect_err("not numbers");
    assert!(told.contains("not finite"), "{told}");
    let told = given(&rows(&|row| row["state"]["values"] = json!("AACAPw=="))).expect_err("too few");
    assert!(told.contains("inconsistent features"), "{told}");
}

#[test]
fn a_head_of_another_model_or_prompt_is_refused() {
    let all = samples(12);
    let (_, output) = learnt(LEARN, &all);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("head.jsonl");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut head = output.rows("head")[0].clone();
        change(&mut head);
        let sealed =
            |head: &Value| json!(serde_json::from_value::<LearnedHead>(head.clone()).expect("a head").sealed());
        std::fs::write(&file, sealed(&head).to_string()).expect("writable");
        refused(&format!("learned --head {}", file.display()), &all)
    };
    assert!(with(&|head| head["model"]["fingerprint"] = json!("1".repeat(64))).contains("learnt with"));
    assert!(with(&|head| head["prompt"]["sha256"] = json!("2".repeat(64))).contains("differs from that of the head"));
    assert!(with(&|head| head["coefficients"] = json!([1.0])).contains("`coefficients` has 1 values"));
    let mut turned = output.rows("head")[0].clone();
    turned["intercept"] = json!(0.5);
    std::fs::write(&file, turned.to_string()).expect("writable");
    assert!(refused(&format!("learned --head {}", file.display()), &all).contains("changed after `learn` wrote it"));
    let own = output.rows("head")[0].to_string();
    std::fs::write(&file, format!("{own}\n{own}")).expect("writable");
    assert!(refused(&format!("learned --head {}", file.display()), &all).contains("duplicate"));
    std::fs::write(&file, own).expect("writable");
    let unknown = refused(&format!("learned --attribute tone --head {}", file.display()), &all);
    assert!(unknown.contains("no head for it") && unknown.contains("coherence"), "{unknown}");
}

#[test]
fn given_scores_are_features_and_what_they_say_of_others_is_told() {
    let all = samples(20);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("scores.jsonl");
    let mut lines: Vec<String> = Vec::new();
    for sample in &all {
        for candidate in &sample.candidates {
            let score = -candidate.scores["coherence"];
            lines.push(
                json!({"item": sample.id, "candidate": candidate.id, "metric": "turned", "score": score}).to_string(),
            );
        }
    }
    lines.push(json!({"item": "nobody", "candidate": "0", "metric": "turned", "score": 1.0}).to_string());
    std::fs::write(&file, lines.join("\n")).expect("writable");
    let args = format!("learn --attribute coherence --features likelihood --scores {}", file.display());
    let (summary, output) = learnt(&args, &all);
    let found = &summary.first_figures["cross_validation"]["coherence"];
    assert!(found["spearman_per_context"].as_f64().expect("a figure") > 0.95, "{found:#}");
    let notes: Vec<&String> = summary.tables.iter().flat_map(|table| &table.notes).collect();
    assert!(notes.iter().any(|note| note.contains("`nobody`")), "{notes:?}");
    assert_eq!(output.rows("head")[0]["blocks"][2]["columns"], json!(["turned"]));
    // The signature contains the scores, and a missing column is named.
    let (other, _) = learnt("learn --attribute coherence --features likelihood", &all);
    assert_ne!(summary.signature.to_string(), other.signature.to_string());
    let head = folder.path().join("head.jsonl");
    std::fs::write(&head, output.rows("head")[0].to_string()).expect("writable");
    let renamed = std::fs::read_to_string(&file).expect("there").replace("turned", "other");
    std::fs::write(&file, renamed).expect("writable");
    let told = refused(&format!("learned --head {} --scores {}", head.display(), file.display()), &all);
    assert!(told.contains("`turned`") && told.contains("--scores"), "{told}");
}

#[test]
fn a_rehearsal_asks_and_ends_before_it_learns() {
    assert!(matches!(rehearse(LEARN, &samples(12), &model()), MethodError::Rehearsed));
    assert_eq!(model().description().layers, Some(3));
}

#[test]
fn samples_about_the_same_text_are_one_context_whatever_their_ids_are() {
    // Each candidate is a separate sample; the label depends on the context alone.
    let mut all = Vec::new();
    for context in 0..20_usize {
        for part in 0..6_usize {
            let mut one = sample(&format!("s{context}/{part}"), &[f64::from((context * 7 % 5) as u32)]);
            one.context = format!("the context {context}").into();
            one.candidates[0].scores.insert("coherence".into(), f64::from((context * 7 % 5) as u32));
            one.candidates[0].text = format!("{} of {context}", "word ".repeat(part + 1)).into();
            all.push(one);
        }
    }
    let told = refused(LEARN, &all);
    assert!(told.contains("the labels of each context are all equal"), "{told}");
    for (place, sample) in all.iter_mut().enumerate() {
        let quality = f64::from((place % 6) as u32) + sample.candidates[0].scores["coherence"];
        sample.candidates[0].scores.insert("coherence".into(), quality);
    }
    let (summary, output) = learnt(LEARN, &all);
    let found = &summary.first_figures["cross_validation"]["coherence"];
    assert!(found["contexts"] == 20 && found["spearman_per_context"].is_number(), "{found:#}");
    let folds: Vec<&Value> = output.rows("predictions").iter().map(|row| &row["fold"]).collect();
    assert!(folds.chunks(6).all(|of_context| of_context.iter().all(|fold| *fold == of_context[0])), "{folds:?}");
    // The order of the file has no effect.
    all.reverse();
    let (turned, _) = learnt(LEARN, &all);
    let again = &turned.first_figures["cross_validation"]["coherence"]["spearman_per_context"];
    let difference = again.as_f64().expect("a figure") - found["spearman_per_context"].as_f64().expect("a figure");
    assert!(difference.abs() < 1e-9, "{difference}");
}

#[test]
fn numbers_that_nothing_comes_to_are_refused() {
    let mut all = samples(12);
    all[3].candidates[1].scores.insert("coherence".into(), 1e308);
    assert!(refused(LEARN, &all).contains("beyond"), "{}", refused(LEARN, &all));
    let all = samples(12);
    let (_, output) = learnt(LEARN, &all);
    let mut rows: Vec<Value> = output.rows("features").into_iter().cloned().collect();
    rows[5]["likelihood"]["mean"] = json!(-1e308);
    let told = run_from(LEARN, &all, &model(), "features", &rows).expect_err("too large");
    assert!(told.contains("beyond"), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("head.jsonl");
    for (field, value) in [("coefficients", json!(1e308)), ("ends", json!([1.0, -1.0]))] {
        let mut head = output.rows("head")[0].clone();
        head[field][0] = value;
        std::fs::write(&file, head.to_string()).expect("writable");
        let told = refused(&format!("learned --head {}", file.display()), &all);
        assert!(told.contains("impossible number"), "{told}");
    }
}

#[test]
fn labels_that_teach_nothing_are_told_before_anything_is_asked() {
    let silent = ScriptedModel::from_probabilities(|_| panic!("nothing is asked"));
    let alone = |args: &str, all: &[Sample]| error_text(&run(args, all, &silent).0.expect_err("refused"));
    assert!(alone("learn", &samples(12)).contains("no sample has a preference"));
    assert!(alone(LEARN, &samples(1)).contains("one context"));
    let mut constant = samples(12);
    let candidates = constant.iter_mut().flat_map(|sample| &mut sample.candidates);
    candidates.for_each(|candidate| _ = candidate.scores.insert("coherence".into(), 3.0));
    assert!(alone(LEARN, &constant).contains("equal"));
}

#[test]
fn a_head_that_is_as_good_as_ties_allow_in_every_context_is_kept() {
    let mut all = samples(30);
    for sample in &mut all {
        let mut qualities: Vec<f64> = sample.candidates.iter().map(|one| one.scores["coherence"]).collect();
        qualities.sort_by(f64::total_cmp);
        for candidate in &mut sample.candidates {
            let is_good = f64::from(candidate.scores["coherence"] > qualities[1]);
            candidate.scores.insert("coherence".into(), is_good);
        }
    }
    let (summary, _) = learnt("learn --attribute coherence --features state", &all);
    let found = &summary.first_figures["cross_validation"]["coherence"];
    let best = |name: &str| found[name].as_f64();
    assert!(found["interval"].is_null() && best("spearman_per_context").expect("a figure") > 0.7, "{found:#}");
    assert_eq!((&found["usable"], summary.verdict[0].trust), (&json!(true), crate::Trust::Reliable), "{found:#}");
}

#[test]
fn of_noise_with_one_candidate_to_a_context_nothing_is_found_either_way() {
    // The different levels of two folds' heads would look like negative agreement.
    let mut sum = 0.0;
    for draw in 0..12_u64 {
        let mut all = Vec::new();
        for context in 0..40_u64 {
            let noise = |salt: u64| (context * 7919 + draw * 104_729 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let mut one = sample(&format!("s{context}"), &[noise(1) as f64]);
            one.context = format!("context {context}").into();
            one.candidates[0].text = "word ".repeat(1 + noise(2) as usize % 9).into();
            one.candidates[0].scores.insert("coherence".into(), noise(3) as f64);
            all.push(one);
        }
        let (summary, _) = learnt("learn --attribute coherence --features surface", &all);
        let ways = summary.first_figures["cross_validation"]["coherence"]["ways"].clone();
        let length = ways.as_array().expect("ways").iter().find(|way| way["kind"] == "length").expect("length alone");
        sum += length["value"].as_f64().expect("a figure");
    }
    assert!((sum / 12.0).abs() < 0.2, "{}", sum / 12.0);
}
