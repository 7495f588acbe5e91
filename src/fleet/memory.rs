//! The memory budget for objects that are kept on behalf of tenants: each tenant has a guaranteed
//! part, and all tenants share what the process has beyond that.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The memory that every tenant is guaranteed, in bytes: about thirty machine deployments.
pub const GUARANTEED_BYTES: usize = 1 << 20;

/// The memory of a process without tenants, in bytes. docs/capacity.md measures 23 MiB.
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
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

/// The reservation of one tenant. Dropping it releases the memory.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Reservation {
    /// Creates an empty reservation.
    pub fn new(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Resizes the reservation. Returns `false`, and changes nothing, if it would grow beyond
    /// [`GUARANTEED_BYTES`] and no memory is left.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let memory = &self.memory;
        let is_granted = bytes <= self.bytes.max(GUARANTEED_BYTES);
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

    /// Resizes the reservation even beyond what is left.
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
        assert_eq!(memory.bytes_max(), 4 * MIB);
        let mut greedy = Reservation::new(&memory);
        assert!(greedy.resize(4 * MIB) && !greedy.resize(4 * MIB + 1));
        let mut modest: Vec<Reservation> = (0..8).map(|_| Reservation::new(&memory)).collect();
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
        assert!(Reservation::new(&memory).resize(4 * MIB));
    }

    #[test]
    fn a_small_limit_still_grants_guaranteed_memory() {
        let memory = Arc::new(Memory::within(16 * MIB, 128 * MIB));
        let mut share = Reservation::new(&memory);
        assert!(share.resize(GUARANTEED_BYTES) && !share.resize(GUARANTEED_BYTES + 1));
        assert!(Reservation::new(&Arc::new(Memory::unlimited())).resize(usize::MAX / 2));
    }
}
