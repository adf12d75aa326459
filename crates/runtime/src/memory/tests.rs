use std::path::Path;

use super::*;
use crate::hint_of;
use crate::hub::locate;

fn golden(name: &str) -> Checkpoint {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models").join(name);
    let located = locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
    Checkpoint::open(&located).expect("it is whole")
}

fn on_candle() -> LoadOptions {
    LoadOptions { devices: DeviceChoice::CandleCpu.into(), ..LoadOptions::default() }
}

#[test]
fn weights_are_counted_as_they_are_held() {
    let checkpoint = golden("llama");
    let of = |options| ModelMemory::new(&checkpoint, options).weights();
    let file = of(LoadOptions::default());
    let exact = of(on_candle());
    assert!(exact < file, "embeddings stay in the file");
    let fast = of(LoadOptions { precision: Precision::Fast, ..on_candle() });
    assert!(fast < exact && 2 * fast >= exact, "bf16, but for the head: {fast} of {exact}");
}

#[test]
fn more_tokens_run_at_once_where_there_is_room_for_their_activations() {
    let checkpoint = golden("llama");
    let memory = ModelMemory::new(&checkpoint, on_candle());
    assert_eq!(memory.token_budget(), CPU_TOKEN_BUDGET);
    let held = memory.shares[0].memory.expect("not on cpu");
    let needed = |tokens| held.held.weights + ACTIVATIONS_SHARE * held.activations(BatchSize::with_tokens(tokens));
    assert_eq!(tokens_that_fit(&held, 0), CPU_TOKEN_BUDGET);
    assert_eq!(tokens_that_fit(&held, needed(4096) - 1), 2048);
    assert_eq!(tokens_that_fit(&held, needed(4096)), 4096);
    assert_eq!(tokens_that_fit(&held, u64::MAX), MOST_TOKENS);
}

#[test]
fn a_model_without_room_is_refused_with_what_fits() {
    let checkpoint = golden("llama");
    let refused = |options: LoadOptions, free: u64| {
        let mut memory = ModelMemory::new(&checkpoint, options);
        memory.shares[0].room = Some(DeviceRoom { free, total: 2 * free });
        let checked = |limit| memory.check(&checkpoint, options, limit);
        checked(MemoryLimit::Total).expect("there is room for it alone");
        checked(MemoryLimit::Free).err().map(|error| (error.to_string(), hint_of(&error)))
    };
    let tokens = LoadOptions { token_budget: Some(8), ..on_candle() };
    let memory = ModelMemory::new(&checkpoint, tokens);
    let needed = memory.shares[0].needed(8);
    assert_eq!(refused(tokens, needed), None);
    let (error, hint) = refused(tokens, needed - 1).expect("a byte is missing");
    let gb = gigabytes(needed);
    assert_eq!(error, format!("the model needs {gb} on candle-cpu, which has {gb} free"));
    assert_eq!(hint, "--precision fast; or --device cpu");
    let many = LoadOptions { token_budget: Some(1 << 30), ..on_candle() };
    let memory = ModelMemory::new(&checkpoint, many);
    let needed = memory.shares[0].needed(1 << 30);
    let (_, hint) = refused(many, needed - 1).expect("too many tokens at once");
    assert!(hint.starts_with("--compute token-budget=1024; or "), "{hint}");
    // No number of tokens overflows.
    for tokens in [1 << 40, usize::MAX] {
        assert!(memory.shares[0].needed(tokens) >= needed, "{tokens}");
    }
    assert_eq!(refused(LoadOptions::default(), 1), None, "cpu has its file");
}

fn on(devices: &str) -> LoadOptions {
    // One token per batch: these models are smaller than the activations of a thousand tokens.
    LoadOptions { devices: devices.parse().expect("devices"), token_budget: Some(1), ..on_candle() }
}

/// A device with this much memory, all of it free.
fn room(free: u64) -> DeviceRoom {
    DeviceRoom { free, total: free }
}

#[test]
fn a_share_that_finds_no_room_is_refused_by_its_device() {
    let checkpoint = golden("llama");
    let options = LoadOptions { token_budget: Some(8), ..on("cuda:0+cuda:1,cuda:2+cuda:3") };
    let mut memory = ModelMemory::new(&checkpoint, options);
    assert_eq!(
        memory.shares.iter().map(DeviceShare::title).collect::<Vec<_>>().join(" "),
        "cuda:0,cuda:2 (layers 1 to 2) cuda:1,cuda:3 (layer 3)"
    );
    let needed: Vec<u64> = memory.shares.iter().map(|share| share.needed(8)).collect();
    let checked = |memory: &ModelMemory| memory.check(&checkpoint, options, MemoryLimit::Free);
    memory.shares[0].room = Some(room(needed[0]));
    memory.shares[1].room = Some(room(needed[1]));
    checked(&memory).expect("both fit");
    memory.shares[1].room = Some(room(needed[1] - 1));
    let error = checked(&memory).expect_err("a byte is missing").to_string();
    let gb = gigabytes(needed[1]);
    assert_eq!(error, format!("the model needs {gb} on each of cuda:1,cuda:3 (layer 3), which has {gb} free"));
}

#[test]
fn cards_that_hold_the_model_together_are_named() {
    let checkpoint = golden("llama");
    let whole = ModelMemory::new(&checkpoint, on("cuda:0")).shares[0].needed(1);
    let together = |devices: &str, rooms: &[u64]| {
        let memory = ModelMemory::new(&checkpoint, on(devices));
        let cards: Vec<_> = (0..).map(DeviceChoice::Cuda).zip(rooms.iter().map(|free| room(*free))).collect();
        memory.cards_together(&checkpoint, on(devices), &cards, MemoryLimit::Free)
    };
    let most = |devices: &str| -> u64 {
        let memory = ModelMemory::new(&checkpoint, on(devices));
        memory.shares.iter().map(|share| share.needed(1)).max().expect("a device")
    };
    let (half, third) = (most("cuda:0+cuda:1"), most("cuda:0+cuda:1+cuda:2"));
    assert!(third < half && half < whole, "{third}, {half} and {whole}");
    let named = |devices: &str| Some(format!("--device {devices} to divide its layers"));
    assert_eq!(together("cuda:0", &[half; 4]), named("cuda:0+cuda:1"));
    assert_eq!(together("cuda:1", &[half; 4]), named("cuda:1+cuda:0"));
    assert_eq!(together("cuda:0,cuda:1", &[half; 2]), named("cuda:0+cuda:1"));
    assert_eq!(together("cuda:0", &[third; 4]), named("cuda:0+cuda:1+cuda:2"));
    assert_eq!(together("cuda:0+cuda:1", &[third; 3]), named("cuda:0+cuda:1+cuda:2"));
    // Suggests only devices that hold the model, and no more devices than layers.
    assert_eq!(together("cuda:0", &[third]), None);
    assert_eq!(together("cuda:0", &[third - 1; 8]), None);
    let mut memory = ModelMemory::new(&checkpoint, on("cuda:0"));
    memory.shares[0].room = Some(room(whole - 1));
    let error = memory.check(&checkpoint, on("cuda:0"), MemoryLimit::Free).expect_err("no room");
    assert!(!hint_of(&error).contains('+'), "no cards are here: {}", hint_of(&error));
}

#[test]
fn the_device_with_least_room_for_its_layers_decides_about_the_cache() {
    let checkpoint = golden("llama");
    // Two layers and one: the first device holds twice as much per token.
    let memory = ModelMemory::new(&checkpoint, on("cuda:0+cuda:1"));
    let [first, second] = [0, 1].map(|stage| memory.shares[stage].cache_per_token().expect("not on cpu"));
    assert_eq!(first, 2 * second);
    let activations = [0, 1].map(|stage| memory.shares[stage].activations(BatchSize::with_tokens(8)).expect("known"));
    let budget = |free: [u64; 2]| {
        let rooms = [0, 1].map(|stage| Some(room(activations[stage] + 2 * free[stage])));
        memory.clone().with_cache(8, &rooms).cache_budget()
    };
    assert_eq!(budget([6000, 6000]), 6000);
    // A thousand bytes there hold as many tokens as two thousand on the first.
    assert_eq!(budget([6000, 1000]), 2000);
    assert_eq!(budget([1000, 6000]), 1000);
}

#[test]
fn the_line_of_linux_is_understood_and_nothing_else() {
    let available = |text| kilobytes(text, "MemAvailable:");
    assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   20480 kB\n"), Some(20 << 20));
    assert_eq!(available("MemAvailable: many kB\n"), None);
    assert_eq!(available(""), None);
}

#[test]
fn a_control_group_limits_the_memory_of_the_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let host = DeviceRoom { free: 900, total: 1000 };
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("job/step/memory.max", "max\n");
    write("job/memory.max", "600\n");
    write("job/memory.current", "300\n");
    write("job/memory.stat", "active_file 50\ninactive_file 100\n");
    write("memory/job/memory.limit_in_bytes", "500\n");
    write("memory/job/memory.usage_in_bytes", "450\n");
    let room = |own: &str| limited(host, root, own);
    assert_eq!(room("0::/job/step\n"), DeviceRoom { free: 400, total: 600 });
    assert_eq!(room("3:cpu,memory:/job\n"), DeviceRoom { free: 50, total: 500 });
    for own in ["", "0::/\n", "0::/elsewhere\n", "3:cpu:/job\n"] {
        assert_eq!(room(own), host, "{own}");
    }
}
