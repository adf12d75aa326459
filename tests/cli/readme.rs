//! Runs the commands of the README and of the book unchanged, in a shell, in a folder with the files that they mention.
//!
//! The fence of a block says how it is tested. `sh` blocks run; `sh,ignore` blocks do not, because they need another
//! program or a large model. HTML comments, invisible to readers, describe what a page assumes. `<!-- before: COMMAND
//! -->` runs at this point, `<!-- file: NAME -->` writes the following block to a file, and `<!-- stand-in -->` runs it
//! with a tiny model. After `<!-- output -->` the block is part of the previous block's output (`<!-- output of the
//! demo -->`: of the demo's), with `…` for omitted lines.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Ran, World, golden, lines, method_model};

const MANIFEST: &str = include_str!("../../Cargo.toml");
/// The only trained model for these tests.
const SMALL: &str = "smollm2-135m-instruct";
/// A page, by its path from the root.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All pages of a folder, by name.
pub(crate) fn pages(folder: &str) -> Vec<Page> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found.iter().map(|path| page(&path.strip_prefix(root()).expect("below the root").display().to_string())).collect()
}

pub(crate) fn page(name: &str) -> Page {
    Page { name: name.to_owned(), text: std::fs::read_to_string(root().join(name)).expect("a page") }
}

/// What a page requires of this test, with its line.
struct Step {
    line: usize,
    kind: Kind,
    text: String,
    tiny: bool,
}

enum Kind {
    Run,
    Before,
    Ignored,
    File(String),
    /// The output of the previous step with the small model.
    Output,
    /// Output or data that is only shown.
    Shown,
}

fn steps(page: &Page) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    let (mut file, mut tiny, mut output) = (None, false, false);
    for (at, line) in page.text.lines().enumerate() {
        let comment = |name: &str| {
            Some(
                line.strip_prefix("<!-- ")?
                    .strip_prefix(name)?
                    .strip_prefix(": ")?
                    .strip_suffix(
                        " \
                -->",
                    )?
                    .to_owned(),
            )
        };
        if let Some(language) = line.strip_prefix("```") {
            open = !open;
            if open {
                assert!(
                    !language.is_empty(),
                    "{} line {}: a fence says what it holds: sh, text, json \
                                               …",
                    page.name,
                    at + 1
                );
                let kind = match (file.take(), language) {
                    (Some(name), _) => Kind::File(name),
                    (None, _) if std::mem::take(&mut output) => Kind::Output,
                    (None, "sh") => Kind::Run,
                    (None, "sh,ignore") => Kind::Ignored,
                    (None, _) => Kind::Shown,
                };
                steps.push(Step { line: at + 2, kind, text: String::new(), tiny: std::mem::take(&mut tiny) });
            }
        } else if open {
            steps.last_mut().expect("opened").text.extend([line, "\n"]);
        } else if let Some(command) = comment("before") {
            steps.push(Step { line: at + 1, kind: Kind::Before, text: command, tiny: false });
        } else if let Some(name) = comment("file") {
            file = Some(name);
        } else if line == "<!-- stand-in -->" {
            tiny = true;
        } else if line == "<!-- output -->" {
            output = true;
        }
    }
    assert!(!open, "{}: a fence is not closed", page.name);
    steps
}

/// Words separated by single spaces: a terminal's line breaks are not part of the output.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Panics unless each group of lines in a block occurs in the output.
fn assert_printed(page: &str, line: usize, shown: &str, printed: &str) {
    let printed = unwrapped(printed);
    for part in shown.split("\n…\n") {
        let part = unwrapped(part.trim_end_matches("…\n"));
        assert!(printed.contains(&part), "{page} line {line} shows\n{part}\nwhich was not printed:\n{printed}");
    }
}

/// The number of blocks in the README and the book with output of the demo; panics if one differs.
pub(crate) fn assert_demo_printed(printed: &str) -> usize {
    let mut count = 0;
    for page in pages("docs").into_iter().chain([page("README.md")]) {
        let blocks = page.text.split("<!-- output of the demo -->\n```text\n").skip(1);
        for block in blocks {
            let shown = block.split("```").next().expect("a block");
            assert_printed(&page.name, 0, shown, printed);
            count += 1;
        }
    }
    count
}

/// A model without a context limit that gives random answers.
pub(crate) fn stand_in() -> String {
    golden("tiny-flan-t5").display().to_string()
}

/// Replaces large models, and limits runs to two samples if no output is shown.
fn made_small(text: &str, all_samples: bool) -> String {
    let mut text = ["qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct"]
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(name, &stand_in()));
    text = text.replace("./reward-model", &method_model("reward"));
    // Imported before the first page.
    for samples in ["summeval.jsonl", "llmbar.jsonl"] {
        text = text.replace(&format!("--out {samples}"), &format!("--overwrite --out {samples}"));
    }
    if !all_samples && !text.contains("--limit") {
        // Commands that read samples or requests.
        let methods = probity_studies::methods().map(probity_methods::DynMethod::name);
        for reader in methods.chain(["logprobs", "generate"]) {
            text = text.replace(&format!("probity {reader} --"), &format!("probity {reader} --limit 2 --"));
        }
    }
    text
}

/// The files that the pages mention.
fn files(world: &World) {
    for sample in ["samples/demo.jsonl", "samples/news.csv", "samples/pairs.jsonl"] {
        world.file(sample, std::fs::read(root().join(sample)).expect("a sample"));
    }
    let gold = |coherence: f64, fluency: f64| json!({"coherence": coherence, "consistency": 5.0, "fluency": fluency, "relevance": coherence});
    let summaries = json!({
        "M11": {"sys_summ": "a ship sank", "scores": gold(4.0, 3.0)},
        "M13": {"sys_summ": "ships", "scores": gold(2.0, 5.0)},
    });
    let article = |text: &str| json!({"src": text, "sys_summs": summaries, "ref_summs": ["The ferry sank."]});
    world.file(
        "summeval.json",
        json!({"article-7": article("the ferry sank"), "article-8": article("a ferry")}).to_string(),
    );
    let pair = |text: &str| json!({"input": text, "output_1": "Seven.", "output_2": "Nine.", "label": 1});
    for name in ["llmbar_natural.json", "mt_bench_200.json"] {
        world.file(name, json!([pair("Name a prime."), pair("Name an odd prime.")]).to_string());
    }
    for (set, file, samples) in
        [("summeval", "summeval.json", "summeval.jsonl"), ("llmbar", "llmbar_natural.json", "llmbar.jsonl")]
    {
        world.run(&["-q", "import", set, file, "--out", samples]).exits(0);
    }
    let critique = |claim: &str| json!({"critique": claim, "aius": [claim], "precision_labels": [true], "recall_labels": [claim == "wrong"]});
    let labelled = |index: usize| {
        json!({"index": index, "question": "Why?", "response": "So.", "gpt4_critique": {"critique": "r", "aius": ["wrong"]},
            "human_critique": critique("wrong"), "llm1_critique": critique("short")})
    };
    world.file("metacritique_annotation.json", json!([labelled(0), labelled(1)]).to_string());
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
    world.file("zh.txt", "会议改到周二\n");
    world.file("zh-ref.txt", "会议改到周三\n");
    world.file("ref.txt", "the ship sank\nrain fell\n");
    world.file("requests.jsonl", lines(&[json!({"id": "1", "prompt": "The", "labels": {"a": ["a"], "b": ["b"]}})]));
}

/// Replacements for programs: `probity` is the built binary, and installing and testing do nothing.
fn programs(world: &World) -> String {
    let folder = world.path("bin");
    std::fs::create_dir_all(&folder).expect("made");
    let cargo = "#!/bin/sh\ncase \"$1 $2\" in\n  'install --locked'|'test --locked') exit 0;;\n  *) echo \"unknown: \
                 $*\" \
                 >&2; exit 9;;\nesac\n";
    let link = folder.join("probity");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probity"), link).expect("linked");
    let path = folder.join("cargo");
    std::fs::write(&path, cargo).expect("written");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("allowed");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

/// Whether the environment provides real weights with this name.
fn is_here(name: &str) -> bool {
    let verified = std::process::Command::new(env!("CARGO_BIN_EXE_probity"))
        .args(["-q", "model", "verify", name])
        .output()
        .expect("started");
    verified.status.success()
}

/// Number of blocks that were run, omitted for lack of weights, and marked to be ignored.
#[derive(Default)]
struct Count {
    run: usize,
    skipped: usize,
    ignored: usize,
}

#[cfg(unix)]
fn follow(page: &Page, world: &World, real: bool, count: &mut Count) {
    files(world);
    let path = programs(world);
    let steps = steps(page);
    let mut printed: Option<String> = None;
    for (at, step) in steps.iter().enumerate() {
        let output_shown = steps.get(at + 1).is_some_and(|next| matches!(next.kind, Kind::Output));
        let mut text = made_small(&step.text, output_shown);
        if step.tiny || matches!(step.kind, Kind::File(_)) {
            text = text.replace(SMALL, &stand_in());
        }
        match &step.kind {
            Kind::Shown => continue,
            Kind::Output => {
                if let Some(printed) = &printed {
                    assert_printed(&page.name, step.line, &step.text, printed);
                }
                continue;
            }
            Kind::Ignored => {
                count.ignored += 1;
                continue;
            }
            Kind::File(name) => {
                world.file(name, text);
                continue;
            }
            Kind::Run => count.run += 1,
            Kind::Before => {}
        }
        printed = None;
        let wants_weights = output_shown || ["demo\n", "all-minilm", SMALL].iter().any(|word| text.contains(word));
        if wants_weights && !real {
            println!(
                "skipped: {} line {} needs real weights; probity model get smollm2-135m-instruct all-minilm-l6-v2",
                page.name, step.line
            );
            count.run -= 1;
            count.skipped += 1;
            continue;
        }
        let mut command = world.program("sh");
        let model = if output_shown { SMALL.to_owned() } else { stand_in() };
        command.args(["-e", "-c", &text]).env("PATH", &path).env("PROBITY_MODEL", model);
        if wants_weights {
            command.env_remove("PROBITY_MODELS");
            command.envs(std::env::var("PROBITY_MODELS").map(|folder| ("PROBITY_MODELS", folder)));
        }
        let began = std::time::Instant::now();
        let ran = Ran::from(command.output().expect("started"));
        println!("{:6.2} s  {} line {}", began.elapsed().as_secs_f64(), page.name, step.line);
        // The exit code also reports that two runs differ.
        let code = i32::from(text.lines().last().is_some_and(|last| last.starts_with("probity diff")));
        assert_eq!(
            ran.code,
            Some(code),
            "{} line {}:\n{text}\nstdout:\n{}\nstderr:\n{}",
            page.name,
            step.line,
            ran.stdout,
            ran.stderr
        );
        printed = Some(format!("{}\n{}", ran.stderr, ran.stdout));
    }
}

/// The demo takes a minute; another test runs it and checks its files (`methods.rs`).
#[cfg(unix)]
fn without_demo(page: &Page) -> Page {
    let first = "```sh\ncargo install --locked --path .\nprobity demo\n";
    Page { name: page.name.clone(), text: page.text.replace(first, &first.replace("sh\n", "sh,ignore\n")) }
}

#[cfg(unix)]
#[test]
fn the_readmes_commands_run_as_they_stand() {
    let world = World::new();
    let real = [SMALL, "all-minilm-l6-v2"].iter().all(|name| is_here(name));
    let mut count = Count::default();
    follow(&without_demo(&page("README.md")), &world, real, &mut count);
    assert!(count.run + count.skipped >= 3, "only {} blocks were found", count.run);
    assert_eq!(world.path("report.html").is_file(), real);
}

#[cfg(unix)]
#[test]
fn the_books_commands_run_as_they_stand() {
    let real = [SMALL, "all-minilm-l6-v2"].iter().all(|name| is_here(name));
    let mut count = Count::default();
    for page in pages("docs").iter().filter(|page| !page.name.starts_with("docs/reference/")) {
        follow(&without_demo(page), &World::new(), real, &mut count);
    }
    println!(
        "{} blocks of commands were run, {} wait for weights, {} are not to be \
              run",
        count.run, count.skipped, count.ignored
    );
    assert!(count.run + count.skipped >= 40, "only {} blocks were found", count.run);
    assert!(count.ignored <= 14, "{} blocks are not to be run", count.ignored);
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = page("README.md");
    let runs = |step: &Step| matches!(step.kind, Kind::Run) && step.text.starts_with("cargo test");
    let command = steps(&readme).into_iter().find(runs).expect("a test command").text;
    let ci = std::fs::read_to_string(root().join(".ci/run")).expect("there");
    assert!(ci.lines().any(|line| line == command.trim_end()), "{command}");
}

#[test]
fn features_that_the_book_names_are_there() {
    let devices = page("docs/devices.md").text;
    let named = devices.lines().filter_map(|line| {
        line.strip_prefix(
            "cargo install --locked --path . \
        --features ",
        )?
        .split(' ')
        .next()
    });
    let named: Vec<&str> = named.collect();
    assert_eq!(named.len(), 4, "cuda twice");
    for feature in named {
        assert!(MANIFEST.contains(&format!("\n{feature} = [")), "{feature}");
    }
}
