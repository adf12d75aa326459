//! BLEU, chrF, TER and ROUGE compared with sacrebleu and `rouge_score` (`scripts/goldens/make_metrics.py`).

use std::path::{Path, PathBuf};

use probity_metrics::{ChosenMetric, MetricItem, MetricModels, MetricScores, Score, choose};
use serde_json::Value;

fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/metrics").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).expect("committed")).expect("JSON")
}

fn choice(label: &str) -> ChosenMetric {
    let choices = choose(label).expect("well formed");
    let [choice] = choices.as_slice() else { panic!("one metric") };
    choice.clone()
}

fn scores(label: &str, items: &[MetricItem<'_>]) -> MetricScores {
    choice(label).build(&MetricModels::default()).expect("options suit").score(items, &|_| Ok(())).expect("scored")
}

fn near(score: f64, expected: f64) -> bool {
    (score - expected).abs() <= 1e-9 * expected.abs().max(1e-3)
}

/// Items that differ from the tool, as `item: ours, theirs`. Undefined items are those that the tool cannot read and
/// scores as 0: they lower its mean.
fn differences(scores: &MetricScores, golden: &Value) -> Vec<String> {
    let expected = golden["items"].as_array().expect("a list").iter().chain([&golden["corpus"]]);
    let rows = scores.items.iter().chain([&scores.corpus]);
    let count = scores.items.len();
    assert_eq!(count, golden["items"].as_array().expect("a list").len());
    let defined = scores.items.iter().filter(|row| row[0].value().is_some()).count();
    let differs = rows.zip(expected).enumerate().filter_map(|(index, (row, expected))| {
        // A list of all numbers of a row, or only the first.
        let mut expected: Vec<f64> =
            expected.as_array().map_or_else(|| vec![number(expected)], |list| list.iter().map(number).collect());
        if index == count {
            for mean in &mut expected {
                *mean *= count as f64 / defined as f64;
            }
        }
        let agrees = |(score, expected): (&Score, &f64)| match score.value() {
            Some(score) => near(score, *expected),
            None => *expected == 0.0,
        };
        let same = row.iter().zip(&expected).all(agrees);
        (!same).then(|| format!("{index}: {row:?}, {expected:?}"))
    });
    differs.collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn edge_cases_have_the_scores_and_signatures_of_the_tools() {
    let golden = golden("edges.json");
    let text = |value: &'_ Value| value.as_str().expect("a text").to_owned();
    let texts: Vec<(String, Vec<String>)> = golden["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| {
            (text(&item["candidate"]), item["references"].as_array().expect("a list").iter().map(text).collect())
        })
        .collect();
    let items: Vec<MetricItem<'_>> = texts.iter().map(|(candidate, references)| item(candidate, references)).collect();
    let values = golden["values"].as_object().expect("a map");
    assert!(values.len() > 20 && items.len() > 30);
    for (label, golden) in values {
        let scores = scores(label, &items);
        let differences = differences(&scores, golden);
        assert!(differences.is_empty(), "{label}: {}", differences.join("\n"));
        let undefined = scores.items.iter().filter(|row| row[0].value().is_none()).count();
        // Items 22 to 25 are in Japanese, Korean and Hindi.
        assert_eq!(undefined, if label.starts_with("rouge") { 4 } else { 0 }, "{label}");
        if let Some(signature) = golden["signature"].as_str() {
            let metric = choice(label).build(&MetricModels::default()).expect("options suit");
            let ours = choice(label).signature(metric.settings(), &items);
            // Settings that sacrebleu's signature omits precede the version in ours.
            let settings = |signature: &str| signature.split_once("|version:").expect("a version").0.to_owned();
            assert!(settings(&ours).starts_with(&settings(signature)), "{label}: {ours}, {signature}");
        }
    }
}

fn item<'a>(candidate: &'a str, references: &'a [String]) -> MetricItem<'a> {
    MetricItem { candidate, references: references.iter().map(String::as_str).collect(), source: None }
}

/// The folder of the public data, if it exists.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("PROBITY_SHARED_DATA").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    let there = folder.join("summeval.json").is_file();
    if !there {
        eprintln!("skipped: no public data (PROBITY_SHARED_DATA)");
    }
    there.then_some(folder)
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("readable");
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        return text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    }
    match serde_json::from_str(&text).expect("JSON") {
        Value::Array(list) => list,
        Value::Object(map) => map.into_iter().map(|(_, value)| value).collect(),
        other => panic!("{other}"),
    }
}

/// Candidates and references of the public data, in the order of the script.
fn public(folder: &Path) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let lines = |value: &Value| text(value).replace(" . ", " .\n");
    let mut texts = Vec::new();
    for document in read(&folder.join("summeval.json")).iter().take(25) {
        for (k, system) in document["sys_summs"].as_object().expect("a map").values().enumerate() {
            let references = document["ref_summs"].as_array().expect("a list").iter().take(1 + k % 3);
            texts.push((lines(&system["sys_summ"]), references.map(lines).collect()));
        }
    }
    let chat = read(&folder.join("topical_chat.json"));
    let is_truth = |answer: &Value| answer["system_id"] == "Original Ground Truth";
    for answer in chat.iter().filter(|answer| !is_truth(answer)) {
        let truth = chat
            .iter()
            .rfind(|other| is_truth(other) && other["source"] == answer["source"])
            .expect("an original answer");
        texts.push((text(&answer["system_output"]), vec![text(&truth["system_output"])]));
    }
    for pair in read(&folder.join("parareval_129.jsonl")) {
        for model in ["model_A_paragraph", "model_B_paragraph"] {
            texts.push((
                text(&pair[model]),
                vec![text(&pair["reference_paragraph"]), text(&pair["original_paragraph"])],
            ));
        }
    }
    texts
}

#[test]
fn public_data_have_the_scores_of_the_tools() {
    let Some(folder) = data() else { return };
    let golden = golden("public.json");
    let texts = public(&folder);
    let items: Vec<MetricItem<'_>> = texts.iter().map(|(candidate, references)| item(candidate, references)).collect();
    let values = golden["values"].as_object().expect("a map");
    assert!(values.len() > 10 && items.len() > 900);
    for (label, golden) in values {
        let differences = differences(&scores(label, &items), golden);
        assert!(
            differences.is_empty(),
            "{label}: {} differ\n{}",
            differences.len(),
            differences[..differences.len().min(9)].join("\n")
        );
    }
}

/// The score of all items together, from 0 to 100 or 0 to 1 as in the tool.
fn corpus(label: &str, candidates: &[&str], references: &[&[&str]]) -> Vec<f64> {
    let items = candidates.iter().enumerate().map(|(index, candidate)| MetricItem {
        candidate,
        references: references.iter().map(|stream| stream[index]).collect(),
        source: None,
    });
    scores(label, &items.collect::<Vec<_>>()).corpus.into_iter().map(|score| score.value().expect("a number")).collect()
}

/// Expected values of sacrebleu's own tests (`test_bleu.py`, `test_chrf.py`, `test_ter.py`).
#[test]
fn sacrebleu_s_published_values() {
    let dogs = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."];
    let dog_references: &[&[&str]] = &[
        &["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
        &["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."],
    ];
    for (label, expected) in [
        ("bleu", 48.530_827),
        ("bleu:tok=none", 49.191_956_6),
        ("bleu:tok=intl", 43.916_234_93),
        ("bleu:smooth=none", 48.530_827),
    ] {
        let score = corpus(label, &dogs, dog_references)[0];
        assert!((score - expected).abs() < 1e-6, "{label}: {score}");
    }
    assert_eq!(corpus("bleu", &["", "", ""], dog_references), [0.0]);
    let raw = "bleu:tok=none,smooth=floor,k=0.01,eff=yes";
    let eps = "chrf:beta=3,eps=yes";
    for (label, candidates, reference, expected) in [
        (raw, &["this is a test"][..], &["this is a test"][..], 100.0),
        (raw, &["this is a fest"], &["this is a test"], 22.360_679_774_997_9),
        (raw, &["test"], &["a test"], 36.787_944_117_144_25),
        (raw, &["a test"], &["a test"], 100.0),
        (raw, &["a little test"], &["a test"], 3.218_297_948_685_433),
        (eps, &["abcdefg"], &["hijklmnop"], 0.0),
        (eps, &["a"], &["b"], 0.0),
        (eps, &[""], &["reference"], 0.0),
        (eps, &["aa"], &["ab"], 8.3333),
        (eps, &["a", "b"], &["a", "c"], 8.3333),
        (eps, &["a"], &["a"], 16.6667),
        (eps, &["a b c"], &["abc"], 50.0),
        ("chrf:beta=3", &["a"], &["a"], 100.0),
        ("chrf:beta=3", &[""], &["reference"], 0.0),
        ("chrf:beta=3", &["a b c"], &["abc"], 100.0),
        ("chrf:beta=3", &["a", "b"], &["a", "c"], 50.0),
        ("chrf:beta=3", &["aa"], &["ab"], 25.0),
        ("ter", &["aaaa bbbb cccc dddd"], &["aaaa bbbb cccc dddd"], 0.0),
        ("ter", &["dddd eeee ffff"], &["aaaa bbbb cccc"], 100.0),
        ("ter", &[""], &["a"], 100.0),
        ("ter", &["d e f g h a b c"], &["a b c d e f g h"], 12.5),
        // From sacrebleu 2.6.0, which tokenizes references twice.
        ("ter:normalized=yes", &["The dog 's. It is the cats, yes"], &["The dog's. It is the cat's, yes."], 25.0),
        ("ter:normalized=yes", &["a &lt; b the dog's."], &["a &amp;lt; b the dog's."], 200.0 / 7.0),
    ] {
        let score = corpus(label, candidates, &[reference])[0];
        assert!((score - expected).abs() < 1e-4, "{label} {candidates:?}: {score}, {expected}");
    }
}

/// Expected values of `rouge_score`'s own tests (`rouge_scorer_test.py`): F, precision, recall.
#[test]
fn rouge_score_s_published_values() {
    let lines = "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5";
    for (label, candidate, reference, expected) in [
        ("rouge-1", "testing", "testing one two", [0.5, 1.0, 1.0 / 3.0]),
        ("rouge-1", "testing one", "testing one two", [0.8, 1.0, 2.0 / 3.0]),
        ("rouge-2", "testing one", "testing one two", [2.0 / 3.0, 1.0, 0.5]),
        ("rouge-l", "testing one", "testing one two", [0.8, 1.0, 2.0 / 3.0]),
        ("rouge-l", "testing two", "testing one two", [0.8, 1.0, 2.0 / 3.0]),
        ("rouge-lsum", lines, "w1 w2 w3 w4 w5", [0.533_333, 0.4, 0.8]),
        ("rouge-lsum", "/", "w1 w2 w3 w4 w5", [0.0; 3]),
        ("rouge-lsum", "w1", "", [0.0; 3]),
        ("rouge-1", "", "testing one two", [0.0; 3]),
        ("rouge-2", "", "testing one two", [0.0; 3]),
        ("rouge-l", "", "testing one two", [0.0; 3]),
    ] {
        let scores = corpus(label, &[candidate], &[&[reference]]);
        assert!(
            scores.iter().zip(expected).all(|(score, expected)| (score - expected).abs() < 1e-6),
            "{label} {candidate}: {scores:?}"
        );
    }
}
