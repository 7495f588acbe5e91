//! Memory for what tenants make the process keep: each has a share that it always gets, and
//! beyond it gets more for as long as there is some left.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What a tenant gets whatever the others have: room for about thirty machine deployments.
pub const SHARE_BYTES: usize = 1 << 20;

/// What the process has without any tenant: docs/capacity.md measures 23 MiB.
const ALONE_BYTES: usize = 32 << 20;
/// Kept free, as a part of all: pages and documents on their way, and what the allocator does not
/// give back.
const RESERVE_PART: usize = 4;
/// What is kept takes at most this many times what it is charged with.
const ALLOCATED_PER_CHARGED: usize = 2;

/// Memory for what tenants make the process keep.
#[derive(Debug)]
pub struct Memory {
    bytes_max: usize,
    /// What all shares hold together; more than `bytes_max` where many have what is their own.
    held: AtomicUsize,
}

impl Memory {
    /// As much as anybody asks for.
    pub const fn unlimited() -> Self {
        Self {
            bytes_max: usize::MAX,
            held: AtomicUsize::new(0),
        }
    }

    /// What a process has for tenants that may take `limit` bytes, of which `aside` are for
    /// something else.
    pub const fn within(limit: usize, aside: usize) -> Self {
        let spent = ALONE_BYTES + aside + limit / RESERVE_PART;
        Self {
            bytes_max: limit.saturating_sub(spent) / ALLOCATED_PER_CHARGED,
            held: AtomicUsize::new(0),
        }
    }

    /// What all tenants hold together.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// What all tenants may hold together, where somebody wants more than its share.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

/// What one tenant holds. It is given back when dropped.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Share {
    /// Nothing yet.
    pub fn of(memory: &Arc<Memory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Holds this many bytes from now on, unless that is more than before, and than the tenant's
    /// share, and than there is. Tells whether it does.
    pub fn hold(&mut self, bytes: usize) -> bool {
        let memory = &self.memory;
        let others = |held: usize| held.saturating_sub(self.bytes);
        let changed = memory
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                let held_then = others(held).saturating_add(bytes);
                let is_ours = bytes <= self.bytes.max(SHARE_BYTES);
                (is_ours || held_then <= memory.bytes_max).then_some(held_then)
            });
        if changed.is_ok() {
            self.bytes = bytes;
        }
        changed.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_tenant_gets_its_share_whatever_others_have() {
        let memory = Arc::new(Memory::within(64 * MIB, 8 * MIB));
        assert_eq!(memory.bytes_max(), 4 * MIB);
        let mut greedy = Share::of(&memory);
        assert!(greedy.hold(4 * MIB) && !greedy.hold(4 * MIB + 1));
        let mut modest: Vec<Share> = (0..8).map(|_| Share::of(&memory)).collect();
        assert!(modest.iter_mut().all(|share| share.hold(SHARE_BYTES)));
        assert!(!modest.iter_mut().any(|share| share.hold(SHARE_BYTES + 1)));
        assert_eq!(memory.held(), 12 * MIB);
        // What is held stays, and may become less.
        assert!(greedy.hold(4 * MIB) && greedy.hold(3 * MIB) && !greedy.hold(4 * MIB));
        drop((greedy, modest));
        assert_eq!(memory.held(), 0);
        assert!(Share::of(&memory).hold(4 * MIB));
    }

    #[test]
    fn a_small_limit_leaves_everybody_its_share() {
        let memory = Arc::new(Memory::within(16 * MIB, 128 * MIB));
        let mut share = Share::of(&memory);
        assert!(share.hold(SHARE_BYTES) && !share.hold(SHARE_BYTES + 1));
        assert!(Share::of(&Arc::new(Memory::unlimited())).hold(usize::MAX / 2));
    }
}
