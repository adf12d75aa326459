//! Memory for packed weights and activations, aligned to cache lines, so that no vector crosses two, and on large
//! pages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;

/// Size of a large page on most systems, in bytes.
const LARGE_PAGE: usize = 2 << 20;

/// Requests large pages for untouched memory, where whole ones fit: clearing small pages one at a time takes longer
/// than writing them. It does not change the contents, and systems without large pages ignore it.
pub fn prefer_large_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        let range = memory.as_mut_ptr_range();
        let (start, end) =
            ((range.start as usize).next_multiple_of(LARGE_PAGE), range.end as usize / LARGE_PAGE * LARGE_PAGE);
        if start < end {
            // SAFETY: whole pages inside memory that the caller owns; the advice changes nothing that a program can
            // read.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Zeroed memory of `bytes` bytes, page-aligned. Pages are not resident until touched.
pub(crate) fn pages(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes.max(1))?;
    // Large pages save page table walks, a tenth of the time of a decoding step. They do not change results, and
    // systems without them refuse.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// Virtual memory of a shared block.
const BLOCK: usize = 256 << 20;
/// Alignment of weights in a block: a cache line.
const LINE: usize = 64;

/// A mapping that holds several matrices, so that large pages cover everything except the end of the last one.
struct Allocation {
    start: *mut u8,
    _map: MmapMut,
}

// SAFETY: the pointer is that of the mapping next to it; its target is only used through `Pages`, each with separate
// bytes.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

/// A range of a block that is used exclusively.
pub(crate) struct Pages {
    block: Arc<Allocation>,
    first: usize,
    len: usize,
}

impl Pages {
    /// Allocates zeroed memory. Freed memory returns to the system with its whole block.
    pub(crate) fn new(len: usize) -> std::io::Result<Self> {
        /// The most recent block, the bytes used in it, and its size.
        static LAST: Mutex<(Weak<Allocation>, usize, usize)> = Mutex::new((Weak::new(), 0, 0));
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, first) = match last.0.upgrade() {
            Some(block) if last.2 - last.1 >= len => (block, last.1),
            _ => {
                let size = len.max(BLOCK);
                let mut map = pages(size)?;
                let block = Arc::new(Allocation { start: map.as_mut_ptr(), _map: map });
                (last.0, last.2) = (Arc::downgrade(&block), size);
                (block, 0)
            }
        };
        last.1 = (first + len).next_multiple_of(LINE).min(last.2);
        Ok(Self { block, first, len })
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are in the block, which lives as long as its pages, and no other pages have them.
        unsafe { std::slice::from_raw_parts(self.block.start.add(self.first), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.add(self.first), self.len) }
    }
}

/// Memory allocation for activations failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("the system gives no memory for the {bytes} bytes of a step of it")]
#[diagnostic(help("give it a smaller --compute token-budget, or the process more memory"))]
pub struct NoMemory {
    /// The requested size.
    pub bytes: usize,
}

/// A reusable array whose length is set before each use.
pub struct Buffer<T> {
    map: Option<MmapMut>,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Self { map: None, len: 0, _elements: PhantomData }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> Buffer<T> {
    /// Sets the number of elements. Their contents are unspecified: zeros, or earlier values.
    ///
    /// # Panics
    /// If allocation fails. The payload is [`NoMemory`] and the panic hook does not run, so that the caller of a model
    /// can report an error.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let bytes = len * size_of::<T>();
        if self.map.as_ref().is_none_or(|map| map.len() < bytes) {
            // The old memory is freed first; its contents are not needed.
            self.map = None;
            // From an eighth of a large page on, lengths are whole large pages: systems align such mappings to them.
            let whole = if bytes < LARGE_PAGE / 8 { bytes } else { bytes.next_multiple_of(LARGE_PAGE) };
            self.map =
                Some(pages(whole).unwrap_or_else(|_| std::panic::resume_unwind(Box::new(NoMemory { bytes: whole }))));
        }
        self.len = len;
    }

    /// Drops all elements after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Allocated bytes, used or not.
    pub fn bytes(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }
}

impl<T: AnyBitPattern + NoUninit> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.map.as_ref().map_or(&[], |map| bytemuck::cast_slice(&map[..self.len * size_of::<T>()]))
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        let len = self.len * size_of::<T>();
        self.map.as_mut().map_or(&mut [], |map| bytemuck::cast_slice_mut(&mut map[..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_unwinds_with_what_was_asked_for() {
        let asked =
            std::panic::catch_unwind(|| Buffer::<u64>::default().set_len(1 << 57)).expect_err("no machine has so much");
        assert!(asked.downcast_ref::<NoMemory>().is_some_and(|why| why.bytes >= 1 << 60));
    }

    #[test]
    fn pages_are_zeroed_aligned_and_nobody_elses() {
        let mut all: Vec<Pages> =
            [1, 63, 64, 100_000, BLOCK + 1, 5].into_iter().map(|len| Pages::new(len).expect("memory")).collect();
        for (index, pages) in all.iter_mut().enumerate() {
            assert!(pages.iter().all(|byte| *byte == 0) && pages.as_ptr().addr().is_multiple_of(LINE), "{index}");
            pages.fill(index as u8 + 1);
        }
        // Freeing one leaves the others unchanged.
        all.swap_remove(0);
        let last = Pages::new(1000).expect("memory");
        assert!(last.iter().all(|byte| *byte == 0), "new memory was not used before");
        for (pages, value) in all.iter().zip([6, 2, 3, 4, 5]) {
            assert!(pages.iter().all(|byte| *byte == value), "{value}");
        }
    }
}
