use std::collections::BTreeMap;
use std::path::PathBuf;

use probity_data::{Candidate, Sample};
use probity_lm::ScriptedModel;
use probity_options::GivenOptions;
use serde_json::{Value, json};

use crate::testing::{
    configured, error_text, generated, rehearse, rehearse_from, run, run_from, scored_by, written_by,
};
use crate::{MemoryOutput, MethodError, MethodReport, Run, method};

/// A critique with these claims; claims that contain `good` are true.
fn critique(id: &str, claims: &[&str]) -> Candidate {
    Candidate { id: id.to_owned(), text: claims.join(" | ").into(), scores: BTreeMap::new() }
}

fn sample(id: &str, critiques: Vec<Candidate>, references: &[&str]) -> Sample {
    let texts = [("question", "Why?"), ("answer", "Because."), ("reference_answer", "For a reason.")];
    Sample {
        id: id.to_owned(),
        context: "".into(),
        instruction: None,
        texts: texts.map(|(name, text)| (name.to_owned(), format!("{text} {id}").into())).into(),
        candidates: critiques,
        references: references.iter().map(|text| (*text).into()).collect(),
        preference: None,
    }
}

/// The last block of a prompt with this name.
fn block<'p>(prompt: &'p str, name: &str) -> &'p str {
    let (start, end) = (format!("[Start of {name}]\n"), format!("\n[End of {name}]"));
    let after = prompt.rsplit_once(&start).expect("the block").1;
    after.split_once(&end).expect("its end").0
}

/// Splits critiques at bars. A claim with `good` is true, and a critique makes a claim if it contains its words.
fn judge() -> ScriptedModel {
    let is_true = |prompt: &str| {
        let claim = block(prompt, "Claim").to_owned();
        if prompt.contains("The answer may be wrong in any part") {
            claim.contains("good")
        } else {
            block(prompt, "Critique").contains(&claim)
        }
    };
    ScriptedModel::from_probabilities(move |request| {
        let prompt = request.prompt.text();
        if !prompt.contains("[Start of Claim]") {
            // Refined answers are judged as answers to the question.
            let shows_answers = prompt.contains("Which answer is");
            assert!(!(shows_answers && prompt.contains("Criticise the answer")), "{prompt}");
            // A judge of whole critiques prefers longer ones, on a scale to seven or in a pair.
            return if prompt.contains("[Start of critique]") {
                (1..=7).map(|k| if k == 2 { 0.8 } else { 0.01 }).collect()
            } else {
                vec![0.6, 0.2, 0.1]
            };
        }
        if is_true(&prompt) { vec![0.7, 0.2] } else { vec![0.2, 0.6] }
    })
    .with_generation(move |request| {
        let prompt = request.prompt.text();
        if prompt.contains("You take critiques apart") {
            return generated(&block(&prompt, "Critique").replace(" | ", "\n"));
        }
        if prompt.contains("You check claims") || prompt.contains("You read a critique") {
            let claim = block(&prompt, "Claim");
            return generated(match claim {
                claim if claim.contains("odd") => "Hard to say.",
                _ if is_true(&prompt) => "The claim is false? No: the claim is true.",
                _ => "So the claim is false.",
            });
        }
        if prompt.contains("You criticise answers") {
            return generated("good one | bad two");
        }
        generated("Written.")
    })
}

fn scores(output: &MemoryOutput, candidate: &str) -> Vec<Option<f64>> {
    let rows = output.rows("scores").into_iter().filter(|row| row["candidate"] == candidate);
    rows.map(|row| row["score"].as_f64()).collect()
}

fn rounded(values: &[Option<f64>]) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(|value| (value * 1e4).round() / 1e4)).collect()
}

#[test]
fn claims_become_precision_recall_and_f1() {
    let critiques = vec![critique("a", &["good one", "good three", "bad two"]), critique("b", &["bad four"])];
    let samples = [sample("s", critiques, &["good one | bad two"])];
    let (result, output) = run("metacritique", &samples, &judge());
    let summary = result.expect("runs");
    assert_eq!(rounded(&scores(&output, "a")), [Some(0.6667), Some(1.0), Some(0.8)]);
    assert_eq!(scores(&output, "b"), [Some(0.0), Some(0.0), Some(0.0)]);
    assert_eq!((output.rows("aius").len(), output.rows("precision").len(), output.rows("recall").len()), (6, 4, 4));
    let stages: Vec<&str> = output.stages.iter().map(|stage| stage.name).collect();
    assert_eq!(stages, ["references", "aius", "precision", "recall"]);
    let board = &summary.values["leaderboard"];
    assert_eq!((&board["systems"][0]["system"], &board["systems"][1]["system"]), (&json!("a"), &json!("b")));
    // Of four claims pooled, two are true.
    assert!((board["together"][0]["precision"]["micro"]["share"].as_f64().expect("some") - 0.5).abs() < 1e-12);
    assert!(summary.verdict[0].because.contains("not compared with human labels"), "{:?}", summary.verdict);
}

#[test]
fn a_label_that_cannot_be_read_is_false_or_left_out_and_both_are_told() {
    let samples = [sample("s", vec![critique("a", &["good one", "odd two"])], &["good one"])];
    let (result, output) = run("metacritique --verdict generate", &samples, &judge());
    assert_eq!(result.expect("runs").outcomes.get("unparsed"), 1);
    let row = output.rows("scores")[0];
    assert_eq!((row["score"].as_f64(), row["other_convention"].as_f64()), (Some(0.5), Some(1.0)));
    assert_eq!(row["claims"], json!({"true": 1, "false": 0, "unread": 1}));
    let left_out = run("metacritique --verdict generate --unread left-out", &samples, &judge()).1;
    assert_eq!(left_out.rows("scores")[0]["score"].as_f64(), Some(1.0));
}

#[test]
fn references_that_are_missing_are_written_and_what_has_none_has_no_recall() {
    let mut samples = [sample("s", vec![critique("a", &["good one", "bad two"]), critique("none", &[])], &[])];
    samples[0].texts.remove("reference_answer");
    let (result, output) = run("metacritique", &samples, &judge());
    let summary = result.expect("runs");
    let written: Vec<&Value> = output.rows("references").iter().map(|row| &row["reference"]).collect();
    assert_eq!(written, [&json!("answer"), &json!("critique")]);
    assert_eq!(scores(&output, "a"), [Some(0.5), Some(1.0), Some(2.0 / 3.0)]);
    // A critique without text has no claims and is not shown.
    assert_eq!(scores(&output, "none"), [None, None, None]);
    assert_eq!(summary.values["written_references"], 2);
    assert_eq!(output.rows("precision")[0]["outcome"], "scored");
    let without = run("metacritique --without-reference-answer", &samples, &judge()).1;
    assert_eq!(without.rows("references").len(), 1);
    let silent = judge().with_generation(|_| generated(""));
    let (result, output) = run("metacritique", &samples, &silent);
    assert_eq!(result.expect("runs").outcomes.get("no_reference"), 1);
    assert!(output.rows("recall").is_empty() && scores(&output, "a") == [None, None, None]);
}

#[test]
fn a_reference_critique_is_written_without_the_reference_answer() {
    let samples = [sample("s", vec![critique("a", &["good one"])], &[])];
    let writes = judge();
    let model = judge().with_generation(move |request| {
        let prompt = request.prompt.text();
        if prompt.contains("You criticise answers") {
            assert!(prompt.contains("Because. s") && !prompt.contains("For a reason."), "{prompt}");
        }
        written_by(&writes, request)
    });
    let (result, output) = run("metacritique", &samples, &model);
    result.expect("runs");
    assert_eq!(output.rows("references").len(), 1);
}

#[test]
fn precision_has_the_rule_of_the_paper_alone() {
    let samples = [sample("s", vec![critique("a", &["good one"])], &["good one"])];
    let model = ScriptedModel::from_probabilities(|request| {
        let prompt = request.prompt.text();
        assert!(!prompt.contains("would be better with it") && !prompt.contains("should be added"), "{prompt}");
        vec![0.7, 0.2]
    })
    .with_generation(|_| generated("good one"));
    run("metacritique", &samples, &model).0.expect("runs");
}

#[test]
fn judges_of_whole_texts_take_a_prompt_of_your_own() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let single = file("single.j2", "{# user #}\n[Start of critique]\n{{ candidate }}\n[End of critique]\nMINE");
    let pair = file("pair.j2", "{# user #}\n{{ candidate_a }} or {{ candidate_b }}? MINE");
    let samples = [sample("s", vec![critique("a", &["good one"]), critique("b", &["x"])], &["good one"])];
    let own = format!("--prompt single={single} --prompt pairwise={pair} --prompt refined-pairs={pair}");
    let args = format!("metacritique --baseline single --baseline pairwise --refine {own}");
    let judge = judge();
    let model = ScriptedModel::from_results(move |request| {
        let prompt = request.prompt.text();
        assert!(prompt.contains("[Start of Claim]") || prompt.contains("MINE"), "{prompt}");
        scored_by(&judge, request)
    })
    .with_generation(|request| {
        let prompt = request.prompt.text();
        let is_list = prompt.contains("You take critiques apart");
        generated(if is_list { block(&prompt, "Critique") } else { "Written." })
    });
    let (result, output) = run(&args, &samples, &model);
    result.expect("runs");
    assert_eq!(["single", "pairwise", "refined_pairs"].map(|table| output.rows(table).len()), [2, 2, 6]);
}

#[test]
fn baselines_and_refined_answers_have_their_tables() {
    let critiques = |id: &str| {
        let gold = |value: f64| BTreeMap::from([("f1".to_owned(), value)]);
        let a = Candidate { scores: gold(0.9), ..critique("a", &["good one", "bad two"]) };
        let b = Candidate { scores: gold(0.1), ..critique("b", &["bad two"]) };
        sample(id, vec![a, b], &["good one"])
    };
    let samples = [critiques("s"), critiques("t")];
    let args = "metacritique --baseline single --baseline pairwise --refine";
    let (result, output) = run(args, &samples, &judge());
    let summary = result.expect("runs");
    let sizes = ["single", "pairwise", "refined", "refined_pairs"].map(|table| output.rows(table).len());
    // One pair in both orders; two refined answers against the original and against each other.
    assert_eq!(sizes, [4, 4, 4, 12]);
    let preferences = summary.values["preferences"].as_array().expect("a list");
    let of = |by: &str| preferences.iter().find(|one| one["by"] == by).expect("there")["accuracy"]["share"].as_f64();
    // The judge of pairs prefers the first position, which results in a tie.
    assert_eq!((of("f1"), of("single"), of("pairwise")), (Some(1.0), Some(0.5), Some(0.5)));
    let whole = &summary.values["whole_critiques"][0];
    assert_eq!((&whole["wins"], &whole["level"]), (&json!(0.5), &json!(2)), "{whole}");
    // (2 · 0.8 + (1 + 3 + 4 + 5 + 6 + 7) · 0.01) / 0.86
    assert!((whole["mean_rating"].as_f64().expect("some") - 1.86 / 0.86).abs() < 1e-12, "{whole}");
    assert_eq!(summary.values["refinement"][0]["pairs"], 4);
    assert_eq!(summary.values["gold"][0]["scores"], "f1");
    assert_eq!(output.rows("scores").len(), 16, "three scores and the rating of each");
}

#[test]
fn every_stage_is_rehearsed_and_takes_a_table() {
    let samples = [sample("s", vec![critique("a", &["good one"]), critique("b", &["x"])], &[])];
    let all = "metacritique --baseline single --baseline pairwise --refine";
    assert!(matches!(rehearse(all, &samples, &judge()), MethodError::Rehearsed));
    let aiu = |of: &Value, text: &str| {
        let mut row = of.clone();
        row["aiu"] = json!(text);
        row
    };
    let (a, b) = (
        json!({"item": "s", "of": "critique", "candidate": "a"}),
        json!({"item": "s", "of": "critique", "candidate": "b"}),
    );
    let reference = json!({"item": "s", "of": "reference"});
    let rows = [aiu(&a, "good one"), aiu(&a, "bad"), aiu(&b, "good"), aiu(&reference, "good one")];
    let summary = run_from("metacritique", &samples, &judge(), "aius", &rows).expect("runs");
    assert_eq!(summary.values["leaderboard"]["together"][0]["claims"]["precision"]["true"], 2);
    for (rows, part) in [
        (&rows[..2], r#"t:2: a row is missing before this line: {"item":"s","of":"critique","candidate":"b"}"#),
        (
            &[rows[1].clone(), rows[3].clone()][..],
            r#"a row is missing before this line: {"item":"s","of":"critique","candidate":"b"}"#,
        ),
        (&[aiu(&a, " ")][..], "t:1: `aiu` is empty"),
        (&[json!({"item": "s", "of": "critique", "candidate": "z", "aiu": "x"})][..], "t:1: nothing in the data has"),
    ] {
        let error = run_from("metacritique", &samples, &judge(), "aius", rows).expect_err("refused");
        assert!(error.contains(part), "{part}\n{error}");
    }
    let row = |more: Value| {
        let mut row = json!({"item": "s", "candidate": "a", "number": 0, "aiu": "good one"});
        row.as_object_mut().expect("one").extend(more.as_object().expect("fields").clone());
        vec![row]
    };
    for (more, part) in [
        (json!({"label": true, "p": 0.2}), "`label` is true, but `p` is 0.2"),
        (json!({"p": 1.2, "label": true}), "`p` is 1.2"),
        (json!({"label": null}), "`label` is null, but `outcome` is `scored`"),
        (json!({"label": true, "outcome": "empty"}), "`outcome` is `empty`"),
        (json!({"label": "yes"}), "`label` is \"yes\"; expected one of true, false"),
    ] {
        let error = match rehearse_from("metacritique", &samples, &judge(), "precision", &row(more)) {
            MethodError::Rehearsed => "accepted".to_owned(),
            error => error_text(&error),
        };
        assert!(error.contains(part), "{part}\n{error}");
    }
}

#[test]
fn options_and_samples_that_do_not_fit_are_refused() {
    let samples = [sample("s", vec![critique("a", &["good one"])], &["good one"])];
    let refused = |args: &str| error_text(&run(args, &samples, &judge()).0.expect_err("refused"));
    assert!(refused("metacritique --prompt verdict=x.j2").contains("answer, critique, aius, precision"));
    assert!(refused("metacritique --prompt recall").contains("not a known NAME=FILE"));
    assert!(refused("metacritique --prompt recall=a --prompt recall=b").contains("repeated"));
    assert!(refused("metacritique --baseline single --baseline single").contains("repeated"));
    let configured = configured("metacritique").expect("valid");
    let mut bare = samples[0].clone();
    bare.texts.remove("question");
    let wrong = configured.lacks(&bare);
    assert!(wrong.len() == 1 && wrong[0].to_string().contains("texts.question"), "{wrong:?}");
    assert!(configured.lacks(&samples[0]).is_empty());
}

/// Runs with a file of labels, with or without a model.
fn labelled(
    path: &PathBuf,
    more: &Value,
    model: Option<&ScriptedModel>,
) -> (Result<MethodReport, MethodError>, MemoryOutput) {
    let mut given: GivenOptions = more.as_object().expect("options").clone();
    given.insert("labels".into(), json!(path));
    let configured = method("metacritique").expect("registered").with(&given).expect("valid options");
    let importer = probity_data::importer("metacritique").expect("registered");
    let samples = importer.import(path).expect("importable");
    let mut output = MemoryOutput::default();
    let result = match model {
        Some(model) => configured.run(&samples, &mut Run::new(model, &mut output)),
        None => configured.run(&samples, &mut Run::without_model(&mut output)),
    };
    (result, output)
}

#[test]
fn the_labels_of_the_public_file_come_to_its_own_scores() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder = std::env::var_os("PROBITY_SHARED_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let path = folder.join("metacritique_annotation.json");
    if !path.is_file() {
        eprintln!("skipped: set PROBITY_SHARED_DATA to the folder that holds metacritique_annotation.json");
        return;
    }
    let (result, output) = labelled(&path, &json!({}), None);
    let summary = result.expect("runs");
    let items: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    let rows = output.rows("scores");
    assert_eq!(rows.len(), 900);
    let mut rows = rows.into_iter();
    for item in &items {
        for key in ["human_critique", "llm1_critique", "llm2_critique"] {
            for score in ["precision_score", "recall_score", "f1_score"] {
                let (expected, row) = (item[key][score].as_f64(), rows.next().expect("a row"));
                let same = expected.zip(row["score"].as_f64()).is_some_and(|(a, b)| (a - b).abs() < 1e-12);
                assert!(same, "{row}, and the file says {expected:?}");
            }
        }
    }
    let systems = summary.values["leaderboard"]["systems"].as_array().expect("a list");
    let human = systems.iter().find(|system| system["system"] == "human").expect("there");
    let mean = |score: &str| (human[score]["macro"]["share"].as_f64().expect("some") * 1e4).round() / 1e4;
    assert_eq!(["precision", "recall", "f1"].map(mean), [0.8537, 0.5097, 0.5824], "the paper's Table 2");
    // The other half: micro scores of critiques by people and by models.
    let micro = |of: &Value, score: &str| (of[score]["micro"]["share"].as_f64().expect("some") * 1e4).round() / 1e4;
    assert_eq!(["precision", "recall", "f1"].map(|score| micro(human, score)), [0.8761, 0.4872, 0.6262]);
    let models = &summary.values["leaderboard"]["together"][1];
    assert_eq!(["precision", "recall", "f1"].map(|score| micro(models, score)), [0.7185, 0.5328, 0.6119]);
    assert!(summary.signature.model.is_none());
}

#[test]
fn a_judge_is_held_against_labels_claim_by_claim() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("labels.json");
    let item = |index: usize| {
        json!({"index": index, "question": "Why?", "response": "So.", "reference_answer": "For a reason.",
            "reference_critique": {"critique": "r", "aius": ["good one", "bad two"]},
            "human_critique": {"critique": "good one", "aius": ["good one", "bad x"], "precision_labels": [true, true],
                "recall_labels": [true, false]},
            "m_critique": {"model": "m", "critique": "bad two", "aius": ["bad y"], "precision_labels": [false],
                "recall_labels": [false, index == 0]}})
    };
    std::fs::write(&path, json!([item(0), item(1), item(2)]).to_string()).expect("written");
    let (result, output) = labelled(&path, &json!({}), Some(&judge()));
    let summary = result.expect("runs");
    assert!(output.rows("aius").is_empty(), "people have taken the critiques apart");
    let accuracy = summary.values["accuracy"].as_array().expect("a list");
    let of = |task: &str, critiques: &str| {
        let one = accuracy.iter().find(|one| one["task"] == task && one["critiques"] == critiques).expect("there");
        (one["claims"].as_u64(), one["accuracy"]["share"].as_f64())
    };
    // `bad x` is true by human label but not by the judge; two of three of m's recall labels also differ.
    assert_eq!(of("precision", "all"), (Some(9), Some(6.0 / 9.0)));
    assert_eq!(of("precision", "by people"), (Some(6), Some(0.5)));
    assert_eq!(of("recall", "by models"), (Some(6), Some(4.0 / 6.0)));
    let about: Vec<&str> = summary.verdict.iter().filter_map(|one| one.about.as_deref()).collect();
    assert_eq!(about, ["precision", "recall"]);

    // Fewer labels than claims, and labels of unknown claims.
    let mut wrong = item(0);
    wrong["human_critique"]["precision_labels"] = json!([true]);
    std::fs::write(&path, json!([wrong]).to_string()).expect("written");
    let given = GivenOptions::from_iter([("labels".to_owned(), json!(path))]);
    let configured = method("metacritique").expect("registered").with(&given).expect("valid options");
    let samples = [sample("0", vec![critique("human", &["x"])], &[])];
    let error = configured.run(&samples, &mut Run::new(&judge(), &mut MemoryOutput::default())).expect_err("refused");
    let error = error_text(&error);
    assert!(error.contains("[0].human_critique.precision_labels") && error.contains("1 labels"), "{error}");
    let mut bare = item(0);
    bare["human_critique"].as_object_mut().expect("one").remove("aius");
    std::fs::write(&path, json!([bare]).to_string()).expect("written");
    let error = error_text(&labelled(&path, &json!({}), Some(&judge())).0.expect_err("refused"));
    assert!(error.contains("the file lacks its claims"), "{error}");
    assert!(labelled(&path, &json!({}), None).0.is_ok(), "without a model no claim is judged");
    let error = error_text(&labelled(&path, &json!({"refine": true}), None).0.expect_err("refused"));
    assert!(error.contains("--model"), "{error}");
}
