//! `gate`: worse, better, same, undecided, and the judge's own noise.

use serde_json::{Value, json};

use crate::harness::{World, lines, tiny};

/// A table of scores of forty items, computed from the item's number.
fn scores(world: &World, name: &str, attribute: &str, score: impl Fn(usize) -> f64) -> String {
    let row = |item: usize| {
        let score = score(item);
        json!({"item": format!("i{item}"), "attribute": attribute, "candidate": name, "score": score, "answers": []})
    };
    world.file(&format!("{name}.jsonl"), lines(&(0..40).map(row).collect::<Vec<Value>>()))
}

/// Between −1 and 1, with a mean of about 0.
fn spread(item: usize) -> f64 {
    ((item * 7919 % 40) as f64 - 19.5) / 20.0
}

#[test]
fn what_is_worse_fails_and_what_is_better_same_or_undecided_does_not() {
    let world = World::new();
    let base = scores(&world, "base", "coherence", |item| 3.0 + spread(item));
    let gate = |score: &dyn Fn(usize) -> f64, more: &[&str]| {
        let run = scores(&world, "run", "coherence", score);
        world.run(&[&["gate", &run, "--baseline", &base, "--json"], more].concat())
    };
    let outcome = |ran: &str| -> Value {
        let said: Value = serde_json::from_str(ran).expect("JSON");
        said["gated"][0].clone()
    };
    let moved = |by: f64| move |item: usize| 3.0 + spread(item) + by + 0.2 * spread(item + 3);
    let worse = gate(&moved(-0.5), &[]).exits(1).stdout;
    let told = outcome(&worse);
    assert_eq!((&told["outcome"], &told["items"]), (&json!("worse"), &json!(40)));
    assert!((told["difference"].as_f64().expect("a number") + 0.5).abs() < 0.05, "{told}");
    gate(&moved(-0.5), &["--tolerance", "1"]).exits(0);
    assert_eq!(outcome(&gate(&moved(0.5), &[]).exits(0).stdout)["outcome"], "better");
    let same = gate(&moved(0.0), &["--tolerance", "0.2", "--minimum-effect", "0.2", "--strict"]).exits(0).stdout;
    assert_eq!(outcome(&same)["outcome"], "same");
    // A difference that forty items do not show: the build passes, unless strict.
    let unclear = |item: usize| 3.0 + spread(item + 11) - 0.05;
    let undecided = outcome(&gate(&unclear, &[]).exits(0).stdout);
    assert_eq!(undecided["outcome"], "undecided");
    assert!(undecided["items_to_decide"].as_u64().expect("a number") > 40, "{undecided}");
    gate(&unclear, &["--strict"]).exits(1);
    // All items agree.
    assert_eq!(outcome(&gate(&|item| 2.0 + spread(item), &[]).exits(1).stdout)["outcome"], "worse");
    assert_eq!(outcome(&gate(&|item| 3.0 + spread(item), &["--strict"]).exits(0).stdout)["outcome"], "same");
}

#[test]
fn a_difference_that_the_judges_own_prompt_moves_as_much_fails_no_build() {
    let world = World::new();
    let table = |name: &str, by: [f64; 2]| {
        let row = |item: usize| {
            let of = |template: usize| 3.0 + 0.1 * spread(item) + by[template];
            let answers: Vec<Value> =
                (0..2).map(|template| json!({"template": template.to_string(), "score": of(template)})).collect();
            json!({"item": format!("i{item}"), "attribute": "tone", "candidate": "c", "score": f64::midpoint(of(0), of(1)), "answers": answers})
        };
        world.file(&format!("{name}.jsonl"), lines(&(0..40).map(row).collect::<Vec<_>>()))
    };
    let (base, run) = (table("base", [0.0, 0.0]), table("run", [-0.5, 0.3]));
    let ran = world.run(&["gate", &run, "--baseline", &base]).exits(0);
    assert!(ran.stdout.starts_with("PASSED") && ran.stdout.contains("noise"), "{}", ran.stdout);
    assert!(ran.stdout.contains("changes by up to 0.400"), "{}", ran.stdout);
    world.run(&["gate", &run, "--baseline", &base, "--strict"]).exits(1);
    let clear = table("clear", [-0.5, -0.3]);
    let ran = world.run(&["gate", &clear, "--baseline", &base]).exits(1);
    assert!(ran.stdout.starts_with("FAILED: 1 of 1 attribute"), "{}", ran.stdout);
}

#[test]
fn reports_for_builds_hold_hostile_names_and_less_is_better_where_it_is() {
    let world = World::new();
    let hostile = "tone\"/><script>|`x`";
    let base = scores(&world, "base", hostile, |item| 3.0 + spread(item));
    let run = scores(&world, "run", hostile, |item| 2.0 + spread(item) + 0.1 * spread(item + 1));
    world.run(&["gate", &run, "--baseline", &base, "--junit", "gate.xml", "--markdown", "summary.md"]).exits(1);
    let junit = world.read("gate.xml");
    assert!(junit.contains("failures=\"1\"") && junit.contains("<failure type=\"worse\""), "{junit}");
    assert!(!junit.contains("<script>") && junit.contains("tone&quot;/&gt;&lt;script&gt;"), "{junit}");
    let summary = world.read("summary.md");
    assert!(summary.contains("FAILED") && !summary.contains("<script>"), "{summary}");
    assert!(summary.lines().filter(|line| line.starts_with('|')).count() == 3, "{summary}");
    // The report is appended to the file.
    world.run(&["gate", &run, "--baseline", &base, "--markdown", "summary.md"]).exits(1);
    assert_eq!(world.read("summary.md"), summary.repeat(2));

    let rows = |ter: f64| {
        let row = |item: usize| json!({"item": format!("i{item}"), "candidate": "c", "metric": "ter", "score": ter + 0.1 * spread(item)});
        lines(&(0..40).map(row).collect::<Vec<_>>())
    };
    let (low, high) = (world.file("low.jsonl", rows(0.3)), world.file("high.jsonl", rows(0.6)));
    world.run(&["gate", &high, "--baseline", &low]).exits(1);
    let better = world.run(&["gate", &low, "--baseline", &high]).exits(0).stdout;
    let says = "Lower is better: ter. A difference above 0 is a lower score.";
    assert!(better.contains("better") && better.matches(says).count() == 1, "{better}");
    let json = world.run(&["gate", &low, "--baseline", &high, "--json"]).exits(0).stdout;
    let told: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(told["gated"][0]["lower_is_better"], true);
}

#[test]
fn a_closed_pipe_changes_no_exit_code() {
    let world = World::new();
    let base = scores(&world, "base", "coherence", |item| 3.0 + spread(item));
    let worse = scores(&world, "worse", "coherence", |item| 2.0 + spread(item));
    for more in [&[][..], &["--json"], &["--junit", "-"]] {
        world.run_unread(&[&["gate", &worse, "--baseline", &base], more].concat()).exits(1);
        world.run_unread(&[&["gate", &base, "--baseline", &worse], more].concat()).exits(0);
    }
    world.run_unread(&["gate", &worse, "--baseline", "nowhere"]).exits(2);
    world.run_unread(&["data", "check", "nope"]).exits(2);
    world.run_unread(&["diff", "nope", "nope"]).exits(2);
    world.run_unread(&["--help"]).exits(0);
    world.run_unread(&["model", "list"]).exits(0);
    // A stream of answers ends with its reader.
    let requests =
        world.file("requests.jsonl", "{\"id\": \"a\", \"prompt\": \"the cat\", \"continuation\": \" sat\"}\n");
    world.run_unread(&["logprobs", "--input", &requests, "--model", &tiny().display().to_string()]).exits(0);
}

#[test]
fn two_candidates_of_one_run_are_held_against_each_other_by_comparisons_in_both_orders() {
    let world = World::new();
    let sample = |s: usize| {
        let candidate =
            |id: &str, words: usize| json!({"id": id, "text": format!("the cat {s} {}", "sat ".repeat(words))});
        json!({"id": format!("s{s}"), "context": format!("the mat {s}"), "candidates": [candidate("new", 1 + s % 3), candidate("old", 2)]})
    };
    let data = world.file("data.jsonl", lines(&(0..12).map(sample).collect::<Vec<_>>()));
    let model = tiny().display().to_string();
    world
        .run(&["compare", "--model", &model, "--data", &data, "--attribute", "coherence", "--no-gold", "--out", "run"])
        .exits(0);
    let ran = world.run(&["gate", "run", "--candidates", "new,old", "--json"]);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    let told: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let one = &told["gated"][0];
    assert!(one["name"] == "coherence" && one["items"] == 12 && one["noise"].is_number(), "{one}");
    assert_eq!(told["debiased"], true);
    // Computed by hand: the probability that the new one is better, over both orders, reweighted as in the run's
    // scores.
    let summary: Value = serde_json::from_str(&world.read("run/summary.json")).expect("JSON");
    let tau = summary["values"]["prompts"][0]["tau"].as_f64().expect("a threshold");
    let mut share = 0.0;
    for row in world.rows("run/comparisons.jsonl") {
        let p = row["p"].as_f64().expect("a probability");
        let p = 1.0 / (1.0 + (1.0 - p) * tau / (p * (1.0 - tau)));
        share += if row["candidate_i"] == "new" { p } else { 1.0 - p };
    }
    let difference = 2.0 * share / 24.0 - 1.0;
    assert!((one["difference"].as_f64().expect("a number") - difference).abs() < 1e-12, "{one}");
    let shown = world.run(&["gate", "run", "--candidates", "new,old"]).stdout;
    assert!(shown.contains("the candidate is better, debiased, as in the run's scores"), "{shown}");
    let slip = world.run(&["gate", "run", "--candidates", "nwe,old"]);
    slip.fails_with(&["--candidates: there is no candidate `nwe`", "did you mean `new`? there are `new`, `old`"]);
}

#[test]
fn what_cannot_be_held_against_each_other_is_told() {
    let world = World::new();
    let base = scores(&world, "base", "coherence", |item| 3.0 + spread(item));
    let other = scores(&world, "other", "fluency", |item| 3.0 + spread(item));
    world.run(&["gate", &base]).fails_with(&["--baseline"]);
    world.run(&["gate", &base, "--baseline", &other]).fails_with(&["no item", "attributes"]);
    world.run(&["gate", &base, "--baseline", "nowhere"]).fails_with(&["nowhere"]);
    world.run(&["gate", &base, "--baseline", &base, "--attribute", "tone"]).fails_with(&["tone", "coherence"]);
    world.run(&["gate", &base, "--baseline", &base, "--tolerance", "-1"]).fails_with(&["--tolerance"]);
    world.run(&["gate", &base, "--candidates", "one"]).fails_with(&["two ids"]);
    world
        .run(&["gate", &base, "--candidates", "base,b"])
        .fails_with(&["there is no candidate `b`", "there are `base`"]);
    let one = world
        .file("one.jsonl", "{\"item\": \"i1\", \"candidate\": \"c\", \"attribute\": \"coherence\", \"score\": 1}\n");
    let ran = world.run(&["gate", &one, "--baseline", &base, "--allow-missing"]).exits(0);
    assert!(ran.stdout.contains("undecided"), "{}", ran.stdout);
}

#[test]
fn runs_of_other_judges_and_parts_of_runs_are_refused_or_told() {
    let world = World::new();
    let sample = |s: usize| {
        let candidates = json!([{"id": "a", "text": format!("the cat {s} sat")}, {"id": "b", "text": "a mat"}]);
        json!({"id": format!("s{s}"), "context": format!("the mat {s}"), "candidates": candidates})
    };
    let data = |from: usize, to: usize| lines(&(from..to).map(sample).collect::<Vec<_>>());
    let (all, some) = (world.file("all.jsonl", data(0, 8)), world.file("some.jsonl", data(0, 3)));
    let model = tiny().display().to_string();
    let judged = |method: &str, data: &str, out: &str, more: &[&str]| {
        let asked = [method, "--model", &model, "--data", data, "--attribute", "coherence", "--no-gold", "--out", out];
        world.run(&[&asked, more].concat()).exits(0);
    };
    judged("gpt-score", &all, "base", &[]);
    judged("gpt-score", &all, "other-precision", &["--precision", "dots"]);
    judged("gpt-score", &some, "some", &[]);
    judged("parapluie", &all, "other-method", &[]);
    judged("compare", &all, "shares", &[]);
    let elsewhere = world.file("elsewhere.jsonl", data(0, 8).replace("the mat 3", "the rug 3"));
    judged("gpt-score", &elsewhere, "elsewhere", &[]);
    let empty = world.file("empty.jsonl", data(0, 8).replace("the cat 5 sat", "").replace("the cat 6 sat", ""));
    judged("gpt-score", &empty, "empty", &[]);
    let gate = |run: &str, more: &[&str]| world.run(&[&["gate", run, "--baseline", "base"], more].concat());
    assert!(!gate("base", &[]).exits(0).stdout.contains("but "));
    gate("other-precision", &[]).fails_with(&["other-precision and base", "precision", "--allow-unlike"]);
    let told = gate("other-precision", &["--allow-unlike"]);
    assert!(told.stdout.lines().next().is_some_and(|line| line.contains("precision differs")), "{}", told.stdout);
    // Two methods have different scales.
    gate("other-method", &["--allow-unlike"]).fails_with(&["command differs"]);
    // Texts of an item share a fixed sum, so their mean carries no information.
    let shares = world.run(&["gate", "shares", "--baseline", "shares"]);
    shares.fails_with(&["divide these scores", "--candidates"]);
    gate("elsewhere", &[]).fails_with(&["1 of 8 items of one name are about other texts, `s3` first"]);
    let told = gate("elsewhere", &["--allow-unlike"]);
    assert!(told.stdout.contains("but 1 of 8 items of one name are about other texts"), "{}", told.stdout);
    // Texts that lost their score are no improvement, however bad they were; the others are compared with themselves.
    let told = gate("empty", &[]).exits(1);
    assert!(told.stdout.starts_with("FAILED: 1 of 1 attribute against base: coherence · but 2 texts of 8 items lost"));
    let told: Value =
        serde_json::from_str(&gate("empty", &["--allow-missing", "--json"]).exits(0).stdout).expect("JSON");
    let one = &told["gated"][0];
    assert_eq!((&one["outcome"], &one["missing"], &one["difference"]), (&json!("same"), &json!(2), &json!(0.0)));
    // Another setting of the method is the same judge; the lost scores are reported.
    let told = gate("some", &[]).exits(1);
    let first = told.stdout.lines().next().unwrap_or_default().to_owned();
    assert!(first.contains("but 10 texts of 8 items lost their score"), "{first}");
    assert!(first.contains("5 of 8 items have no score on one side or both"), "{first}");
    let told: Value =
        serde_json::from_str(&gate("some", &["--json", "--allow-missing"]).exits(0).stdout).expect("JSON");
    assert_eq!(told["caveats"].as_array().map(Vec::len), Some(2), "{told}");
    // Inputs are not overwritten.
    gate("some", &["--junit", "some/scores.jsonl"]).fails_with(&["some/scores.jsonl", "belongs to a run"]);
    gate("some", &["--markdown", "base/manifest.json"]).fails_with(&["base/manifest.json"]);
    // The manifest of a killed run.
    let manifest = world.read("some/manifest.json");
    let killed = manifest.replace("\"status\": \"finished\"", "\"status\": \"interrupted\"");
    assert_ne!(killed, manifest);
    world.file("some/manifest.json", killed);
    gate("some", &[]).fails_with(&["some is interrupted", "--resume"]);
    world.file("some/manifest.json", "{");
    gate("some", &[]).fails_with(&["some/manifest.json"]);
}

#[test]
fn what_the_run_lacks_is_lost_and_scores_without_a_mean_are_no_verdict() {
    let world = World::new();
    let row = |item: usize, metric: &str, score: f64| json!({"item": format!("i{item}"), "candidate": "c", "metric": metric, "score": score});
    let both =
        |items: usize| (0..items).flat_map(|item| [row(item, "q", 3.0), row(item, "r", 3.0)]).collect::<Vec<_>>();
    let base = world.file("base.jsonl", lines(&both(30)));
    let few = world.file("few.jsonl", lines(&both(2)));
    let ran = world.run(&["gate", &few, "--baseline", &base]).exits(1);
    assert!(ran.stdout.contains("28 texts of 30 items lost their score (r)"), "{}", ran.stdout);
    world.run(&["gate", &few, "--baseline", &base, "--allow-missing", "--strict"]).exits(0);
    let one = world.file("one.jsonl", lines(&(0..30).map(|item| row(item, "q", 3.0)).collect::<Vec<_>>()));
    let ran = world.run(&["gate", &one, "--baseline", &base]).exits(1);
    assert!(
        ran.stdout.starts_with("FAILED: 1 of 2 attributes against") && ran.stdout.contains(": r"),
        "{}",
        ran.stdout
    );
    world.run(&["gate", &one, "--baseline", &base, "--attribute", "q"]).exits(0);
    // More items than the baseline is no loss.
    world.run(&["gate", &base, "--baseline", &few]).exits(0);
    let huge = |score: f64| lines(&(0..9).map(|item| row(item, "q", score)).collect::<Vec<_>>());
    let (high, low) = (world.file("high.jsonl", huge(1.7e308)), world.file("low.jsonl", huge(-1.7e308)));
    world.run(&["gate", &low, "--baseline", &high]).fails_with(&["column `score`", "larger in magnitude than 1e100"]);
}

#[test]
fn a_judge_that_calls_itself_unreliable_passes_no_strict_build() {
    let world = World::new();
    let candidate = |id: &str, s: usize| json!({"id": id, "text": format!("{id} {s}")});
    let sample = |s: usize| {
        let candidates = [candidate("new", s), candidate("old", s)];
        json!({"id": format!("s{s}"), "context": "the mat", "candidates": candidates, "preference": "new"})
    };
    // Always prefers the first position.
    let first = |s: usize, [i, j]: [&str; 2]| {
        let answers = [json!({"written": "A", "outcome": "scored"})];
        json!({"item": format!("s{s}"), "candidate_i": i, "candidate_j": j, "answers": answers})
    };
    let both = |s: usize| [first(s, ["new", "old"]), first(s, ["old", "new"])];
    let data = world.file("data.jsonl", lines(&(0..12).map(sample).collect::<Vec<_>>()));
    let given = world.file("v.jsonl", lines(&(0..12).flat_map(both).collect::<Vec<_>>()));
    let (model, from) = (tiny().display().to_string(), format!("verdicts={given}"));
    let judge =
        ["judge", "--model", &model, "--data", &data, "--attribute", "quality", "--from", &from, "--out", "run"];
    world.run(&judge).exits(0);
    let gate = ["gate", "run", "--candidates", "new,old"];
    let passed = world.run(&gate).exits(0).stdout;
    assert!(passed.starts_with("PASSED") && passed.contains("calls itself UNRELIABLE"), "{passed}");
    let failed = world.run(&[&gate[..], &["--strict", "--junit", "gate.xml"]].concat()).exits(1).stdout;
    assert!(
        failed.starts_with(
            "FAILED: nothing is worse than candidate old in 1 attribute, but the \
                                judge"
        ),
        "{failed}"
    );
    let junit = world.read("gate.xml");
    assert!(junit.contains("tests=\"2\" failures=\"1\"") && junit.contains("<failure type=\"unreliable\""), "{junit}");
    let told = world.run(&[&gate[..], &["--strict", "--json"]].concat()).exits(1).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["passed"], &told["unreliable"]), (&json!(false), &json!(true)));
}
