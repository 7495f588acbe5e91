//! The memory budget for objects that are kept on behalf of tenants: each tenant has a guaranteed
//! part, and all tenants share what the process has beyond that.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The memory that every tenant is guaranteed for its machine deployments, and again for the
/// profiles of its namespace, in bytes: about thirty of either.
pub const GUARANTEED_BYTES: usize = 1 << 20;

/// The memory that every tenant is guaranteed for the metadata of its Secrets, and again for that
/// of its configs, in bytes: a few hundred of either.
pub const GUARANTEED_CACHE_BYTES: usize = 256 << 10;

/// The memory of a process without tenants, in bytes. docs/capacity.md measures 28 MiB.
const BASELINE_BYTES: usize = 32 << 20;
/// One part in this many is kept free for requests in flight and allocator fragmentation.
const RESERVE_PART: usize = 4;
/// An object takes at most this many times the bytes that it is charged with.
const ALLOCATED_PER_CHARGED: usize = 2;

/// The memory budget of a process.
#[derive(Debug)]
pub struct Memory {
    bytes_max: usize,
    /// The sum of all reservations. Exceeds `bytes_max` if many tenants use their guaranteed part.
    reserved: AtomicUsize,
}

impl Default for Memory {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl Memory {
    /// Creates a budget without a limit.
    pub const fn unlimited() -> Self {
        Self {
            bytes_max: usize::MAX,
            reserved: AtomicUsize::new(0),
        }
    }

    /// Creates the budget of a process that may use `limit` bytes, of which child processes may use
    /// `children`.
    pub const fn within(limit: usize, children: usize) -> Self {
        let unavailable = BASELINE_BYTES + children + limit / RESERVE_PART;
        Self {
            bytes_max: limit.saturating_sub(unavailable) / ALLOCATED_PER_CHARGED,
            reserved: AtomicUsize::new(0),
        }
    }

    /// Returns the sum of all reservations, in bytes.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns the sum up to which reservations beyond the guaranteed part are granted, in bytes.
    /// `None` without a limit.
    pub fn limit(&self) -> Option<usize> {
        (self.bytes_max < usize::MAX).then_some(self.bytes_max)
    }
}

/// The memory that a tenant has reserved for one purpose. Dropping it releases the memory.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<Memory>,
    guaranteed: usize,
    bytes: usize,
}

impl Reservation {
    /// Creates an empty reservation that may always grow to [`GUARANTEED_BYTES`].
    pub fn guaranteed(memory: &Arc<Memory>) -> Self {
        Self::new(memory, GUARANTEED_BYTES)
    }

    /// Creates an empty reservation that may always grow to [`GUARANTEED_CACHE_BYTES`].
    pub fn for_cache(memory: &Arc<Memory>) -> Self {
        Self::new(memory, GUARANTEED_CACHE_BYTES)
    }

    /// Creates an empty reservation that grows only while memory is left, for data that can be
    /// created again.
    pub fn surplus(memory: &Arc<Memory>) -> Self {
        Self::new(memory, 0)
    }

    fn new(memory: &Arc<Memory>, guaranteed: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            guaranteed,
            bytes: 0,
        }
    }

    /// Resizes the reservation. Returns `false`, and changes nothing, if it would grow beyond what
    /// is guaranteed and no memory is left.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let memory = &self.memory;
        let is_granted = bytes <= self.bytes.max(self.guaranteed);
        let resized = memory
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                let total = reserved.saturating_sub(self.bytes).saturating_add(bytes);
                (is_granted || total <= memory.bytes_max).then_some(total)
            })
            .is_ok();
        if resized {
            self.bytes = bytes;
        }
        resized
    }

    /// Resizes the reservation even if no memory is left.
    pub fn force_resize(&mut self, bytes: usize) {
        let reserved = &self.memory.reserved;
        if let Some(more) = bytes.checked_sub(self.bytes) {
            reserved.fetch_add(more, Ordering::Relaxed);
        } else {
            reserved.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.force_resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn guaranteed_memory_is_always_granted() {
        let memory = Arc::new(Memory::within(64 * MIB, 8 * MIB));
        assert_eq!(memory.limit(), Some(4 * MIB));
        let mut greedy = Reservation::guaranteed(&memory);
        assert!(greedy.resize(4 * MIB) && !greedy.resize(4 * MIB + 1));
        let mut modest: Vec<Reservation> =
            (0..8).map(|_| Reservation::guaranteed(&memory)).collect();
        assert!(modest.iter_mut().all(|one| one.resize(GUARANTEED_BYTES)));
        assert!(
            !modest
                .iter_mut()
                .any(|one| one.resize(GUARANTEED_BYTES + 1))
        );
        assert_eq!(memory.reserved(), 12 * MIB);
        // An existing reservation stays, and may shrink.
        assert!(greedy.resize(4 * MIB) && greedy.resize(3 * MIB) && !greedy.resize(4 * MIB));
        drop((greedy, modest));
        assert_eq!(memory.reserved(), 0);
        assert!(Reservation::guaranteed(&memory).resize(4 * MIB));
    }

    #[test]
    fn a_small_limit_still_grants_guaranteed_memory() {
        let memory = Arc::new(Memory::within(16 * MIB, 128 * MIB));
        let mut share = Reservation::guaranteed(&memory);
        assert!(share.resize(GUARANTEED_BYTES) && !share.resize(GUARANTEED_BYTES + 1));
        assert!(Reservation::guaranteed(&Arc::new(Memory::unlimited())).resize(usize::MAX / 2));
    }
}
