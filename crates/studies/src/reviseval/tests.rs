//! Tests of the complete method with scripted models and values computed by hand.

use std::sync::{Arc, Mutex};

use probity_data::{Preference, Sample};
use probity_lm::{Finish, GenerateRequest, GenerateResult, LanguageModel, Sampling, ScriptedModel};
use serde_json::{Value, json};

use crate::testing::{error_text, generated, rehearse, rehearse_from, run, run_by, sample};
use crate::{MemoryOutput, MethodError, MethodReport};

/// Pairs with these qualities and a preference for the better one.
fn pairs(qualities: &[[f64; 2]]) -> Vec<Sample> {
    let pair = |(k, qualities): (usize, &[f64; 2])| Sample {
        preference: Some(Preference::Candidate(usize::from(qualities[0] < qualities[1]).to_string())),
        ..sample(&format!("s{k}"), qualities)
    };
    qualities.iter().enumerate().map(pair).collect()
}

const FOUR: [[f64; 2]; 4] = [[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0]];

/// The text in the block with this name.
fn block<'p>(prompt: &'p str, name: &str) -> Option<&'p str> {
    let (start, end) = (format!("[Start of {name}]\n"), format!("\n[End of {name}]"));
    prompt.split_once(&start).and_then(|(_, rest)| rest.split_once(&end)).map(|(text, _)| text)
}

fn quality(text: &str) -> f64 {
    let value = text.split_once("quality=").and_then(|(_, rest)| rest.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// Revisions of a pair equal its better text; references without candidates share nothing with either. The judge
/// chooses the first text in greedy answers without reference, else the better one; it rates a text by its quality.
fn answer(request: &GenerateRequest) -> GenerateResult {
    let prompt = request.prompt.text();
    let is_judge = prompt.contains("careful judge");
    let better = |a: &str, b: &str| if quality(a) > quality(b) { (0, a.to_owned()) } else { (1, b.to_owned()) };
    let text = match (block(&prompt, "Response A"), block(&prompt, "Response B"), block(&prompt, "response")) {
        (Some(a), Some(b), _) => {
            let knows = block(&prompt, "Reference").is_some() || request.sampling != Sampling::Greedy;
            format!("So: [[{}]]", if knows { ["A", "B"][better(a, b).0] } else { "A" })
        }
        (_, _, Some(text)) if is_judge => format!("[[{}]]", quality(text)),
        _ => match (block(&prompt, "Draft"), block(&prompt, "Other response")) {
            (Some(text), Some(other)) => better(text, other).1,
            (Some(text), None) => text.to_owned(),
            _ => "something else entirely".to_owned(),
        },
    };
    generated(&text)
}

fn model() -> ScriptedModel {
    ScriptedModel::from_probabilities(|_| vec![]).with_generation(answer)
}

fn summary(args: &str, samples: &[Sample]) -> (MethodReport, MemoryOutput) {
    let (result, output) = run(args, samples, &model());
    (result.unwrap_or_else(|error| panic!("{args}: {error}")), output)
}

/// The figures of one evaluator.
fn evaluator<'v>(summary: &'v MethodReport, reference: &str, by: &str) -> &'v Value {
    let all = summary.values["pairs"].as_array().expect("a list");
    all.iter()
        .find(|one| one["reference"] == reference && one["by"] == by)
        .unwrap_or_else(|| panic!("{reference}/{by} in {all:?}"))
}

fn near(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-12)
}

#[test]
fn a_judge_who_looks_at_places_alone_is_told_from_one_who_has_a_reference() {
    let (summary, output) = summary("reviseval --metric rouge-l,bleu --metric ter", &pairs(&FOUR));
    let free = evaluator(&summary, "none", "judge");
    // Always the text shown first: the orders never agree, so every pair is a tie; in the order of the data it is
    // correct twice.
    assert_eq!((&free["ties"], &free["accuracy"], &free["given_order"]), (&json!(4), &json!(0.5), &json!(0.5)));
    assert!(near(&free["changed"]["share"], 1.0), "{free:#}");
    let adapted = evaluator(&summary, "adapted", "judge");
    assert_eq!(
        (&adapted["accuracy"], &adapted["ties"], &adapted["turned_order"]),
        (&json!(1.0), &json!(0), &json!(1.0))
    );
    assert!(near(&adapted["changed"]["share"], 0.0));
    for by in ["rouge-l", "bleu", "ter", "vote"] {
        let metric = evaluator(&summary, "adapted", by);
        assert_eq!(
            (&metric["accuracy"], &metric["changed"]),
            (&json!(1.0), &Value::Null),
            "{by}: the better text is the reference"
        );
    }
    let unlike = evaluator(&summary, "direct", "rouge-l");
    assert_eq!((&unlike["accuracy"], &unlike["ties"]), (&json!(0.5), &json!(4)), "no word in common with either");
    assert_eq!(output.rows("preferences").len(), 4 * (3 + 2 * 4));
    assert_eq!(output.rows("verdicts").len(), 4 * 2 * 3);
    assert_eq!(
        summary.headline.iter().map(|one| (one.figure.as_ref(), one.value)).collect::<Vec<_>>(),
        [("accuracy (none)", Some(0.5)), ("accuracy (direct)", Some(1.0)), ("accuracy (adapted)", Some(1.0)),]
    );
}

#[test]
fn disagreement_effectiveness_and_tokens_are_as_worked_out() {
    let (summary, _) = summary("reviseval", &pairs(&FOUR));
    let disagreement = &summary.values["disagreement"];
    assert_eq!(disagreement[1], json!({"first": "none/judge", "second": "adapted/judge", "share": 1.0, "both": 4}));
    assert_eq!(disagreement[2]["share"], 0.0, "direct and adapted");
    let effects = summary.values["effectiveness"].as_array().expect("a list");
    let adapted = effects.iter().find(|one| one["reference"] == "adapted" && one["group"] == "all").expect("adapted");
    // One candidate equals the reference; the other shares six of its eight tokens.
    assert!(
        near(&adapted["similarity"], f64::midpoint(1.0, 0.75)) && near(&adapted["effectiveness"], 2.0),
        "{adapted:#}"
    );
    assert_eq!(effects.len(), 2, "four pairs are too few for thirds");
    // A prompt has 7 tokens and an answer 1: one revision, two orders.
    assert_eq!(summary.values["tokens"][2], json!({"reference": "adapted", "revising": 8.0, "judging": 16.0}));
}

#[test]
fn thirds_by_similarity_partition_the_pairs() {
    let six: Vec<[f64; 2]> = (0..7).map(|k| [f64::from(k), f64::from(k) + 1.0]).collect();
    let (summary, _) = summary("reviseval --reference none,adapted", &pairs(&six));
    let units: Vec<u64> = summary.values["effectiveness"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["units"].as_u64())
        .collect();
    assert_eq!(units, [7, 2, 2, 3]);
}

#[test]
fn three_cycles_are_voted_on_and_cost_three_times_as_much() {
    let (summary, output) = summary("reviseval --reference none,adapted --cost-match", &pairs(&FOUR));
    let spent = summary.values["cost_match"].as_array().expect("a list");
    let told: Vec<(f64, f64)> = spent
        .iter()
        .map(|one| (one["accuracy"].as_f64().expect("some"), one["tokens"].as_f64().expect("some")))
        .collect();
    // The greedy answer is the first text; both sampled cycles are correct.
    assert_eq!(told, [(0.5, 16.0), (1.0, 48.0), (1.0, 24.0)]);
    assert_eq!(evaluator(&summary, "none", "judge")["accuracy"], 0.5, "further cycles are no part of the first");
    let cycles = output.rows("verdicts").iter().filter(|row| row["temperature"] == 0.7).count();
    assert_eq!(cycles, 8);
}

#[test]
fn candidates_and_references_are_rated_by_themselves() {
    let (summary, output) = summary("reviseval --reference none,adapted --rate correctness", &pairs(&FOUR[..3]));
    let ratings = summary.values["ratings"].as_array().expect("a list");
    let told: Vec<(&str, f64)> =
        ratings.iter().map(|one| (one["of"].as_str().expect("a name"), one["mean"].as_f64().expect("some"))).collect();
    assert_eq!(told, [("candidate 1", 5.0 / 3.0), ("candidate 2", 4.0 / 3.0), ("adapted", 2.0)]);
    assert_eq!(output.rows("ratings").len(), 9);
}

#[test]
fn several_references_vote_and_paraphrases_are_averaged() {
    let aspects = "reviseval --reference aspects --aspect depth --aspect accuracy --aspect tone=Kind. --metric rouge-l";
    let by_aspect = |request: &GenerateRequest| {
        let prompt = request.prompt.text();
        let text = |name: &str| block(&prompt, name).filter(|_| prompt.contains("[Start of Draft]"));
        match (text("Draft"), text("Other response")) {
            // For two of three aspects the text of candidate 1, which is worse.
            (Some(a), Some(b)) => {
                let wanted = if prompt.contains("Kind.") { "text 0" } else { "text 1" };
                generated(if a.ends_with(wanted) { a } else { b })
            }
            _ => answer(request),
        }
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(by_aspect);
    let samples = pairs(&FOUR[..1]);
    let (result, output) = run(aspects, &samples, &model);
    let summary = result.expect("runs");
    assert_eq!(output.rows("verdicts").len(), 6, "three references in two orders");
    assert_eq!(evaluator(&summary, "aspects", "rouge-l")["wrong"], 1, "two of three are nearer to candidate 1");
    assert_eq!(evaluator(&summary, "aspects", "judge")["correct"], 1);

    let mut given = pairs(&FOUR[..1]);
    given[0].references = vec!["any".into()];
    let paraphrase = |request: &GenerateRequest| match request.sampling {
        // Sampled: of three paraphrases two are a word of candidate 0, and one is the whole of candidate 1.
        Sampling::Random { .. } if request.id.ends_with("#2") => generated("quality=1 is the quality of text 1"),
        Sampling::Random { .. } => generated("2"),
        Sampling::Greedy => answer(request),
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(paraphrase);
    let (result, _) =
        run("reviseval --reference diversified --diversify 3 --metric rouge-l --no-judge", &given, &model);
    // Candidate 0: (2/9 + 2/9 + 3/4) / 3; candidate 1: (0 + 0 + 1) / 3.
    assert_eq!(evaluator(&result.expect("runs"), "diversified", "rouge-l")["correct"], 1);
}

#[test]
fn what_has_no_usable_reference_has_no_verdict_under_it() {
    let cut = |request: &GenerateRequest| {
        let prompt = request.prompt.text();
        let revision = prompt.contains("[Start of Draft]") && prompt.contains("context of s0");
        if revision {
            GenerateResult { finish: Some(Finish::Length), ..generated("quality=2 is") }
        } else {
            answer(request)
        }
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(cut);
    let mut samples = pairs(&FOUR);
    samples[3].candidates.truncate(1);
    samples[3].preference = None;
    let (result, output) = run("reviseval --reference none,adapted --metric bleu", &samples, &model);
    let summary = result.expect("runs");
    for by in ["judge", "bleu"] {
        let adapted = evaluator(&summary, "adapted", by);
        assert_eq!(
            (&adapted["pairs"], &adapted["decided"], &adapted["no_reference"]),
            (&json!(3), &json!(2), &json!(1)),
            "{by}"
        );
    }
    let row = output
        .rows("preferences")
        .into_iter()
        .find(|row| row["item"] == "s0" && row["reference"] == "adapted")
        .expect("a row");
    assert_eq!((&row["outcome"], &row["choice"]), (&json!("no_reference"), &Value::Null));
    assert_eq!(["truncated", "no_reference", "not_a_pair"].map(|name| summary.outcomes.get(name)), [1, 1, 1]);
    let (used, _) = run("reviseval --reference none,adapted --use-truncated", &samples, &model);
    assert_eq!(evaluator(&used.expect("runs"), "adapted", "judge")["decided"], 3);
}

#[test]
fn unparsed_verdicts_are_counted_and_stand_for_nothing() {
    let mute = |request: &GenerateRequest| {
        let text = request.prompt.text();
        if text.contains("careful judge") && text.contains("context of s1") {
            generated("I cannot say.")
        } else {
            answer(request)
        }
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(mute);
    let summary = run("reviseval --reference adapted", &pairs(&FOUR), &model).0.expect("runs");
    let adapted = evaluator(&summary, "adapted", "judge");
    assert_eq!((&adapted["undecided"], &adapted["decided"], &adapted["correct"]), (&json!(1), &json!(3), &json!(3)));
    assert!(near(&adapted["accuracy"], 1.0) && near(&adapted["over_all"], 0.875), "{adapted:#}");
    assert_eq!(summary.outcomes.get("unparsed"), 2);
}

#[test]
fn candidates_by_themselves_are_held_against_their_own_revisions() {
    let samples = [sample("a", &[1.0, 3.0, 2.0]), sample("b", &[2.0, 4.0])];
    let (summary, output) = summary(
        "reviseval --mode pointwise --attribute coherence --reference none,direct,adapted --metric rouge-l",
        &samples,
    );
    let gold = summary.values["gold"].as_array().expect("a list");
    assert_eq!(gold.len(), 5, "three by the judge, two by the metric");
    let judge = gold.iter().find(|one| one["reference"] == "adapted" && one["by"] == "judge").expect("there");
    assert!(near(&judge["figures"]["kendall"]["pooled"]["coefficient"], 1.0), "{judge:#}");
    let scores: Vec<&Value> =
        output.rows("scores").into_iter().filter(|row| row["metric"] == "adapted/rouge-l").collect();
    assert!(
        scores.len() == 5 && scores.iter().all(|row| near(&row["score"], 1.0)),
        "each is its own revision: {scores:?}"
    );
    let revisions = output.rows("revisions");
    assert_eq!(revisions.iter().filter(|row| row["kind"] == "adapted").count(), 5);
    assert_eq!(
        revisions.iter().filter(|row| row["kind"] == "direct").count(),
        2,
        "one answer for all candidates of a sample"
    );
}

#[test]
fn each_attribute_has_revisions_of_its_own() {
    let samples = [sample("a", &[1.0, 3.0])];
    let args = "reviseval --mode pointwise --attribute coherence --attribute fluency --no-gold --reference adapted";
    let (_, output) = summary(args, &samples);
    let aspects: Vec<&Value> = output.rows("revisions").iter().map(|row| &row["aspect"]).collect();
    assert_eq!(aspects, ["coherence", "coherence", "fluency", "fluency"]);
    let references = output.rows("verdicts").len();
    assert_eq!(references, 4, "one reference for each candidate and attribute");
}

#[test]
fn another_model_may_judge() {
    let reviser = ScriptedModel::from_probabilities(|_| vec![]).with_generation(|request| {
        assert!(!request.prompt.text().contains("careful judge"), "the reviser is no judge");
        answer(request)
    });
    let judge = ScriptedModel::from_probabilities(|_| vec![]).with_generation(|request| {
        assert!(request.prompt.text().contains("careful judge"), "the judge is no reviser");
        answer(request)
    });
    let mut output = MemoryOutput::default();
    let others: [&dyn LanguageModel; 1] = [&judge];
    let summary = run_by("reviseval --judge-model other --rate quality", &pairs(&FOUR), &reviser, &others, &mut output)
        .expect("runs");
    assert_eq!(evaluator(&summary, "adapted", "judge")["accuracy"], 1.0);
}

#[test]
fn subsets_are_told_apart_by_their_ids() {
    let mut samples = pairs(&FOUR);
    for (sample, id) in samples.iter_mut().zip(["x/1", "y/1", "x/2", "y/2"]) {
        id.clone_into(&mut sample.id);
    }
    let (summary, _) = summary("reviseval --reference none,adapted --verdict generate", &samples);
    let subsets = summary.values["subsets"].as_array().expect("a list");
    let accuracy = |reference: &str, subset: &str| {
        let one = subsets.iter().find(|one| one["reference"] == reference && one["subset"] == subset).expect("there");
        (one["agreement"]["accuracy"].as_f64(), one["agreement"]["tied"].as_u64())
    };
    assert_eq!((accuracy("none", "x"), accuracy("adapted", "y")), ((Some(0.5), Some(2)), (Some(1.0), Some(0))));
}

#[test]
fn sets_hold_what_the_judge_and_people_agree_on() {
    let args = "reviseval --reference none,adapted --export-sets";
    let (summary, output) = summary(args, &pairs(&[FOUR, FOUR, FOUR].concat()));
    // Without reference the judge chooses the text shown first, so it is correct if the random order shows the better
    // one first.
    let judged = output.rows("set_judge");
    assert!((1..12).contains(&judged.len()), "{}", judged.len());
    assert_eq!(
        (output.rows("set_reviser").len(), output.rows("set_judge_with_reference").len()),
        (judged.len(), judged.len())
    );
    for row in &judged {
        let messages = row["messages"].as_array().expect("a list");
        assert_eq!(
            messages.iter().map(|one| one["role"].as_str().expect("a role")).collect::<Vec<_>>(),
            ["system", "user", "assistant"]
        );
        assert_eq!(messages[2]["content"], "So: [[A]]");
        let shown = messages[1]["content"].as_str().expect("text");
        assert!(
            quality(block(shown, "Response A").expect("shown")) > quality(block(shown, "Response B").expect("shown"))
        );
    }
    assert_eq!(summary.values["sets"][1], json!(["set_judge.jsonl", judged.len()]));
}

#[test]
fn a_judge_prompt_that_cannot_be_made_is_found_in_a_rehearsal() {
    let file = std::env::temp_dir().join(format!("probity-judge-{}.j2", std::process::id()));
    std::fs::write(&file, "{{ candidate_a }} {{ candidate_b }} {{ references[0] }}").expect("written");
    let error = rehearse(&format!("reviseval --template {}", file.display()), &pairs(&FOUR), &model()).to_string();
    std::fs::remove_file(&file).expect("there");
    assert!(error.contains("uses `references`, which sample `s0` lacks"), "{error}");
    let ended = rehearse("reviseval --rate coherence", &pairs(&FOUR), &model());
    assert!(matches!(ended, MethodError::Rehearsed), "{ended}");
}

#[test]
fn a_table_behind_references_that_are_not_made_yet_is_looked_at_in_a_rehearsal() {
    let args = "reviseval --reference none,adapted";
    let rows: Vec<Value> = summary(args, &pairs(&FOUR)).1.rows("verdicts").into_iter().cloned().collect();
    let ends = |rows: &[Value]| rehearse_from(args, &pairs(&FOUR), &model(), "verdicts", rows);
    // An unusable reference leads to fewer questions to the judge.
    let fewer: Vec<Value> =
        rows.iter().filter(|row| row["item"] != "s1" || row["reference"] == "none").cloned().collect();
    assert_eq!((rows.len(), fewer.len()), (16, 14));
    assert!(matches!(ends(&rows), MethodError::Rehearsed) && matches!(ends(&fewer), MethodError::Rehearsed));
    let changed = |line: usize, field: &str, value: Value| {
        let mut rows = rows.clone();
        rows[line - 1][field] = value;
        rows
    };
    for (rows, part) in [
        (changed(2, "item", json!("s9")), "t:2: it matches nothing in the data"),
        (changed(1, "choice", json!("second")), "t:1: `choice` is \"second\""),
        (changed(16, "answers", json!([])), "t:16: "),
        ([&rows[..], &rows[15..]].concat(), "t:17: it matches nothing in the data"),
        (vec![json!("A")], "t:1: not a JSON object"),
    ] {
        let error = error_text(&ends(&rows));
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn options_that_contradict_each_other_or_the_data_are_refused() {
    for (args, part) in [
        ("reviseval --reference none,none", "repeated"),
        ("reviseval --reference given", "no sample has references"),
        ("reviseval --no-judge", "--metric"),
        ("reviseval --no-judge --metric bleu --reference none", "probity metrics"),
        ("reviseval --metric blanc", "uses no references"),
        ("reviseval --metric bert-score", "--encoder"),
        ("reviseval --metric bart-score", "--seq2seq"),
        ("reviseval --metric bleuu", "did you mean `bleu`"),
        ("reviseval --reference none --cost-match", "none,adapted"),
        ("reviseval --cost-match --verdict label", "--verdict generate"),
        ("reviseval --mode pointwise --attribute coherence --reference both", "--mode pairwise"),
        ("reviseval --similarity bleu,ter", "a single metric"),
        ("reviseval --aspect depth", "--reference aspects"),
        ("reviseval --export-sets --reference adapted", "none,adapted"),
    ] {
        let error = error_text(&run(args, &pairs(&FOUR), &model()).0.expect_err(args));
        assert!(error.contains(part), "{args}: {error}");
    }
}

#[test]
fn metrics_under_a_revision_of_each_text_are_no_ties_by_construction() {
    let mut samples = pairs(&FOUR);
    for sample in &mut samples {
        let text = &mut sample.candidates[1].text;
        *text = format!("{text} and then a good many words more").into();
    }
    let (summary, _) = summary("reviseval --no-judge --reference each --metric ter", &samples);
    // Each text is its own revision, without edits. Against the other's revision the longer text needs as many edits
    // for a shorter reference.
    assert_eq!(evaluator(&summary, "each", "ter")["ties"], 0);
}

#[test]
fn the_papers_accuracy_counts_ties_and_pairs_without_a_verdict_as_not_right() {
    let (summary, _) = summary("reviseval --reference none,adapted", &pairs(&FOUR));
    let free = evaluator(&summary, "none", "judge");
    assert_eq!((&free["ties"], &free["accuracy"], &free["right_of_all"]), (&json!(4), &json!(0.5), &json!(0.0)));
    assert_eq!(evaluator(&summary, "adapted", "judge")["right_of_all"], json!(1.0));
}

#[test]
fn a_good_draft_may_be_kept_as_in_the_paper_unless_improve_is_chosen() {
    for (option, sentence) in [("", "repeat it word for word"), (" --good-draft improve", "do not hand it back")] {
        let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(move |request: &GenerateRequest| {
            assert!(request.prompt.text().contains(sentence), "{}", request.prompt.text());
            generated("quality=1")
        });
        run(&format!("reviseval --no-judge --metric rouge-l --reference adapted{option}"), &pairs(&FOUR), &model)
            .0
            .expect("run");
    }
}

#[test]
fn correlations_are_averaged_over_attributes() {
    let mut samples = pairs(&FOUR);
    for sample in &mut samples {
        for (k, candidate) in sample.candidates.iter_mut().enumerate() {
            candidate.scores = [("coherence".to_owned(), k as f64), ("fluency".to_owned(), 1.0 - k as f64)].into();
        }
    }
    let args =
        "reviseval --mode pointwise --attribute coherence --attribute fluency --reference adapted --metric rouge-l";
    let (summary, _) = summary(args, &samples);
    let average = &summary.values["gold_average"][0];
    assert_eq!((&average["by"], &average["attributes"]), (&json!("judge"), &json!(2)));
    let of = |k: usize| {
        summary.values["gold"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|one| one["by"] == "judge")
            .nth(k)
            .expect("two")
            .clone()
    };
    let [first, second] =
        [0, 1].map(|k| of(k)["figures"]["spearman"]["pooled"]["coefficient"].as_f64().expect("defined"));
    assert!(near(&average["spearman"], f64::midpoint(first, second)), "{average} {first} {second}");
}

#[test]
fn references_that_are_not_made_yet_share_no_beginning() {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let shown = begun.clone();
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(move |request| {
        let prompt = request.prompt.text();
        shown.lock().expect("no panic").extend(block(&prompt, "Reference").and_then(|text| text.chars().next()));
        generated("")
    });
    rehearse("reviseval --reference direct,adapted,each --revision-tokens 8", &pairs(&FOUR[..1]), &model);
    let mut begun = begun.lock().expect("no panic").clone();
    assert_eq!(begun.len(), 8, "four references, each in both orders");
    begun.dedup();
    begun.sort_unstable();
    begun.dedup();
    assert_eq!(begun.len(), 4, "{begun:?}");
}

#[test]
fn a_distance_says_that_the_lower_score_is_the_better_text() {
    let samples: Vec<Sample> = (0..3).map(|k| sample(&format!("s{k}"), &[1.0, 2.0])).collect();
    // The reference equals the better text.
    let better = samples[0].candidates[1].text.clone();
    let model =
        ScriptedModel::from_probabilities(|_| vec![]).with_generation(move |_: &GenerateRequest| generated(&better));
    let args = "reviseval --mode pointwise --attribute coherence --reference direct --no-judge --metric levenshtein";
    let (result, output) = run(args, &samples, &model);
    let summary = result.expect("runs");
    let scores = output.rows("scores");
    assert!(scores.iter().all(|row| (row["score"] == 0.0) == (row["candidate"] == "1")), "as they are: {scores:?}");
    let found = &summary.values["gold"][0]["figures"]["spearman"]["mean"];
    assert_eq!(found, &json!(1.0), "who is nearer to the reference is better: {found}");
    let agreement = summary.verdict[0].agreement.as_deref().unwrap_or(&summary.verdict[0].says);
    assert!(agreement.contains("Spearman 1.000"), "{:?}", summary.verdict);
    let notes = summary.tables.iter().flat_map(|table| &table.notes);
    assert_eq!(notes.filter(|note| note.starts_with("Lower is better: direct/levenshtein.")).count(), 1);
}

#[test]
fn figures_of_references_are_over_those_that_something_is_held_against() {
    let cut = |request: &GenerateRequest| {
        let prompt = request.prompt.text();
        if prompt.contains("[Start of Draft]") && prompt.contains("context of s0") {
            GenerateResult { finish: Some(Finish::Length), ..generated("nothing of either") }
        } else {
            answer(request)
        }
    };
    let model = ScriptedModel::from_probabilities(|_| vec![]).with_generation(cut);
    let summary = run("reviseval --reference none,adapted", &pairs(&FOUR), &model).0.expect("runs");
    // For each of three pairs with a reference: two verdicts of eight tokens. All four pairs were revised.
    assert_eq!(
        summary.values["tokens"][1],
        json!({"reference": "adapted", "revising": 4.0 * 8.0 / 3.0, "judging": 16.0})
    );
    let tally = &summary.values["references"][0];
    assert_eq!((&tally["references"], &tally["usable"]), (&json!(4), &json!(3)));
    assert_eq!(tally["to_primary"]["word"].as_f64(), words_kept(&pairs(&FOUR)[1..]), "{tally:#}");
}

/// Word similarity if every reference is usable.
fn words_kept(samples: &[Sample]) -> Option<f64> {
    summary("reviseval --reference none,adapted", samples).0.values["references"][0]["to_primary"]["word"].as_f64()
}
