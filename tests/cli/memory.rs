//! The reported memory of a device, compared with the memory used.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{World, golden, lines, tiny};

/// A line of a dry run, in bytes: `memory     320.5 MB on …`.
fn bytes(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    let mut words = line[name.len()..].split_whitespace();
    let number: f64 = words.next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let unit = match words.next().expect("a unit") {
        "GB" => 1e9,
        "MB" => 1e6,
        "kB" => 1e3,
        unit => panic!("{unit} in {line}"),
    };
    number * unit
}

/// The peak memory of a process, in bytes.
#[cfg(target_os = "linux")]
fn peak(mut command: Command) -> f64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let mut peak = 0.0f64;
    let status = loop {
        // The value disappears with the process, so the last reading counts.
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
        peak = peak.max(1024.0 * number.unwrap_or(0.0));
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    peak
}

/// `SmolLM2`, if downloaded.
fn smollm2() -> Option<PathBuf> {
    let models = std::env::var_os("PROBITY_MODELS").map(PathBuf::from)?;
    Some(models.join("smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf")).filter(|file| file.is_file())
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_holds_what_the_dry_run_says() {
    let world = World::new();
    let requests = |repeats: usize| -> Vec<Value> {
        let text = "the cat sat on the mat and looked at the dog while ".repeat(repeats);
        (0..4).map(|k| json!({"id": k.to_string(), "prompt": format!("{k} {text}"), "continuation": " here"})).collect()
    };
    let input = world.file("r.jsonl", lines(&requests(8)));
    let one = "candle-cpu";
    let models = [(golden("tiny-gguf/model.gguf"), one)].into_iter();
    for (model, device) in
        models.chain(smollm2().into_iter().flat_map(|model| [(model.clone(), one), (model, "candle-cpu+candle-cpu")]))
    {
        let model = model.display().to_string();
        let base = ["logprobs", "--model", &model, "--device", device, "--input", &input];
        let told = world.run(&[&base[..], &["--dry-run"]].concat()).exits(0).stdout;
        // Processor devices share one memory.
        let told: f64 = told.lines().filter(|line| line.starts_with("memory")).map(|line| bytes(line, "memory")).sum();
        let held = peak(world.command(&[&base[..], &["--out", "a.jsonl"]].concat()));
        println!("{model}: {:.1} MB told, {:.1} MB held", told / 1e6, held / 1e6);
        // The amount of freed memory that the allocator keeps varies by a tenth.
        assert!((told - held).abs() <= 0.15 * held, "{model}: {told} told, {held} held");
        std::fs::remove_file(world.path("a.jsonl")).expect("written");
    }
}

#[test]
fn each_device_that_holds_layers_has_lines_of_its_own() {
    let world = World::new();
    let request = json!({"id": "0", "tokens": [5, 6, 7], "continuation": "y"});
    let (input, model) = (world.file("r.jsonl", lines(&[request])), golden("llama").display().to_string());
    let told = |device: &str| -> String {
        let ran = world.run(&["logprobs", "--model", &model, "--device", device, "--input", &input, "--dry-run"]);
        ran.exits(0).stdout
    };
    let divided = told("candle-cpu+candle-cpu+candle-cpu");
    for (layer, line) in (1..).zip(divided.lines().filter(|line| line.starts_with("memory"))) {
        assert!(line.contains(&format!(" on candle-cpu (layer {layer}), with about ")), "{line}");
    }
    assert_eq!(divided.lines().filter(|line| line.starts_with("free")).count(), 3, "{divided}");
    assert!(divided.contains("divided over 3 devices") && divided.contains(" allowed on each device"), "{divided}");
    let copies = told("candle-cpu+candle-cpu,candle-cpu+candle-cpu");
    assert!(copies.contains(" of each copy, divided over 2 devices"), "{copies}");
    assert!(copies.contains(" on each of candle-cpu,candle-cpu (layers 1 to 2), with"), "{copies}");
    let tokens = ["--compute", "token-budget=1000000000000", "--device", "candle-cpu+candle-cpu"];
    let base = ["logprobs", "--model", &model, "--input", &input, "--out", "a.jsonl"];
    world.run(&[&base[..], &tokens].concat()).fails_with(&["the model needs ", " GB on candle-cpu (layers 1 to 2), "]);
}

#[test]
fn what_does_not_fit_on_a_device_is_refused_before_it_is_loaded() {
    let world = World::new();
    let request = json!({"id": "0", "tokens": [5, 6, 7], "continuation": "y"});
    let (input, model) = (world.file("r.jsonl", lines(&[request])), tiny().display().to_string());
    let base = ["logprobs", "--model", &model, "--input", &input, "--compute", "token-budget=1000000000000"];
    for more in [&["--dry-run"][..], &["--out", "a.jsonl"]] {
        let ran = world.run(&[&base[..], &["--device", "candle-cpu"], more].concat());
        ran.fails_with(&["the model needs ", " GB on candle-cpu, ", "--compute token-budget=1024; or "]);
    }
    world.run(&[&base[..], &["--out", "b.jsonl"]].concat()).exits(0);
}

#[test]
fn models_are_shown_with_what_a_device_would_hold() {
    let world = World::new();
    let model = golden("tiny-gguf/model.gguf").display().to_string();
    let shown = |more: &[&str]| {
        let ran = world.run(&[&["model", "inspect", &model][..], more].concat()).exits(0);
        ran.stdout.lines().find(|line| line.starts_with("memory")).expect("a line").to_owned()
    };
    assert!(!shown(&[]).contains("activations"), "{}", shown(&[]));
    let exact = shown(&["--device", "candle-cpu"]);
    for part in [" of weights on candle-cpu; ", " per 1,000 tokens of context; up to ", " for 1,024 tokens at once; "] {
        assert!(exact.contains(part), "{exact}");
    }
    assert_ne!(exact, shown(&["--device", "candle-cpu", "--precision", "fast"]));
    let divided = shown(&["--device", "candle-cpu+candle-cpu"]);
    assert!(divided.contains(" of weights on candle-cpu (layer 1); "), "{divided}");
    let three = ["model", "inspect", &model, "--device", "candle-cpu+candle-cpu+candle-cpu"];
    world.run(&three).fails_with(&["the model has too few layers (2) for 3 devices", "join at most 2 devices with +"]);
    let listed = world.run(&["model", "list", "--device", "candle-cpu"]).exits(0);
    assert!(listed.stdout.contains(" free on candle-cpu ("), "{}", listed.stdout);
    #[cfg(not(feature = "cuda"))]
    world.run(&["model", "list", "--device", "cuda:0"]).fails_with(&["this build cannot compute on cuda:0"]);
}

#[test]
fn a_cache_budget_that_is_too_small_says_what_is_needed() {
    let world = World::new();
    let request =
        |id: usize, tokens: usize| json!({"id": id.to_string(), "tokens": vec![5; tokens], "continuation": "y"});
    let input = world.file("r.jsonl", lines(&[request(0, 100), request(1, 180), request(2, 300)]));
    let model = tiny().display().to_string();
    let base = ["logprobs", "--model", &model, "--device", "candle-cpu", "--input", &input, "--dry-run"];
    let told = world.run(&[&base[..], &["--compute", "cache-budget=2kB"]].concat()).exits(0);
    for part in ["the cache budget holds ", "; set --compute cache-budget="] {
        assert!(told.stderr.contains(part), "{}", told.stderr);
    }
    assert!(told.stdout.contains("nothing to compute") && !told.stdout.contains("tokens/s"), "{}", told.stdout);
    let line = told.stdout.lines().find(|line| line.starts_with("too long")).expect("a line");
    let budget = line.split_once("--compute cache-budget=").expect("a hint").1.split(' ').next().expect("a size");
    // The longest prompt exceeds the model's context.
    let told = world.run(&[&base[..], &["--compute", &format!("cache-budget={budget}")]].concat()).exits(0).stdout;
    let line = told.lines().find(|line| line.starts_with("too long")).expect("a line");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["too", "long", "1"], "{told}");
}

#[test]
#[cfg(target_os = "linux")]
fn options_that_the_machine_cannot_follow_are_reported() {
    let world = World::new();
    let request = json!({"id": "0", "tokens": [5, 6, 7], "continuation": "y"});
    let (input, model) = (world.file("r.jsonl", lines(&[request])), tiny().display().to_string());
    let base = ["logprobs", "--model", &model, "--input", &input, "--dry-run"];
    for device in ["cpu", "candle-cpu"] {
        let told = world
            .run(&[&base[..], &["--device", device, "--compute", "cache-budget=500000GB"]].concat())
            .exits(0)
            .stderr;
        let line = "warning: --compute cache-budget=500000.0GB is more than the ";
        assert!(told.contains(line) && told.contains(&format!(" free on {device} before")), "{told}");
    }
    let copies = ["--device", "candle-cpu,candle-cpu"];
    let few = world.run(&[&base[..], &copies, &["--compute", "threads=1"]].concat()).exits(0).stderr;
    assert!(
        few.contains(
            "each copy needs at least one thread: using 2 threads instead of --compute \
                          threads=1"
        ),
        "{few}"
    );
    let enough = world.run(&[&base[..], &copies, &["--compute", "threads=2"]].concat()).exits(0).stderr;
    assert!(!enough.contains("each copy needs"), "{enough}");
}
