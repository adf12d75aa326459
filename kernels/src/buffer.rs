//! Memory that packed weights and activations live in: aligned to cache lines, so that no vector straddles two, and on
//! large pages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;

/// Bytes of a large page on most systems.
const LARGE_PAGE: usize = 2 << 20;

/// Asks for large pages under memory that was not touched yet, where whole ones fit into it: clearing small ones, one
/// at a time, takes longer than writing them. No effect on what it holds, and a system without large pages says no.
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

/// Zeroed memory of `bytes` bytes that begins on a page. Nothing is resident before it is touched.
pub(crate) fn pages(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes.max(1))?;
    // Large pages spare the walk through page tables, a tenth of a decoding step's time. No page size changes a result,
    // and a system without them says no.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// Virtual memory of a block that weights share.
const BLOCK: usize = 256 << 20;
/// Where a block's next weights begin: a cache line.
const LINE: usize = 64;

/// A mapping that many matrices lie in, so that large pages cover all of them but the last one's end.
struct Block {
    start: *mut u8,
    _map: MmapMut,
}

// SAFETY: the pointer is that of the mapping beside it; what it points to is only used through `Pages`, each bytes of
// its own.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Bytes of a block, nobody else's.
pub(crate) struct Pages {
    block: Arc<Block>,
    first: usize,
    len: usize,
}

impl Pages {
    /// Zeroed memory. What is freed goes back to the system with its whole block.
    pub(crate) fn new(len: usize) -> std::io::Result<Self> {
        /// The block that was begun last, with how much of it is taken and how much it has.
        static LAST: Mutex<(Weak<Block>, usize, usize)> = Mutex::new((Weak::new(), 0, 0));
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, first) = match last.0.upgrade() {
            Some(block) if last.2 - last.1 >= len => (block, last.1),
            _ => {
                let size = len.max(BLOCK);
                let mut map = pages(size)?;
                let block = Arc::new(Block { start: map.as_mut_ptr(), _map: map });
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
        // SAFETY: the bytes lie in the block, which lives as long as its pages, and no other pages have them.
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

/// The system gave no memory for activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("the system gives no memory for the {bytes} bytes of a step of it")]
#[diagnostic(help("give it a smaller --compute token-budget, or the process more memory"))]
pub struct NoMemory {
    /// What was asked for.
    pub bytes: usize,
}

/// Elements whose number is set for each use.
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
    /// Sets the number of elements. What they hold then is unspecified: zeros, or what was there before.
    ///
    /// # Panics
    /// Where the memory cannot be had: with [`NoMemory`], and no word of the panic hook, so that whoever runs a model
    /// can tell it as an error.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let bytes = len * size_of::<T>();
        if self.map.as_ref().is_none_or(|map| map.len() < bytes) {
            // The old memory goes first; nothing in it is worth copying.
            self.map = None;
            // From an eighth of a large page on, whole large pages: a system aligns maps of such a length to them.
            let whole = if bytes < LARGE_PAGE / 8 { bytes } else { bytes.next_multiple_of(LARGE_PAGE) };
            self.map =
                Some(pages(whole).unwrap_or_else(|_| std::panic::resume_unwind(Box::new(NoMemory { bytes: whole }))));
        }
        self.len = len;
    }

    /// Forgets all elements but the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes held, in use or not.
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
            std::panic::catch_unwind(|| Buffer::<u64>::default().set_len(1 << 57)).expect_err("nobody has so much");
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
        // Others go; what is left stays what it was.
        all.swap_remove(0);
        let last = Pages::new(1000).expect("memory");
        assert!(last.iter().all(|byte| *byte == 0), "new memory was nobody's before");
        for (pages, value) in all.iter().zip([6, 2, 3, 4, 5]) {
            assert!(pages.iter().all(|byte| *byte == value), "{value}");
        }
    }
}
