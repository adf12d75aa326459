//! Time and memory of work lists counted by a [`DryModel`](crate::DryModel).

use std::time::Instant;

use candle_core::Tensor;
use probity_lm::{LmError, Usage};
use probity_models::{BatchSize, PackedSegment};

use crate::memory::device_is_host;
use crate::threads::computing_error;
use crate::{DeviceShare, Model};

/// Planned cost of the requests so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedCost {
    /// Number of requests.
    pub questions: u64,
    /// Requests that do not fit; they cost nothing.
    pub too_long: u64,
    /// The `--compute cache-budget` with which all requests within the context fit. Absent if it would not help.
    pub cache_needed: Option<u64>,
    /// Tokens and peak cache bytes. Assumes that every text reaches its limit, without rejected drafts and
    /// recomputation for texts that start later.
    pub usage: Usage,
    /// Number of computed tokens that are generated.
    pub generated: u64,
    /// Rows of the output head that score tokens.
    pub(crate) rows: u64,
    /// The longest prompt, and the largest number of texts in one list.
    longest: Vec<u32>,
    pub(crate) texts: usize,
}

/// Estimated time of a [`PlannedCost`] on this machine, with the measurements behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeEstimate {
    /// Total seconds.
    pub seconds: f64,
    /// Number of prompt tokens run for the measurement.
    pub tokens: usize,
    /// Measured speed for prompts.
    pub tokens_per_second: f64,
    /// Measured speed of generation over all texts; absent without generation.
    pub generated_per_second: Option<f64>,
    /// Number of texts generated together.
    pub side_by_side: usize,
}

/// Memory of a [`PlannedCost`] on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMemory {
    /// The device, as in [`DeviceShare::title`](crate::DeviceShare::title).
    pub device: String,
    /// Bytes of the weights: as in the files on `cpu`, otherwise as held on the device.
    pub weights: u64,
    /// Maximum bytes of keys and values.
    pub cache: u64,
    /// Estimated bytes of activations; absent on `cpu`.
    pub activations: Option<u64>,
    /// Other memory of this process, if in the same memory, as measured after loading.
    pub process: Option<u64>,
    /// Memory that was free before; absent if unknown.
    pub free: Option<u64>,
}

impl PlannedMemory {
    /// Sum of all known parts.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.activations.unwrap_or(0) + self.process.unwrap_or(0)
    }
}

impl std::ops::AddAssign for PlannedCost {
    fn add_assign(&mut self, other: Self) {
        self.questions += other.questions;
        self.too_long += other.too_long;
        self.cache_needed = self.cache_needed.max(other.cache_needed);
        self.usage += other.usage;
        self.generated += other.generated;
        self.rows += other.rows;
        self.texts = self.texts.max(other.texts);
        self.keep_longest(&other.longest);
    }
}

impl PlannedCost {
    pub(crate) fn keep_longest(&mut self, tokens: &[u32]) {
        if tokens.len() > self.longest.len() {
            self.longest = tokens.to_vec();
        }
    }
}

/// Number of prompt tokens to measure, its minimum on slow machines, and the target duration.
const PROBE_TOKENS: usize = 512;
const FEWEST_TOKENS: usize = 128;
const PROBE_SECONDS: f64 = 0.5;
/// Number of output head rows to measure.
const PROBE_ROWS: usize = 32;

/// Duration in seconds of a run, and its result.
fn timed<T>(run: &dyn Fn() -> candle_core::Result<T>) -> candle_core::Result<(f64, T)> {
    let started = Instant::now();
    let result = run()?;
    Ok((started.elapsed().as_secs_f64(), result))
}

/// The faster of two runs, because other processes can slow one down.
fn faster<T>(run: &dyn Fn() -> candle_core::Result<T>) -> candle_core::Result<(f64, T)> {
    let (first, second) = (timed(run)?, timed(run)?);
    Ok(if first.0 < second.0 { first } else { second })
}

impl Model {
    /// Memory of a plan on each device of a copy.
    pub fn planned_memory(&self, plan: &PlannedCost) -> Vec<PlannedMemory> {
        let memory = self.memory();
        let tokens = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let generated = tokens(plan.generated.div_ceil(plan.questions.max(1)));
        let batch = BatchSize {
            rows: tokens(plan.usage.tokens_computed).min(self.token_budget()),
            own: tokens(plan.usage.tokens_computed.div_ceil(plan.questions.max(1))),
            positions: plan.longest.len().saturating_add(generated),
            head_rows: tokens(plan.rows).max(plan.texts),
        };
        let most = memory.shares.iter().filter_map(DeviceShare::cache_per_token).max().unwrap_or(0).max(1);
        let of_share = |(stage, share): (usize, &DeviceShare)| {
            // Counted for the device with the most layers.
            let own = u128::from(share.cache_per_token().unwrap_or(most));
            let cache = u128::from(plan.usage.peak_cache_bytes) * own / u128::from(most);
            let activations = share.activations(batch);
            PlannedMemory {
                device: share.title(),
                weights: share.weights,
                cache: u64::try_from(cache).unwrap_or(u64::MAX),
                activations,
                // Devices in host memory share it.
                process: activations.and(memory.process).filter(|_| stage == 0),
                free: share.free(),
            }
        };
        memory.shares.iter().enumerate().map(of_share).collect()
    }

    /// Estimates the time of a plan. Runs the beginning of its longest prompt, some rows of the output head and, for
    /// generation, one step, on the first device. Underestimates attention over longer prompts.
    pub fn estimate(&self, plan: &PlannedCost) -> Result<TimeEstimate, LmError> {
        let mut estimate = self.measure(plan).map_err(|error| LmError::Model(computing_error(error)))?;
        // All devices are assumed to be as fast as the first.
        // Copies in the memory of the host share its processors.
        if !device_is_host(self.memory().devices.first()) {
            estimate.seconds /= plan.questions.clamp(1, self.replicas.len() as u64) as f64;
        }
        Ok(estimate)
    }

    /// Measures whole prompts, for models that cannot read a part of a text.
    fn measure_whole(&self, plan: &PlannedCost) -> candle_core::Result<TimeEstimate> {
        let tokens = plan.longest.len();
        let text = [PackedSegment { past: Vec::new(), tokens: plan.longest.clone(), wanted: vec![tokens - 1] }];
        let (seconds, _) = faster(&|| self.decoder().head(&self.decoder().forward(&text)?.hidden, &[Vec::new()]))?;
        let tokens_per_second = tokens as f64 / seconds;
        Ok(TimeEstimate {
            seconds: plan.usage.tokens_computed as f64 / tokens_per_second,
            tokens,
            tokens_per_second,
            generated_per_second: None,
            side_by_side: 0,
        })
    }

    fn measure(&self, plan: &PlannedCost) -> candle_core::Result<TimeEstimate> {
        let model = self.decoder();
        let longest = &plan.longest[..plan.longest.len().min(PROBE_TOKENS).min(self.token_budget())];
        let mut estimate = TimeEstimate {
            seconds: 0.0,
            tokens: 0,
            tokens_per_second: 0.0,
            generated_per_second: None,
            side_by_side: 0,
        };
        if longest.is_empty() {
            return Ok(estimate);
        }
        if self.encoder().reads_whole() {
            return self.measure_whole(plan);
        }
        let head = |hidden: &Tensor, rows: usize| model.head(hidden, &vec![Vec::new(); rows]);
        let segment = |tokens: &[u32], wanted| PackedSegment { past: Vec::new(), tokens: tokens.to_vec(), wanted };
        // Warms up memory and caches first, which also determines how many tokens to measure.
        let few = &longest[..longest.len().min(FEWEST_TOKENS)];
        let (seconds, _) = timed(&|| model.forward(&[segment(few, Vec::new())]))?;
        let most = (few.len() as f64 * PROBE_SECONDS / seconds) as usize;
        let tokens = &longest[..longest.len().min(most).max(few.len())];
        let rows = tokens.len().min(PROBE_ROWS);
        // Encoder input has no rows of its own; the decoder attends to it.
        let of_source = self.encoder().has_source();
        let wanted = if of_source { Vec::new() } else { (tokens.len() - rows..tokens.len()).collect() };
        let probe = [segment(tokens, wanted)];
        let (seconds, mut output) = faster(&|| model.forward(&probe))?;
        (estimate.tokens, estimate.tokens_per_second) = (tokens.len(), tokens.len() as f64 / seconds);
        let mut path = output.spans.clone();
        if of_source {
            output = model.forward(&[PackedSegment {
                past: path.clone(),
                tokens: tokens[..rows].to_vec(),
                wanted: (0..rows).collect(),
            }])?;
            path.extend(output.spans);
        }
        let (seconds, _) = faster(&|| head(&output.hidden, rows))?;
        let prompts = plan.usage.tokens_computed - plan.generated;
        estimate.seconds = prompts as f64 / estimate.tokens_per_second + plan.rows as f64 * seconds / rows as f64;
        if plan.generated > 0 {
            let texts = plan.texts.min(self.options().side_by_side);
            // All texts share one path: the time of a step depends on the length read, not on whose it is.
            let step = vec![PackedSegment { past: path, tokens: vec![tokens[0]], wanted: vec![0] }; texts];
            let (seconds, _) = faster(&|| head(&model.forward(&step)?.hidden, texts))?;
            let rate = texts as f64 / seconds;
            (estimate.side_by_side, estimate.generated_per_second) = (texts, Some(rate));
            estimate.seconds += plan.generated as f64 / rate;
        }
        Ok(estimate)
    }
}
