//! `slurm`: the scripts, and invalid input. `scripts/check-slurm` runs them.

use serde_json::json;

use crate::harness::{World, lines, tiny};

fn recipe(world: &World) {
    let sample = |s: usize| json!({"id": format!("s{s}"), "context": "c", "candidates": [{"id": "a", "text": "x", "scores": {"coherence": s}}]});
    world.file("data.jsonl", lines(&(0..4).map(sample).collect::<Vec<_>>()));
    let text = format!(
        "[defaults]\nmodel = {}\ndata = \"data.jsonl\"\nattribute = \"coherence\"\nout = \"a \
         folder/{{run}}\"\n\n[run.ratings]\n\
         method = \"gpt-score\"\n\n[run.held]\nmethod = \"meta\"\nscores = [\"a folder/ratings\"]\ngold = \
         \"data.jsonl\"\n",
        json!(tiny())
    );
    world.file("recipe.toml", text);
}

#[test]
fn scripts_name_every_part_and_what_is_merged() {
    let world = World::new();
    recipe(&world);
    let options = ["--partition", "long", "--time", "04:00:00", "--mem", "8G", "--gpus", "1", "--cpus", "2"];
    let ran = world.run(&[&["slurm", "recipe.toml", "--shards", "3", "--dir", "jobs"], &options[..]].concat()).exits(0);
    assert!(ran.stdout.starts_with("1 run in 3 parts") && ran.stdout.contains("afterok"), "{}", ran.stdout);
    let parts = world.read("jobs/parts.sbatch");
    for line in [
        "#SBATCH --array=1-3", "#SBATCH --requeue", "#SBATCH --partition=long", "#SBATCH --time=04:00:00",
        "#SBATCH --mem=8G", "#SBATCH --gpus=1", "#SBATCH --cpus-per-task=2",
    ] {
        assert!(parts.lines().any(|there| there == line), "{line} is not in\n{parts}");
    }
    assert!(parts.contains("run recipe.toml --shard \"$SLURM_ARRAY_TASK_ID/3\" --resume"), "{parts}");
    let merge = world.read("jobs/merge.sbatch");
    let line = merge.lines().find(|line| line.contains(" merge ")).expect("a merge");
    assert!((1..=3).all(|part| line.contains(&format!("a folder/ratings.{part}-of-3'"))), "{line}");
    assert!(
        !merge.contains("held.1") && merge.trim_end().ends_with("run recipe.toml --resume --progress lines"),
        "{merge}"
    );
    let checked = world.program("bash").args(["-n", "jobs/parts.sbatch"]).status().expect("bash");
    assert!(checked.success());
}

#[test]
fn what_cannot_be_done_in_parts_is_refused_before_anything_is_written() {
    let world = World::new();
    recipe(&world);
    let slurm = |more: &[&str]| world.run(&[&["slurm", "recipe.toml", "--dir", "jobs"], more].concat());
    slurm(&["--shards", "5"]).fails_with(&["5/5", "4"]);
    slurm(&["--shards", "0"]).fails_with(&["--shards"]);
    slurm(&["--shards", "2", "--partition", "a\n#SBATCH --uid=0"]).fails_with(&["--partition"]);
    world.run(&["slurm", "nowhere.toml", "--shards", "2"]).fails_with(&["nowhere.toml"]);
    assert!(!world.path("jobs").exists());
    // Without Slurm the scripts are still written.
    let mut command = world.command(&["slurm", "recipe.toml", "--shards", "2", "--dir", "jobs", "--submit"]);
    let ran = command.env("PATH", "").output().expect("started");
    assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(world.path("jobs/parts.sbatch").exists());
    // Each of these would end its line in the script, or have a special meaning.
    for dir in ["d\ntouch PWN #", "a\"b", "50%j", "$HOME"] {
        world
            .run(&["slurm", "recipe.toml", "--shards", "2", "--dir", dir])
            .fails_with(&["cannot be used in a Slurm script"]);
    }
    for (option, wrong) in [("--time", "banana"), ("--time", "1:2:3:4"), ("--mem", "lots"), ("--mem", "16GG")] {
        world.run(&["slurm", "recipe.toml", "--shards", "2", option, wrong]).fails_with(&[option, "expected a"]);
    }
}
