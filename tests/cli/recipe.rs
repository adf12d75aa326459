//! Recipes: `probity run`, `probity recipe`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Ran, World, golden, interrupt, interrupts_are_ignored, lines, method_model, smallest, tiny};
use crate::roster::judging;

/// Samples with gold, as `NAME.jsonl`.
fn data(world: &World, name: &str, samples: usize) {
    let candidate = |k: usize| {
        json!({"id": format!("c{k}"), "text": format!("text \
        {k}"), "scores": {"coherence": k, "fluency": 9 - k}})
    };
    let sample = |s: usize| {
        json!({"id": format!("s{s}"), "context": format!("{name} \
        {s}"), "texts": {"question": "q", "answer": "a"}, "candidates": (0..3).map(candidate).collect::<Vec<_>>()})
    };
    world.file(&format!("{name}.jsonl"), lines(&(0..samples).map(sample).collect::<Vec<_>>()));
}

/// The tiny model as `[model.tiny]`.
fn model() -> String {
    model_at(&tiny().display().to_string())
}

fn model_at(path: &str) -> String {
    format!("[model.tiny]\nmodel = {}\n", json!(path))
}

fn manifest(world: &World, run: &str) -> Value {
    serde_json::from_str(&world.read(&format!("{run}/manifest.json"))).expect("JSON")
}

/// Options of a command as keys of a recipe: repeated ones are lists, those without a value are true.
fn keys(options: &[&str]) -> String {
    let mut keys: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut words = options.iter().peekable();
    while let Some(option) = words.next() {
        let value = words.next_if(|word| !word.starts_with("--"));
        let value =
            value.map_or(json!(true), |value| value.parse::<u64>().map_or(json!(value), |number| json!(number)));
        keys.entry(option.trim_start_matches('-')).or_default().push(value);
    }
    let line = |(key, values): (&str, Vec<Value>)| match &values[..] {
        [value] => format!("{key} = {value}\n"),
        values => format!("{key} = {}\n", json!(values)),
    };
    keys.into_iter().map(line).collect()
}

const RESULTS: [&str; 4] = ["samples.jsonl", "comparisons.jsonl", "scores.jsonl", "summary.json"];

#[test]
fn a_command_and_its_recipe_are_the_same_run() {
    let world = World::new();
    data(&world, "d", 3);
    for (name, _) in judging() {
        let mut options = smallest(name);
        if name == "compare" {
            options.extend(["--attribute", "fluency", "--analyses", "--seed", "7"]);
        }
        let keys = keys(&options);
        let (command, recipe) = (format!("{name}-command"), format!("{name}-recipe"));
        let model_path = method_model(name);
        let base = [
            name, "--model", &model_path, "--data", "d.jsonl", "--limit", "2", "--min-mass", "0.001", "--cache-budget",
            "1GiB", "--out", &command,
        ];
        let typed = world.run(&[&base[..], &options].concat()).exits(0);
        let text = format!(
            "{}min-mass = 1e-3\ncompute = {{cache-budget = \"1GiB\", no-sharing = false}}\n[run.{name}]\nmethod = \
             \"{name}\"\ndata = \"d.jsonl\"\nlimit \
             = 2\nout = \"{{run}}-recipe\"\n{keys}",
            model_at(&model_path)
        );
        let file = world.file(&format!("{name}.toml"), &text);
        let ran = world.run(&["run", &format!("{name}.toml")]).exits(0);
        assert!(ran.stdout.contains(typed.stdout.lines().next().expect("a table")), "the same tables: {}", ran.stdout);
        for result in RESULTS.iter().filter(|result| world.path(&format!("{command}/{result}")).exists()) {
            assert!(
                world.read(&format!("{command}/{result}")) == world.read(&format!("{recipe}/{result}")),
                "{name}: {result} differs"
            );
        }
        let (of_command, of_recipe) = (manifest(&world, &command), manifest(&world, &recipe));
        assert_eq!(of_command["arguments_in_force"], of_recipe["arguments_in_force"], "{name}");
        assert_eq!(of_command["recipe"], Value::Null);
        assert_eq!(of_recipe["arguments_given"], json!(["run", format!("{name}.toml")]));
        assert_eq!(
            (&of_recipe["recipe"]["path"], &of_recipe["recipe"]["stage"]),
            (&json!(format!("{name}.toml")), &json!(name))
        );
        assert_eq!(of_recipe["recipe"]["sha256"].as_str().map(str::len), Some(64), "{file}");
    }
}

/// A recipe as JSON.
fn as_json(recipe: &str) -> Value {
    let table: toml::Table = toml::from_str(recipe).unwrap_or_else(|error| panic!("{error}\n{recipe}"));
    serde_json::to_value(table).expect("plain values")
}

/// The schema, read by an independent validator.
pub(crate) struct Schema {
    schemas: boon::Schemas,
    recipe: boon::SchemaIndex,
}

impl Schema {
    pub(crate) fn new(world: &World) -> Self {
        let schema: Value = serde_json::from_str(&world.run(&["recipe", "schema"]).exits(0).stdout).expect("JSON");
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("recipe.json", schema).expect("a resource");
        let recipe = compiler.compile("recipe.json", &mut schemas).unwrap_or_else(|error| panic!("{error}"));
        Self { schemas, recipe }
    }

    /// Why it is invalid, or `None`.
    pub(crate) fn refuses(&self, recipe: &str) -> Option<String> {
        self.schemas.validate(&as_json(recipe), self.recipe).err().map(|error| error.to_string())
    }
}

#[test]
fn a_new_recipe_of_each_method_runs_and_fits_the_schema_also_with_its_defaults_written_out() {
    let world = World::new();
    // Pairs, with a score for every attribute that a method uses by default.
    let candidate = |k: usize| {
        json!({"id": format!("c{k}"), "text": format!("text \
        {k}"), "scores": {"coherence": k, "quality": k}})
    };
    let sample = |s: usize| json!({"id": format!("s{s}"), "context": "so", "texts": {"question": "q", "answer": "a"}, "candidates": [candidate(0), candidate(1)], "preference": "c1"});
    world.file("samples.jsonl", lines(&[sample(0), sample(1)]));
    world.file("documents/so.txt", "So it is.");
    let encoder = format!("encoder = {}", json!(golden("tiny-masked")));
    let schema = Schema::new(&world);
    for method in probity_studies::methods() {
        let file = format!("{}.toml", method.name());
        world.run(&["recipe", "new", method.name(), "--out", &file]).exits(0);
        world.run(&["recipe", "new", method.name(), "--out", &file]).fails_with(&["already exists"]);
        let printed = world.run(&["recipe", "new", method.name()]).exits(0).stdout;
        let written = world.read(&file);
        assert_eq!(printed.replace("recipe.toml", &file), written);
        let default = |line: &str| {
            line.starts_with("# ")
                && line.split_once(" = ").is_some_and(|(key, value)| !key[2..].contains(' ') && !value.starts_with('<'))
        };
        let spelt: String = written
            .lines()
            .map(|line| if default(line) { &line[2..] } else { line })
            .fold(String::new(), |all, line| all + line + "\n");
        assert!(
            spelt.lines().filter(|line| !line.starts_with('#')).count()
                > written.lines().filter(|line| !line.starts_with('#')).count() + 5
        );
        for (form, text) in [("as written", written), ("with defaults", spelt)] {
            assert_eq!(schema.refuses(&text), None, "{file} {form}");
            let ours: String =
                text.replace("\"smollm2-135m-instruct\"", &json!(method_model(method.name())).to_string());
            // The encoder does not answer prompts, and the default one is not available.
            let default = ["# encoder = \"all-minilm-l6-v2\"", "encoder = \"all-minilm-l6-v2\""];
            let ours = default
                .iter()
                .find(|line| ours.contains(**line))
                .map_or(ours.clone(), |line| ours.replace(line, &encoder));
            world.file(&file, ours);
            world.run(&["recipe", "check", &file]).exits(0);
            world.run(&["run", &file, "--overwrite"]).exits(0);
            assert_eq!(manifest(&world, &format!("runs/{}", method.name()))["status"], "finished", "{form}");
        }
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let world = World::new();
    data(&world, "d", 1);
    let schema = Schema::new(&world);
    let base = format!(
        "{}[run.a]\nmethod = \"compare\"\ndata = \"d.jsonl\"\nattribute = \"coherence\"\nout = \"o\"\n",
        model()
    );
    assert_eq!(schema.refuses(&base), None);
    world.run(&["recipe", "check", &world.file("r.toml", &base)]).exits(0);
    let wrong = [
        "atribute = \"coherence\"", "label_words = \"A,B\"", "rank = \"wins\"", "seed = \"many\"", "seed = -1",
        "min-mass = \"much\"", "analyses = \"yes\"", "resume = true", "pairs = [\"full\", \"random:2\"]",
        "noun = { a = 1 }", "noun = 7", "label-words = [1, 2]", "template = []", "map = {}",
        "[run.b]\nmethod = \"comapre\"", "[run.b]\nattribute = \"coherence\"", "[model.other]\nprecision = \"fast\"",
        "[data.other]\npath = \"d.jsonl\"", "[data.other]\ndata = \"d.jsonl\"\nseed = 1", "[defaults]\nsed = 1",
        "[runs.b]\nmethod = \"compare\"",
    ];
    for line in wrong {
        let text = format!("{base}{line}\n");
        assert!(schema.refuses(&text).is_some(), "{line}");
        world.run(&["recipe", "check", &world.file("r.toml", &text)]).fails_with(&["r.toml", "line "]);
    }
}

#[test]
fn all_problems_of_all_stages_are_told_with_their_lines_before_anything_is_loaded_or_written() {
    let world = World::new();
    data(&world, "d", 2);
    world.file("taken/notes.txt", "mine");
    let text = format!(
        "{}[model.big]\nmodel = \"qwen2.5-coder-1.5b-instruct\"\n\
         [defaults]\nattribute = \"coherence\"\ndata = \"d.jsonl\"\nmodel = \"tiny\"\nout = \"runs/{{run}}\"\n\
         [run.good]\nmethod = \"g-eval\"\n\
         [run.keys]\nmethod = \"compare\"\nlable-words = \"A,B\"\nrank = \"win-ration\"\nmodel = \"tyny\"\n\
         [run.gold]\nmethod = \"compare\"\nattribute = \"coherense\"\n\
         [run.words]\nmethod = \"compare\"\nformat = \"text\"\nlabel-words = [\"Yes\", \"Yesterday\"]\n\
         [run.pairs]\nmethod = \"compare\"\npairs = \"random:40\"\n\
         [run.data]\nmethod = \"g-eval\"\ndata = \"absent.jsonl\"\n\
         [run.away]\nmethod = \"g-eval\"\nmodel = \"big\"\n\
         [run.template]\nmethod = \"g-eval\"\ntemplate = \"mine.j2\"\n\
         [run.folder]\nmethod = \"g-eval\"\nout = \"taken\"\n\
         [run.again]\nmethod = \"g-eval\"\nout = \"runs/good\"\n",
        model()
    );
    let line = |wanted: &str| text.lines().position(|line| line == wanted).expect("in the recipe") + 1;
    let expected = [
        (line("lable-words = \"A,B\""), "unknown key `lable-words`; did you mean `label-words`?"),
        (line("rank = \"win-ration\""), "`rank`: `win-ration` is none of auto, win-ratio, mean-prob,"),
        (line("model = \"tyny\""), "`model`: there is no [model.tyny]; did you mean `tiny`?"),
        (line("attribute = \"coherense\""), "`attribute`: no candidate has a gold score for `coherense`"),
        (line("label-words = [\"Yes\", \"Yesterday\"]"), "`label-words`: request"),
        (line("pairs = \"random:40\""), "`pairs` random:40: sample `s0` has 3 candidates"),
        (line("data = \"absent.jsonl\""), "`data`: absent.jsonl could not be opened"),
        (
            line("model = \"qwen2.5-coder-1.5b-instruct\""),
            "`model`: model `qwen2.5-coder-1.5b-instruct` is not on this machine",
        ),
        (
            line("template = \"mine.j2\""),
            "`template`: `mine.j2` is neither a template of this method nor a readable \
                                          file",
        ),
        (line("out = \"taken\""), "`out`: taken is not empty and holds no probity run"),
        (line("out = \"runs/good\""), "`out`: runs/good is the folder of `good`"),
    ];
    world.file("r.toml", &text);
    let ran = world.run(&["run", "r.toml"]).exits(2);
    assert!(ran.stderr.starts_with(&format!("error: {} problems in r.toml\n", expected.len())), "{}", ran.stderr);
    for (line, what) in expected {
        assert!(ran.stderr.contains(&format!("\n  line {line}: {what}")), "line {line}: {what}\n{}", ran.stderr);
    }
    assert!(ran.stderr.contains("hint: probity model get qwen2.5-coder-1.5b-instruct"), "{}", ran.stderr);
    assert!(ran.stdout.is_empty() && !ran.stderr.contains("loaded in") && !world.path("runs").exists());
}

#[test]
fn no_problem_of_a_run_hides_another() {
    let world = World::new();
    let text = format!(
        "{}[defaults]\nattribute = \"coherence\"\nout = \"runs/{{run}}\"\n\
         [run.method]\nmethod = \"comapre\"\nmodel = \"tiny\"\ndata = \"absent-a.jsonl\"\n\
         [run.files]\nmethod = \"checklist\"\nquestion = [\"@one.txt\", \"@two.txt\"]\ndata = \"absent-b.jsonl\"\n\
         [run.missing]\nmethod = \"metrics\"\ndata = \"absent-c.jsonl\"\n\
         [run.agreement]\nmethod = \"meta\"\nscores = [\"runs/files\", \"runs/nobodys\"]\ngold = \"gold.csv\"\n",
        model()
    );
    let line = |wanted: &str| text.lines().position(|line| line == wanted).expect("in the recipe") + 1;
    let questions = line("question = [\"@one.txt\", \"@two.txt\"]");
    let expected = [
        (line("method = \"comapre\""), "`method`: `comapre` is none of compare"),
        (line("data = \"absent-a.jsonl\""), "`data`: absent-a.jsonl could not be opened"),
        (questions, "`question`: cannot read one.txt"),
        (questions, "`question`: cannot read two.txt"),
        (line("data = \"absent-b.jsonl\""), "`data`: absent-b.jsonl could not be opened"),
        (line("[run.missing]"), "run `missing`: `metric` is missing"),
        (line("data = \"absent-c.jsonl\""), "`data`: absent-c.jsonl could not be opened"),
        (line("scores = [\"runs/files\", \"runs/nobodys\"]"), "`scores`: runs/nobodys could not be opened"),
        (line("gold = \"gold.csv\""), "`gold`: gold.csv could not be opened"),
    ];
    world.file("r.toml", &text);
    let told = world.run(&["recipe", "check", "r.toml"]).exits(2).stderr;
    assert!(told.starts_with(&format!("error: {} problems in r.toml\n", expected.len())), "{told}");
    for (line, what) in expected {
        assert!(told.contains(&format!("\n  line {line}: {what}")), "line {line}: {what}\n{told}");
    }
}

#[test]
fn a_wrong_value_hides_no_missing_file_and_a_report_without_a_place_is_told_before_anything_is_done() {
    let world = World::new();
    data(&world, "d", 1);
    world.file("taken/notes.txt", "mine");
    let text = "[model.away]\nmodel = \"qwen2.5-coder-1.5b-instruct\"\nprecision = \"exakt\"\n\
        [run.one]\nmethod = \"checklist\"\nmodel = \"away\"\ndata = \"d.jsonl\"\nout = \"runs/one\"\n\
        attribute = \"coherence\"\nquestion = \"@gone.txt\"\n\
        [report]\nhtml = \"absent/report.html\"\nmarkdown = \"runs/one/tables.md\"\nlatex = \"taken\"\n\
        csv = \"d.jsonl/tables\"\n";
    let line = |wanted: &str| text.lines().position(|line| line.starts_with(wanted)).expect("in the recipe") + 1;
    let expected = [
        (line("precision"), "`precision`: `exakt` is none of "),
        (line("model = \"qwen"), "`model`: model `qwen2.5-coder-1.5b-instruct` is not on this machine"),
        (line("question"), "`question`: cannot read gone.txt"),
        (line("html"), "`html`: absent/report.html could not be written"),
        (line("latex"), "`latex`: taken is a folder"),
        (line("csv"), "`csv`: d.jsonl/tables could not be created"),
    ];
    world.file("r.toml", text);
    for command in [&["recipe", "check", "r.toml"][..], &["run", "r.toml"]] {
        let told = world.run(command).exits(2).stderr;
        assert!(told.starts_with(&format!("error: {} problems in r.toml\n", expected.len())), "{told}");
        for (line, what) in expected {
            assert!(told.contains(&format!("\n  line {line}: {what}")), "line {line}: {what}\n{told}");
        }
        assert!(told.contains("hint: check the path") && told.contains("hint: make the folder absent"), "{told}");
    }
    assert!(!world.path("runs").exists());
}

#[test]
fn a_recipe_names_its_models_itself() {
    let world = World::new();
    data(&world, "d", 1);
    world.file(
        "r.toml",
        "[run.one]\nmethod = \"compare\"\ndata = \"d.jsonl\"\nattribute = \"coherence\"\nout = \"one\"\n",
    );
    let mut command = world.command(&["run", "r.toml"]);
    let ran = Ran::from(command.env("PROBITY_MODEL", tiny()).output().expect("started"));
    ran.fails_with(&["run `one`: `model` is missing", "hint: set it here", "$PROBITY_MODEL"]);
}

#[test]
fn what_is_no_toml_is_told_by_line_and_column() {
    let world = World::new();
    let broken = |text: &str, parts: &[&str]| world.run(&["run", &world.file("r.toml", text)]).fails_with(parts);
    broken("[run.a]\nmethod = \"compare\n", &["line 2 of", "column"]);
    broken("[run.a]\nmethod = \"compare\"\nmethod = \"compare\"\n", &["line 3 of", "duplicate key"]);
    broken("[run.a\nout = = 3\n", &["3 problems in", "line 1: column 7", "line 2: column 7"]);
    broken("", &["the recipe has no run", "probity recipe new"]);
    broken(
        "[data]\ndata = \"d\"\n[run.a]\nmethod = \"compare\"\n",
        &["line 2: `data` is not in a named table", "[data.NAME]"],
    );
    broken("run = 3\n", &["`run` must contain named tables"]);
    broken("[run.\"\\u001b[2J\"]\nmethod = 3\n", &["`method`: `this value` is none of compare"]);
    world
        .run(&["run", "absent.toml"])
        .fails_with(&["cannot read absent.toml", "hint: create one with: probity recipe new"]);
    std::fs::write(world.path("r.toml"), [0xff, 0xfe]).expect("written");
    world.run(&["run", "r.toml"]).fails_with(&["cannot read r.toml", "UTF-8"]);
}

#[test]
fn a_list_of_models_and_data_is_a_stage_for_each_and_a_model_is_loaded_once() {
    let world = World::new();
    data(&world, "d", 2);
    data(&world, "e", 3);
    let text = format!(
        "{}[model.one-thread]\nmodel = {}\nthreads = 1\n[data.few]\ndata = \"d.jsonl\"\nlimit = 1\n\
         [defaults]\nattribute = \"coherence\"\nout = \"runs/{{run}}-{{model}}-{{data}}\"\nseed = 3\n\
         [run.pairs]\nmethod = \"compare\"\nmodel = [\"tiny\", \"one-thread\"]\ndata = [\"few\", \"e.jsonl\"]\n\
         [run.rate]\nmethod = \"g-eval\"\nmodel = \"tiny\"\ndata = \"few\"\n",
        model(),
        json!(tiny())
    );
    world.file("r.toml", text);
    let checked = world.run(&["recipe", "check", "r.toml"]).exits(0);
    assert!(checked.stdout.contains("pairs/one-thread/e") && !world.path("runs").exists(), "{}", checked.stdout);
    let ran = world.run(&["run", "r.toml"]).exits(0);
    assert_eq!(ran.stderr.matches("loaded in").count(), 1, "{}", ran.stderr);
    let folders = ["pairs-tiny-few", "pairs-tiny-e", "pairs-one-thread-few", "pairs-one-thread-e", "rate-tiny-few"];
    let samples = [1, 3, 1, 3, 1];
    for (folder, samples) in folders.iter().zip(samples) {
        let manifest = manifest(&world, &format!("runs/{folder}"));
        assert_eq!(
            (&manifest["status"], &manifest["arguments_in_force"]["data"]["samples"]),
            (&json!("finished"), &json!(samples)),
            "{folder}"
        );
        assert_eq!(manifest["arguments_in_force"]["model"]["threads"] == 1, folder.contains("one-thread"), "{folder}");
        assert!(ran.stdout.contains(&format!("runs/{folder}\n")), "{}", ran.stdout);
    }
    for result in ["comparisons.jsonl", "scores.jsonl"] {
        assert_eq!(
            world.read(&format!("runs/{}/{result}", folders[1])),
            world.read(&format!("runs/{}/{result}", folders[3]))
        );
    }
    let table = ran.stdout.split("stage").last().expect("a table");
    assert!(table.contains("pairs/tiny/few") && table.contains("Spearman") && table.contains("18 low_mass"), "{table}");
}

#[test]
fn paths_are_those_of_the_recipe_s_folder() {
    let world = World::new();
    data(&world, "below/d", 2);
    world
        .file("below/prompts/mine.j2", "{{ context }} {{ candidate_a }} {{ candidate_b }} {{ label_a }} {{ label_b }}");
    let text = format!(
        "{}[run.a]\nmethod = \"compare\"\ndata = \"d.jsonl\"\nattribute = \"coherence\"\nout = \"out\"\ncache = \
         \"kept\"\n\
         template = [\"1\", \"prompts/mine.j2\"]\n",
        model()
    );
    world.file("below/r.toml", text);
    world.run(&["run", "below/r.toml"]).exits(0);
    assert!(world.path("below/out/summary.json").exists() && world.path("below/kept/answers.sqlite").exists());
    world.run(&["run", "below/r.toml", "--overwrite", "--cache", "here"]).exits(0);
    assert!(world.path("here/answers.sqlite").exists());
}

#[test]
fn a_stage_that_fails_does_not_stop_the_others() {
    let world = World::new();
    data(&world, "d", 2);
    // Weights with NaN, which only loading finds.
    let copy = world.copy_of_tiny();
    for entry in std::fs::read_dir(&copy).expect("folder").map(|entry| entry.expect("entry").path()) {
        if entry.extension().is_some_and(|end| end == "safetensors") {
            let mut bytes = std::fs::read(&entry).expect("weights");
            bytes.iter_mut().rev().take(64).for_each(|byte| *byte = 0xff);
            std::fs::write(&entry, bytes).expect("written");
        }
    }
    let text = format!(
        "{}[model.broken]\nmodel = {}\n[defaults]\nattribute = \"coherence\"\ndata = \"d.jsonl\"\nout = \"{{run}}\"\n\
         [run.first]\nmethod = \"compare\"\nmodel = \"broken\"\n[run.second]\nmethod = \"compare\"\nmodel = \"tiny\"\n\
         [run.third]\nmethod = \"g-eval\"\nmodel = \"broken\"\n",
        model(),
        json!(copy)
    );
    world.file("r.toml", text);
    let ran = world.run(&["run", "r.toml"]).exits(2);
    assert!(
        ran.stderr.contains("error: run `first`: ") && ran.stderr.contains("error: run `third`: "),
        "{}",
        ran.stderr
    );
    assert!(!world.path("first").exists() && manifest(&world, "second")["status"] == "finished");
    let table = ran.stdout.split("stage").last().expect("a table");
    assert!(table.matches("failed").count() == 2 && table.matches("finished").count() == 1, "{table}");
}

/// A recipe of two runs over one file.
fn two_runs(world: &World, more: &str) {
    let text = format!(
        "{}[defaults]\nattribute = \"coherence\"\ndata = \"d.jsonl\"\nout = \"{{run}}\"\n\
         [run.one]\nmethod = \"compare\"\n[run.two]\nmethod = \"compare\"\nattribute = \"fluency\"\n{more}",
        model()
    );
    world.file("r.toml", text);
}

#[test]
fn a_finished_stage_is_passed_over_and_a_changed_one_is_not() {
    let world = World::new();
    data(&world, "d", 2);
    two_runs(&world, "");
    world.run(&["run", "r.toml", "--only", "one"]).exits(0);
    assert!(!world.path("two").exists());
    world.run(&["run", "r.toml"]).fails_with(&["`out`: one already holds a run (finished)", "--resume"]);
    let before = world.read("one/manifest.json");
    let ran = world.run(&["run", "r.toml", "--resume"]).exits(0);
    assert!(ran.stdout.contains("finished before") && world.path("two/summary.json").exists(), "{}", ran.stdout);
    assert_eq!(world.read("one/manifest.json"), before);
    let idle = world.run(&["run", "r.toml", "--resume"]).exits(0);
    assert!(
        !idle.stderr.contains("loaded in") && idle.stdout.matches("finished before").count() == 2,
        "{}",
        idle.stderr
    );
    assert!(idle.stdout.contains("Spearman"), "{}", idle.stdout);
    // A missing table is written again, and so is everything that depends on changed data.
    std::fs::remove_file(world.path("one/scores.jsonl")).expect("there");
    world.run(&["run", "r.toml", "--resume"]).exits(0);
    assert!(world.path("one/scores.jsonl").exists());
    data(&world, "d", 3);
    world.run(&["run", "r.toml", "--resume"]).exits(0);
    assert_eq!(manifest(&world, "two")["arguments_in_force"]["data"]["samples"], 3);
    two_runs(&world, "seed = 4\n");
    world.run(&["run", "r.toml", "--resume"]).fails_with(&["`out`: two holds another run: seeds.seed differs"]);
}

#[test]
fn a_recipe_ends_with_what_each_run_says_and_how_far_to_trust_it() {
    let world = World::new();
    data(&world, "d", 2);
    two_runs(&world, "");
    let summary =
        |run: &str| -> Value { serde_json::from_str(&world.read(&format!("{run}/summary.json"))).expect("JSON") };
    let ran = world.run(&["run", "r.toml"]).exits(0).stdout;
    let idle = world.run(&["run", "r.toml", "--resume"]).exits(0).stdout;
    let verdict = |run: &str| {
        let verdict = &summary(run)["verdict"][0];
        ["says", "trust", "because"].map(|key| verdict[key].as_str().expect("a text").to_owned())
    };
    for run in ["one", "two"] {
        let [says, trust, because] = verdict(run);
        let agreement = summary(run)["verdict"][0]["agreement"].as_str().map(|text| format!("{text}\n"));
        let agreement = agreement.unwrap_or_default();
        let lines = format!("{run}: {says}\n{agreement}{}: {because}\n", trust.to_uppercase());
        for stdout in [&ran, &idle] {
            let (at, table) = (stdout.rfind(&lines), stdout.rfind(" status ").expect("a table"));
            assert!(at.is_some_and(|at| at < table), "{lines}\n{stdout}");
        }
    }
    // With many runs, one line each.
    let more: Vec<String> = (0..9).map(|k| format!("[run.more-{k}]\nmethod = \"compare\"\n")).collect();
    two_runs(&world, &more.concat());
    let ran = world.run(&["run", "r.toml", "--resume"]).exits(0).stdout;
    let [says, trust, because] = verdict("one");
    let end = &ran[ran.rfind("\none: ").expect("the first of them")..];
    assert!(end.starts_with(&format!("\none: {says} ({})\ntwo: ", trust.to_uppercase())), "{end}");
    assert!(!end.contains(&because) && end.contains("\nmore-8: "), "{end}");
}

#[test]
fn a_stage_that_was_unscored_is_so_too_when_it_is_passed_over() {
    let world = World::new();
    world.file("d.jsonl", lines(&[json!({"id": "s", "context": "c", "candidates": [{"id": "a", "text": "", "scores": {"coherence": 1, "fluency": 1}}, {"id": "b", "text": "b", "scores": {"coherence": 2, "fluency": 2}}]})]));
    two_runs(&world, "");
    world.run(&["run", "r.toml", "--strict"]).exits(1);
    world.run(&["run", "r.toml", "--strict", "--resume"]).exits(1);
    world.run(&["run", "r.toml", "--resume"]).exits(0);
}

#[test]
fn a_dry_run_of_a_recipe_writes_nothing() {
    let world = World::new();
    data(&world, "d", 2);
    two_runs(&world, "");
    let ran = world.run(&["run", "r.toml", "--dry-run"]).exits(0);
    assert_eq!(
        (ran.stdout.matches("questions").count(), ran.stdout.matches("planned").count()),
        (2, 2),
        "{}",
        ran.stdout
    );
    assert!(!world.path("one").exists());
    world.run(&["run", "r.toml", "--resume", "--no-store"]).fails_with(&["cannot be used with"]);
    two_runs(&world, "no-store = true\n");
    world.run(&["recipe", "check", "r.toml"]).exits(0);
    world.run(&["run", "r.toml", "--resume"]).fails_with(&["`no-store`: it cannot be used with `resume`"]);
    world.run(&["run", "r.toml", "--only", "tow"]).fails_with(&["there is no [run.tow]; did you mean `two`?"]);
}

#[test]
fn names_of_runs_cannot_write_to_the_terminal_or_out_of_their_folder() {
    let world = World::new();
    data(&world, "d", 1);
    let text = format!(
        "{}[run.\"\\u001b[2J/../../x\"]\nmethod = \"compare\"\ndata = \"d.jsonl\"\nattribute = \"coherence\"\nout = \
         \"runs/{{run}}\"\n",
        model()
    );
    world.file("r.toml", text);
    let ran = world.run(&["run", "r.toml"]).exits(0);
    assert!(
        !ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}') && ran.stdout.contains("\\u{1b}[2J"),
        "{}",
        ran.stdout
    );
    assert!(world.path("runs/2J-..-..-x/summary.json").exists());
}

#[cfg(unix)]
#[test]
fn an_interrupted_recipe_stops_and_goes_on_where_it_was() {
    if interrupts_are_ignored() {
        println!("skipped: interrupts are ignored here, and probity leaves that as it is");
        return;
    }
    let world = World::new();
    data(&world, "d", 120);
    two_runs(&world, "");
    let child = world
        .command(&["run", "r.toml"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("started");
    while !world.path("one/answers.sqlite").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    interrupt(&child);
    let told = Ran::from(child.wait_with_output().expect("waited for")).exits(130).stderr;
    assert!(told.contains("the same command with --resume to continue"), "{told}");
    assert!(!world.path("two").exists());
    world.run(&["run", "r.toml", "--resume"]).exits(0);
    let model = tiny().display().to_string();
    world
        .run(&["compare", "--model", &model, "--data", "d.jsonl", "--attribute", "coherence", "--out", "whole"])
        .exits(0);
    for result in RESULTS {
        // Only the model's name differs, which is not part of the results.
        assert!(world.read(&format!("one/{result}")) == world.read(&format!("whole/{result}")), "{result} differs");
    }
}

#[test]
fn a_recipe_maps_a_table_and_reports_on_its_runs_together() {
    let world = World::new();
    world.file("a/t.csv", "doc,article,sys_a,sys_b,coh\n1,a cat,the cat,cats,3\n2,a dog,the dog,dogs,1\n");
    let text = format!(
        "{}[data.t]\ndata = \"t.csv\"\n\
         map = {{ id = \"doc\", context = \"article\", candidate = \"sys_a\", \"candidate.b\" = \"sys_b\", \
         \"score.b.coherence\" = \"coh\" }}\n\
         [defaults]\nattribute = \"coherence\"\nout = \"{{run}}\"\n\
         [run.pairs]\nmethod = \"compare\"\n[run.ratings]\nmethod = \"g-eval\"\n\
         [report]\nhtml = \"both.html\"\ncsv = \"tables\"\nrounds = 10\n",
        model()
    );
    let file = world.file("a/r.toml", text.replace("rounds = 10", "rounds = 10\nhtlm = \"x\"\nsamples = -1"));
    world.run(&["run", &file]).fails_with(&["line 17: unknown key `htlm`; did you mean `html`?", "line 18: `samples`"]);
    assert!(!world.path("a/pairs").exists());
    let file = world.file("a/r.toml", &text);
    world.run(&["run", &file]).exits(0);
    let samples = world.rows("a/pairs/samples.jsonl");
    let candidates: Vec<&str> =
        samples[0]["candidates"].as_array().expect("a list").iter().filter_map(|c| c["id"].as_str()).collect();
    assert_eq!((candidates, &samples[1]["candidates"][1]["scores"]["coherence"]), (vec!["sys_a", "b"], &json!(1.0)));
    let page = world.read("a/both.html");
    assert!(page.contains("pairs") && page.contains("ratings") && page.contains("Content-Security-Policy"));
    assert!(std::fs::read_dir(world.path("a/tables")).expect("a folder").count() > 3);
    // Nothing is queried again and the page is identical, also if one run is omitted.
    world.run(&["run", &file, "--resume"]).exits(0);
    assert!(world.read("a/both.html") == page);
    world.run(&["run", &file, "--resume", "--only", "ratings"]).exits(0);
    assert!(world.read("a/both.html") == page);
    world.run(&["run", &file, "--dry-run"]).exits(0);
    assert!(world.read("a/both.html") == page);
}

#[test]
fn a_run_that_ends_early_leaves_the_report_of_those_that_have_finished() {
    let world = World::new();
    data(&world, "d", 1);
    world.file("revise.j2", "{{ response }}");
    let more = "[run.whole]\nmethod = \"reviseval\"\nmode = \"pointwise\"\nscale = \"1..5\"\nverdict = \"label\"\n\
         reference = [\"none\", \"adapted\"]\nrevision-tokens = 8\nreviser-template = { adapted = \"revise.j2\" }\n\
         [report]\nhtml = \"page.html\"\nrounds = 10\n";
    two_runs(&world, more);
    world.run(&["run", "r.toml", "--only", "one"]).exits(0);
    std::fs::remove_file(world.path("page.html")).expect("written");
    let until = ["run", "r.toml", "--only", "whole", "--until", "revisions"];
    world.run(&[&until[..], &["--dry-run"]].concat()).exits(0);
    assert!(!world.path("page.html").exists());
    let ran = world.run(&until).exits(0);
    assert!(ran.stdout.contains("stopped") && world.path("page.html").exists(), "{}", ran.stdout);
}

#[test]
fn a_stage_without_a_folder_is_refused_and_not_taken_for_a_dry_run() {
    let world = World::new();
    data(&world, "d", 1);
    world.file(
        "r.toml",
        format!(
            "{}[run.one]\nmethod = \"g-eval\"\nattribute = \"coherence\"\ndata = \"d.jsonl\"\nmodel = \"tiny\"\n",
            model()
        ),
    );
    for command in [&["run", "r.toml"][..], &["recipe", "check", "r.toml"]] {
        let ran = world.run(command).exits(2);
        assert_eq!(ran.stderr.matches("`out` is missing").count(), 1, "{}", ran.stderr);
    }
    world.run(&["run", "r.toml", "--dry-run"]).exits(0);
}

#[test]
fn keys_of_compute_are_merged_key_by_key_whichever_way_they_are_written() {
    let world = World::new();
    data(&world, "d", 1);
    let in_force = |defaults: &str, model_keys: &str, own: &str| {
        let text = format!(
            "[defaults]\nno-store = true\n{defaults}\n{}{model_keys}\n[run.r]\nmethod = \"compare\"\nattribute = \
             \"fluency\"\ndata = \
             \"d.jsonl\"\nout = \"out\"\n{own}\n",
            model()
        );
        let file = world.file("r.toml", &text);
        world.run(&["run", &file, "--overwrite"]).exits(0);
        let model = &manifest(&world, "out")["arguments_in_force"]["model"];
        (model["threads"].clone(), model["share_prefixes"] == false)
    };
    for (defaults, model_keys, own, threads, unshared) in [
        ("threads = 1", "", "compute = {threads = 2}", 2, false),
        ("compute = {threads = 1}", "", "threads = 2", 2, false),
        ("threads = 2", "compute = {threads = 1}", "", 1, false),
        ("", "compute = {threads = 1, no-sharing = true}", "compute = {threads = 2}", 2, true),
    ] {
        let found = in_force(defaults, model_keys, own);
        assert_eq!(found, (json!(threads), unshared), "{defaults} {model_keys} {own}");
    }
}
