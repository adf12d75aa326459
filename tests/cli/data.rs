//! Samples from the user's own files: mapping, formats, `data check` and `data convert`.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ran, World, tiny};

const WIDE: &str = "\
doc,article,sum a,sum b,gold,winner,coh,notes
a1,\"The cat, at home,
sat.\",a cat,no,The cat sat,sum b,3.5,x
a2,the mat,mat,cat,,B,,y
";

const MAP: [&str; 16] = [
    "--map", "id=doc", "--map", "context=article", "--map", "candidate=sum a", "--map", "candidate.human=sum b",
    "--map", "reference=gold", "--map", "preference=winner", "--map", "score.sum a.coherence=coh", "--limit", "9",
];

fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/tables").join(name).display().to_string()
}

fn run(world: &World, first: &[&str], map: &[&str]) -> Ran {
    world.run(&[first, map].concat())
}

fn piped(world: &World, arguments: &[&str], bytes: &[u8]) -> Ran {
    let mut child = world
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    child.stdin.take().expect("piped").write_all(bytes).expect("written");
    Ran::from(child.wait_with_output().expect("ended"))
}

#[test]
fn a_mapped_table_is_judged_and_the_manifest_says_how_it_was_read() {
    let world = World::new();
    let (file, model) = (world.file("d.csv", WIDE), tiny().display().to_string());
    let compare = ["compare", "--model", &model, "--data", &file, "--out", "run", "--attribute", "coherence"];
    run(&world, &compare, &MAP).exits(0);
    let comparisons = world.rows("run/comparisons.jsonl");
    assert_eq!(comparisons.len(), 4);
    assert_eq!((&comparisons[0]["item"], &comparisons[0]["candidate_i"]), (&json!("a1"), &json!("sum a")));
    let manifest: Value = serde_json::from_str(&world.read("run/manifest.json")).expect("JSON");
    let data = &manifest["arguments_in_force"]["data"];
    assert_eq!((&data["map"]["candidate"], &data["map"]["candidate.human"]), (&json!("sum a"), &json!("sum b")));
    assert_eq!((&data["limit"], &data["samples"]), (&json!(9), &json!(2)));
}

#[test]
fn a_broken_table_stops_a_run_before_a_model_is_loaded() {
    let world = World::new();
    let broken = world.file("d.csv", WIDE.replace("3.5", "good").replace(",B,", ",2,"));
    let compare = ["compare", "--model", "absent", "--data", &broken, "--out", "run", "--attribute", "coherence"];
    run(&world, &compare, &MAP).fails_with(&[
        "2 problems in",
        "line 2: column `coh` (score.coherence): `good` is not a finite number",
        "line 4: column `winner` (preference): `2` is ambiguous, because candidates may count from 0 or from 1; they \
         are `sum a`, `human`",
        "--map preference.1=sum a --map preference.2=human to count from 1",
    ]);
}

#[test]
fn columns_and_fields_that_are_not_there_suggest_the_nearest() {
    let world = World::new();
    let file = world.file("d.csv", WIDE);
    let check = ["data", "convert", &file];
    run(&world, &check, &["--map", "context=artcle", "--map", "candidate=sum a"]).fails_with(&[
        "no column `artcle` for `context`",
        "hint: did you mean `article`? the columns are `doc`, `article`, `sum a`",
    ]);
    run(&world, &check, &["--map", "contxt=article"]).fails_with(&["unknown field `contxt` (did you mean `context`?)"]);
    run(&world, &check, &[]).fails_with(&[
        "no column is mapped to a candidate",
        "hint: map one: --map candidate=COLUMN; the columns are `doc`",
    ]);
    let own = world.file("own.csv", "id,source,a\n1,c,x\n");
    run(&world, &["data", "convert", &own], &["--map", "candidate=a"]).fails_with(&[
        "no column is mapped to the context",
        "hint: map one: --map context=COLUMN, or --map context:= for none; the columns are `id`, `source`",
    ]);
    // A column with a field's name is that field.
    let named = world.file("named.csv", "id,context,a\n1,c,x\n");
    let ran = run(&world, &["data", "convert", &named], &["--map", "candidate=a"]).exits(0);
    assert!(ran.stdout.contains("\"context\":\"c\""), "{}", ran.stdout);
    let lines = world.file("d.jsonl", "{\"txt\": \"c\", \"a\": \"x\"}\n{\"text\": \"c\", \"a\": \"x\"}\n");
    run(
        &world,
        &["data", "convert", &lines],
        &["--map", "context=text", "--map", "candidate=a", "--map", "reference=gold"],
    )
    .fails_with(&[
        "line 1: column `text` (context): no such column", "no column `gold` for `reference`",
        "hint: did you mean `txt`? the line has",
    ]);
}

#[test]
fn check_lists_every_problem_and_what_is_fine() {
    let world = World::new();
    let good = r#"{"id":"a","context":"c","candidates":[{"id":"1","text":"x","scores":{"f":2}},{"id":"2","text":"y"}],"preference":"tie"}"#;
    let wrong = r#"{"id":3,"context":"c","candidates":[{"id":"1","text":4}],"extra":1}"#;
    let file = world.file("d.jsonl", format!("{good}\n{wrong}\n{{\n{good}\n"));
    let ran = world.run(&["data", "check", &file]).exits(2);
    for part in [
        "samples             1", "scores of f         1   from 2 to 2", "ties                1", "5 problems",
        "line 2: field `id`: invalid type", "line 2: field `extra`: unknown field",
        "line 2: field `candidates[0].text`: invalid type", "line 3: ",
        "line 4: field `id`: duplicate sample `a`, first on line 1", "hint: ",
    ] {
        assert!(ran.stdout.contains(part), "`{part}` is not in\n{}", ran.stdout);
    }
    assert!(ran.stderr.is_empty(), "{}", ran.stderr);
}

#[test]
fn warnings_alone_are_no_error_and_hostile_text_is_shown_escaped() {
    let world = World::new();
    let file =
        world.file("d.csv", "id,context,candidate_a,candidate_b\n1,c,same\u{1b}[31m,same\u{1b}[31m\n2,c,,\u{202e}x\n");
    let ran = world.run(&["data", "check", &file]).exits(0);
    for part in [
        "5 warnings: 1 × empty candidate; 1 × identical candidates; 3 × control",
        "line 2: field `candidates[1].text`",
        "U+202E",
        "no problems",
    ] {
        assert!(ran.stdout.contains(part), "`{part}` is not in\n{}", ran.stdout);
    }
    let columns = world.file("e.csv", "id,context,candidate,evil\u{1b}[2J\n1,c,x,y\n");
    let ran = world.run(&["data", "check", &columns]).exits(0);
    assert!(ran.stdout.contains("columns ignored: `evil\\u{1b}[2J`"), "{}", ran.stdout);
}

#[test]
fn check_prints_json_for_programs_and_goes_on_after_a_file_that_is_not_there() {
    let world = World::new();
    let file = world.file("d.csv", format!("{WIDE}a1,c,x,y,,,,z\n"));
    let ran = run(&world, &["data", "check", "absent.csv", &file, "--json"], &MAP).exits(2);
    let checked: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(checked[0]["error"].as_str().is_some_and(|why| why.contains("could not be opened")), "{}", ran.stdout);
    assert_eq!((&checked[1]["holds"]["samples"], &checked[1]["columns_passed_over"]), (&json!(2), &json!(["notes"])));
    assert_eq!(checked[1]["holds"]["attributes"]["coherence"], json!({"candidates": 1, "lowest": 3.5, "highest": 3.5}));
    assert_eq!((&checked[1]["problems"], &checked[1]["first_problems"][0]["line"]), (&json!(1), &json!(5)));
    assert_eq!(checked[1]["first_problems"][0]["field"], "id");
}

#[test]
fn check_lists_a_thousand_problems_and_all_when_asked() {
    let world = World::new();
    let file = world.file("d.jsonl", "{\n".repeat(1234));
    let some = world.run(&["data", "check", &file]).exits(2).stdout;
    assert!(some.contains("1,234 problems") && some.contains("line 1000: ") && !some.contains("line 1001: "), "{some}");
    assert!(some.contains("… and 234 more; --all lists them"), "{some}");
    assert!(world.run(&["data", "check", &file, "--all"]).exits(2).stdout.contains("line 1234: "));
}

#[test]
fn tables_from_pipes_packed_or_not_are_told_by_their_content() {
    let world = World::new();
    let expected = std::fs::read_to_string(golden("expected.jsonl")).expect("a golden");
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for name in ["expected.jsonl", "own.jsonl.gz", "own.jsonl.zst", "nested-zstd.parquet", "nested-none.parquet"] {
        let bytes = std::fs::read(golden(name)).expect("a golden");
        let from_pipe = piped(&world, &["data", "convert", "-"], &bytes).exits(0).stdout;
        let from_file = world.run(&["data", "convert", &golden(name)]).exits(0).stdout;
        assert_eq!(from_pipe, from_file, "{name}");
        assert_eq!(
            from_pipe.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect::<Vec<_>>(),
            expected,
            "{name}"
        );
    }
    let ran = piped(&world, &["data", "convert", "-", "--data-format", "tsv"], b"id\tcontext\tcandidate\n1\tc,d\tx\n")
        .exits(0);
    assert!(ran.stdout.contains(r#""context":"c,d""#), "{}", ran.stdout);
    piped(&world, &["data", "convert", "-", "--data-format", "xlsx"], b"")
        .fails_with(&["invalid value 'xlsx'", "parquet"]);
}

#[test]
fn an_existing_file_is_replaced_only_when_asked() {
    let world = World::new();
    let data = world.file("d.csv", "context,candidate\nc,x\n");
    let out = world.file("mine.jsonl", "mine");
    let convert = ["data", "convert", &data, "--out", &out];
    world
        .run(&convert)
        .fails_with(&["mine.jsonl already exists", "hint: choose another name, or replace the file with --overwrite"]);
    assert_eq!(world.read("mine.jsonl"), "mine");
    world.run(&[&convert[..], &["--overwrite"]].concat()).exits(0);
    assert!(world.read("mine.jsonl").starts_with("{\"id\":\"1\""));
    let set = world.file("l.json", r#"[{"input": "i", "output_1": "a", "output_2": "b", "label": 1}]"#);
    world.run(&["import", "llmbar", &set, "--out", &out]).fails_with(&["mine.jsonl already exists"]);
    world.run(&["import", "llmbar", &set, "--out", &out, "--overwrite"]).exits(0);
}

#[test]
fn damaged_files_are_told_as_such() {
    let world = World::new();
    let parquet = std::fs::read(golden("nested-snappy.parquet")).expect("a golden");
    let short = world.file("short.parquet", &parquet[..parquet.len() / 2]);
    world.run(&["data", "convert", &short]).fails_with(&["short.parquet", "the Parquet file is damaged"]);
    let fake = world.file("fake.parquet", "PAR1 and nothing else");
    world.run(&["data", "convert", &fake]).fails_with(&["fake.parquet", "the Parquet file is damaged"]);
    let packed = std::fs::read(golden("own.jsonl.gz")).expect("a golden");
    let short = world.file("short.jsonl.gz", &packed[..packed.len() / 2]);
    world.run(&["data", "convert", &short]).fails_with(&["reading failed: "]);
    let open = world.file("open.csv", "id,context,candidate\n1,c,x\n2,\"c,x\n3,c,x\n");
    world
        .run(&["data", "convert", &open])
        .fails_with(&["broken line 3 of ", "the quote opened on line 3 is never closed"]);
    world.run(&["data", "convert", &world.file("empty.csv", "")]).fails_with(&["empty.csv has no rows"]);
    world
        .run(&["data", "convert", &world.file("head.csv", "id,context,candidate\n")])
        .fails_with(&["head.csv has no rows"]);
}

#[test]
fn a_public_file_as_it_was_published_is_told_how_to_be_imported() {
    let world = World::new();
    let item = json!({"input": "q", "output_1": "a", "output_2": "b", "label": 1});
    let file = world.file("llmbar.json", json!([item]).to_string());
    let checked = world.run(&["data", "check", &file]).exits(2).stdout;
    assert!(
        checked.contains("is a published llmbar file")
            && checked.contains("hint: convert it with: probity import llmbar"),
        "{checked}"
    );
    let model = tiny().display().to_string();
    world
        .run(&["compare", "--model", &model, "--data", &file, "--attribute", "x", "--out", "run"])
        .fails_with(&["probity import llmbar"]);
    assert!(!world.path("run").exists());
}
