//! Attacks on a judge, and defences.

use serde_json::{Value, json};

use crate::harness::{World, lines, root, tiny};

fn attack(world: &World, model: &str, more: &[&str]) -> crate::harness::Ran {
    let sample = |id: &str| {
        let candidate = |id: &str, text: &str, score: u8| json!({"id": id, "text": text, "scores": {"quality": score}});
        json!({"id": id, "context": "", "candidates": [candidate("x", "a b c", 1), candidate("y", "d e", 2)]})
    };
    let data = world.file("data.jsonl", lines(&[sample("1"), sample("2"), sample("3")]));
    let fixed = ["attack", "--model", model, "--data", &data, "--items", "2", "--attack", "verified,opener-colon"];
    world.run(&[&fixed[..], more].concat())
}

#[test]
fn every_method_is_attacked_under_every_defence_and_the_same_comes_of_what_was_answered() {
    let world = World::new();
    let model = tiny().display().to_string();
    let methods =
        ["--method", "compare", "--method", "g-eval", "--method", "judge:verdict=label", "--method", "gpt-score"];
    let ran = attack(
        &world,
        &model,
        &[&methods[..6], &["--defence", "sandwich", "--defence", "nonce:k", "--out", "a"]].concat(),
    );
    let ran = ran.exits(0);
    assert!(ran.stdout.contains("Verdicts changed by attacks"), "{}", ran.stdout);
    let summary: Value = serde_json::from_str(&world.read("a/summary.json")).expect("JSON");
    let prompts = summary["values"]["prompts"].as_array().expect("some");
    let names: Vec<(&str, &str)> = prompts
        .iter()
        .map(|one| (one["method"].as_str().expect("a name"), one["defence"].as_str().expect("a name")))
        .collect();
    assert_eq!(names.len(), 9);
    assert_eq!(names[..3], [("compare", "none"), ("compare", "sandwich"), ("compare", "nonce")]);
    // Two items, each unchanged and with two attacks.
    assert_eq!(world.rows("a/attacked.jsonl").len(), 9 * 2 * 3);
    assert_eq!(world.rows("a/attacks.jsonl").len(), 2);
    // Repeated with the stored answers.
    let before = world.read("a/attacked.jsonl");
    let again = [&methods[..6], &["--defence", "sandwich", "--defence", "nonce:k", "--out", "a", "--resume"]].concat();
    attack(&world, &model, &again).exits(0);
    let tables = world.all_tables("a");
    assert!(tables.contains("; 0 tokens computed of "), "{tables}");
    assert_eq!(world.read("a/attacked.jsonl"), before);
    world.run(&["report", "a", "--html", "a.html"]).exits(0);
    let page = world.read("a.html");
    assert!(page.contains("Verdicts changed by attacks"));
    // One plot per method with every defence and attack.
    let plot = |id: &str| page.split("<svg").find(|svg| svg.contains(id)).unwrap_or_else(|| panic!("no plot {id}"));
    for (one, share) in prompts.iter().filter_map(|one| Some((one, one["turned"]["share"].as_f64()?))) {
        let defence = one["defence"].as_str().expect("a name");
        let method = one["method"].as_str().expect("a name");
        let name = if defence == "none" { method.to_owned() } else { format!("{method}, {defence}") };
        let drawn = plot("-attacked-t");
        assert!(
            drawn.contains(&format!(">{name}<")) && drawn.contains(&format!(">{share:.3}<")),
            "{name} {share}: {drawn}"
        );
    }
    // The dry run counts the queries of all methods.
    let ran = attack(&world, &model, &[&methods[..], &["--dry-run"]].concat()).exits(0);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("nothing was queried"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn what_a_judge_is_shown_of_candidates_can_be_changed_and_is_told() {
    let world = World::new();
    let (model, data) = (tiny().display().to_string(), root("samples/demo.jsonl").display().to_string());
    let judge = |more: &[&str]| {
        let fixed =
            ["g-eval", "--model", &model, "--data", &data, "--attribute", "quality", "--limit", "1", "--overwrite"];
        world.run(&[&fixed[..], more].concat())
    };
    judge(&["--defence", "perplexity:0.01", "--out", "p"]).exits(0);
    let rows = world.rows("p/defended.jsonl");
    assert!(rows.len() == 4 && rows.iter().all(|row| row["withheld"] == true && row["nats_per_token"].is_number()));
    assert!(world.rows("p/scores.jsonl").iter().all(|row| row["outcome"] == "empty"));
    judge(&["--defence", "paraphrase", "--out", "q"]).exits(0);
    assert!(world.rows("q/defended.jsonl").iter().all(|row| row["paraphrase"].is_string()));
    let signature = world.read("q/summary.json");
    assert!(signature.contains("defence:paraphrase"), "{signature}");
    let refused = ["revise", "--model", &model, "--data", &data, "--defence", "paraphrase"];
    world.run(&refused).fails_with(&["--defence paraphrase", "revise judges no candidates"]);
    judge(&["--defence", "nonce"]).fails_with(&["--defence", "nonce:KEY"]);
}
