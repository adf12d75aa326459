//! The key-value pool of a decoder: one key tensor and one value tensor per layer, on the layer's device. Each position
//! has a slot with the same index in all layers. A batch is written in one operation, and spans are never copied to be
//! read together.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result};

use super::attention::LayerSpan;
use super::limits::{check_cache, check_host_memory, most_positions};
use crate::stack_config::KeyHeads;

/// Maximum number of pieces that a batch is written in; with more, the pool grows instead.
const MOST_PIECES: usize = 8;
/// The minimum number of slots to grow by; larger requests grow by a quarter.
const FEW: usize = 256;

/// The reference count of each slot.
#[derive(Debug, Default)]
struct SlotCounts(Vec<u32>);

/// Slots of consecutive positions, released on drop.
#[derive(Debug)]
pub(super) struct SlotSpan {
    ranges: Vec<Range<usize>>,
    counts: Arc<Mutex<SlotCounts>>,
}

/// Keys and values of all layers.
pub(super) struct KvPool {
    layers: Mutex<Vec<LayerSpan>>,
    counts: Arc<Mutex<SlotCounts>>,
    /// Of each layer.
    shapes: Vec<KeyHeads>,
    dtype: DType,
}

/// The pool during a batch, locked against other writers.
pub(super) struct PoolBatch<'a> {
    layers: MutexGuard<'a, Vec<LayerSpan>>,
    /// Rows of the batch, and the first slot that each range is written to.
    pieces: Vec<(Range<usize>, usize)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts stay valid if a holder of the lock panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlotCounts {
    /// Ranges of free slots, each as long as possible.
    fn free(&self) -> Vec<Range<usize>> {
        let mut free: Vec<Range<usize>> = Vec::new();
        for slot in (0..self.0.len()).filter(|slot| self.0[*slot] == 0) {
            match free.last_mut().filter(|last| last.end == slot) {
                Some(last) => last.end += 1,
                None => free.push(slot..slot + 1),
            }
        }
        free
    }

    /// Finds `len` free slots in a few pieces: the first range that fits all, or else the longest ranges.
    fn find(&self, len: usize) -> Option<Vec<Range<usize>>> {
        let mut free = self.free();
        if let Some(fits) = free.iter().find(|range| range.len() >= len) {
            return Some(std::iter::once(fits.start..fits.start + len).collect());
        }
        free.sort_by_key(|range| (std::cmp::Reverse(range.len()), range.start));
        let (mut found, mut left) = (Vec::new(), len);
        for range in free.into_iter().take(MOST_PIECES) {
            let taken = left.min(range.len());
            found.push(range.start..range.start + taken);
            left -= taken;
            if left == 0 {
                return Some(found);
            }
        }
        None
    }

    /// The number of slots to append, so that `len` fit in pieces of which the last is at the end.
    fn missing(&self, len: usize) -> usize {
        let mut free = self.free();
        let last = free.pop_if(|range| range.end == self.0.len()).map_or(0, |range| range.len());
        let mut others: Vec<usize> = free.iter().map(ExactSizeIterator::len).collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        len.saturating_sub(last + others.iter().take(MOST_PIECES - 1).sum::<usize>())
    }

    fn hold(&mut self, ranges: &[Range<usize>]) {
        ranges.iter().cloned().flatten().for_each(|slot| self.0[slot] += 1);
    }
}

impl SlotSpan {
    /// Takes slots that are free or shared.
    fn new(ranges: Vec<Range<usize>>, counts: &Arc<Mutex<SlotCounts>>) -> Self {
        lock(counts).hold(&ranges);
        Self { ranges, counts: counts.clone() }
    }

    /// The slot ranges, in order of position.
    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Joins the first `len` positions of consecutive spans, without copying.
    pub(super) fn join(spans: &[&Self], len: usize) -> Self {
        let mut left = len;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for range in spans.iter().flat_map(|span| &span.ranges) {
            let taken = range.start..range.start + left.min(range.len());
            left -= taken.len();
            match ranges.last_mut().filter(|last| last.end == taken.start) {
                Some(last) => last.end = taken.end,
                None if taken.is_empty() => (),
                None => ranges.push(taken),
            }
        }
        Self::new(ranges, &spans[0].counts)
    }
}

impl Drop for SlotSpan {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        self.ranges.iter().cloned().flatten().for_each(|slot| counts.0[slot] -= 1);
    }
}

impl KvPool {
    /// An empty pool for layers on these devices with these key heads.
    pub(super) fn new<'a>(layers: impl Iterator<Item = (&'a Device, KeyHeads)>, dtype: DType) -> Result<Self> {
        // One slot: devices do not allocate empty tensors.
        let (devices, shapes): (Vec<_>, Vec<_>) = layers.unzip();
        let layers = devices.iter().zip(&shapes).map(|(device, heads)| LayerSpan::zeros(*heads, 1, dtype, device));
        let layers = layers.collect::<Result<_>>()?;
        let counts = Arc::new(Mutex::new(SlotCounts(vec![0])));
        Ok(Self { layers: Mutex::new(layers), counts, shapes, dtype })
    }

    /// Locks the pool for reading, without slots for new rows.
    pub(super) fn read(&self) -> PoolBatch<'_> {
        PoolBatch { layers: lock(&self.layers), pieces: Vec::new() }
    }

    /// Allocates slots for texts with these consecutive row ranges. Returns each text's span and the pool to write to.
    pub(super) fn batch(&self, rows: &[Range<usize>]) -> Result<(Vec<SlotSpan>, PoolBatch<'_>)> {
        let mut layers = lock(&self.layers);
        let len = rows.last().map_or(0, |rows| rows.end);
        let found = lock(&self.counts).find(len);
        let slots = if let Some(slots) = found {
            slots
        } else {
            self.grow(&mut layers, len)?;
            lock(&self.counts).find(len).expect("there is room for them now")
        };
        let mut pieces = Vec::with_capacity(slots.len());
        let mut row = 0;
        for piece in &slots {
            pieces.push((row..row + piece.len(), piece.start));
            row += piece.len();
        }
        let of_text = |rows: &Range<usize>| {
            let part = |(piece, slot): &(Range<usize>, usize)| {
                let (start, end) = (piece.start.max(rows.start), piece.end.min(rows.end));
                (start < end).then(|| slot + start - piece.start..slot + end - piece.start)
            };
            SlotSpan::new(pieces.iter().filter_map(part).collect(), &self.counts)
        };
        Ok((rows.iter().map(of_text).collect(), PoolBatch { layers, pieces }))
    }

    /// Appends slots if too few are free. For a few tokens, as in decoding, it appends more, so that growth is rare.
    fn grow(&self, layers: &mut [LayerSpan], len: usize) -> Result<()> {
        let (before, missing) = {
            let counts = lock(&self.counts);
            (counts.0.len(), counts.missing(len))
        };
        let widest = self.shapes.iter().map(|heads| heads.width()).max().unwrap_or(0);
        check_cache(before + missing, widest)?;
        let capacity = (before + missing.max(FEW.min(before / 4))).min(most_positions(widest));
        // One layer at a time: two copies of all layers would need twice the memory.
        for (layer, heads) in layers.iter_mut().zip(&self.shapes) {
            let device = layer.keys.device();
            if device.is_cpu() {
                check_host_memory(2 * capacity * heads.width() * self.dtype.size_in_bytes())?;
            }
            let grown = LayerSpan::zeros(*heads, capacity, self.dtype, device)?;
            grown.keys.slice_set(&layer.keys, 1, 0)?;
            grown.values.slice_set(&layer.values, 1, 0)?;
            *layer = grown;
        }
        lock(&self.counts).0.resize(capacity, 0);
        Ok(())
    }
}

impl PoolBatch<'_> {
    /// All keys and values of a layer.
    pub(super) fn layer(&self, layer: usize) -> &LayerSpan {
        &self.layers[layer]
    }

    /// Writes a layer's keys and values of the batch, and returns all of the layer.
    pub(super) fn write(&self, layer: usize, batch: &LayerSpan) -> Result<&LayerSpan> {
        let all = &self.layers[layer];
        for (rows, slot) in &self.pieces {
            let part = batch.part(rows)?;
            all.keys.slice_set(&part.keys, 1, *slot)?;
            all.values.slice_set(&part.values, 1, *slot)?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Tensor;

    use super::super::layer::ranges;
    use super::*;

    fn pool() -> KvPool {
        KvPool::new([(&Device::Cpu, KeyHeads { count: 1, dim: 2 })].into_iter(), DType::F32).expect("small")
    }

    /// Allocates one text.
    fn text(pool: &KvPool, rows: usize) -> SlotSpan {
        pool.batch(&ranges([rows])).expect("there is room, or it grows").0.remove(0)
    }

    fn capacity(pool: &KvPool) -> usize {
        lock(&pool.counts).0.len()
    }

    #[test]
    fn slots_are_used_again_when_nobody_holds_them() {
        let pool = pool();
        let (mut spans, _) = pool.batch(&[0..4, 4..10]).expect("grows");
        let before = capacity(&pool);
        let joined = SlotSpan::join(&[&spans[0], &spans[1]], 7);
        spans.clear();
        // The joined span holds seven, and three are free again.
        assert_eq!(joined.ranges().iter().map(ExactSizeIterator::len).sum::<usize>(), 7);
        let more = text(&pool, 3);
        assert_eq!(capacity(&pool), before);
        let all = joined.ranges().iter().chain(more.ranges()).cloned().flatten();
        let mut all: Vec<usize> = all.collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10, "no slot is held twice");
    }

    #[test]
    fn a_pool_grows_by_what_is_missing() {
        let pool = pool();
        drop(text(&pool, 481));
        assert_eq!(capacity(&pool), 481);
        let two = text(&pool, 962);
        assert_eq!(capacity(&pool), 962, "what was free is used again");
        let one_more = text(&pool, 1);
        assert_eq!(capacity(&pool), 962 + 962 / 4, "one token will be followed by others");
        drop((two, one_more));
    }

    #[test]
    fn reading_makes_no_room() {
        let pool = pool();
        let held = text(&pool, 9);
        let full = capacity(&pool);
        drop(pool.read());
        assert_eq!(capacity(&pool), full);
        drop(held);
    }

    #[test]
    fn a_batch_without_one_long_stretch_is_put_into_several() {
        let pool = pool();
        let (mut spans, _) = pool.batch(&[0..4, 4..8, 8..12]).expect("grows");
        let before = capacity(&pool);
        let middle = spans.remove(1);
        drop(spans);
        let (spans, batch) = pool.batch(&[0..2, 2..before - 4]).expect("in two stretches");
        assert_eq!(capacity(&pool), before);
        let keys = Tensor::arange(0f32, 2.0 * (before - 4) as f32, &Device::Cpu).expect("numbers");
        let keys = keys.reshape((1, before - 4, 2)).expect("rows");
        let all = batch.write(0, &LayerSpan { keys: keys.clone(), values: keys }).expect("writes");
        let written: Vec<Vec<f32>> = all.keys.squeeze(0).and_then(|x| x.to_vec2()).expect("a matrix");
        let slots: Vec<usize> = spans.iter().flat_map(|span| span.ranges().iter().cloned().flatten()).collect();
        for (row, slot) in slots.iter().enumerate() {
            assert_eq!(written[*slot], [2.0 * row as f32, 2.0 * row as f32 + 1.0]);
            assert!(!middle.ranges().iter().any(|range| range.contains(slot)));
        }
    }
}
