//! Memory that packed layouts and activations live in: aligned to pages, so that no vector straddles two cache lines, and kept from one use
//! to the next.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::{AnyBitPattern, NoUninit};
use memmap2::MmapMut;

/// Zeroed memory of `bytes` bytes that begins on a page. Nothing is resident before it is touched.
pub(crate) fn pages(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes.max(1))?;
    // Large pages spare the walk through page tables, a tenth of a decoding step's time. No page size changes a result, and a system
    // without them says no.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
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
    /// Where the memory cannot be had, as any allocation does.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let bytes = len * size_of::<T>();
        if self.map.as_ref().is_none_or(|map| map.len() < bytes) {
            // The old memory goes first; nothing in it is worth copying.
            self.map = None;
            self.map = Some(pages(bytes).expect("memory for activations"));
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
