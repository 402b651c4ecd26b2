//! The receive buffers, provided to the kernel through a ring that it takes them from (`io_uring_register_buf_ring(3)`).
//!
//! A buffer belongs to the kernel until a completion names it, and to us until [`Buffers::give_back`] (R9).

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::ring::Ring;

/// The only buffer group of a ring.
pub(super) const GROUP: u16 = 0;

/// Anonymous memory that a forked child does not get.
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is owned by the map alone and is not tied to a thread.
unsafe impl Send for Map {}

impl Map {
    fn new(len: usize) -> io::Result<Map> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping anywhere; nothing existing is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap does not map address zero unasked");
        let map = Map { start, len };
        // SAFETY: the range is exactly the mapping just made.
        if unsafe { libc::madvise(map.start.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(map)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a slice of it any more: slices borrow `Buffers`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The buffers of one ring.
pub(super) struct Buffers {
    /// What the kernel reads: `count` entries; the tail lies in the first one's reserved field.
    entries: Map,
    /// `count` buffers of `size` bytes.
    data: Map,
    count: u16,
    size: u32,
    /// Our side of the tail.
    tail: u16,
}

impl Buffers {
    /// Makes `count` buffers (a power of two) of `size` bytes and registers them with a ring.
    pub(super) fn new(ring: &Ring, count: u16, size: u32) -> io::Result<Buffers> {
        assert!(
            count.is_power_of_two() && count <= 1 << 15,
            "a buffer ring has 2^n entries, at most 32,768"
        );
        assert!(size > 0, "buffers have room");
        let entries = Map::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let data = Map::new(usize::from(count) * size as usize)?;
        let address = entries.start.as_ptr() as u64;
        // SAFETY: `entries` is page-aligned memory of exactly `count` entries that lives as long as the ring: `Uring`
        // drops the ring first.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(address, count, GROUP, 0)?
        };
        let mut buffers = Buffers {
            entries,
            data,
            count,
            size,
            tail: 0,
        };
        for index in 0..count {
            buffers.give_back(index);
        }
        Ok(buffers)
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The first `len` bytes of a buffer that the kernel has handed to us.
    pub(super) fn bytes(&self, index: u16, len: usize) -> &[u8] {
        assert!(
            index < self.count && len <= self.size as usize,
            "a buffer that we do not have"
        );
        let offset = usize::from(index) * self.size as usize;
        // SAFETY: in bounds of `data` by the assertion; mmap gave zeroed memory, so every byte is initialised; the
        // kernel does not write to a buffer between its completion and `give_back`, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.data.start.as_ptr().add(offset), len) }
    }

    /// Hands a buffer to the kernel.
    pub(super) fn give_back(&mut self, index: u16) {
        assert!(index < self.count, "a buffer that we do not have");
        let offset = usize::from(index) * self.size as usize;
        let base: *mut BufRingEntry = self.entries.start.as_ptr().cast();
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: `slot` is below `count`, so the entry is inside `entries`. The kernel reads only entries between its
        // head and the tail that is published below, and this one is not among them: each of the `count` buffers is
        // in the ring at most once, so there is a free entry. The setters touch address, length and number, not the
        // tail in the first entry's reserved field.
        unsafe {
            let entry = &mut *base.add(slot);
            entry.set_addr(self.data.start.as_ptr().add(offset) as u64);
            entry.set_len(self.size);
            entry.set_bid(index);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned u16 inside the first entry that the kernel reads concurrently; we only ever
        // access it as an atomic. Release makes the entry above visible before the tail that covers it.
        unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()).store(self.tail, Ordering::Release) };
    }

    /// In a forked child, whose copy of the mappings does not exist.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}
