//! The README's commands, each as it stands there, by a shell in a folder with the files that it speaks of.

use serde_json::json;

use crate::harness::{Ran, World, golden, lines};

const README: &str = include_str!("../../README.md");
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// A block of code, its language, and the line that it begins in.
struct Block {
    line: usize,
    language: &'static str,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in README.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some(Block { line: at + 2, language, text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    blocks
}

fn is_command(block: &Block) -> bool {
    block.language.is_empty() && ["probity ", "cargo ", "export "].iter().any(|program| block.text.starts_with(program))
}

/// A model of any context that answers everything, if at random.
fn model() -> String {
    golden("tiny-flan-t5").display().to_string()
}

/// The files that the README's commands speak of.
fn files(world: &World) {
    world.file(
        "news.csv",
        "doc,article,summary_a,summary_b,coh_a,gold,winner\nn1,The ferry sank.,A ship sank.,Ferries float.,4.5,It \
         sank.,summary_a\n\
         n2,Rain fell.,It rained.,It snowed.,4,Rain.,summary_a\n",
    );
    world.file(
        "systems.tsv",
        "doc\tarticle\ttext\tsystem\tflu\nd1\tRain fell.\tIt rained.\tbig\t4\nd1\tRain fell.\train rain\tsmall\t1\n",
    );
    let tables = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/tables");
    world.file("train.parquet", std::fs::read(tables.join("train.parquet")).expect("a golden"));
    let summaries = json!({
        "M11": {"sys_summ": "a ship sank", "scores": {"coherence": 4.0, "fluency": 3.0}},
        "M13": {"sys_summ": "ships", "scores": {"coherence": 2.0, "fluency": 5.0}},
    });
    let article = |text: &str| json!({"src": text, "sys_summs": summaries, "ref_summs": ["The ferry sank."]});
    world.file(
        "summeval.json",
        json!({"article-7": article("the ferry sank"), "article-8": article("a ferry")}).to_string(),
    );
    let pair = |id: &str| {
        let candidates = json!([{"id": "one", "text": "Seven."}, {"id": "two", "text": "Nine."}]);
        json!({"id": id, "context": "", "instruction": "Name a prime.", "candidates": candidates, "preference": "one"})
    };
    world.file("llmbar.jsonl", lines(&[pair("a"), pair("b")]));
    let rows = |columns: &str, values: [&str; 4]| {
        let row =
            |(at, value): (usize, &&str)| format!("{},{},{value}", ["1", "1", "2", "2"][at], ["a", "b", "a", "b"][at]);
        let rows: Vec<String> =
            std::iter::once(format!("item,candidate,{columns}")).chain(values.iter().enumerate().map(row)).collect();
        rows.join("\n") + "\n"
    };
    world.file("scores.csv", rows("bleu,rouge-l", ["0.5,0.4", "0.2,0.6", "0.1,0.3", "0.9,0.2"]));
    world.file("gold.csv", rows("human,tone", ["5,1", "2,2", "1,4", "4,3"]));
    world.file("out.txt", "a ship sank\nit rained\n");
    world.file("ref.txt", "the ship sank\nrain fell\n");
    let recipe = blocks().into_iter().find(|block| block.language == "toml").expect("a recipe").text;
    // The recipe is the README's own; its models are here by another name.
    let path = json!(model()).to_string();
    let recipe = recipe.replace("\"smollm2-135m-instruct\"", &path).replace("\"qwen2.5-coder-1.5b-instruct\"", &path);
    world.file("judges.toml", recipe);
}

/// Programs that stand in for what a test cannot do: `cargo run -- …` is the binary that was built, and installing and
/// testing are taken for done.
fn programs(world: &World) -> String {
    let folder = world.path("bin");
    std::fs::create_dir_all(&folder).expect("made");
    let cargo = format!(
        "#!/bin/sh\ncase \"$1 $2\" in\n  'run --release') shift 3; exec {} \"$@\";;\n  'install --path'|'test \
         --workspace') exit 0;;\n  *) echo \"unknown: $*\" >&2; exit 9;;\nesac\n",
        env!("CARGO_BIN_EXE_probity")
    );
    let link = folder.join("probity");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probity"), link).expect("linked");
    let path = folder.join("cargo");
    std::fs::write(&path, cargo).expect("written");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("allowed");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Whether real weights of that name are where the environment says.
fn is_here(name: &str) -> bool {
    let verified = std::process::Command::new(env!("CARGO_BIN_EXE_probity"))
        .args(["-q", "model", "verify", name])
        .output()
        .expect("started");
    verified.status.success()
}

#[cfg(unix)]
#[test]
fn the_readmes_commands_run_as_they_stand() {
    let world = World::new();
    files(&world);
    let path = programs(&world);
    let real = ["smollm2-135m-instruct", "all-minilm-l6-v2"].iter().all(|name| is_here(name));
    let mut run = 0;
    for block in blocks().iter().filter(|block| is_command(block)) {
        let wants_weights = block.text.contains("demo") || block.text.contains("all-minilm");
        if wants_weights && !real {
            println!(
                "skipped: line {} needs real weights; probity model get smollm2-135m-instruct all-minilm-l6-v2",
                block.line
            );
            continue;
        }
        let mut command = world.program("sh");
        command.args(["-e", "-c", &block.text]).env("PATH", &path).env("PROBITY_MODEL", model());
        if wants_weights {
            command.env_remove("PROBITY_MODELS");
            command.envs(std::env::var("PROBITY_MODELS").map(|folder| ("PROBITY_MODELS", folder)));
        }
        let ran = Ran::from(command.output().expect("started"));
        // Two runs that differ are told by the exit code too.
        let code = i32::from(block.text.lines().last().is_some_and(|last| last.starts_with("probity diff")));
        assert_eq!(
            ran.code,
            Some(code),
            "README line {}:\n{}\nstdout:\n{}\nstderr:\n{}",
            block.line,
            block.text,
            ran.stdout,
            ran.stderr
        );
        run += 1;
    }
    assert!(run >= 20, "only {run} blocks were found");
    for file in [
        "report.html",
        "both.html",
        "summeval.jsonl",
        "run/summary.json",
        "llmbar-run/summary.json",
        "recipe.schema.json",
        "tables.tex",
    ] {
        assert!(world.path(file).is_file(), "{file}");
    }
}

#[test]
fn features_that_the_readme_names_are_there() {
    let named =
        README.lines().filter_map(|line| line.strip_prefix("cargo install --path . --features ")?.split(' ').next());
    let named: Vec<&str> = named.collect();
    assert_eq!(named.len(), 3);
    for feature in named {
        assert!(MANIFEST.contains(&format!("\n{feature} = [")), "{feature}");
    }
}
