//! What memory there is, and what a model takes of it.

use probity_lm::Precision;
use probity_models::{BatchSize, DeviceChoice, DeviceList, DeviceMemory, DeviceRoom, weight_types};

use crate::checkpoint::{Checkpoint, LoadError};
use crate::hub::{LocatedModel, judges, memory_needed};
use crate::options::LoadOptions;

/// Where nobody says what there is: 4 GiB.
const UNKNOWN: u64 = 4 << 30;

/// Tokens that run at once where no option says: on the processor these, …
const CPU_TOKEN_BUDGET: usize = 1024;
/// … on other devices up to so many, …
const MOST_TOKENS: usize = 8192;
/// … as long as their activations take no more than this share of what weights leave free.
const ACTIVATIONS_SHARE: u64 = 10;

/// Memory of a device, where the system says what there is: `MemAvailable` and `MemTotal` of Linux for the processor (the first
/// counts file pages that can be dropped), the driver's figures for others.
pub fn device_room(device: DeviceChoice) -> Option<DeviceRoom> {
    match device {
        DeviceChoice::Cpu | DeviceChoice::CandleCpu => {
            let text = std::fs::read_to_string("/proc/meminfo").ok()?;
            Some(DeviceRoom { free: kilobytes(&text, "MemAvailable:")?, total: kilobytes(&text, "MemTotal:")? })
        }
        device => device.room(),
    }
}

/// What the machine has; `None` where the system does not say.
pub fn machine_memory() -> Option<u64> {
    device_room(DeviceChoice::Cpu).map(|room| room.total)
}

/// What this process holds now; `None` where the system does not say.
fn process_memory() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory for one copy of a model on the device of a list that has least; copies in the memory of the host share it.
fn least_room(devices: DeviceList) -> Option<DeviceRoom> {
    let rooms = devices.devices().iter().map(|device| device_room(*device)).collect::<Option<Vec<_>>>()?;
    let copies = devices.copies_on_host() as u64;
    let share = |bytes: Option<u64>| Some(bytes? / copies);
    Some(DeviceRoom {
        free: share(rooms.iter().map(|room| room.free).min())?,
        total: share(rooms.iter().map(|room| room.total).min())?,
    })
}

/// Memory that a model takes on each device that it is copied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelMemory {
    /// Bytes of the weights: as they lie in the files on [`DeviceChoice::Cpu`], elsewhere as they are held there.
    pub weights: u64,
    /// On devices of candle.
    held: Option<DeviceMemory>,
    /// The devices.
    pub devices: DeviceList,
    /// What there was when this was found out: for each copy, on the device with least.
    room: Option<DeviceRoom>,
    /// What this process holds besides weights, where they go to the memory that it is in.
    pub process: Option<u64>,
    /// Bytes of keys and values where no option says.
    cache: Option<u64>,
}

impl ModelMemory {
    /// Of a model that is not loaded yet.
    pub fn new(checkpoint: &Checkpoint, options: LoadOptions) -> Self {
        let devices = options.devices;
        let first = devices.first();
        let of_device = || DeviceMemory::of(&*checkpoint.source, &checkpoint.config, options.arithmetic());
        let held = (first != DeviceChoice::Cpu).then(of_device);
        Self {
            weights: held.map_or_else(|| bytes_in_file(checkpoint), |held| held_weights(first, &held)),
            held,
            devices,
            room: least_room(devices),
            process: device_is_host(first).then(process_memory).flatten(),
            cache: None,
        }
    }

    /// What was free for each copy before it was loaded; `None` where nobody says.
    pub fn free(&self) -> Option<u64> {
        self.room.map(|room| room.free)
    }

    /// Bytes of keys and values of a token, of an encoder none; `None` on [`DeviceChoice::Cpu`].
    pub fn cache_per_token(&self) -> Option<u64> {
        self.held.map(|held| held.cache_per_token)
    }

    /// What such a batch takes besides, by estimate; `None` on [`DeviceChoice::Cpu`].
    pub fn activations(&self, size: BatchSize) -> Option<u64> {
        self.held.map(|held| held.activations(size))
    }

    /// Tokens that run at once where no option says.
    pub fn token_budget(&self) -> usize {
        match (self.held, self.room) {
            (Some(held), Some(room)) if !device_is_host(self.devices.first()) => tokens_that_fit(held, room.free),
            _ => CPU_TOKEN_BUDGET,
        }
    }

    /// With what follows from what is free, and held, after loading.
    pub(crate) fn after_loading(self, token_budget: usize) -> Self {
        let activations = self.activations(BatchSize::of_tokens(token_budget));
        let budget = |activations: u64| match least_room(self.devices) {
            Some(room) => room.free.saturating_sub(activations) / 2,
            None => UNKNOWN,
        };
        // More than before: code was read.
        let copies = self.devices.copies_on_host() as u64;
        let besides =
            |before: u64| process_memory().map_or(before, |now| before.max(now.saturating_sub(copies * self.weights)));
        Self { cache: activations.map(budget), process: self.process.map(besides), ..self }
    }

    /// Bytes of keys and values where no option says: on [`DeviceChoice::Cpu`] half of what is available now, elsewhere half of
    /// what was free after loading and is not needed for activations; 4 GiB where nobody says.
    pub(crate) fn cache_budget(&self) -> u64 {
        let now = || least_room(self.devices).map_or(UNKNOWN, |room| room.free / 2);
        self.cache.unwrap_or_else(now)
    }

    /// An error where weights and activations cannot be on a device: of what is free there now, or of all that it has.
    pub(crate) fn check(
        &self,
        (checkpoint, located): (&Checkpoint, &LocatedModel),
        options: LoadOptions,
        limit: MemoryLimit,
    ) -> Result<(), LoadError> {
        let (Some(held), Some(room)) = (self.held, self.room) else { return Ok(()) };
        let tokens = options.token_budget.unwrap_or_else(|| self.token_budget());
        let needed = self.needed(held, tokens);
        let (bytes, there) = match limit {
            MemoryLimit::Free => (room.free, format!("where {} are free", gigabytes(room.free))),
            MemoryLimit::Total => (room.total, format!("which has {}", gigabytes(room.total))),
        };
        if needed <= bytes {
            return Ok(());
        }
        let each = if self.devices.is_several() { "each of " } else { "" };
        Err(LoadError::Memory {
            devices: format!("{each}{}", self.devices),
            needed: gigabytes(needed),
            there,
            hint: self.what_fits((checkpoint, located), options, bytes),
        })
    }

    fn needed(&self, held: DeviceMemory, tokens: usize) -> u64 {
        held_weights(self.devices.first(), &held).saturating_add(held.activations(BatchSize::of_tokens(tokens)))
    }

    /// What to type where so many bytes are not enough.
    fn what_fits(
        &self,
        (checkpoint, located): (&Checkpoint, &LocatedModel),
        options: LoadOptions,
        bytes: u64,
    ) -> String {
        let mut ways = Vec::new();
        let runs = |device: DeviceChoice, options: LoadOptions| {
            device.check_model(&checkpoint.config, options.arithmetic()).is_ok()
        };
        let fits = |options: LoadOptions, tokens: usize| {
            let held = DeviceMemory::of(&*checkpoint.source, &checkpoint.config, options.arithmetic());
            self.needed(held, tokens) <= bytes
        };
        let tokens = options.token_budget.unwrap_or(CPU_TOKEN_BUDGET);
        let smaller = [CPU_TOKEN_BUDGET, 128].into_iter().find(|few| *few < tokens && fits(options, *few));
        ways.extend(smaller.map(|few| format!("--token-budget {few}")));
        let fast = LoadOptions { precision: Precision::Fast, ..options };
        if options.precision == Precision::Exact && runs(self.devices.first(), fast) && fits(fast, tokens) {
            ways.push("--precision fast".to_owned());
        }
        let known = judges().iter().find(|judge| judge.variants.iter().any(|variant| variant.name == located.name));
        let smaller = known.and_then(|judge| judge.that_fits(bytes)).filter(|variant| variant.name != located.name);
        ways.extend(smaller.map(|variant| format!("--model {}", variant.name)));
        let needed = memory_needed(bytes_in_file(checkpoint));
        let on_host = device_room(DeviceChoice::Cpu).is_some_and(|room| needed <= room.free);
        if on_host && runs(DeviceChoice::Cpu, options) {
            ways.push("--device cpu".to_owned());
        }
        if ways.is_empty() {
            let device = self.devices.first();
            ways.push(format!("probity model list --device {device} names judges that fit"));
        }
        ways.join("; or ")
    }
}

/// What a model must fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// What is free now.
    Free,
    /// All that the device has: others may leave before the model comes.
    Total,
}

/// Whether what a device holds is in the memory of the machine.
fn device_is_host(device: DeviceChoice) -> bool {
    matches!(device, DeviceChoice::Cpu | DeviceChoice::CandleCpu)
}

fn bytes_in_file(checkpoint: &Checkpoint) -> u64 {
    weight_types(&*checkpoint.source).iter().map(|(_, bytes)| *bytes as u64).sum()
}

/// Weights with what candle keeps of them besides.
fn held_weights(device: DeviceChoice, held: &DeviceMemory) -> u64 {
    held.weights + if device == DeviceChoice::CandleCpu { held.reordered_on_cpu } else { 0 }
}

/// The most tokens, by doubling, whose activations take no more than their share of what weights leave free.
fn tokens_that_fit(held: DeviceMemory, free: u64) -> usize {
    let share = free.saturating_sub(held.weights) / ACTIVATIONS_SHARE;
    let fits = |tokens: usize| held.activations(BatchSize::of_tokens(tokens)) <= share;
    let mut tokens = CPU_TOKEN_BUDGET;
    while tokens < MOST_TOKENS && fits(2 * tokens) {
        tokens *= 2;
    }
    tokens
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::hint_of;
    use crate::hub::locate;

    fn golden(name: &str) -> (Checkpoint, LocatedModel) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/models").join(name);
        let located = locate(path.to_str().expect("UTF-8 path")).expect("a model lies there");
        (Checkpoint::open(&located).expect("it is whole"), located)
    }

    fn on_candle() -> LoadOptions {
        LoadOptions { devices: DeviceChoice::CandleCpu.into(), ..LoadOptions::default() }
    }

    #[test]
    fn weights_are_counted_as_they_are_held() {
        let (checkpoint, _) = golden("llama");
        let of = |options| ModelMemory::new(&checkpoint, options).weights;
        let file = of(LoadOptions::default());
        let exact = of(on_candle());
        assert!(exact < file, "embeddings stay in the file");
        let fast = of(LoadOptions { precision: Precision::Fast, ..on_candle() });
        assert!(fast < exact && 2 * fast >= exact, "bf16, but for the head: {fast} of {exact}");
    }

    #[test]
    fn more_tokens_run_at_once_where_there_is_room_for_their_activations() {
        let (checkpoint, _) = golden("llama");
        let memory = ModelMemory::new(&checkpoint, on_candle());
        assert_eq!(memory.token_budget(), CPU_TOKEN_BUDGET);
        let held = memory.held.expect("not on cpu");
        let needed = |tokens| held.weights + ACTIVATIONS_SHARE * held.activations(BatchSize::of_tokens(tokens));
        assert_eq!(tokens_that_fit(held, 0), CPU_TOKEN_BUDGET);
        assert_eq!(tokens_that_fit(held, needed(4096) - 1), 2048);
        assert_eq!(tokens_that_fit(held, needed(4096)), 4096);
        assert_eq!(tokens_that_fit(held, u64::MAX), MOST_TOKENS);
    }

    #[test]
    fn a_model_without_room_is_refused_with_what_fits() {
        let (checkpoint, located) = golden("llama");
        let refused = |options: LoadOptions, free: u64| {
            let mut memory = ModelMemory::new(&checkpoint, options);
            memory.room = Some(DeviceRoom { free, total: 2 * free });
            let checked = |limit| memory.check((&checkpoint, &located), options, limit);
            checked(MemoryLimit::Total).expect("there is room for it alone");
            checked(MemoryLimit::Free).err().map(|error| (error.to_string(), hint_of(&error)))
        };
        let tokens = LoadOptions { token_budget: Some(8), ..on_candle() };
        let memory = ModelMemory::new(&checkpoint, tokens);
        let needed = memory.needed(memory.held.expect("not on cpu"), 8);
        assert_eq!(refused(tokens, needed), None);
        let (error, hint) = refused(tokens, needed - 1).expect("a byte is missing");
        let gb = gigabytes(needed);
        assert_eq!(error, format!("the model needs {gb} on candle-cpu, where {gb} are free"));
        assert_eq!(hint, "--precision fast; or --device cpu");
        let many = LoadOptions { token_budget: Some(1 << 30), ..on_candle() };
        let memory = ModelMemory::new(&checkpoint, many);
        let needed = memory.needed(memory.held.expect("not on cpu"), 1 << 30);
        let (_, hint) = refused(many, needed - 1).expect("too many tokens at once");
        assert!(hint.starts_with("--token-budget 1024; or "), "{hint}");
        assert_eq!(refused(LoadOptions::default(), 1), None, "cpu has its file");
    }

    #[test]
    fn the_line_of_linux_is_understood_and_nothing_else() {
        let available = |text| kilobytes(text, "MemAvailable:");
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   20480 kB\n"), Some(20 << 20));
        assert_eq!(available("MemAvailable: many kB\n"), None);
        assert_eq!(available(""), None);
    }
}
