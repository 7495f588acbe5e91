//! Where registrations come from.

/// An inventory: where the Secrets that register worker clusters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inventory {
    /// An operator labels each Secret.
    Label,
    /// The Secrets of a KKP seed, one in the namespace of each user cluster.
    Kkp,
}
