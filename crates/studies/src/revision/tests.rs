//! Tests of the complete study with scripted models that know the texts' qualities.

use probity_data::{Preference, Sample};
use probity_lm::{GenerateRequest, GenerateResult, ScoreRequest, ScriptedModel};
use serde_json::{Value, json};

use crate::testing::{error_text, generated, qualities, rehearse, rehearse_from, run, run_from, sample};
use crate::{MemoryOutput, MethodError, MethodReport};

/// Twelve pairs from six paragraphs. The better text alternates between first and second; in every sixth pair they are
/// equal.
fn samples() -> Vec<Sample> {
    let made = |number: usize| {
        let pair = match number % 6 {
            0 | 1 => [3.0, 0.0],
            2 => [1.0, 2.0],
            3 => [2.0, 3.0],
            4 => [3.0, 2.0],
            _ => [2.0, 2.0],
        };
        let mut one = sample(&format!("s{number}"), &pair);
        one.instruction = Some("make it better".into());
        one.references = vec!["quality=3 is the quality of the author's own".into()];
        one.texts.insert("paragraph".into(), format!("p{}", number / 2).into());
        let category = ["rewriting_light", "concision", "content_deletion"][number % 3];
        one.texts.insert("categories".into(), category.into());
        for (candidate, quality) in one.candidates.iter_mut().zip(pair) {
            candidate.scores.clear();
            // None, part or all of the instruction.
            candidate.scores.insert("relatedness".into(), quality.min(2.0));
            candidate.scores.insert("acceptable".into(), f64::from(u8::from(quality >= 2.0)));
        }
        one.preference = Some(match pair[0].total_cmp(&pair[1]) {
            std::cmp::Ordering::Equal => Preference::Tie,
            order => Preference::Candidate(one.candidates[usize::from(order.is_lt())].id.clone()),
        });
        one
    };
    (0..12).map(made).collect()
}

/// The qualities of the texts in a prompt; the author's own revision comes first if shown.
fn shown_qualities(request: &probity_lm::Prompt) -> Vec<f64> {
    let all = qualities(request);
    let gold = usize::from(request.text().contains("[Start of Author's Revision]"));
    all[gold..].to_vec()
}

/// Fills in forms from the qualities.
fn fill(request: &GenerateRequest) -> GenerateResult {
    let of = shown_qualities(&request.prompt);
    let related = |quality: f64| ["no", "with more", "strictly"][quality.min(2.0) as usize];
    let acceptable = |quality: f64| if quality >= 2.0 { "yes" } else { "no" };
    let prompt = request.prompt.text();
    let mut answers = if let [a, b] = of[..] {
        let best = if a > b {
            "A"
        } else if b > a {
            "B"
        } else {
            "both"
        };
        let mut all = json!({
            "related_a": related(a), "related_b": related(b),
            "acceptable_a": acceptable(a), "acceptable_b": acceptable(b), "best": best,
        });
        for category in ["rewriting_light", "concision"].iter().filter(|name| prompt.contains(**name)) {
            all[*category] = json!(best);
        }
        all
    } else {
        let grade = of[0] as usize + 1;
        let mut all = json!({ "related": grade, "correct": grade });
        for name in
            ["similar", "rewriting_light", "concision"].iter().filter(|name| prompt.contains(&format!("{name}: ")))
        {
            all[*name] = json!(grade);
        }
        all
    };
    if prompt.contains("context of s11") {
        answers = json!({});
    }
    generated(&answers.to_string())
}

/// Generated labels have 90% probability; for Yes and No the log-ratio equals the quality.
fn probabilities(request: &ScoreRequest) -> Vec<f64> {
    let probity_lm::Ask::Labels(labels) = &request.ask else { panic!("labels") };
    let names: Vec<&str> = labels.labels().iter().map(|label| label.name.as_str()).collect();
    if names == ["Yes", "No"] {
        let quality = qualities(&request.prompt).last().copied().expect("one");
        let yes = 1.0 / (1.0 + (-quality).exp());
        return vec![yes, 1.0 - yes];
    }
    let filled = fill(&GenerateRequest::greedy("x", request.prompt.clone(), 1));
    let answers: Value = serde_json::from_str(&filled.text).expect("JSON");
    let prompt = request.prompt.text();
    // After the colon a string has begun, but a number has not.
    let question =
        prompt.rsplit('"').nth(if prompt.ends_with(':') { 1 } else { 2 }).expect("the name before the colon");
    let said = answers[question].to_string();
    let rest = 0.1 / (names.len() - 1) as f64;
    names.iter().map(|name| if *name == said.trim_matches('"') { 0.9 } else { rest }).collect()
}

fn model() -> ScriptedModel {
    ScriptedModel::from_probabilities(probabilities).with_generation(fill)
}

fn summary(args: &str) -> (MethodReport, MemoryOutput) {
    let (result, output) = run(args, &samples(), &model());
    (result.unwrap_or_else(|error| panic!("{}", error_text(&error))), output)
}

fn alignment<'s>(summary: &'s MethodReport, by: &str) -> &'s Value {
    let all = summary.values["alignment"].as_array().expect("a list");
    all.iter().find(|one| one["by"] == by).unwrap_or_else(|| panic!("{by}"))
}

#[test]
fn who_knows_the_texts_agrees_with_people_in_every_way() {
    let args = "revision --judge choice,choice-gold,likert,likert-gold,parapluie --metric rouge-l,levenshtein-source";
    let (summary, output) = summary(args);
    for by in ["choice", "choice-gold", "choice-labels", "likert", "likert-labels", "parapluie"] {
        let own = alignment(&summary, by);
        assert_eq!(own["as_is"]["accuracy"]["value"], 1.0, "{by}: {own}");
        assert_eq!(own["as_is"]["kappa"]["value"], 1.0, "{by}");
        assert!((own["as_is"]["cramers_v"]["value"].as_f64().expect("some") - 1.0).abs() < 1e-12, "{by}");
    }
    // The form of s11 is not filled in; ParaPLUIE does not depend on it.
    assert_eq!(alignment(&summary, "choice")["as_is"]["pairs"], 11);
    assert_eq!(alignment(&summary, "parapluie")["as_is"]["pairs"], 12);
    assert_eq!(summary.outcomes.get("unparsed"), 2 * 2 + 2 * 2);
    // Relatedness distinguishes only easy pairs; the others are ties.
    let related = alignment(&summary, "choice/related");
    let difficulty = |by: &Value, name: &str| {
        let parts = by["by_difficulty"].as_array().expect("a list");
        let part = parts.iter().find(|part| part["part"] == name).unwrap_or_else(|| panic!("{name}"));
        (part["pairs"].as_u64().expect("a count"), part["accuracy"].as_f64().expect("some"))
    };
    assert_eq!(difficulty(related, "easy"), (4, 1.0));
    assert_eq!(difficulty(related, "hard"), (4, 0.0));
    assert_eq!(difficulty(related, "medium").0, 2);
    let categories: Vec<&str> = related["by_category"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|part| part["part"].as_str().expect("a name"))
        .collect();
    assert_eq!(categories, ["concision", "content_deletion", "rewriting_light"]);
    // Answers to single questions agree with the human ones.
    for one in summary.values["answers"].as_array().expect("a list") {
        assert_eq!(one["accuracy"], 1.0, "{one}");
    }
    // 12 pairs in both orders, with gold and without; 24 texts.
    let sizes = ["choice", "likert", "parapluie", "decisions"].map(|table| output.rows(table).len());
    assert_eq!(&sizes[..3], [48, 48, 24]);
    assert_eq!(output.rows("choice_labels").len(), 2 * 2 * (11 * 5 + 4 + 4), "a category's question in two of three");
    let row = output.rows("parapluie")[0];
    assert!((row["log_ratio"].as_f64().expect("some") - 3.0).abs() < 1e-9, "{row}");
    // The system without changes has no edits, and is best for metrics that reward copies.
    let systems = summary.values["systems"].as_array().expect("a list");
    assert_eq!(systems[0]["means"][1], json!(["levenshtein-source", 0.0]));
    assert_eq!(systems[1]["texts"], 12);
    let correlations = &summary.values["correlations"];
    assert_eq!(
        correlations["names"].as_array().expect("a list").len(),
        correlations["cells"].as_array().expect("a list").len()
    );
    assert!((correlations["cells"][0][0].as_f64().expect("some") - 1.0).abs() < 1e-12);
}

#[test]
fn an_order_that_is_liked_is_a_tie_over_both_and_is_told() {
    let first = |_: &GenerateRequest| {
        generated(
            r#"{"related_a": "strictly", "related_b": "strictly", "acceptable_a": "yes", "acceptable_b": "yes", "best": "A"}"#,
        )
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(first);
    let mut all = samples();
    for one in &mut all {
        one.texts.remove("categories");
    }
    let args = "revision --judge choice --no-labels --metric rouge-l";
    let summary = run(args, &all, &model).0.expect("runs");
    assert_eq!(summary.values["turned"], json!([{ "share": 1.0, "pairs": 12 }]));
    assert_eq!(alignment(&summary, "choice")["as_is"]["ties"], 1.0);
    let summary = run(&format!("{args} --one-order"), &all, &model).0.expect("runs");
    assert_eq!(summary.values["turned"], json!([]));
    assert_eq!(alignment(&summary, "choice")["as_is"]["ties"], 0.0);
}

#[test]
fn a_hybrid_is_of_evaluators_that_are_there() {
    let (result, _) = run("revision --hybrid parapluie,nobody --metric rouge-l", &samples(), &model());
    let error = error_text(&result.expect_err("refused"));
    assert!(error.contains("--hybrid nobody") && error.contains("choice-labels/best"), "{error}");
    let (summary, _) = summary("revision --hybrid choice/related,parapluie --metric rouge-l --folds 3");
    let steps = summary.values["hybrid"].as_array().expect("a list");
    assert_eq!(
        (&steps[0]["by"], &steps[0]["asked"], &steps[1]["by"]),
        (&json!("choice/related"), &json!(1.0), &json!("parapluie"))
    );
    assert_eq!(alignment(&summary, "hybrid")["as_is"]["accuracy"]["value"], 1.0);
    // Every pair that the first step does not decide reaches the second.
    let decided = steps[0]["decided"].as_f64().expect("some");
    assert!((steps[1]["asked"].as_f64().expect("some") - (1.0 - decided)).abs() < 1e-12);
}

#[test]
fn default_metrics_and_hybrid_have_the_papers_sari() {
    let (summary, _) = summary("revision --judge parapluie");
    let names: Vec<&str> = summary.values["alignment"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["by"].as_str().expect("a name"))
        .filter(|name| name.starts_with("sari"))
        .collect();
    assert_eq!(names, ["sari-hf"]);
    let steps: Vec<&Value> =
        summary.values["hybrid"].as_array().expect("a list").iter().map(|one| &one["by"]).collect();
    assert_eq!(steps, ["parapluie", "sari-hf", "gleu-napoles"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |args: &str, samples: &[Sample]| error_text(&run(args, samples, &model()).0.expect_err("refused"));
    let mut bare = samples();
    for one in &mut bare {
        one.references.clear();
    }
    assert!(
        refused("revision --judge choice-gold --metric levenshtein-source", &bare).contains("no sample has references")
    );
    assert!(refused("revision --metric sari-easse", &bare).contains("sample `s0` has none"));
    assert!(refused("revision --metric blanc", &samples()).contains("name one with --encoder"));
    assert!(refused("revision --judge choice,choice", &samples()).contains("repeated"));
    assert!(refused("revision --hybrid a,b,c,d,e", &samples()).contains("use at most 4"));
    let single = [sample("a", &[1.0])];
    assert!(refused("revision", &single).contains("no sample has two candidates"));
}

#[test]
fn every_stage_is_rehearsed_and_takes_a_table() {
    let all = samples();
    let args = "revision --judge choice,likert,parapluie --metric rouge-l --one-order";
    assert!(matches!(rehearse(args, &all, &model()), MethodError::Rehearsed));
    let (whole, output) = summary(args);
    for stage in ["choice", "choice_labels", "likert", "likert_labels", "parapluie"] {
        let rows: Vec<Value> = output.rows(stage).into_iter().cloned().collect();
        let again = run_from(args, &all, &model(), stage, &rows).unwrap_or_else(|error| panic!("{stage}: {error}"));
        assert_eq!(again.values["alignment"], whole.values["alignment"], "{stage}");
        // In a dry run stand-ins replace earlier stages, so the table's values of them are unknown.
        let rehearsed = rehearse_from(args, &all, &model(), stage, &rows);
        assert!(matches!(rehearsed, MethodError::Rehearsed), "{stage}: {}", error_text(&rehearsed));
        let mut other = rows.clone();
        other[0]["item"] = json!("zz");
        let error = run_from(args, &all, &model(), stage, &other).expect_err("refused");
        assert!(error.contains("t:1") && error.contains("\"zz\""), "{stage}: {error}");
        let error = run_from(args, &all, &model(), stage, &rows[1..]).expect_err("refused");
        assert!(error.contains("t:1"), "{stage}: {error}");
    }
    // A form that was not filled in has no label queries in a dry run either.
    let mut empty = all.clone();
    empty[0].candidates[1].text = "".into();
    let (result, output_of_empty) = run(args, &empty, &model());
    result.expect("runs");
    for stage in ["choice", "likert"] {
        let rows: Vec<Value> = output_of_empty.rows(stage).into_iter().cloned().collect();
        let rehearsed = rehearse_from(args, &empty, &model(), stage, &rows);
        assert!(matches!(rehearsed, MethodError::Rehearsed), "{stage}: {}", error_text(&rehearsed));
    }
    let form = |answers: Value| {
        let mut rows: Vec<Value> = output.rows("choice").into_iter().cloned().collect();
        rows[0]["answers"] = answers;
        run_from(args, &all, &model(), "choice", &rows).expect_err("refused")
    };
    let error = form(json!({"best": "C"}));
    assert!(error.contains("best (A, B, both, none)"), "{error}");
    assert!(form(Value::Null).contains("`answers` is missing, but `outcome` is `scored`"));
    let mut rows: Vec<Value> = output.rows("choice_labels").into_iter().cloned().collect();
    rows[0]["probabilities"] = json!({"strictly": 0.5, "no": 0.2, "with more": 0.2});
    let error = run_from(args, &all, &model(), "choice_labels", &rows).expect_err("refused");
    assert!(error.contains("sum to 1"), "{error}");
}
