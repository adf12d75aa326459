//! The text encoder interface on real files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::Diagnostic as _;
use probity_lm::{MaskedSequence, TextEncoder};
use probity_metrics::{MetricItem, MetricModels, Score, choose};
use probity_runtime::hub::locate;
use probity_runtime::{LoadOptions, TextModel};
use serde_json::Value;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

fn load(folder: &Path, options: LoadOptions) -> TextModel {
    TextModel::load(&locate(folder.to_str().expect("UTF-8 path")).expect("a model lies there"), options).expect("loads")
}

fn tiny(options: LoadOptions) -> TextModel {
    load(&goldens().join("models/tiny-masked"), options)
}

/// The published all-MiniLM-L6-v2, if available.
fn minilm() -> Option<TextModel> {
    let folder = PathBuf::from(std::env::var_os("PROBITY_MODELS")?).join("all-minilm-l6-v2");
    folder.join("model.safetensors").is_file().then(|| load(&folder, LoadOptions::default()))
}

/// The articles of `SummEval`, which are not part of the project: from `PROBITY_SHARED_DATA`, or next to it.
fn articles() -> Option<Value> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("PROBITY_SHARED_DATA").map_or_else(beside, PathBuf::from);
    let file = folder.join("summeval.json");
    file.is_file().then(|| read(&file))
}

/// Summaries of five systems for each article, each with one, two or three references in turn, as in
/// `make_embedding_metrics.py`.
fn real_items(articles: &Value) -> Vec<MetricItem<'_>> {
    let text = |value: &'_ Value| value.as_str().map(str::to_owned).expect("a text");
    let mut items: Vec<MetricItem<'_>> = Vec::new();
    for article in articles.as_object().expect("articles").values() {
        let systems = article["sys_summs"].as_object().expect("systems");
        let mut names: Vec<&String> = systems.keys().collect();
        names.sort_unstable();
        for name in names.into_iter().take(5) {
            let references = article["ref_summs"].as_array().expect("references").iter().take(1 + items.len() % 3);
            items.push(MetricItem {
                candidate: text(&systems[name]["sys_summ"]).leak(),
                references: references.map(|reference| reference.as_str().expect("a text")).collect(),
                source: article["src"].as_str(),
            });
        }
    }
    items
}

fn scored(metric: &str, encoder: &Arc<TextModel>, items: &[MetricItem<'_>]) -> Vec<Vec<Score>> {
    let models = MetricModels { encoder: Some(encoder.clone()), ..MetricModels::default() };
    choose(metric).expect("well formed")[0]
        .build(&models)
        .expect("suits")
        .score(items, &|_| Ok(()))
        .expect("scores")
        .items
}

/// The largest difference from golden numbers; values without a golden number must be undefined.
fn largest_difference(metric: &str, rows: &[Vec<Score>], expected: &Value) -> f64 {
    let expected = expected.as_array().expect("rows");
    assert_eq!(rows.len(), expected.len(), "{metric}");
    let mut largest = 0.0_f64;
    for (index, (row, expected)) in rows.iter().zip(expected).enumerate() {
        let numbers = match expected {
            Value::Null => vec![],
            Value::Array(numbers) => numbers.clone(),
            number => vec![number.clone()],
        };
        if numbers.is_empty() {
            assert!(row[0].value().is_none(), "{metric}, item {index}: {row:?} where the tool has nothing to compare");
        }
        for (score, expected) in row.iter().zip(numbers) {
            let value = score.value().unwrap_or_else(|| panic!("{metric}, item {index}: {score:?}"));
            largest = largest.max((value - expected.as_f64().expect("a number")).abs());
        }
    }
    largest
}

#[test]
fn states_and_predictions_are_the_same_bits_whatever_runs_together() {
    let texts = [
        "The farmer planted apple trees.", "a", "My neighbour repaired wooden boats behind the house.",
        "zzz unknown 日本",
    ];
    let (wide, narrow) = (
        tiny(LoadOptions::default()),
        tiny(LoadOptions { token_budget: Some(1), threads: Some(1), ..LoadOptions::default() }),
    );
    let ids: Vec<Vec<u32>> = wide
        .tokenizer()
        .tokenize(&texts)
        .expect("tokenizes")
        .iter()
        .map(|ids| wide.tokenizer().framing().frame(ids, None).ids)
        .collect();
    let sequences: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    let states = |model: &TextModel| {
        let mut states = vec![None; sequences.len()];
        let take = &mut |index: usize, of| {
            states[index] = Some(of);
            Ok(())
        };
        let usage = model.hidden_states(&sequences, &[2, 0], take).expect("runs");
        assert_eq!(usage.tokens_computed as usize, ids.iter().map(Vec::len).sum::<usize>());
        states.into_iter().map(|states: Option<probity_lm::HiddenStates>| states.expect("answered")).collect::<Vec<_>>()
    };
    let together = states(&wide);
    assert_eq!(together, states(&narrow));
    assert_eq!(together[1].values.len(), 2 * ids[1].len() * wide.config().hidden_size);
    let mask = wide.tokenizer().framing().mask.expect("a mask");
    let masked: Vec<MaskedSequence> = ids
        .iter()
        .map(|ids| {
            let mut ids = ids.clone();
            ids[1] = mask;
            MaskedSequence { positions: vec![1], ids }
        })
        .collect();
    let predictions = |model: &TextModel| {
        let mut all = vec![Vec::new(); masked.len()];
        let take = &mut |index: usize, ids| {
            all[index] = ids;
            Ok(())
        };
        model.predict_masked(&masked, take).expect("runs");
        all
    };
    assert_eq!(predictions(&wide), predictions(&narrow));
    // As predicted by transformers, with a margin of at least half a logit.
    let words: Vec<String> = predictions(&wide).iter().map(|ids| wide.tokenizer().piece(ids[0]).text).collect();
    assert_eq!(words, ["old", "neighbour", "old", "farmer"]);
}

#[test]
fn words_and_special_tokens_are_told_apart() {
    let model = tiny(LoadOptions::default());
    let ids = model.tokenizer().tokenize(&["farmers [SEP]"]).expect("tokenizes").remove(0);
    let pieces: Vec<_> = ids.iter().map(|&id| model.tokenizer().piece(id)).collect();
    assert!(!pieces[0].continues_word && pieces[1].continues_word, "{pieces:?}");
    assert_eq!(pieces[0].text.clone() + &pieces[1].text, "farmers", "{pieces:?}");
    assert!(!ids.contains(&model.tokenizer().framing().after[0]), "a text never holds a special token");
    assert_eq!(
        (
            model.tokenizer().framing().before.len(),
            model.tokenizer().framing().after.len(),
            model.tokenizer().word_start()
        ),
        (1, 1, "")
    );
}

#[test]
fn a_generating_model_is_refused_as_an_encoder() {
    let folder = goldens().join("models/tiny-flan-t5");
    let located = locate(folder.to_str().expect("UTF-8 path")).expect("a model lies there");
    let error = TextModel::load(&located, LoadOptions::default()).err().expect("refused");
    assert!(error.help().is_some_and(|hint| hint.to_string().starts_with("use a bert")), "{error:?}");
}

#[test]
fn blanc_is_the_package_s_with_a_model_and_sentences_by_an_independent_splitter() {
    let (golden, model) = (read(&goldens().join("embedding/blanc.json")), Arc::new(tiny(LoadOptions::default())));
    let text = |value: &Value| -> &'static str { value.as_str().expect("a text").to_owned().leak() };
    let own = golden["texts"].as_array().expect("texts");
    let own: Vec<MetricItem<'_>> = own
        .iter()
        .map(|item| MetricItem {
            candidate: text(&item["candidate"]),
            references: Vec::new(),
            source: Some(text(&item["source"])),
        })
        .collect();
    for (metric, expected) in golden["own"].as_object().expect("metrics") {
        assert!(largest_difference(metric, &scored(metric, &model, &own), expected) < 1e-12, "{metric}");
    }
    let Some(articles) = articles() else {
        return eprintln!("skipped: PROBITY_SHARED_DATA names no folder with summeval.json");
    };
    let all = real_items(&articles);
    // Whole articles, and as many short texts as summaries, each before the first reference.
    let long: Vec<MetricItem<'_>> = all.iter().step_by(5).take(40).cloned().collect();
    let short: Vec<MetricItem<'_>> =
        all.iter().map(|item| MetricItem { source: Some(item.references[0]), ..item.clone() }).collect();
    assert!(short.len() >= 500);
    for (items, expected) in [(&long, &golden["real"]), (&short, &golden["short"])] {
        for (metric, expected) in expected.as_object().expect("metrics") {
            assert!(largest_difference(metric, &scored(metric, &model, items), expected) < 1e-12, "{metric}");
        }
    }
}

#[test]
fn bets_is_what_its_authors_script_says_with_a_model_and_a_comparator() {
    let (golden, model) = (read(&goldens().join("embedding/bets.json")), Arc::new(tiny(LoadOptions::default())));
    let text = |value: &Value| -> &'static str { value.as_str().expect("a text").to_owned().leak() };
    let items: Vec<MetricItem<'_>> = golden["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| MetricItem {
            candidate: text(&item["candidate"]),
            references: Vec::new(),
            source: Some(text(&item["source"])),
        })
        .collect();
    let file = goldens().join("embedding/bets.safetensors");
    let metric = format!("bets:comparator={},tok=none,alpha=2", file.display());
    let tolerance = golden["max_abs_difference"].as_f64().expect("a tolerance");
    for (row, expected) in
        scored(&metric, &model, &items).iter().zip(golden["meaning_and_simplicity"].as_array().expect("rows"))
    {
        let [meaning, simplicity] = [0, 1].map(|place| expected[place].as_f64().expect("a number"));
        for (score, expected) in row.iter().zip([2.0 * simplicity + meaning, meaning, simplicity]) {
            assert!(score.value().is_some_and(|value| (value - expected).abs() <= tolerance), "{row:?}: {expected}");
        }
    }
}

#[test]
fn minilm_embeds_as_sentence_transformers_do() {
    let Some(model) = minilm() else { return eprintln!("skipped: PROBITY_MODELS has no all-minilm-l6-v2") };
    let golden = read(&goldens().join("embedding/minilm.json"));
    let texts: Vec<&str> =
        golden["texts"].as_array().expect("texts").iter().map(|text| text.as_str().expect("a text")).collect();
    let tolerance = golden["max_abs_difference"]["embeddings"].as_f64().expect("a tolerance");
    for (vector, expected) in
        model.embed(&texts).expect("runs").iter().zip(golden["embeddings"].as_array().expect("vectors"))
    {
        for (x, expected) in vector.iter().zip(expected.as_array().expect("numbers")) {
            assert!((f64::from(*x) - expected.as_f64().expect("a number")).abs() <= tolerance);
        }
    }
}

#[test]
fn bert_score_and_mover_score_with_minilm_are_the_packages() {
    let Some(model) = minilm() else { return eprintln!("skipped: PROBITY_MODELS has no all-minilm-l6-v2") };
    let Some(articles) = articles() else {
        return eprintln!("skipped: PROBITY_SHARED_DATA names no folder with summeval.json");
    };
    let (golden, model, items) =
        (read(&goldens().join("embedding/minilm.json")), Arc::new(model), real_items(&articles));
    let single: Vec<MetricItem<'_>> =
        items.iter().map(|item| MetricItem { references: item.references[..1].to_vec(), ..item.clone() }).collect();
    assert!(items.len() >= 500);
    for (kind, items) in [("bert_score", &items), ("mover_score", &single)] {
        let tolerance = golden["max_abs_difference"][kind].as_f64().expect("a tolerance");
        for (metric, expected) in golden[kind].as_object().expect("metrics") {
            // A subset if scores are independent of each other.
            let count = if metric.contains("no-idf") || metric.contains("layer") { 100 } else { items.len() };
            let expected = Value::from(&expected.as_array().expect("rows")[..count]);
            let difference = largest_difference(metric, &scored(metric, &model, &items[..count]), &expected);
            println!("{metric}: {difference:e}");
            assert!(difference <= tolerance, "{metric}: {difference:e}");
        }
    }
}
