//! Copies of a model's weights, one on each device.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use candle_core::Tensor;
use probity_models::{Compute, DeviceChoice, HeadRow, KvSpan, LayerTaps, PackedDecoder, PackedOutput, PackedSegment};

use crate::TokenProgress;
use crate::checkpoint::{Checkpoint, LoadError};
use crate::engine::kept::KeptPrefixes;
use crate::threads::ComputeThreads;

/// A decoder on one device, whose work runs on threads of its own.
pub(crate) struct Replica {
    pub(crate) device: DeviceChoice,
    pub(crate) threads: ComputeThreads,
    /// Keys and values lie on the device too.
    pub(crate) kept: Option<KeptPrefixes>,
    decoder: Box<dyn PackedDecoder>,
    /// Of all copies together.
    progress: Arc<TokenProgress>,
}

/// Loads the weights to each device, on all of them at once.
pub(crate) fn load_replicas(
    checkpoint: &Checkpoint,
    compute: Compute,
    devices: &[DeviceChoice],
    threads: Vec<ComputeThreads>,
) -> Result<Vec<Replica>, LoadError> {
    let progress = Arc::<TokenProgress>::default();
    let load = |device: DeviceChoice, threads: ComputeThreads| {
        let decoder = threads.load(|| checkpoint.load(compute, device))?;
        Ok(Replica { device, threads, kept: None, decoder, progress: progress.clone() })
    };
    thread::scope(|scope| {
        let load = &load;
        let loading = devices.iter().zip(threads).map(|(device, threads)| scope.spawn(|| load(*device, threads)));
        let loading: Vec<_> = loading.collect();
        loading.into_iter().map(|loading| loading.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

impl Replica {
    /// How far all copies together are.
    pub(crate) fn progress(&self) -> &Arc<TokenProgress> {
        &self.progress
    }
}

impl PackedDecoder for Replica {
    fn forward_tapped(
        &self,
        segments: &[PackedSegment],
        taps: &mut LayerTaps<'_>,
    ) -> candle_core::Result<PackedOutput> {
        let output = self.threads.compute(|| self.decoder.forward_tapped(segments, taps))?;
        self.progress.advance(segments.iter().map(|segment| segment.tokens.len()).sum());
        Ok(output)
    }

    fn logits(&self, hidden: &Tensor) -> candle_core::Result<Tensor> {
        self.threads.compute(|| self.decoder.logits(hidden))
    }

    fn head(&self, hidden: &Tensor, asked: &[Vec<u32>]) -> candle_core::Result<Vec<HeadRow>> {
        self.threads.compute(|| self.decoder.head(hidden, asked))
    }

    fn greedy_among(&self, hidden: &Tensor, row: &HeadRow, allowed: &[u32]) -> candle_core::Result<Option<u32>> {
        self.threads.compute(|| self.decoder.greedy_among(hidden, row, allowed))
    }

    fn cache_bytes(&self, tokens: usize) -> usize {
        self.decoder.cache_bytes(tokens)
    }

    fn join(&self, spans: &[Arc<KvSpan>], len: usize) -> candle_core::Result<Arc<KvSpan>> {
        self.decoder.join(spans, len)
    }

    fn idle_rows(&self) -> usize {
        self.decoder.idle_rows()
    }
}
