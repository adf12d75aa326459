//! Available memory, and the memory that a model needs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use probity_lm::Precision;
use probity_models::{
    BatchSize, DeviceChoice, DeviceList, DeviceMemory, DeviceRoom, LayerMemory, Placement, StageNames, check_model,
    weight_types,
};

use crate::checkpoint::{Checkpoint, LoadError};
use crate::hub::{judges, memory_needed};
use crate::options::LoadOptions;

/// Default if the available memory is unknown: 4 GiB.
const UNKNOWN: u64 = 4 << 30;

/// Default tokens per batch on the CPU.
const CPU_TOKEN_BUDGET: usize = 1024;
/// Maximum default tokens per batch on other devices.
const MOST_TOKENS: usize = 8192;
/// Default batches limit activations to one part in this many of the memory that weights leave free.
const ACTIVATIONS_SHARE: u64 = 10;

/// Memory of a device, if the system reports it. For the CPU, `MemAvailable` and `MemTotal` of Linux (the first
/// includes file pages that can be dropped); for other devices, the driver's figures.
pub fn device_room(device: DeviceChoice) -> Option<DeviceRoom> {
    match device {
        DeviceChoice::Cpu | DeviceChoice::CandleCpu => {
            let text = std::fs::read_to_string("/proc/meminfo").ok()?;
            let host = DeviceRoom { free: kilobytes(&text, "MemAvailable:")?, total: kilobytes(&text, "MemTotal:")? };
            let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            Some(limited(host, Path::new("/sys/fs/cgroup"), &own))
        }
        device => device.room(),
    }
}

/// The memory that control groups, such as those of a container or a Slurm job, leave of the host's. `own` is
/// `/proc/self/cgroup`; `root` the mount point of version 2, or of all controllers of version 1.
fn limited(host: DeviceRoom, root: &Path, own: &str) -> DeviceRoom {
    let groups = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some((root.join(path), root.to_owned(), ["memory.max", "memory.current", "inactive_file"])),
            _ if controllers.split(',').any(|name| name == "memory") => {
                let root = root.join("memory");
                let files = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
                Some((root.join(path), root, files))
            }
            _ => None,
        }
    });
    let levels = groups.flat_map(|(group, root, files)| {
        let levels: Vec<PathBuf> =
            group.ancestors().take_while(|at| at.starts_with(&root)).map(Path::to_owned).collect();
        levels.into_iter().filter_map(move |level| level_room(&level, files))
    });
    levels.fold(host, |room, level| DeviceRoom { free: room.free.min(level.free), total: room.total.min(level.total) })
}

/// Memory of one control group; `None` without a limit. File pages that were not read lately can be dropped.
fn level_room(level: &Path, [limit, used, droppable]: [&str; 3]) -> Option<DeviceRoom> {
    let read = |name: &str| std::fs::read_to_string(level.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let total = number(limit)?;
    let stat = read("memory.stat").unwrap_or_default();
    let droppable = stat.lines().find_map(|line| line.strip_prefix(droppable)?.trim().parse::<u64>().ok());
    let used = number(used)?.saturating_sub(droppable.unwrap_or(0));
    Some(DeviceRoom { free: total.saturating_sub(used), total })
}

/// Total memory of the machine; `None` if unknown.
pub fn machine_memory() -> Option<u64> {
    device_room(DeviceChoice::Cpu).map(|room| room.total)
}

/// Memory of this process; `None` if unknown.
fn process_memory() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory on each device of a copy, the minimum over all copies. Devices in host memory share it.
fn least_rooms(devices: DeviceList) -> Vec<Option<DeviceRoom>> {
    let places = devices.in_one_memory() as u64;
    let least = |stage: usize| {
        let rooms = devices.copies().map(|copy| device_room(copy[stage])).collect::<Option<Vec<_>>>()?;
        let share = |bytes: Option<u64>| Some(bytes? / places);
        Some(DeviceRoom {
            free: share(rooms.iter().map(|room| room.free).min())?,
            total: share(rooms.iter().map(|room| room.total).min())?,
        })
    };
    (0..devices.first_copy().len()).map(least).collect()
}

/// Bytes free for one copy of a model, over all devices that hold it together; `None` if unknown.
pub fn free_for_copy(devices: DeviceList) -> Option<u64> {
    least_rooms(devices).into_iter().map(|room| room.map(|room| room.free)).sum()
}

/// Memory of a model on its devices, copied or divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelMemory {
    /// The devices.
    pub devices: DeviceList,
    /// One per device of a copy, at least one.
    pub shares: Vec<DeviceShare>,
    /// Memory of this process besides weights, if the weights are in host memory.
    pub process: Option<u64>,
    /// Default cache budget in bytes.
    cache: Option<u64>,
}

/// Memory of one device for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceShare {
    /// The device; for several copies, that of each: `cuda:0,cuda:2`.
    pub devices: String,
    /// Its layers, if the model is divided. An encoder's layers come before its decoder's.
    pub layers: Option<Range<usize>>,
    /// Bytes of the weights: as in the files on [`DeviceChoice::Cpu`], otherwise as held on the device.
    pub weights: u64,
    /// For devices of candle.
    memory: Option<DeviceMemory>,
    /// Memory when this was determined, on the device of the copy with the least.
    room: Option<DeviceRoom>,
}

impl DeviceShare {
    /// The whole model on one device, or its layers divided by the memory of each.
    fn all(checkpoint: &Checkpoint, options: LoadOptions, rooms: &[Option<DeviceRoom>]) -> Vec<Self> {
        let devices = options.devices;
        let names = |stage: usize| -> String {
            devices.copies().map(|copy| copy[stage].to_string()).collect::<Vec<_>>().join(",")
        };
        let share = |stage: usize, weights, layers: Option<Range<usize>>, memory| Self {
            devices: names(stage),
            layers: layers.filter(|_| rooms.len() > 1),
            weights,
            memory,
            room: rooms[stage],
        };
        if devices.first() == DeviceChoice::Cpu {
            return vec![share(0, bytes_in_file(checkpoint), None, None)];
        }
        // If unknown, all devices count the same.
        let free: Vec<u64> = rooms.iter().map(|room| room.map_or(1, |room| room.free)).collect();
        let layers = LayerMemory::new(&*checkpoint.source, &checkpoint.config, options.arithmetic());
        let divided = layers.divided(&free).into_iter().enumerate();
        divided
            .map(|(stage, (layers, memory))| {
                share(stage, held_weights(devices.first(), &memory), Some(layers), Some(memory))
            })
            .collect()
    }

    /// Memory that was free before loading; `None` if unknown.
    pub fn free(&self) -> Option<u64> {
        self.room.map(|room| room.free)
    }

    /// Bytes of keys and values per token, 0 for an encoder; `None` on [`DeviceChoice::Cpu`].
    pub fn cache_per_token(&self) -> Option<u64> {
        self.memory.map(|memory| memory.held.cache_per_token)
    }

    /// Estimated bytes of activations for a batch; `None` on [`DeviceChoice::Cpu`].
    pub fn activations(&self, size: BatchSize) -> Option<u64> {
        self.memory.map(|memory| memory.activations(size))
    }

    /// Weights, and what a batch of this many tokens needs.
    fn needed(&self, tokens: usize) -> u64 {
        self.weights.saturating_add(self.activations(BatchSize::with_tokens(tokens)).unwrap_or(0))
    }

    /// Available memory; `None` if unknown, and on [`DeviceChoice::Cpu`], where weights are mapped from their files.
    fn limit(&self, limit: MemoryLimit) -> Option<u64> {
        self.memory.and(self.room).map(|room| match limit {
            MemoryLimit::Free => room.free,
            MemoryLimit::Total => room.total,
        })
    }

    fn fits(&self, tokens: usize, limit: MemoryLimit) -> bool {
        self.limit(limit).is_none_or(|bytes| self.needed(tokens) <= bytes)
    }

    /// Its devices, and its layers if the model is divided.
    pub fn title(&self) -> String {
        match &self.layers {
            Some(layers) if layers.len() == 1 => format!("{} (layer {})", self.devices, layers.end),
            Some(layers) => format!("{} (layers {} to {})", self.devices, layers.start + 1, layers.end),
            None => self.devices.clone(),
        }
    }
}

impl ModelMemory {
    /// Memory of a model before loading.
    pub fn new(checkpoint: &Checkpoint, options: LoadOptions) -> Self {
        let devices = options.devices;
        Self {
            devices,
            shares: DeviceShare::all(checkpoint, options, &least_rooms(devices)),
            process: device_is_host(devices.first()).then(process_memory).flatten(),
            cache: None,
        }
    }

    /// Bytes of the weights of one copy.
    pub fn weights(&self) -> u64 {
        self.shares.iter().map(|share| share.weights).sum()
    }

    /// Bytes of all weights in one memory: the host's, or that of the device that holds the most.
    pub fn weights_in_one_memory(&self) -> u64 {
        if device_is_host(self.devices.first()) {
            self.weights() * self.devices.copies().len() as u64
        } else {
            self.shares.iter().map(|share| share.weights).max().unwrap_or(0)
        }
    }

    /// Placement of the layers of one of the copies.
    pub(crate) fn placement(&self, copy: &[DeviceChoice]) -> Placement {
        let first = |share: &DeviceShare| share.layers.as_ref().map_or(0, |layers| layers.start);
        Placement::new(copy, &self.shares.iter().map(first).collect::<Vec<_>>())
    }

    /// Default tokens per batch.
    pub fn token_budget(&self) -> usize {
        let fit = |share: &DeviceShare| match (share.memory, share.room) {
            (Some(memory), Some(room)) if !device_is_host(self.devices.first()) => tokens_that_fit(&memory, room.free),
            _ => CPU_TOKEN_BUDGET,
        };
        self.shares.iter().map(fit).min().unwrap_or(CPU_TOKEN_BUDGET)
    }

    /// Updates the values that depend on free and used memory after loading.
    pub(crate) fn after_loading(self, token_budget: usize) -> Self {
        let rooms = least_rooms(self.devices);
        // Can be more than before, because code was loaded.
        let besides = |before: u64| {
            process_memory().map_or(before, |now| before.max(now.saturating_sub(self.weights_in_one_memory())))
        };
        let process = self.process.map(besides);
        Self { process, ..self }.with_cache(token_budget, &rooms)
    }

    /// Sets the cache budget: half of what remains for batches of this many tokens.
    fn with_cache(self, token_budget: usize, rooms: &[Option<DeviceRoom>]) -> Self {
        let size = BatchSize::with_tokens(token_budget);
        let most = self.shares.iter().filter_map(DeviceShare::cache_per_token).max();
        // Bytes are counted on the device with the most layers.
        let budget = |(share, room): (&DeviceShare, &Option<DeviceRoom>)| {
            let (activations, own) = (share.activations(size)?, share.cache_per_token()?);
            let free = room.map_or(UNKNOWN, |room| room.free.saturating_sub(activations) / 2);
            let scale = most.unwrap_or(0).max(1) as f64 / own.max(1) as f64;
            Some(if scale == 1.0 { free } else { (free as f64 * scale) as u64 })
        };
        let cache = self.shares.iter().zip(rooms).filter_map(budget).min();
        Self { cache, ..self }
    }

    /// Default cache budget in bytes. On [`DeviceChoice::Cpu`], half of the memory available now. Elsewhere, half of
    /// the memory free after loading and not needed for activations. 4 GiB if unknown.
    pub(crate) fn cache_budget(&self) -> u64 {
        let now = || least_rooms(self.devices)[0].map_or(UNKNOWN, |room| room.free / 2);
        self.cache.unwrap_or_else(now)
    }

    /// Checks that weights and activations fit on each device, relative to its free or total memory.
    pub(crate) fn check(
        &self,
        checkpoint: &Checkpoint,
        options: LoadOptions,
        limit: MemoryLimit,
    ) -> Result<(), LoadError> {
        let tokens = options.token_budget.unwrap_or_else(|| self.token_budget());
        let Some(share) = self.shares.iter().find(|share| !share.fits(tokens, limit)) else { return Ok(()) };
        let bytes = gigabytes(share.limit(limit).unwrap_or(0));
        let there = match limit {
            MemoryLimit::Free => format!("which has {bytes} free"),
            MemoryLimit::Total => format!("which has {bytes}"),
        };
        let each = if self.devices.has_copies() { "each of " } else { "" };
        Err(LoadError::Memory {
            devices: format!("{each}{}", share.title()),
            needed: gigabytes(share.needed(tokens)),
            there,
            hint: self.what_fits(checkpoint, options, limit),
        })
    }

    /// Suggests options that fit.
    fn what_fits(&self, checkpoint: &Checkpoint, options: LoadOptions, limit: MemoryLimit) -> String {
        let mut ways = Vec::new();
        let runs = |devices: &[DeviceChoice], options: LoadOptions| {
            check_model(devices, &checkpoint.config, options.arithmetic()).is_ok()
        };
        let rooms: Vec<Option<DeviceRoom>> = self.shares.iter().map(|share| share.room).collect();
        let fits = |options: LoadOptions, tokens: usize| {
            DeviceShare::all(checkpoint, options, &rooms).iter().all(|share| share.fits(tokens, limit))
        };
        let tokens = options.token_budget.unwrap_or(CPU_TOKEN_BUDGET);
        let smaller = [CPU_TOKEN_BUDGET, 128].into_iter().find(|few| *few < tokens && fits(options, *few));
        ways.extend(smaller.map(|few| format!("--compute token-budget={few}")));
        let fast = LoadOptions { precision: Precision::Fast, ..options };
        if options.precision == Precision::Exact && runs(self.devices.first_copy(), fast) && fits(fast, tokens) {
            ways.push("--precision fast".to_owned());
        }
        let cards = DeviceChoice::all_cuda().into_iter().filter_map(|card| Some((card, card.room()?)));
        ways.extend(self.cards_together(checkpoint, options, &cards.collect::<Vec<_>>(), limit));
        let name = checkpoint.located.name.as_str();
        let known = judges().iter().find(|judge| judge.variants.iter().any(|variant| variant.name == name));
        let bytes = self.shares.iter().filter_map(|share| share.limit(limit)).sum();
        let smaller = known.and_then(|judge| judge.that_fits(bytes)).filter(|variant| variant.name != name);
        ways.extend(smaller.map(|variant| format!("--model {}", variant.name)));
        let needed = memory_needed(bytes_in_file(checkpoint));
        let on_host = device_room(DeviceChoice::Cpu).is_some_and(|room| needed <= room.free);
        if on_host && runs(&[DeviceChoice::Cpu], options) {
            ways.push("--device cpu".to_owned());
        }
        if ways.is_empty() {
            let devices = self.devices.one_copy();
            ways.push(format!("see probity model list --device {devices} for judges that fit"));
        }
        ways.join("; or ")
    }

    /// The fewest CUDA devices of the machine that hold the model together, if the named ones do not.
    fn cards_together(
        &self,
        checkpoint: &Checkpoint,
        options: LoadOptions,
        cards: &[(DeviceChoice, DeviceRoom)],
        limit: MemoryLimit,
    ) -> Option<String> {
        let named = self.devices.first_copy();
        // The named devices come first.
        let mut cards: Vec<_> = cards.to_vec();
        cards.sort_by_key(|(card, _)| named.iter().position(|name| name == card).unwrap_or(usize::MAX));
        let together = |count: usize| {
            let (devices, rooms): (Vec<_>, Vec<_>) =
                cards[..count].iter().map(|(card, room)| (*card, Some(*room))).unzip();
            let text = StageNames(&devices).to_string();
            let options = LoadOptions { devices: text.parse().ok()?, ..options };
            check_model(&devices, &checkpoint.config, options.arithmetic()).ok()?;
            let tokens = options.token_budget.unwrap_or(CPU_TOKEN_BUDGET);
            let shares = DeviceShare::all(checkpoint, options, &rooms);
            shares
                .iter()
                .all(|share| share.fits(tokens, limit))
                .then(|| format!("--device {text} to divide its layers"))
        };
        (named.len() + 1..=cards.len()).find_map(together)
    }
}

/// The memory that a model must fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// Memory that is free now.
    Free,
    /// All memory of the device: other programs may release theirs before the model is loaded.
    Total,
}

/// Whether the device uses host memory.
pub(crate) fn device_is_host(device: DeviceChoice) -> bool {
    matches!(device, DeviceChoice::Cpu | DeviceChoice::CandleCpu)
}

fn bytes_in_file(checkpoint: &Checkpoint) -> u64 {
    weight_types(&*checkpoint.source).iter().map(|(_, bytes)| *bytes as u64).sum()
}

/// Bytes of weights, including candle's extra copies.
fn held_weights(device: DeviceChoice, memory: &DeviceMemory) -> u64 {
    memory.held.weights + if device == DeviceChoice::CandleCpu { memory.held.reordered_on_cpu } else { 0 }
}

/// The most tokens, by doubling, whose activations fit into their share of the memory that weights leave free.
fn tokens_that_fit(memory: &DeviceMemory, free: u64) -> usize {
    let share = free.saturating_sub(memory.held.weights) / ACTIVATIONS_SHARE;
    let fits = |tokens: usize| memory.activations(BatchSize::with_tokens(tokens)) <= share;
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
mod tests;
