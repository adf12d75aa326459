use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use probity_lm::{LanguageModel, ScriptedEncoder, ScriptedModel};
use probity_metrics::MetricModels;
use serde_json::{Value, json};

use crate::order_tests::shuffled;
use crate::testing::{configured, error_text, generated, scored_by, written_by};
use crate::{MemoryOutput, MethodError, MethodReport, Run, Staging};

/// The number of units in each document.
const PER_DOCUMENT: usize = 20;

/// A unit about a number, with no word in common with questions.
fn unit(number: usize) -> String {
    format!("Ball {number} carries paint.")
}

/// The numbers after each `word` in a text.
fn numbers(text: &str, word: &str) -> Vec<usize> {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut found = Vec::new();
    while let Some(next) = words.next() {
        if next == word {
            found.extend(words.clone().next().and_then(|number| number.parse::<usize>().ok()));
        }
    }
    found
}

fn block<'p>(prompt: &'p str, name: &str) -> &'p str {
    let (start, end) = (format!("[Start of {name}]\n"), format!("\n[End of {name}]"));
    prompt.rsplit_once(&start).expect("the block").1.split_once(&end).expect("its end").0
}

/// Reads units from passages, asks for all units shown, and judges answers by the numbers they contain.
fn evaluator() -> ScriptedModel {
    ScriptedModel::from_probabilities(|request| {
        let prompt = request.prompt.text();
        if prompt.contains("You say how much a fact matters") {
            let number = numbers(block(&prompt, "Fact"), "Ball")[0];
            return if number.is_multiple_of(4) { vec![0.1, 0.8] } else { vec![0.8, 0.1] };
        }
        let answer = block(&prompt, "Answer");
        if prompt.contains("by what you know") {
            return if answer.contains("Wrong") { vec![0.2, 0.7] } else { vec![0.7, 0.2] };
        }
        let number = numbers(block(&prompt, "Fact"), "Ball")[0];
        match () {
            () if numbers(answer, "Right").contains(&number) => vec![0.9, 0.05, 0.05],
            () if numbers(answer, "Wrong").contains(&number) => vec![0.05, 0.9, 0.05],
            () => vec![0.05, 0.05, 0.9],
        }
    })
    .with_generation(|request| {
        let prompt = request.prompt.text();
        if prompt.contains("You read a passage") {
            let passage = numbers(block(&prompt, "Passage"), "Ball");
            return generated(&passage.into_iter().map(unit).collect::<Vec<_>>().join("\n"));
        }
        if prompt.contains("Reply with a title") {
            return generated("Balls");
        }
        let wanted = numbers(block(&prompt, "Facts"), "Ball");
        let mut question = "What is said of".to_owned();
        for number in &wanted {
            let _ = write!(question, " no {number}");
        }
        let targets: Vec<usize> = (1..=wanted.len()).collect();
        generated(&json!({ "question": question, "targets": targets }).to_string())
    })
}

/// Knows seven of ten numbers, answers three at a time, and never covers the last quarter of a document.
fn evaluated() -> ScriptedModel {
    ScriptedModel::from_probabilities(|_| vec![1.0]).with_generation(|request| {
        let known = |number: &usize| number % PER_DOCUMENT < 3 * PER_DOCUMENT / 4;
        let said = numbers(&request.prompt.text(), "no").into_iter().filter(known).take(3);
        let say = |number: usize| {
            // Every tenth of the first fifteen numbers, counted over all documents.
            let place = number / PER_DOCUMENT * 15 + number % PER_DOCUMENT;
            format!("{} {number}.", if place % 10 < 7 { "Right" } else { "Wrong" })
        };
        generated(&said.map(say).collect::<Vec<_>>().join(" "))
    })
}

/// One token per word, with its number of letters as the value, so that units with equally long numbers are equal.
fn encoder() -> ScriptedEncoder {
    ScriptedEncoder::new(&["Ball", "carries", "paint", "."], 2, 2, |ids, _| {
        ids.iter().flat_map(|id| [*id as f32, 1.0]).collect()
    })
}

/// Writes this many documents as lines of a file.
fn documents(folder: &Path, count: usize) -> String {
    let path = folder.join("documents.jsonl");
    let line = |document: usize| {
        let units: Vec<String> = (0..PER_DOCUMENT).map(|k| unit(document * PER_DOCUMENT + k)).collect();
        json!({ "id": format!("d{document}"), "text": units.join(" ") }).to_string()
    };
    std::fs::write(&path, (0..count).map(line).collect::<Vec<_>>().join("\n")).expect("written");
    path.display().to_string()
}

fn run_with(
    args: &str,
    staging: Staging,
    evaluated: Option<&dyn LanguageModel>,
) -> (Result<MethodReport, MethodError>, MemoryOutput) {
    let mut output = MemoryOutput::default();
    let evaluator = evaluator();
    let others: Vec<&dyn LanguageModel> = evaluated.into_iter().collect();
    let models = MetricModels { encoder: Some(Arc::new(encoder())), ..MetricModels::default() };
    let result = {
        let mut run = Run::new(&evaluator, &mut output)
            .with_other_models(&others)
            .with_metric_models(models)
            .with_staging(staging);
        configured(args).and_then(|configured| configured.run(&[], &mut run))
    };
    (result, output)
}

fn run(args: &str) -> (Result<MethodReport, MethodError>, MemoryOutput) {
    run_with(&format!("{args} --evaluated scripted"), Staging::default(), Some(&evaluated()))
}

#[test]
fn who_knows_seven_of_ten_comes_out_at_seven_of_ten() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 10);
    let all = "--baseline one-by-one --baseline no-reference --baseline bleu --baseline embedding";
    let (result, output) = run(&format!("refeval --documents {documents} {all}"));
    let summary = result.expect("runs");
    let knowledge = &summary.values["knowledge"];
    // 150 of 200 units are covered, 105 of them correctly.
    assert_eq!(
        (&knowledge["units"], &knowledge["correct"], &knowledge["incorrect"]),
        (&json!(200), &json!(105), &json!(45)),
        "{knowledge}"
    );
    let share = |figure: &str| knowledge[figure]["share"].as_f64().expect("defined");
    assert!((share("accuracy") - 0.7).abs() < 1e-12 && (share("coverage") - 0.75).abs() < 1e-12, "{knowledge}");
    assert!((share("recall") - 105.0 / 200.0).abs() < 1e-12);
    // Every fourth unit is okay; the weights are computed by hand.
    let place = |number: usize| number / PER_DOCUMENT * 15 + number % PER_DOCUMENT;
    let is_right = |number: &usize| number % PER_DOCUMENT < 15 && place(*number) % 10 < 7;
    let (okay, vital): (Vec<usize>, Vec<usize>) = (0..200).partition(|number| number % 4 == 0);
    let right = |all: &[usize]| all.iter().filter(|number| is_right(number)).count() as f64;
    let weighted = (right(&vital) + 0.5 * right(&okay)) / (vital.len() as f64 + 0.5 * okay.len() as f64);
    assert!((knowledge["vital_recall"].as_f64().expect("some") - right(&vital) / 150.0).abs() < 1e-12);
    assert!((knowledge["weighted_recall"].as_f64().expect("some") - weighted).abs() < 1e-12);
    // Three units at a time, twice per round. The remaining units are never covered; the round that finds this is the
    // last.
    let rounds = summary.values["rounds"].as_array().expect("a list");
    let covered: Vec<u64> = rounds.iter().map(|round| round["covered"].as_u64().expect("a number")).collect();
    assert!(covered.iter().sum::<u64>() == 150 && covered.last() == Some(&0) && covered.len() > 2, "{covered:?}");
    assert_eq!(summary.values["ended"], "a round covered nothing new");
    let open: Vec<u64> = rounds.iter().map(|round| round["open"].as_u64().expect("a number")).collect();
    assert!(open.windows(2).all(|pair| pair[1] < pair[0]) && open[0] == 200, "{open:?}");
    // Each table has one row for each part of all rounds.
    let asked = rounds.iter().map(|round| round["questions"].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(output.rows("answers").len() as u64, asked);
    assert_eq!(output.rows("knowledge").len(), 200);
    // Every document has the same shares as the whole.
    let scores = output.rows("scores");
    assert_eq!((scores.len(), summary.scores.within), (30, Some([0.0, 1.0])));
    for (attribute, wanted) in
        [("accuracy by document", 0.7), ("coverage by document", 0.75), ("recall by document", 0.525)]
    {
        let own: Vec<f64> = scores
            .iter()
            .filter(|row| row["attribute"] == attribute)
            .map(|row| row["score"].as_f64().expect("some"))
            .collect();
        assert!(own.len() == 10 && (own.iter().sum::<f64>() / 10.0 - wanted).abs() < 1e-12, "{attribute}: {own:?}");
    }
    let names: Vec<&str> = output.stages.iter().map(|stage| stage.name).collect();
    assert_eq!(
        names,
        [
            "units", "weights", "clusters", "questions", "answers", "judgements", "single_questions", "single_answers",
            "single_judgements", "no_reference"
        ]
    );
    // With single questions it covers the same units with the same correctness.
    let single = &summary.values["one_by_one"];
    assert_eq!((&single["knowledge"]["correct"], &single["knowledge"]["incorrect"]), (&json!(105), &json!(45)));
    assert_eq!(single["agreement"]["kappa"], json!(1.0));
    assert_eq!(summary.values["no_reference"]["units"], 150);
    assert_eq!(summary.values["metrics"].as_array().map(Vec::len), Some(2));
    let ignored = summary.values["ignored"].as_array().expect("a list");
    assert_eq!(ignored.iter().map(|one| one["units"].as_u64().expect("a number")).sum::<u64>(), 200);
    assert!(summary.values["tokens"]["judgements"]["requests"].as_u64().is_some_and(|n| n >= 200));
}

#[test]
fn reasons_are_json_and_every_way_of_judging_agrees() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 1);
    let writes = evaluator();
    let reasoning = ScriptedModel::from_probabilities(|_| vec![0.8, 0.1]).with_generation(move |request| {
        let prompt = request.prompt.text();
        if !prompt.contains("You compare an answer") {
            return written_by(&writes, request);
        }
        let (answer, number) = (block(&prompt, "Answer"), numbers(block(&prompt, "Fact"), "Ball")[0]);
        let verdict = match () {
            () if numbers(answer, "Right").contains(&number) => "correct",
            () if numbers(answer, "Wrong").contains(&number) => "incorrect",
            () if number == 2 => return generated("{\"reason\": \"cut"),
            () => "unrelated",
        };
        generated(&json!({ "reason": "so it says", "verdict": verdict }).to_string())
    });
    let mut output = MemoryOutput::default();
    let evaluated = evaluated();
    let others: [&dyn LanguageModel; 1] = [&evaluated];
    let models = MetricModels { encoder: Some(Arc::new(encoder())), ..MetricModels::default() };
    let mut run = Run::new(&reasoning, &mut output).with_other_models(&others).with_metric_models(models);
    let args =
        format!("refeval --documents {documents} --evaluated x --verdict generate --no-weights --cluster-units 20");
    let summary = configured(&args).expect("valid").run(&[], &mut run).expect("runs");
    assert_eq!(summary.values["knowledge"]["units"], 20);
    assert!((summary.values["knowledge"]["coverage"]["share"].as_f64().expect("some") - 0.75).abs() < 1e-12);
    assert_eq!(output.rows("judgements")[0]["reason"], "so it says");
}

/// The prompts of a run, including questions and answers of the evaluated model.
fn prompts_of(args: &str) -> (Vec<String>, MethodReport) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 1);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (asked, answered) = (seen.clone(), seen.clone());
    let (scores, writes) = (evaluator(), evaluator());
    let evaluator = ScriptedModel::from_results(move |request| {
        asked.lock().expect("unpoisoned").push(request.prompt.text());
        scored_by(&scores, request)
    })
    .with_generation(move |request| written_by(&writes, request));
    let evaluated = ScriptedModel::from_probabilities(|_| vec![1.0]).with_generation(move |request| {
        answered.lock().expect("unpoisoned").push(request.prompt.text());
        generated("Right 1.")
    });
    let mut output = MemoryOutput::default();
    let others: [&dyn LanguageModel; 1] = [&evaluated];
    let models = MetricModels { encoder: Some(Arc::new(encoder())), ..MetricModels::default() };
    let mut run = Run::new(&evaluator, &mut output).with_other_models(&others).with_metric_models(models);
    let args = format!("refeval --documents {documents} --evaluated x --no-weights --rounds 1 {args}");
    let summary = configured(&args).expect("valid").run(&[], &mut run).expect("runs");
    let seen = seen.lock().expect("unpoisoned").clone();
    (seen, summary)
}

#[test]
fn the_rule_of_the_paper_is_the_default_and_ours_an_option() {
    let judgement = |args: &str| {
        let (prompts, summary) = prompts_of(args);
        let prompt = prompts.into_iter().find(|prompt| prompt.contains("[Start of Fact]")).expect("there");
        (prompt, summary.signature.to_string())
    };
    let (paper, paper_line) = judgement("");
    for part in ["in full or in part", "admits that it does not know", "only if nothing of the fact is in it"] {
        assert!(paper.contains(part), "{part}\n{paper}");
    }
    let (strict, strict_line) = judgement("--rule strict");
    assert!(strict.contains("if it leaves the matter open") && !strict.contains("in part"), "{strict}");
    assert!(paper_line.contains("|rule:paper") && strict_line.contains("|rule:strict"), "{paper_line}\n{strict_line}");
    assert!(!paper.contains("to find out what somebody knows"), "{paper}");
    assert!(judgement("--domain botany").0.contains("what somebody knows about botany"));
}

#[test]
fn answers_may_go_into_related_content_as_in_the_paper() {
    let answer = |args: &str| {
        let prompts = prompts_of(args).0;
        prompts.into_iter().find(|prompt| prompt.contains("Answer from what you know")).expect("there")
    };
    assert!(answer("").contains("related matters") && !answer("--no-related").contains("related matters"));
    assert!(answer("--domain botany").contains("what you know of botany"));
}

#[test]
fn answers_come_from_a_file_as_far_as_it_goes() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 1);
    let base = format!("refeval --documents {documents} --no-weights --cluster-units 10");
    let until = Staging { until: Some("questions".to_owned()), ..Staging::default() };
    // This needs no answerer.
    let (result, output) = run_with(&base, until, None);
    assert!(matches!(result, Err(MethodError::Until("questions"))));
    let questions: Vec<Value> = output.rows("questions").into_iter().cloned().collect();
    assert!(questions.len() >= 2 && output.rows("answers").is_empty(), "{questions:?}");
    let path = folder.path().join("answers.jsonl");
    let answered = |rows: &[Value]| {
        std::fs::write(&path, rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).expect("written");
        run_with(&format!("{base} --answers {}", path.display()), Staging::default(), None)
    };
    let all: Vec<Value> = questions
        .iter()
        .map(|one| json!({"id": one["id"], "question": one["question"], "answer": "Right 1. Wrong 2."}))
        .collect();
    let (result, output) = answered(&all);
    let summary = result.expect("runs");
    assert_eq!(
        (&summary.values["knowledge"]["correct"], &summary.values["knowledge"]["incorrect"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(summary.values["ended"], "the last questions in questions.jsonl have no answers in the file");
    assert_eq!(output.rows("answers").len(), all.len());
    // The questions without answers have rows.
    let waiting = output.rows("questions").into_iter().filter(|row| row["turn"] == 1).count();
    assert!(waiting > 0 && output.rows("questions").len() == all.len() + waiting);
    let mut other = all.clone();
    other[0]["question"] = json!("Another?");
    for (rows, part) in [
        (&all[1..], "the file has no answer to the question"),
        (&[all[0].clone(), all[0].clone()][..], "first on line 1"),
        (&other[..], "belongs to \"Another?\""),
        (&[json!({"id": "1.0.1"})][..], "missing field `answer`"),
        (&[][..], "contains no answers"),
    ] {
        let error = error_text(&answered(rows).0.expect_err("refused"));
        assert!(error.contains(part) && error.contains("answers.jsonl"), "{part}\n{error}");
    }
}

#[test]
fn tables_and_options_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 1);
    let given = |stage: &str, rows: &[Value]| {
        let rows = (1..).zip(rows.iter().cloned()).collect();
        let table = crate::GivenTable { path: "t".into(), rows };
        let tables = std::collections::BTreeMap::from([(stage.to_owned(), table)]);
        let args = format!("refeval --documents {documents} --evaluated x");
        run_with(&args, Staging { tables, ..Staging::default() }, Some(&evaluated())).0
    };
    let row = |unit: &str| json!({"document": "d0", "passage": 1, "unit": unit});
    let mut weighed = row("Ball 1 carries paint.");
    weighed["weight"] = json!("okay");
    let summary = given("units", &[weighed.clone(), row("Ball 2 carries paint.")]).expect("runs");
    assert_eq!(
        (&summary.values["knowledge"]["okay"]["units"], &summary.values["knowledge"]["units"]),
        (&json!(1), &json!(2))
    );
    // Recall over vital units is also reported without any: as null.
    let summary = given("units", std::slice::from_ref(&weighed)).expect("runs");
    let knowledge = summary.tables.iter().find(|table| table.title == "Knowledge").expect("there");
    let vital = knowledge.rows.iter().find(|row| row[0] == crate::Cell::from("recall (vital)")).expect("there");
    assert_eq!((&vital[1], &vital[3]), (&crate::Cell::Missing, &crate::Cell::from("0 of 0 vital units")));
    weighed["weight"] = json!("heavy");
    for (rows, part) in [
        (vec![row(&"word ".repeat(21))], "t:1: `unit` has 21 words, but --unit-words is 20"),
        (vec![row(" ")], "t:1: `unit` is empty"),
        (vec![weighed], "`weight` is \"heavy\""),
        (
            vec![json!({"document": "d9", "passage": 1, "unit": "x"})],
            r#"t:1: nothing in the data has {"document":"d9""#,
        ),
        (Vec::new(), r#"a row is missing before this line: {"document":"d0","passage":1}"#),
    ] {
        let error = error_text(&given("units", &rows).expect_err("refused"));
        assert!(error.contains(part), "{part}\n{error}");
    }
    let questions = [json!({"id": "1.0.1", "question": "What?", "targets": ["d0/1.99"]})];
    let error = error_text(&given("questions", &questions).expect_err("refused"));
    assert!(error.contains("`targets` names the unit \"d0/1.99\""), "{error}");
    let refused =
        |args: &str| error_text(&run(&format!("refeval --documents {documents} {args}")).0.expect_err("refused"));
    assert!(refused("--answers x.jsonl").contains("cannot be combined with --evaluated"));
    assert!(refused("--overlap 300").contains("--passage-tokens"));
    assert!(refused("--baseline bleu --baseline bleu").contains("repeated"));
    let alone = run_with(&format!("refeval --documents {documents}"), Staging::default(), None).0;
    assert!(error_text(&alone.expect_err("refused")).contains("there is no --answers"));
    let absent =
        run_with("refeval --documents /nowhere/at/all.txt --evaluated x", Staging::default(), Some(&evaluated()));
    assert!(error_text(&absent.0.expect_err("refused")).contains("/nowhere/at/all.txt"));
}

#[test]
fn people_are_heard_where_they_judged() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 10);
    let path = folder.path().join("gold.jsonl");
    // The judge's verdicts on the first units of each document; the last one is never covered.
    let judged = |document: usize, k: usize| match k {
        PER_DOCUMENT.. => "unrelated",
        _ if k == PER_DOCUMENT - 1 => "unrelated",
        _ if (15 * document + k) % 10 < 7 => "correct",
        _ => "incorrect",
    };
    let gold = |of: usize, says: &dyn Fn(usize, usize) -> &'static str| {
        let places = (0..of).flat_map(|document| [0, 1, 8, PER_DOCUMENT - 1].map(|k| (document, k)));
        let line = |(document, k): (usize, usize)| {
            json!({"unit": format!("d{document}/1.{}", k + 1), "label": says(document, k)}).to_string()
        };
        std::fs::write(&path, places.map(line).collect::<Vec<_>>().join("\n")).expect("written");
        run(&format!("refeval --documents {documents} --gold {}", path.display())).0
    };
    let but_one = |document, k| if (document, k) == (0, 0) { "incorrect" } else { judged(document, k) };
    let summary = gold(10, &but_one).expect("runs");
    let agreement = &summary.values["gold"][0];
    assert_eq!((&agreement["units"], &agreement["agree"]), (&json!(40), &json!(39.0 / 40.0)), "{agreement}");
    assert!(agreement["kappa_interval"]["low"].as_f64().is_some_and(|low| low > 0.5), "{agreement}");
    // A quarter of the units is never covered although asked for.
    assert_eq!(summary.verdict[0].trust, crate::Trust::Reliable, "{:?}", summary.verdict);
    let opposite = |document, k| if judged(document, k) == "correct" { "incorrect" } else { "correct" };
    assert_eq!(gold(10, &opposite).expect("runs").verdict[0].trust, crate::Trust::Unreliable);
    // `unrelated` by human label and `incorrect` by the judge disagree.
    let silent = |_, _| "unrelated";
    assert_eq!(gold(10, &silent).expect("runs").verdict[0].trust, crate::Trust::Unreliable);
    let few = gold(2, &judged).expect("runs").verdict[0].clone();
    assert!(few.trust == crate::Trust::Caution && few.because.contains("only 8 units were checked"), "{few:?}");
    let error = error_text(&gold(1, &|_, _| "so-so").expect_err("refused"));
    assert!(error.contains("lines 1, 2, 3, 4") && error.contains("not one of correct, incorrect"), "{error}");
}

#[test]
fn every_stage_is_rehearsed_without_an_answer() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), 2);
    let staging = Staging { stands_in: true, ..Staging::default() };
    let args = format!("refeval --documents {documents} --evaluated x --baseline one-by-one --baseline no-reference");
    // Its answers are ignored.
    let silent = ScriptedModel::from_probabilities(|_| vec![0.4, 0.3, 0.2]).with_generation(|_| generated("x"));
    let models = MetricModels { encoder: Some(Arc::new(encoder())), ..MetricModels::default() };
    let (others, mut output): ([&dyn LanguageModel; 1], _) = ([&silent], MemoryOutput::default());
    let mut run = Run::new(&silent, &mut output).with_other_models(&others).with_metric_models(models);
    run = run.with_staging(staging);
    let result = configured(&args).expect("valid").run(&[], &mut run);
    assert!(matches!(result, Err(MethodError::Rehearsed)), "{result:?}");
    assert_eq!(output.stages.last().map(|stage| stage.name), Some("no_reference"));
}

/// Reports time and memory of an examination by number of passages. Each size runs in a separate process to isolate its
/// memory.
#[test]
#[ignore = "measures: REFEVAL_PASSAGES=1000 cargo test --release -p probity-methods --lib -- --ignored --nocapture \
            time_and_memory"]
fn time_and_memory_by_unit() {
    let count = std::env::var("REFEVAL_PASSAGES").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    let folder = tempfile::tempdir().expect("temporary folder");
    let documents = documents(folder.path(), count);
    let began = std::time::Instant::now();
    let summary =
        run(&format!("refeval --documents {documents} --baseline embedding --baseline bleu")).0.expect("runs");
    let seconds = began.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let units = summary.values["knowledge"]["units"].as_f64().expect("a number");
    println!(
        "{count} passages, {units} units: {seconds:.2} s, {:.3} ms a unit; {:.1} MB at most, {:.2} kB a unit",
        1e3 * seconds / units,
        peak.unwrap_or(f64::NAN) / 1e3,
        peak.unwrap_or(f64::NAN) / units
    );
    assert_eq!(summary.values["knowledge"]["correct"].as_f64(), Some(units * 105.0 / 200.0));
}

#[test]
fn knowledge_is_the_same_in_any_order_of_documents() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = documents(folder.path(), 10);
    let args = format!("refeval --documents {path}");
    let (first, output) = run(&args);
    let first = first.expect("runs");
    let lines: Vec<String> = std::fs::read_to_string(&path).expect("written").lines().map(str::to_owned).collect();
    for seed in 0..3 {
        std::fs::write(&path, shuffled(&lines, seed).join("\n")).expect("written");
        let (other, rows) = run(&args);
        let other = other.expect("runs");
        assert_eq!(first.values["knowledge"], other.values["knowledge"], "{seed}");
        assert_eq!(first.verdict, other.verdict);
        let scores = |output: &MemoryOutput| {
            let mut rows: Vec<String> = output.rows("scores").iter().map(ToString::to_string).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(scores(&output), scores(&rows));
    }
}
