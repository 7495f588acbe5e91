//! The behaviour of the whole manager, against the API servers of either world: the scenarios are
//! the same, and `tests/behaviour.rs` and `tests/real_behaviour.rs` run them.

mod audit;
mod fixtures;
mod process;
pub mod serving;
mod server;
mod stage;
mod wait;
mod world;

use std::sync::LazyLock;

use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

pub use self::server::Kind;
use self::world::World;

/// One runtime for all tests of a binary: clients and servers in memory live on it, and the
/// clusters are shared.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // A second provider may be linked: the choice is made before the first use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the machine has threads left")
});
static WORLD: OnceCell<World> = OnceCell::const_new();

/// Runs a scenario in the world of this binary.
pub fn run<F: Future<Output = ()>>(kind: Kind, scenario: impl FnOnce(&'static World) -> F) {
    RUNTIME.block_on(async {
        let world = WORLD.get_or_init(|| World::start(kind)).await;
        scenario(world).await;
    });
}

/// A test for each scenario: the one list of them.
macro_rules! scenarios {
    ($kind:expr) => {
        suite::tests! { $kind =>
            serving::tenants_that_register_at_run_time_are_engaged_and_served_each_in_its_own_clusters,
        }
    };
}

macro_rules! tests {
    ($kind:expr => $($theme:ident::$name:ident,)+) => {
        $(
            #[test]
            fn $name() {
                $crate::suite::run($kind, $crate::suite::$theme::$name);
            }
        )+
    };
}

pub(crate) use {scenarios, tests};
