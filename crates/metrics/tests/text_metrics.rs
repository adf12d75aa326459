//! METEOR, both GLEUs, SARI and edit distances compared with their published tools
//! (`scripts/goldens/make_text_metrics.py`).

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use probity_metrics::{MetricItem, MetricModels, MetricScores, Score, choose};
use proptest::prelude::*;
use serde_json::Value;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/metrics")
}

fn golden(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(goldens().join(name)).expect("golden")).expect("JSON")
}

fn scores(metric: &str, items: &[MetricItem<'_>]) -> MetricScores {
    let choices = choose(metric).expect("registered");
    choices[0].check(items).expect("all that is needed");
    choices[0].build(&MetricModels::default()).expect("options suit").score(items, &|_| Ok(())).expect("scored")
}

/// Whether a row is as expected: a number, numbers, or null if undefined. A tool may have fewer parts.
fn agrees(row: &[Score], expected: &Value) -> bool {
    let near = |score: Score, expected: &Value| match (score.value(), expected.as_f64()) {
        (Some(value), Some(expected)) => (value - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        (None, None) => expected.is_null(),
        _ => false,
    };
    match expected {
        Value::Array(parts) => {
            row.len() == parts.len() && row.iter().zip(parts).all(|(score, part)| near(*score, part))
        }
        one => near(row[0], one),
    }
}

/// An item's texts, owned.
struct Texts {
    source: String,
    candidate: String,
    references: Vec<String>,
}

impl Texts {
    fn item(&self) -> MetricItem<'_> {
        let references = self.references.iter().map(String::as_str).collect();
        MetricItem { candidate: &self.candidate, references, source: Some(&self.source) }
    }
}

/// The folder of data sets that are not part of the project: `PROBITY_SHARED_DATA`, or beside the project.
fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("PROBITY_SHARED_DATA").map_or_else(beside, PathBuf::from);
    folder.join("summeval.json").exists().then_some(folder)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn texts(values: &Value) -> impl Iterator<Item = String> {
    values.as_array().expect("texts").iter().map(text)
}

/// The items of a group, as in the goldens' script.
fn items(group: &str, folder: &Path) -> Vec<Texts> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a data set");
    match group {
        "summeval" => {
            let documents: serde_json::Map<String, Value> = serde_json::from_str(&read("summeval.json")).expect("JSON");
            documents.values().enumerate().flat_map(|(number, document)| summaries(number, document)).collect()
        }
        "parareval" => read("parareval_129.jsonl")
            .lines()
            .flat_map(|line| revisions(&serde_json::from_str(line).expect("JSON")))
            .collect(),
        "metacritique" => {
            let rows: Vec<Value> = serde_json::from_str(&read("metacritique_annotation.json")).expect("JSON");
            let critique = |row: &Value, by: &str| text(&row[by]["critique"]);
            let texts = |row: &Value| Texts {
                source: format!("{} {}", text(&row["question"]), text(&row["response"])),
                candidate: critique(row, "llm1_critique"),
                references: ["gpt4_critique", "human_critique"].map(|by| critique(row, by)).to_vec(),
            };
            rows.iter().map(texts).collect()
        }
        other => panic!("no group {other}"),
    }
}

fn summaries(number: usize, document: &Value) -> Vec<Texts> {
    let systems = document["sys_summs"].as_object().expect("systems");
    let mut names: Vec<&String> = systems.keys().collect();
    names.sort();
    let texts = |offset: usize| Texts {
        source: text(&document["src"]),
        candidate: text(&systems[names[(number + offset) % names.len()]]["sys_summ"]),
        references: texts(&document["ref_summs"]).take(4).collect(),
    };
    [0, 7].map(texts).into()
}

fn revisions(row: &Value) -> [Texts; 2] {
    ["model_A_paragraph", "model_B_paragraph"].map(|by| Texts {
        source: text(&row["original_paragraph"]),
        candidate: text(&row[by]),
        references: vec![text(&row["reference_paragraph"])],
    })
}

#[test]
fn real_texts_score_as_by_the_published_tools() {
    let Some(folder) = data() else {
        return eprintln!("skipped: PROBITY_SHARED_DATA names no folder with summeval.json");
    };
    let golden = golden("text.json");
    let mut compared = 0;
    for (group, metrics) in golden["groups"].as_object().expect("groups") {
        let texts = items(group, &folder);
        let items: Vec<MetricItem<'_>> = texts.iter().map(Texts::item).collect();
        for (metric, expected) in metrics.as_object().expect("metrics") {
            let scores = scores(metric, &items);
            let rows = expected["items"].as_array().expect("rows");
            assert_eq!(rows.len(), items.len());
            for (index, (row, expected)) in scores.items.iter().zip(rows).enumerate() {
                assert!(agrees(row, expected), "{metric}, {group} {index}: {row:?}, expected {expected}");
            }
            let corpus = &expected["corpus"];
            assert!(
                corpus.is_null() || agrees(&scores.corpus, corpus),
                "{metric}, {group}: {:?}, expected {corpus}",
                scores.corpus
            );
        }
        compared += items.len();
    }
    assert!(compared >= 500, "{compared}");
    let texts = items("metacritique", &folder);
    let items: Vec<MetricItem<'_>> = texts.iter().map(Texts::item).collect();
    for (metric, expected) in golden["variants"].as_object().expect("variants") {
        let corpus = scores(metric, &items).corpus;
        assert!(agrees(&corpus, expected), "{metric}: {corpus:?}, expected {expected}");
    }
}

#[test]
fn real_texts_score_as_by_nltk_with_wordnet() {
    let (Some(folder), Some(wordnet)) = (data(), std::env::var("PROBITY_WORDNET").ok()) else {
        return eprintln!(
            "skipped: PROBITY_SHARED_DATA or PROBITY_WORDNET (the folder dict of WordNet 3.0) names nothing"
        );
    };
    for (group, rows) in golden("text.json")["wordnet"].as_object().expect("groups") {
        let texts = items(group, &folder);
        let items: Vec<MetricItem<'_>> = texts.iter().map(Texts::item).collect();
        let scores = scores(&format!("meteor:wordnet={wordnet}"), &items);
        for (index, (row, expected)) in scores.items.iter().zip(rows.as_array().expect("rows")).enumerate() {
            assert!(agrees(row, expected), "{group} {index}: {row:?}, expected {expected}");
        }
    }
}

#[test]
fn edge_cases_score_as_by_the_published_tools_and_nothing_by_nothing_is_undefined() {
    let repeated = |value: &Value| match value {
        Value::Array(pair) => text(&pair[0]).repeat(pair[1].as_u64().expect("a number") as usize),
        one => text(one),
    };
    let golden = golden("text.json");
    for case in golden["edges"].as_array().expect("cases") {
        let references = case["references"].as_array().expect("texts").iter().map(repeated).collect();
        let texts = Texts { source: repeated(&case["source"]), candidate: repeated(&case["candidate"]), references };
        for (metric, expected) in case["scores"].as_object().expect("scores") {
            let row = &scores(metric, &[texts.item()]).items[0];
            assert!(agrees(row, expected), "{metric}: {row:?}, expected {expected} of {:?}", texts.item());
        }
    }
}

#[test]
fn answers_score_as_by_the_script_of_squad() {
    let golden = golden("answers.json");
    for case in golden["edges"].as_array().expect("cases") {
        let references = case["references"].as_array().expect("texts").iter().map(text).collect();
        let texts = Texts { source: String::new(), candidate: text(&case["candidate"]), references };
        let row = &scores("token-f1", &[texts.item()]).items[0];
        assert!(agrees(row, &case["scores"]), "{row:?}, expected {case}");
    }
    let Some(folder) = data() else {
        return eprintln!("skipped: PROBITY_SHARED_DATA names no folder with summeval.json");
    };
    for (group, rows) in golden["groups"].as_object().expect("groups") {
        let texts = items(group, &folder);
        let items: Vec<MetricItem<'_>> = texts.iter().map(Texts::item).collect();
        let rows = rows.as_array().expect("rows");
        assert_eq!(rows.len(), items.len());
        for (index, (row, expected)) in scores("token-f1", &items).items.iter().zip(rows).enumerate() {
            assert!(agrees(row, expected), "{group} {index}: {row:?}, expected {expected}");
        }
    }
}

#[test]
fn synonyms_are_those_that_nltk_finds() {
    let folder = goldens().join("wordnet");
    for case in golden("synonyms.json")["cases"].as_array().expect("cases") {
        let [candidate, reference] = [0, 1].map(|index| text(&case[index]));
        let item = MetricItem { candidate: &candidate, references: vec![&reference], source: None };
        let row = &scores(&format!("meteor:tok=none,wordnet={}", folder.display()), &[item]).items[0];
        assert!(agrees(row, &case[2]), "{row:?}, expected {case}");
    }
}

#[test]
fn a_wordnet_that_cannot_be_read_is_told_by_file_and_line() {
    let refused = |folder: &Path| {
        choose(&format!("meteor:wordnet={}", folder.display())).expect("read")[0].build(&MetricModels::default()).err()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let error = refused(folder.path()).expect("refused");
    assert!(error.help().is_some());
    let error = error.to_string();
    assert!(error.contains("cannot read") && error.contains("index.noun"), "{error}");
    for file in std::fs::read_dir(goldens().join("wordnet")).expect("goldens") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    assert!(refused(folder.path()).is_none());
    for (name, line, what) in [
        ("index.verb", "car v x", "the number of synsets"),
        ("data.adj", "12 00 a 02 quick 0", "a word"),
        ("noun.exc", "", "the inflected form"),
    ] {
        let whole = std::fs::read_to_string(folder.path().join(name)).expect("a file");
        std::fs::write(folder.path().join(name), format!("{line}\n{whole}")).expect("written");
        let error = refused(folder.path()).expect("refused").to_string();
        assert!(error.contains(&format!("{name}, line 1: {what} is missing or not well formed")), "{error}");
        std::fs::write(folder.path().join(name), whole).expect("written");
    }
}

#[test]
fn sari_of_unchanged_paragraphs_depends_on_the_implementation() {
    // Jourdan et al. (2025), Table 2, has 60.63 for a copy of the original, computed with Hugging Face's
    // implementation.
    let Some(folder) = data() else {
        return eprintln!("skipped: PROBITY_SHARED_DATA names no folder with parareval_129.jsonl");
    };
    let texts: Vec<Texts> = items("parareval", &folder)
        .into_iter()
        .step_by(2)
        .map(|texts| Texts { candidate: texts.source.clone(), ..texts })
        .collect();
    let items: Vec<MetricItem<'_>> = texts.iter().map(Texts::item).collect();
    assert_eq!(items.len(), 129);
    for (metric, expected) in [("sari-hf", 61.10), ("sari-easse", 27.1), ("sari-xu", 26.0)] {
        let scores = scores(metric, &items);
        let mean = scores.items.iter().filter_map(|row| row[0].value()).sum::<f64>() / 129.0;
        assert!((mean - expected).abs() < 0.06, "{metric}: {mean}, expected {expected}");
    }
}

#[test]
fn a_metric_that_needs_a_source_says_so() {
    let item = MetricItem { candidate: "a", references: vec!["a"], source: None };
    for metric in ["gleu-napoles", "sari-easse", "sari-xu", "sari-hf", "levenshtein-source"] {
        let choice = &choose(metric).expect("registered")[0];
        let error = choice.check(std::slice::from_ref(&item)).expect_err("refused");
        assert!(error.to_string().contains("needs a source") && error.help().is_some(), "{error}");
    }
}

#[test]
fn signatures_name_what_changes_scores() {
    let settings = |metric: &str| {
        let metric = choose(metric).expect("registered")[0].build(&MetricModels::default()).expect("options suit");
        metric.settings().iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join("|")
    };
    let wordnet = format!("meteor:tok=none,gamma=0.25,wordnet={}", goldens().join("wordnet").display());
    for (metric, expected) in [
        ("meteor", "case:lc|tok:13a|stem:porter-nltk|wordnet:no|alpha:0.9|beta:3|gamma:0.5"),
        (&wordnet, "case:lc|tok:none|stem:porter-nltk|wordnet:0.1|alpha:0.9|beta:3|gamma:0.25"),
        ("gleu-google:lowercase=yes,max=3", "case:lc|tok:13a|order:1-3"),
        ("gleu-napoles", "case:mixed|tok:none|draws:500"),
        ("sari-easse", "case:lc|tok:13a|average:f1|delete:f1"),
        (
            "sari-easse:cased=yes,average=precision-recall,delete=precision",
            "case:mixed|tok:13a|average:pr|delete:precision",
        ),
        ("sari-xu", "case:lc|tok:none"),
        ("sari-hf:tok=intl", "case:lc|tok:intl"),
        ("levenshtein:unit=word", "case:mixed|unit:word"),
    ] {
        assert_eq!(settings(metric), expected, "{metric}");
    }
}

const OURS: [&str; 9] = [
    "meteor", "gleu-google", "gleu-napoles", "sari-easse", "sari-xu", "sari-hf", "levenshtein",
    "levenshtein:unit=word", "levenshtein-source",
];

fn random_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        proptest::sample::select(vec!["a", "the", "Cats", "cat", "ran", "running", ".", "über", "猫", "42"]),
        0..14,
    )
    .prop_map(|words| words.join(" "))
}

fn one(metric: &str, candidate: &str, references: &[&str], source: &str) -> Option<f64> {
    scores(metric, &[MetricItem { candidate, references: references.to_vec(), source: Some(source) }]).items[0][0]
        .value()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scores_keep_their_bounds(candidate in random_text(), first in random_text(), second in random_text(), source in random_text()) {
        for metric in OURS {
            let bound = match metric {
                name if name.starts_with("sari") => 100.0,
                name if name.starts_with("levenshtein") => f64::MAX,
                _ => 1.0,
            };
            let all = scores(metric, &[MetricItem { candidate: &candidate, references: vec![&first, &second], source: Some(&source) }]);
            for score in all.items.iter().flatten().chain(&all.corpus).filter_map(|score| score.value()) {
                prop_assert!((0.0..=bound + 1e-9).contains(&score), "{metric}: {score}");
            }
        }
    }

    #[test]
    fn the_reference_itself_is_best(reference in random_text(), candidate in random_text(), source in random_text()) {
        let once = |text: &str| text.split(' ').all(|word| text.split(' ').filter(|other| *other == word).count() == 1);
        for metric in ["gleu-google", "gleu-napoles", "sari-hf"] {
            let Some(own) = one(metric, &reference, &[&reference], &source) else { continue };
            let perfect = match metric {
                "gleu-napoles" if reference.split(' ').count() < 4 => continue,
                // It treats one deletion of a repeated word as a word that should stay.
                "sari-hf" if !once(&source.to_lowercase()) => continue,
                "sari-hf" => 100.0,
                _ => 1.0,
            };
            prop_assert!((own - perfect).abs() < 1e-9, "{metric}: {own}");
            prop_assert!(one(metric, &candidate, &[&reference], &source).is_none_or(|other| other <= own + 1e-9), "{metric}");
        }
        prop_assert_eq!(one("levenshtein", &reference, &[&reference], &source), Some(0.0));
    }

    #[test]
    fn the_order_of_references_makes_no_difference_to_an_item(candidate in random_text(), first in random_text(), second in random_text(), source in random_text()) {
        for metric in OURS {
            let [ab, ba] = [[&first, &second], [&second, &first]].map(|references| one(metric, &candidate, &references.map(String::as_str), &source));
            prop_assert!(ab.zip(ba).map_or(ab == ba, |(ab, ba)| (ab - ba).abs() < 1e-9), "{metric}: {ab:?}, {ba:?}");
        }
    }

    #[test]
    fn an_item_scores_alone_as_among_others(first in random_text(), second in random_text(), source in random_text()) {
        for metric in OURS {
            let item = |candidate, reference| MetricItem { candidate, references: vec![reference], source: Some(&source) };
            let both = scores(metric, &[item(&first, &second), item(&second, &first)]);
            prop_assert_eq!(&both.items[1], &scores(metric, &[item(&second, &first)]).items[0], "{}", metric);
        }
    }
}
