//! Where keys and values of all spans of a decoder lie on a device: one tensor of keys and one of values in each layer, in which
//! each position has a slot. A batch is written by one operation, and no span is ever copied to be read beside another.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result};

use super::attention::LayerSpan;

/// More pieces than this are not written by as many operations: the pool grows instead.
const MOST_PIECES: usize = 8;

/// Slots of a pool, and by how many spans each is held.
#[derive(Debug, Default)]
struct SlotCounts(Vec<u32>);

/// Slots of consecutive positions, held until they are dropped.
#[derive(Debug)]
pub(super) struct SlotSpan {
    ranges: Vec<Range<usize>>,
    counts: Arc<Mutex<SlotCounts>>,
}

/// Keys and values of all layers.
pub(super) struct KvPool {
    layers: Mutex<Vec<LayerSpan>>,
    counts: Arc<Mutex<SlotCounts>>,
    /// Key heads, and their length.
    shape: (usize, usize),
    dtype: DType,
    device: Device,
}

/// A pool while a batch runs: nobody else writes to it.
pub(super) struct PoolBatch<'a> {
    layers: MutexGuard<'a, Vec<LayerSpan>>,
    /// Rows of the batch and the slots that they are written to.
    pieces: Vec<(Range<usize>, usize)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left numbers that are used as they are.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlotCounts {
    /// Free slots, as long as they go.
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

    /// So many free slots in a few pieces: the first that has room for all, else the longest.
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

    fn hold(&mut self, ranges: &[Range<usize>]) {
        ranges.iter().cloned().flatten().for_each(|slot| self.0[slot] += 1);
    }
}

impl SlotSpan {
    /// Slots that are free or held by others too.
    fn new(ranges: Vec<Range<usize>>, counts: &Arc<Mutex<SlotCounts>>) -> Self {
        lock(counts).hold(&ranges);
        Self { ranges, counts: counts.clone() }
    }

    /// Where its positions lie, in their order.
    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The first `len` positions of consecutive spans as one. Nothing moves.
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
    /// Of so many layers; there is nothing in it yet.
    pub(super) fn new(layers: usize, shape: (usize, usize), dtype: DType, device: &Device) -> Result<Self> {
        // One slot: devices have no memory of no length.
        let layers = (0..layers).map(|_| LayerSpan::zeros(shape, 1, dtype, device)).collect::<Result<_>>()?;
        let counts = Arc::new(Mutex::new(SlotCounts(vec![0])));
        Ok(Self { layers: Mutex::new(layers), counts, shape, dtype, device: device.clone() })
    }

    /// Room for the rows of texts that lie one behind the other: what holds each text's, and the pool to write them to.
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

    /// Makes room for so many more behind what there is: a quarter more at least, so that growing stays rare.
    fn grow(&self, layers: &mut [LayerSpan], more: usize) -> Result<()> {
        let before = lock(&self.counts).0.len();
        let capacity = before + more.max(before / 4);
        // A layer at a time: the old and the new one of all would be twice the memory.
        for layer in layers.iter_mut() {
            let grown = LayerSpan::zeros(self.shape, capacity, self.dtype, &self.device)?;
            grown.keys.slice_set(&layer.keys, 1, 0)?;
            grown.values.slice_set(&layer.values, 1, 0)?;
            *layer = grown;
        }
        lock(&self.counts).0.resize(capacity, 0);
        Ok(())
    }
}

impl PoolBatch<'_> {
    /// All that there is in a layer.
    pub(super) fn layer(&self, layer: usize) -> &LayerSpan {
        &self.layers[layer]
    }

    /// Writes what a layer made of the batch's rows, and gives all that there is in that layer.
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

/// How often each stretch of slots is seen, where that is more than once.
pub(super) fn seen_often<'a>(spans: impl Iterator<Item = &'a Range<usize>>) -> BTreeMap<(usize, usize), usize> {
    let mut counts = BTreeMap::new();
    for range in spans {
        *counts.entry((range.start, range.end)).or_insert(0) += 1;
    }
    counts.retain(|_, count| *count > 1);
    counts
}
