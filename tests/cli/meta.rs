//! `probity meta`: scores compared with gold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{World, lines};

const GOLD: &str = r#"{"id":"s1","context":"x","candidates":[{"id":"a","text":"1","scores":{"q":1,"r":4}},{"id":"b","text":"2","scores":{"q":2,"r":3}},{"id":"c","text":"3","scores":{"q":3,"r":2}},{"id":"d","text":"4","scores":{"q":4,"r":1}}]}
{"id":"s2","context":"x","candidates":[{"id":"a","text":"1","scores":{"q":2,"r":4}},{"id":"b","text":"2","scores":{"q":2,"r":3}},{"id":"c","text":"3","scores":{"q":1,"r":2}},{"id":"d","text":"4","scores":{"q":5,"r":1}}]}
{"id":"s3","context":"x","candidates":[{"id":"a","text":"1","scores":{"q":3,"r":4}},{"id":"b","text":"2","scores":{"q":1,"r":3}},{"id":"c","text":"3","scores":{"q":4,"r":2}},{"id":"d","text":"4","scores":{"q":4,"r":1}}]}
"#;

const SCORES: &str = "item,candidate,good,bad\n\
    s1,a,0.11,9\ns1,b,0.25,7\ns1,c,0.24,8\ns1,d,0.61,2\n\
    s2,a,0.3,5\ns2,b,0.31,5\ns2,c,0.2,5\ns2,d,0.7,5\n\
    s3,a,0.5,1\ns3,b,0.1,2\ns3,c,0.55,3\ns3,d,0.9,4\n";

/// A world with gold and scores, and their paths.
fn world_with_scores() -> (World, String, String) {
    let world = World::new();
    let (gold, scores) = (world.file("gold.jsonl", GOLD), world.file("scores.csv", SCORES));
    (world, gold, scores)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {value}"))
}

#[track_caller]
fn near(value: &Value, expected: &[(&str, f64)]) {
    for (pointer, expected) in expected {
        let found = number(value, pointer);
        assert!((found - expected).abs() <= 1e-10 * expected.abs().max(1e-3), "{pointer}: {found} {expected}");
    }
}

#[test]
fn a_best_score_that_rounding_alone_parts_from_another_is_shared() {
    let world = World::new();
    let candidates = r#"[{"id":"a","text":"1"},{"id":"b","text":"2"}]"#;
    let row =
        |id: &str| format!("{{\"id\":\"{id}\",\"context\":\"x\",\"candidates\":{candidates},\"preference\":\"b\"}}\n");
    let gold = world.file("gold.jsonl", [row("s1"), row("s2")].concat());
    // 0.1 + 0.2 and 0.3, as two ways of adding up one F1 score.
    let scores = world.file("scores.csv", "item,candidate,f\ns1,a,0.30000000000000004\ns1,b,0.3\ns2,a,0.1\ns2,b,0.3\n");
    let summary = json(&world.run(&["meta", "--scores", &scores, "--gold", &gold, "--json"]).exits(0).stdout);
    let found = summary.pointer("/values/preferences/0").expect("preferences");
    assert_eq!((&found["accuracy"], &found["score_ties"]), (&0.75.into(), &1.into()), "{found}");
}

#[test]
fn what_says_a_score_twice_is_refused_with_its_line() {
    let (world, gold, scores) = world_with_scores();
    let refused = |scores: &str, gold: &str, parts: &[&str]| {
        world.run(&["meta", "--scores", scores, "--gold", gold]).fails_with(parts);
    };
    let twice = world.file("twice.jsonl", "{\"item\":\"s1\",\"candidate\":\"a\",\"m\":1,\"m\":2}\n");
    refused(&twice, &gold, &["line 1 of ", "twice.jsonl: duplicate key `m`"]);
    let nameless = world.file("nameless.csv", "item,human\ns1,1\ns2,2\ns3,3\n");
    let told = ["item `s1`, candidate `b`: a score by ", " of the same candidate of gold was already on line 2"];
    refused(&scores, &nameless, &["line 3 of ", told[0], told[1], "both files name them"]);
    let gold = world.file("two.csv", "item,candidate,metric,attribute,score\ns1,a,m,q,1\ns1,a,n,q,2\n");
    refused(&scores, &gold, &["line 3 of ", "two.csv: item `s1`, candidate `a`: `q` was already on line 2"]);
}

#[test]
fn every_level_equals_scipy_and_ties_the_authors_implementation() {
    let (world, gold, scores) = world_with_scores();
    let ran = world
        .run(&["meta", "--scores", &scores, "--gold", &gold, "--attribute", "q", "--json", "--rounds", "50"])
        .exits(0);
    let summary = json(&ran.stdout);
    assert_eq!(
        (summary["method"].as_str(), summary["values"]["metrics"].as_array().map(Vec::len)),
        (Some("meta"), Some(2))
    );
    let metric = |name: usize| summary.pointer(&format!("/values/metrics/{name}")).expect("a metric").clone();
    // scipy 1.17.1: pearsonr, spearmanr, kendalltau, ttest_1samp; mt-metrics-eval: tau_optimization with acc_23.
    near(
        &metric(0),
        &[
            ("/pearson/mean", 0.931_357_208_952_248_7),
            ("/pearson/p", 0.001_302_210_657_771_575_5),
            ("/pearson/system/coefficient", 0.980_198_371_570_352_5),
            ("/pearson/system/p", 0.019_801_628_429_647_61),
            ("/pearson/pooled/coefficient", 0.888_040_600_340_573_9),
            ("/pearson/pooled/p", 0.000_114_483_448_976_197_62),
            ("/spearman/mean", 0.899_122_198_700_342_6),
            ("/spearman/pooled/p", 4.208_804_566_345_931_6e-5),
            ("/kendall/mean", 0.830_802_841_672_406_8),
            ("/kendall/system/p", 0.083_333_333_333_333_33),
            ("/kendall/pooled/coefficient", 0.789_542_033_951_722_8),
            ("/kendall/pooled/p", 0.000_702_837_685_435_103_6),
            ("/pairwise_with_ties/accuracy", 0.888_888_888_888_888_8),
            ("/pairwise_with_ties/uncalibrated", 0.833_333_333_333_333_4),
            ("/pairwise_with_ties_pooled/accuracy", 0.818_181_818_181_818_2),
            ("/pairwise_with_ties_pooled/epsilon", 0.010_000_000_000_000_009),
        ],
    );
    near(
        &metric(1),
        &[
            ("/pearson/mean", -0.094_244_080_344_077_87),
            ("/spearman/system/coefficient", -0.2),
            ("/spearman/constant_predictions", 1.0),
            ("/kendall/pooled/p", 0.386_596_123_188_664_3),
            ("/pairwise_with_ties/accuracy", 1.0 / 3.0),
        ],
    );
    assert!(number(&metric(0), "/pearson/pooled/interval/low") < number(&metric(0), "/pearson/pooled/interval/high"));
}

#[test]
fn tables_averages_and_differences_are_printed_and_say_their_seed() {
    let (world, gold, scores) = world_with_scores();
    let arguments = [
        "meta", "--scores", &scores, "--gold", &gold, "--average", "--compare", "good,bad", "--seed", "7", "--rounds",
        "200", "--details",
    ];
    let ran = world.run(&arguments).exits(0);
    let mut first = ran.stdout.lines();
    let says = first.next().expect("a line");
    assert!(
        says.starts_with("q: Best agreement with people of 2 metrics: good. Agrees with gold: Spearman 0.899"),
        "{says}"
    );
    let trust = first.next().expect("a second line");
    assert!(trust.starts_with("CAUTION: compared with gold on only 3 contexts"), "{trust}");
    for part in [
        "Correlation per context", "Correlation between systems", "Correlation over all scores", "Accuracy of pairs",
        "Average over attributes", "Differences between metrics", "What was compared",
        "all scores are equal in 1 of 3 contexts", "seed 7", "seed:7",
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    assert_eq!(ran.stdout, world.run(&arguments).exits(0).stdout, "the same seed, the same bytes");
    // Without --details, the most informative of many.
    let short = world.run(&arguments[..arguments.len() - 1]).exits(0).stdout;
    let rows = |text: &str| text.lines().filter(|line| line.starts_with(" good, bad")).count();
    assert!(rows(&ran.stdout) > 10 && rows(&short) == 10, "{short}");
    world.run(&[&arguments[..arguments.len() - 1], &["--out", "run"]].concat()).exits(0);
    let tables = world.all_tables("run");
    assert!(tables.contains("differences with the smallest p. --details prints all of them"), "{tables}");
    let summary = json(&world.run(&[&arguments[..], &["--json"]].concat()).exits(0).stdout);
    let differences = summary["values"]["comparisons"][0]["differences"].as_array().expect("of q");
    let pooled = differences.iter().find(|d| d["measure"]["pooled"] == "pearson").expect("listed");
    // Williams' test of mt-metrics-eval, two-sided.
    near(pooled, &[("/williams/p", 0.004_837_818_635_784_564_6), ("/first", 0.888_040_600_340_573_9)]);
    let average = &summary["values"]["averages"][0];
    let of = |attribute: usize| number(&summary, &format!("/values/metrics/{attribute}/kendall/mean"));
    assert!((number(average, "/kendall/per_context") - f64::midpoint(of(0), of(1))).abs() < 1e-12);
}

#[test]
fn a_folder_of_the_figures_can_be_reported() {
    let (world, gold, scores) = world_with_scores();
    let out = world.path("run").display().to_string();
    let arguments = ["meta", "--scores", &scores, "--gold", &gold, "--out", &out, "--rounds", "20"];
    let printed = world.run(&arguments).exits(0);
    let manifest = json(&world.read("run/manifest.json"));
    assert_eq!((manifest["command"].as_str(), manifest["status"].as_str()), (Some("meta"), Some("finished")));
    assert_eq!(json(&world.read("run/summary.json"))["outcomes"]["scored"], 48);
    let report = world.run(&["report", &out]).exits(0);
    let tables = world.all_tables("run");
    for part in ["Agreement with people", "Correlation per context", "What was compared", "good"] {
        assert!(tables.contains(part) && report.stdout.contains(part), "{part}\n{tables}\n{}", report.stdout);
    }
    // The run prints its main table, and how to get the others.
    assert!(printed.stdout.contains("Agreement with people"), "{}", printed.stdout);
    assert!(!printed.stdout.contains("What was compared"), "{}", printed.stdout);
    assert!(printed.stderr.contains(&format!("probity show {out} --all")), "{}", printed.stderr);
    for missing in ["did not keep", "kept no answers"] {
        assert!(!report.stderr.contains(missing), "there was no model that was asked: {}", report.stderr);
    }
    world.run(&arguments).fails_with(&["run"]);
    world.run(&[&arguments[..], &["--overwrite"]].concat()).exits(0);
}

#[test]
fn a_run_of_a_method_is_held_against_the_samples_that_it_kept() {
    let world = World::new();
    let data = world.file("data.jsonl", GOLD);
    let (tiny, run) = (crate::harness::tiny().display().to_string(), world.path("run").display().to_string());
    world.run(&["compare", "--model", &tiny, "--data", &data, "--attribute", "q", "--out", &run]).exits(0);
    let own = json(&world.read("run/summary.json"));
    let meta = json(&world.run(&["meta", "--scores", &run, "--json"]).exits(0).stdout);
    let only = &meta["values"]["metrics"];
    assert_eq!(
        (only.as_array().map(Vec::len), only[0]["metric"].as_str(), only[0]["attribute"].as_str()),
        (Some(1), Some("compare"), Some("q"))
    );
    for figure in ["pearson", "spearman", "kendall", "pairwise", "pairwise_with_ties", "pairwise_with_ties_pooled"] {
        assert_eq!(only[0][figure], own["values"]["gold"][0]["scores"][figure], "{figure}: one way to compute it");
    }
}

#[test]
fn what_a_run_says_against_its_own_answers_stays_said_when_its_scores_are_held_against_gold() {
    let (world, model) = (World::new(), crate::harness::tiny());
    let sample = |n: usize| {
        let candidate = |id: &str| json!({"id": id, "text": format!("Text {id} of {n}, by someone.")});
        json!({"id": format!("s{n}"), "context": "x", "candidates": [candidate("a"), candidate("b")]})
    };
    let data = world.file("data.jsonl", lines(&(0..12).map(sample).collect::<Vec<_>>()));
    let model = model.to_str().expect("UTF-8");
    world.run(&["compare", "--model", model, "--data", &data, "--attribute", "flow", "--out", "run"]).exits(0);
    let verdict = |run: &str| json(&world.read(&format!("{run}/summary.json")))["verdict"][0].take();
    let own = verdict("run");
    let doubt = own["because"].as_str().expect("a reason").split("; ").next().expect("one").to_owned();
    assert!(
        doubt.contains("swapping the two texts changes the verdict in") || doubt.contains("low label mass"),
        "{own}"
    );
    assert!(!own["figures"]["answers"].is_null(), "{own}");
    // Gold equal to the run's own scores.
    let rows = world.rows("run/scores.jsonl");
    let gold: Vec<Value> = rows
        .iter()
        .map(|row| json!({"item": row["item"], "candidate": row["candidate"], "score": row["score"]}))
        .collect();
    let gold = world.file("gold.jsonl", lines(&gold));
    world.run(&["meta", "--scores", "run", "--gold", &gold, "--out", "held"]).exits(0);
    let held = verdict("held");
    assert!(held["because"].as_str().expect("a reason").contains(&doubt), "{held}\n{own}");
    assert_ne!(held["trust"], "reliable", "{held}");
    // A table without its run has no such information.
    let table = world.file("alone.jsonl", world.read("run/scores.jsonl"));
    world.run(&["meta", "--scores", &table, "--gold", &gold, "--out", "alone"]).exits(0);
    assert!(!verdict("alone")["because"].as_str().expect("a reason").contains(&doubt));
}

#[test]
fn labels_count_in_the_first_line_and_an_attributes_are_told_to_stand_apart() {
    let world = World::new();
    let sample = |n: usize, preference: bool| {
        let candidates = json!([{"id": "a", "text": "1"}, {"id": "b", "text": "2"}]);
        let mut sample = json!({"id": format!("s{n:02}"), "context": "x", "candidates": candidates});
        if preference {
            sample["preference"] = json!("b");
        }
        sample
    };
    let gold = world.file("gold.jsonl", lines(&(0..30).map(|n| sample(n, n < 15)).collect::<Vec<_>>()));
    let row = |n: usize| format!("s{n:02},a,0.2\ns{n:02},b,0.{}\n", if n % 5 == 4 { 1 } else { 8 });
    let rows = (0..30).map(row).collect::<Vec<_>>().concat();
    let scores = world.file("scores.csv", format!("item,candidate,f\n{rows}"));
    let label = |attribute: Option<&str>| {
        let row = |n: usize| {
            let mut row = json!({"item": format!("s{n:02}"), "candidate_i": "a", "candidate_j": "b", "preferred": "b"});
            if let Some(attribute) = attribute {
                row["attribute"] = json!(attribute);
            }
            row
        };
        lines(&(15..30).map(row).collect::<Vec<_>>())
    };
    let told = |labels: &str, more: &[&str]| {
        let all = ["meta", "--scores", &scores, "--gold", &gold, "--details", "--labels", labels];
        world.run(&[&all[..], more].concat()).exits(0).stdout
    };
    let whole = told(&world.file("whole.jsonl", label(None)), &[]);
    assert!(whole.contains("of your 30 labels: 80.0%") && whole.contains("Labels count in the first line"), "{whole}");
    let apart = told(&world.file("apart.jsonl", label(Some("flow"))), &[]);
    assert!(apart.contains("of your 15 labels: 80.0%") && apart.contains("they are counted apart"), "{apart}");
    assert!(!apart.contains("Labels count in the first line"), "{apart}");
    let wide = told(&world.file("wide.jsonl", label(None)), &["--confidence", "0.8"]);
    assert!(wide.contains("; at 80%]"), "{wide}");
}

#[test]
fn preferences_are_compared_by_the_best_score() {
    let world = World::new();
    let pair = |id: &str, preference: &str| {
        format!(
            r#"{{"id":"{id}","context":"","candidates":[{{"id":"a","text":"1"}},{{"id":"b","text":"2"}}],"preference":"{preference}"}}"#
        )
    };
    let gold = [pair("1", "a"), pair("2", "b"), pair("3", "tie"), pair("4", "a"), pair("5", "b")].join("\n");
    let scores = "item,candidate,m\n1,a,2\n1,b,1\n2,a,2\n2,b,1\n3,a,1\n3,b,1\n4,a,3\n4,b,3\n5,a,1\n5,b,\n";
    let (gold, scores) = (world.file("gold.jsonl", gold), world.file("scores.csv", scores));
    let ran = world.run(&["meta", "--scores", &scores, "--gold", &gold, "--json"]).exits(0);
    let found = &json(&ran.stdout)["values"]["preferences"][0];
    // Right, wrong, a tie of scores: (1 + 0 + ½) / 3. The tie in gold and the item without a score do not count.
    near(
        found,
        &[("/accuracy", 0.5), ("/items", 4.0), ("/gold_ties", 1.0), ("/score_ties", 2.0), ("/without_scores", 1.0)],
    );
    // Choices a, b, tie, a against a, a, tie, tie: agreement ½, by chance (2·2 + 1·0 + 1·2) / 16.
    near(found, &[("/kappa", (0.5 - 0.375) / (1.0 - 0.375))]);
    world.run(&["meta", "--scores", &scores, "--gold", &gold, "--strict"]).exits(1);
}

#[test]
fn what_is_constant_is_undefined_with_its_reason() {
    let (world, gold, _) = world_with_scores();
    let rows = |score: fn(usize) -> String| -> String {
        let keys = (1..=3).flat_map(|item| ["a", "b", "c", "d"].map(|candidate| format!("s{item},{candidate}")));
        keys.enumerate().map(|(index, key)| format!("{key},{}", score(index))).collect::<Vec<_>>().join("\n")
    };
    let scores = world.file("flat.csv", format!("item,candidate,flat\n{}", rows(|_| "3".to_owned())));
    let ran = world.run(&["meta", "--scores", &scores, "--gold", &gold, "--attribute", "q", "--details"]).exits(0);
    assert!(
        ran.stdout.contains("flat, q: undefined over all scores: all scores are equal") && !ran.stdout.contains("NaN"),
        "{}",
        ran.stdout
    );
    let scores = world.file(
        "some.csv",
        format!("item,candidate,some\n{}", rows(|index| if index == 0 { String::new() } else { index.to_string() })),
    );
    let ran =
        world.run(&["meta", "--scores", &scores, "--gold", &gold, "--attribute", "q", "--json", "--strict"]).exits(1);
    near(&json(&ran.stdout)["values"]["metrics"][0], &[("/counts/undefined", 1.0), ("/counts/compared", 11.0)]);
}

#[test]
fn gold_may_be_a_table_and_names_of_candidates_may_be_missing() {
    let world = World::new();
    let scores = world.file("scores.csv", "item,m\n1,0.1\n2,0.4\n3,0.3\n4,0.9\n");
    let gold = world.file("gold.csv", "item,note,human\n1,x,1\n2,y,2\n3,z,3\n4,w,4\n");
    let summary = json(&world.run(&["meta", "--scores", &scores, "--gold", &gold, "--json"]).exits(0).stdout);
    near(
        &summary["values"]["metrics"][0],
        &[("/spearman/pooled/coefficient", 0.8), ("/spearman/skipped_too_few", 4.0)],
    );
    assert_eq!(summary["headline"][0]["figure"], "pooled Spearman of m");
}

#[test]
fn what_does_not_fit_is_told_with_place_and_remedy() {
    let (world, gold, scores) = world_with_scores();
    let fails = |content: &str, extra: &[&str], parts: &[&str]| {
        let file = world.file("wrong.csv", content);
        world.run(&[&["meta", "--scores", &file, "--gold", &gold], extra].concat()).fails_with(parts);
    };
    fails(
        "item,candidate,m\ns1,a,1\ns1,a,2\n",
        &[],
        &["line 3 of", "candidate `a`, first on line 2", "hint: keep one score"],
    );
    fails(
        "item,candidate,m\ns1,a,1\ns1,b,NaN\n",
        &[],
        &["line 3 of", "column `m`", "`NaN` is not a finite number", "leave the cell empty"],
    );
    fails(
        "item,candidate,m\nt1,a,1\n",
        &[],
        &["no score of `m`", "line 2 of", "item `t1`", "items in gold are `s1`, `s2`, `s3`", "the same in both files"],
    );
    fails("item,candidate,m\ns1,e,1\n", &[], &["candidate `e`", "candidates of that item in gold are `a`"]);
    fails("id,m\ns1,1\n", &[], &["missing `item`", "hint: use the columns"]);
    fails("item,candidate,m\ns1,a\n", &[], &["line 2 of"]);
    fails("item,candidate,m\n", &[], &["has no rows"]);
    let ran = |arguments: &[&str]| world.run(&[&["meta", "--scores", &scores, "--gold", &gold], arguments].concat());
    ran(&["--metric", "godo"]).fails_with(&["there is no metric `godo`", "did you mean `good`?"]);
    ran(&["--attribute", "z"]).fails_with(&["there is no gold attribute `z`", "`q`, `r`"]);
    ran(&["--compare", "good"]).fails_with(&["expected two metrics, such as bleu,rouge-l"]);
    ran(&["--compare", "good,best"]).fails_with(&["there is no metric `best`"]);
    world.run(&["meta", "--scores", &scores]).fails_with(&["there is no gold", "--gold FILE"]);
    let bare = world.file("bare.jsonl", r#"{"id":"s1","context":"","candidates":[{"id":"a","text":"1"}]}"#);
    world
        .run(&["meta", "--scores", &scores, "--gold", &bare])
        .fails_with(&["neither gold scores nor preferences", "--map score.ATTRIBUTE=COLUMN"]);
    let some = world.file("some.csv", "item,candidate,m\ns1,a,1\ns1,b,2\nt9,a,1\n");
    let told = world.run(&["meta", "--scores", &some, "--gold", &gold, "--details"]).exits(0).stdout;
    assert!(told.contains("1 score of items or candidates that gold does not have, the first on line 4 of"), "{told}");
}

#[test]
fn names_with_commas_can_be_chosen_and_compared() {
    let (world, gold, _) = world_with_scores();
    let scores = world.file("commas.csv", SCORES.replace("good,bad", "\"bleu:tok=intl,smooth=floor\",bleu"));
    let pair = "bleu:tok=intl,smooth=floor,bleu";
    let ran = world
        .run(&["meta", "--scores", &scores, "--gold", &gold, "--metric", pair, "--compare", pair, "--rounds", "10"])
        .exits(0);
    assert!(ran.stdout.contains("Differences between metrics"), "{}", ran.stdout);
}

#[test]
fn two_files_with_one_metric_are_told_apart() {
    let (world, gold, scores) = world_with_scores();
    let other = world.file("other.csv", SCORES.replace("0.11", "0.99"));
    let arguments = ["meta", "--scores", &scores, "--scores", &other, "--gold", &gold, "--rounds", "10"];
    let named = [&arguments[..], &["--metric", "good (scores),good (other)"]].concat();
    let ran = world.run(&named).exits(0);
    assert!(
        ran.stdout.contains("good (scores)") && ran.stdout.contains("good (other)") && !ran.stdout.contains("bad"),
        "{}",
        ran.stdout
    );
}

/// A public file, if its folder exists.
fn public(name: &str) -> Option<String> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let path = std::env::var_os("PROBITY_SHARED_DATA").map_or_else(beside, PathBuf::from).join(name);
    if !path.is_file() {
        eprintln!("skipped: {name} is not there; set PROBITY_SHARED_DATA to the folder that holds it");
        return None;
    }
    Some(path.display().to_string())
}

/// The attributes of imported samples as a table of scores.
fn as_scores(world: &World, samples: &str, attributes: &[&str]) -> String {
    let mut table = vec![format!("item,candidate,{}", attributes.join(","))];
    for sample in world.rows(samples) {
        for candidate in sample["candidates"].as_array().expect("candidates") {
            let scores: Vec<String> = attributes.iter().map(|name| candidate["scores"][name].to_string()).collect();
            let id = |of: &Value| of["id"].as_str().expect("id").to_owned();
            table.push(format!("{},\"{}\",{}", id(&sample), id(candidate), scores.join(",")));
        }
    }
    world.file("public.csv", table.join("\n"))
}

#[test]
fn correlations_of_topical_chats_ratings_are_scipys() {
    let Some(file) = public("topical_chat.json") else { return };
    let world = World::new();
    let gold = world.path("gold.jsonl").display().to_string();
    world.run(&["import", "topical-chat", &file, "--out", &gold]).exits(0);
    let scores = as_scores(&world, "gold.jsonl", &["engagingness"]);
    let arguments =
        ["meta", "--scores", &scores, "--gold", &gold, "--attribute", "overall", "--json", "--rounds", "20"];
    let summary = json(&world.run(&arguments).exits(0).stdout);
    near(
        &summary["values"]["metrics"][0],
        &[
            ("/pearson/mean", 0.916_915_217_882_113_8),
            ("/pearson/system/coefficient", 0.999_369_605_839_411_7),
            ("/pearson/system/p", 5.959_699_382_453_847e-7),
            ("/pearson/pooled/coefficient", 0.909_274_875_238_421_5),
            ("/spearman/mean", 0.885_466_298_278_229_8),
            ("/spearman/pooled/coefficient", 0.910_853_752_838_897_2),
            ("/kendall/mean", 0.825_227_174_449_979_6),
            ("/kendall/system/p", 0.002_777_777_777_777_778),
            ("/kendall/pooled/coefficient", 0.805_033_815_855_993_4),
            ("/pairwise_with_ties/accuracy", 0.8),
            ("/pairwise_with_ties_pooled/accuracy", 0.797_725_162_488_393_6),
        ],
    );
}

#[test]
fn metacritiques_figures_are_the_papers() {
    let Some(file) = public("metacritique_annotation.json") else { return };
    let world = World::new();
    let gold = world.path("gold.jsonl").display().to_string();
    world.run(&["import", "metacritique", &file, "--out", &gold]).exits(0);
    let of_people = |attribute: &str| {
        let human = |sample: &Value| {
            let candidates = sample["candidates"].as_array().expect("candidates");
            candidates
                .iter()
                .find(|c| c["id"] == "human")
                .and_then(|c| c["scores"][attribute].as_f64())
                .expect("labelled")
        };
        let values: Vec<f64> = world.rows("gold.jsonl").iter().map(human).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    // Macro means over the human critiques (Sun et al., 2024, Table 2).
    for (attribute, paper) in [("precision", 0.8537), ("recall", 0.5097), ("f1", 0.5824)] {
        assert!((of_people(attribute) - paper).abs() < 5e-5, "{attribute} {}", of_people(attribute));
    }
    let scores = as_scores(&world, "gold.jsonl", &["precision", "recall"]);
    let arguments = ["meta", "--scores", &scores, "--gold", &gold, "--attribute", "f1", "--json", "--rounds", "20"];
    let summary = json(&world.run(&arguments).exits(0).stdout);
    // scipy on values rounded to 12 digits: F1 scores that are equal as fractions differ only by rounding, which is no
    // order.
    for (metric, pooled) in [
        (0, [0.637_905_645_115_835_1, 0.619_227_990_370_838_3, 0.491_315_279_180_718_7]),
        (1, [0.943_448_762_680_887_3, 0.948_515_723_830_216_4, 0.842_759_378_718_701_2]),
    ] {
        let pointers = ["/pearson/pooled/coefficient", "/spearman/pooled/coefficient", "/kendall/pooled/coefficient"];
        let expected: Vec<(&str, f64)> = pointers.into_iter().zip(pooled).collect();
        near(&summary["values"]["metrics"][metric], &expected);
    }
}

/// Scores of two candidates of each item that agree with gold, except for every seventh pair; the wrong ones are those
/// close to each other.
fn labelled(world: &World, labels: usize) -> (String, String) {
    let (mut scores, mut gold) = (Vec::new(), Vec::new());
    for item in 0..80_usize {
        let name = format!("i{item}");
        let (apart, wrong) = if item % 7 == 0 { (0.1, true) } else { (1.0 + (item % 5) as f64, false) };
        let people = if wrong { [2.0, 4.0] } else { [4.0, 2.0] };
        for (candidate, score) in [("a", 3.0 + apart), ("b", 3.0)] {
            scores.push(json!({"item": name, "candidate": candidate, "metric": "m", "score": score}));
        }
        if item < labels {
            for (candidate, score) in ["a", "b"].into_iter().zip(people) {
                gold.push(json!({"item": name, "candidate": candidate, "quality": score}));
            }
        }
    }
    (world.file("scores.jsonl", lines(&scores)), world.file("gold.jsonl", lines(&gold)))
}

#[test]
fn pairs_that_can_be_left_to_a_metric_are_told_and_the_others_handed_back() {
    let world = World::new();
    let (scores, gold) = labelled(&world, 60);
    let meta = |more: &[&str]| {
        world.run(&[&["meta", "--scores", &scores, "--gold", &gold, "--out", "m", "--overwrite"], more].concat())
    };
    let ran = meta(&["--alpha", "0.05", "--details"]).exits(0);
    assert!(ran.stdout.contains("Which pairs need no human"), "{}", ran.stdout);
    let summary: Value = serde_json::from_str(&world.read("m/summary.json")).expect("JSON");
    let trust = &summary["values"]["trust"][0];
    // Nine of sixty pairs are wrong, all of them close to each other.
    let pairs = &trust["pairs"];
    assert_eq!((&pairs["labelled"], &pairs["disagreements"], &pairs["pairs"]), (&json!(60), &json!(9), &json!(80)));
    let selection = &pairs["selection"];
    assert_eq!((&selection["disagreements"], &selection["labelled"]), (&json!(0), &json!(51)), "{trust}");
    let bound = selection["bound"].as_f64().expect("a bound");
    assert!((bound - (1.0 - 0.1_f64.powf(1.0 / 51.0))).abs() < 1e-9, "{bound}");
    assert_eq!(pairs["kept"], 68);
    // Unlabelled pairs that are close to each other.
    let back = world.rows("m/to_label.jsonl");
    let mut items: Vec<&str> = back.iter().map(|row| row["item"].as_str().expect("a name")).collect();
    // The order is random.
    items.sort_unstable();
    assert_eq!(items, ["i63", "i70", "i77"]);
    // And candidates whose labels would improve the systems' means most, alternating between the systems.
    let open = world.rows("m/scores_to_label.jsonl");
    assert_eq!(open.len(), 40);
    assert!(
        open[..10].iter().any(|row| row["candidate"] == "a") && open[..10].iter().any(|row| row["candidate"] == "b")
    );
    // Both systems have a mean over all items, and so has their difference.
    assert_eq!(trust["systems"].as_array().map(Vec::len), Some(2));
    assert_eq!((&trust["lead"]["system"], &trust["lead"]["unlabelled"]), (&json!("a − b"), &json!(20)));
    // A bound that this number of labels cannot guarantee.
    let ran = meta(&["--alpha", "0.01", "--delta", "0.05", "--details"]).exits(0);
    let needed = "m, quality: at least 299 labelled samples are needed, you have 60";
    assert!(ran.stdout.contains(needed), "{}", ran.stdout);
    assert_eq!(world.rows("m/to_label.jsonl").len(), 20);
    for wrong in [["--alpha", "0"], ["--delta", "1"], ["--alpha", "-1"]] {
        meta(&wrong).fails_with(&[wrong[0], "a number above 0 and below 1"]);
    }
}

/// The first of two candidates is better in each of twelve items.
fn lines_of_gold() -> String {
    let rows: Vec<String> = (0..12).map(|k| format!("i{k},a,2\ni{k},b,1\n")).collect();
    format!("item,candidate,tone\n{}", rows.concat())
}

#[test]
fn what_people_said_when_they_were_asked_counts_beside_gold() {
    let world = World::new();
    let rows: Vec<String> = (0..40).map(|k| format!("i{k},a,{}\ni{k},b,0\n", k + 1)).collect();
    let scores = world.file("scores.csv", format!("item,candidate,m\n{}", rows.concat()));
    let sample = |k: usize| json!({"id": format!("i{k}"), "context": "", "candidates": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}]});
    let gold = world.file("samples.jsonl", lines(&(0..40).map(sample).collect::<Vec<_>>()));
    let pair = |k: usize, preferred: &str| json!({"item": format!("i{k}"), "candidate_i": "a", "candidate_j": "b", "preferred": preferred});
    // People disagree with the five closest pairs, one is a tie, and one has two contradicting labels.
    let mut said: Vec<Value> = (0..30).map(|k| pair(k, if k < 5 { "b" } else { "a" })).collect();
    said.push(pair(30, "tie"));
    for (who, preferred) in [("one", "a"), ("two", "b")] {
        let mut one = pair(31, preferred);
        one["annotator"] = json!(who);
        said.push(one);
    }
    let labels = world.file("labels.jsonl", lines(&said));
    let meta = |labels: &str| {
        world.run(&["meta", "--scores", &scores, "--gold", &gold, "--labels", labels, "--out", "m", "--overwrite"])
    };
    let ran = meta(&labels).exits(0);
    assert!(ran.stdout.contains("right on 25 of your 30 labels: 83.3%"), "{}", ran.stdout);
    let summary: Value = serde_json::from_str(&world.read("m/summary.json")).expect("JSON");
    let pairs = &summary["values"]["trust"][0]["pairs"];
    assert_eq!((&pairs["labelled"], &pairs["disagreements"]), (&json!(30), &json!(5)), "{pairs}");
    assert_eq!(
        (&pairs["selection"]["labelled"], &pairs["selection"]["disagreements"]),
        (&json!(27), &json!(2)),
        "{pairs}"
    );
    // Ties and contradicting labels count as labelled.
    let strict = ["--alpha", "0.01", "--overwrite"];
    world
        .run(
            &[&["meta", "--scores", &scores, "--gold", &gold, "--labels", &labels, "--out", "m"], &strict[..]].concat(),
        )
        .exits(0);
    let items: BTreeSet<String> =
        world.rows("m/to_label.jsonl").iter().map(|row| row["item"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(items, (32..40).map(|k| format!("i{k}")).collect());
    // Labels may be used without gold, or with gold of other items.
    world.run(&["meta", "--scores", &scores, "--labels", &labels, "--out", "alone"]).exits(0);
    let summary: Value = serde_json::from_str(&world.read("alone/summary.json")).expect("JSON");
    assert_eq!(summary["values"]["trust"][0]["pairs"], *pairs);
    let part = world.file("part.csv", "item,candidate,tone\ni39,a,3\ni39,b,2\n");
    world.run(&["meta", "--scores", &scores, "--gold", &part, "--labels", &labels, "--out", "part"]).exits(0);
    // Scores computed by hand: the mean over people for the attribute.
    let score = |k: usize, who: &str, score: f64| json!({"item": format!("i{k}"), "attribute": "tone", "candidate": "a", "score": score, "annotator": who});
    let mut said = vec![score(0, "one", 1.0), score(0, "two", 4.0)];
    said.extend((1..6).map(|k| score(k, "one", k as f64)));
    let labels = world.file("scored.jsonl", lines(&said));
    meta(&labels).exits(0);
    let summary: Value = serde_json::from_str(&world.read("m/summary.json")).expect("JSON");
    let metric = &summary["values"]["metrics"][0];
    assert_eq!((&metric["attribute"], &metric["counts"]["compared"]), (&json!("tone"), &json!(6)));
    // With several annotators the majority counts.
    let by = |who: &str, preferred: &str| {
        let mut one = pair(33, preferred);
        one["annotator"] = json!(who);
        one
    };
    let majority = |said: [&str; 3]| {
        let rows: Vec<Value> = ["one", "two", "three"].iter().zip(said).map(|(who, one)| by(who, one)).collect();
        let labels = world.file("majority.jsonl", lines(&rows));
        meta(&labels).exits(0);
        let summary: Value = serde_json::from_str(&world.read("m/summary.json")).expect("JSON");
        let pairs = &summary["values"]["trust"][0]["pairs"];
        (pairs["labelled"].as_u64(), pairs["disagreements"].as_u64())
    };
    assert_eq!(majority(["a", "b", "b"]), (Some(1), Some(1)));
    assert_eq!(majority(["a", "a", "tie"]), (Some(1), Some(0)));
    // A majority of ties is a label too.
    assert_eq!(majority(["tie", "tie", "b"]).0, Some(0));
    // Gold takes precedence over a label of the same pair.
    let of_gold = world.file("tone.csv", lines_of_gold());
    let seen = world.file(
        "seen.jsonl",
        lines(
            &(0..3)
                .map(|k| {
                    let mut one = pair(k, "b");
                    one["attribute"] = json!("tone");
                    one
                })
                .collect::<Vec<_>>(),
        ),
    );
    let ran = world.run(&["meta", "--scores", &scores, "--gold", &of_gold, "--labels", &seen, "--details"]).exits(0);
    assert!(ran.stdout.contains("3 labels of what gold says something of: gold's is used"), "{}", ran.stdout);
    // And of the same candidate.
    let gold = world.file("tone.csv", "item,candidate,tone\ni0,a,9\ni0,b,2\n");
    let ran = world.run(&["meta", "--scores", &scores, "--gold", &gold, "--labels", &labels, "--details"]).exits(0);
    assert!(ran.stdout.contains("2 labels of what gold says something of: gold's is used"), "{}", ran.stdout);
    world.run(&["meta", "--scores", &scores, "--scores", &scores, "--gold", &gold]).fails_with(&["is given twice"]);
    let huge = world.file("huge.jsonl", lines(&[score(0, "one", 1e308)]));
    meta(&huge).fails_with(&["huge.jsonl", "line 1", "larger in magnitude than 1e100"]);
    let unknown = world.file("unknown.jsonl", lines(&[pair(0, "a"), pair(99, "a")]));
    meta(&unknown).fails_with(&["unknown.jsonl:2", "candidate `a` of item `i99`"]);
    meta(&world.file("broken.jsonl", "{\"item\": 3}\n")).fails_with(&["broken.jsonl", "line 1"]);
}

#[test]
fn items_without_a_label_come_before_second_pairs_of_others() {
    let world = World::new();
    let rows: Vec<String> =
        (0..30).flat_map(|k| (0..4).map(move |c| format!("i{k},c{c},{}\n", (k * 7 + c * c * 3) % 11))).collect();
    let scores = world.file("scores.csv", format!("item,candidate,m\n{}", rows.concat()));
    let pair = |k: usize| json!({"item": format!("i{k}"), "candidate_i": "c0", "candidate_j": "c1", "preferred": "c1"});
    let labels = world.file("labels.jsonl", lines(&(0..12).map(pair).collect::<Vec<_>>()));
    world.run(&["meta", "--scores", &scores, "--labels", &labels, "--out", "m"]).exits(0);
    let back = world.rows("m/to_label.jsonl");
    assert_eq!(back.len(), 30 * 6 - 12);
    let first: BTreeSet<&str> = back[..18].iter().map(|row| row["item"].as_str().expect("a name")).collect();
    let unlabelled: Vec<String> = (12..30).map(|k| format!("i{k}")).collect();
    assert_eq!(first, unlabelled.iter().map(String::as_str).collect());
}
