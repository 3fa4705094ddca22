//! The plugin's memory. A verb lives for half a millisecond and needs some hundred kilobytes, so it gets them from the
//! program's own image, piece by piece, and gives back what it took last only: a fifth of an ADD's instructions less than
//! with an allocator that keeps books. Who needs more gets that from dlmalloc.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::GlobalDlmalloc;

/// Several times what an ADD takes. What is not touched costs nothing.
const SIZE: usize = 1 << 20;

/// The first megabyte, and dlmalloc behind it.
#[derive(Debug)]
pub struct Heap {
    region: UnsafeCell<MaybeUninit<[u8; SIZE]>>,
    /// How much of it was given out, from its beginning.
    used: AtomicUsize,
}

// SAFETY: a byte of the region belongs to whoever moved `used` past it, and that is done by one thread at a time.
#[expect(unsafe_code, reason = "the region is handed out, byte by byte, to one owner each")]
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty one.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "its one owner is a static, which needs a constant")]
    pub const fn new() -> Self {
        let region = UnsafeCell::new(MaybeUninit::uninit());
        Self { region, used: AtomicUsize::new(0) }
    }

    fn base(&self) -> *mut u8 {
        self.region.get().cast()
    }

    /// Where in the region something is.
    fn offset(&self, pointer: *mut u8) -> Option<usize> {
        let offset = pointer.addr().wrapping_sub(self.base().addr());
        (offset < SIZE).then_some(offset)
    }

    /// Takes the region from where it is free to the end of what `layout` needs. Answers where that begins.
    fn take(&self, layout: Layout) -> Option<usize> {
        let mut used = self.used.load(Ordering::Acquire);
        loop {
            let start = (self.base().addr() + used).checked_next_multiple_of(layout.align())? - self.base().addr();
            let end = start.checked_add(layout.size()).filter(|end| *end <= SIZE)?;
            match self.used.compare_exchange_weak(used, end, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(start),
                Err(now) => used = now,
            }
        }
    }

    /// Moves the end of what was taken last; nothing is done where something was taken since. Answers whether it was.
    fn resize(&self, start: usize, from: usize, to: usize) -> bool {
        let Some(end) = start.checked_add(to).filter(|end| *end <= SIZE) else { return false };
        self.used.compare_exchange(start + from, end, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

// SAFETY: what is given out is within the region, aligned, and no part of it is given out again before it was given back:
// `used` only grows, but for its owner who gives back the last piece. What is not in the region is dlmalloc's.
#[expect(unsafe_code, reason = "an allocator's interface")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            // SAFETY: it is within the region.
            Some(start) => unsafe { self.base().add(start) },
            // SAFETY: the caller's promise is dlmalloc's condition.
            None => unsafe { GlobalDlmalloc.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match self.offset(pointer) {
            Some(start) => {
                self.resize(start, layout.size(), 0);
            }
            // SAFETY: it is not from the region, so it is from dlmalloc.
            None => unsafe { GlobalDlmalloc.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = self.offset(pointer) else {
            // SAFETY: as above.
            return unsafe { GlobalDlmalloc.realloc(pointer, layout, size) };
        };
        if self.resize(start, layout.size(), size) || size <= layout.size() {
            return pointer;
        }
        // SAFETY: the caller promises that this size with this alignment is a layout.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both have at least as many bytes, and they do not overlap: the old piece is not given back yet.
            unsafe { new.copy_from_nonoverlapping(pointer, layout.size()) };
        }
        new
    }
}

#[cfg(test)]
mod tests;
