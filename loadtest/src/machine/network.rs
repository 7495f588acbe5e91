//! Re-executes this program in a network namespace with loopback only. Its addresses collide with
//! nobody's, and nothing outside is reached from there.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;

use super::controller::NODE_ADDRESS;
use super::program;

/// What QEMU's network needs here: the API server reaches a machine's kubelet under the machine's
/// own address, which QEMU forwards. Its packets must not seem to come from that address, or the
/// machine would drop them.
fn commands() -> [String; 3] {
    [
        "link set lo up".to_owned(),
        format!("address replace {NODE_ADDRESS}/32 dev lo"),
        format!(
            "route replace local {NODE_ADDRESS} dev lo table local proto kernel scope host \
             src 127.0.0.1"
        ),
    ]
}

/// Says to the second start that it is one: a new network may have more than loopback in it.
const MARK: &str = "OSM_IN_OWN_NETWORK";

/// Whether [`enter`] has started this process again.
pub fn is_entered() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Makes this a process in a network of its own: outside, it replaces itself by itself with the
/// same arguments. Call it before any thread is started.
///
/// # Errors
///
/// When `unshare` or `ip` fails.
pub fn enter() -> anyhow::Result<()> {
    if !is_entered() {
        start_again_in_own()?;
    }
    set_up()
}

/// Returns with an error alone.
#[expect(clippy::disallowed_methods, reason = "the process starts itself again")]
fn start_again_in_own() -> anyhow::Result<()> {
    let this = std::env::current_exe().context("finding this program")?;
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let mut command = Command::new("unshare");
    command.env(MARK, "1").arg("--net");
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .arg("--")
        .arg(this)
        .args(std::env::args_os().skip(1));
    Err(command.exec()).context("running unshare")
}

#[expect(
    clippy::disallowed_methods,
    reason = "runs the developer's own programs"
)]
fn set_up() -> anyhow::Result<()> {
    for line in commands() {
        program::run(Command::new("ip").args(line.split_whitespace()))
            .with_context(|| format!("ip {line}"))?;
    }
    Ok(())
}

/// What stands before a command that a person runs in the same network.
pub fn prefix() -> String {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let user = if is_initial {
        ""
    } else {
        "--user --preserve-credentials "
    };
    format!("nsenter {user}--net --target {} ", std::process::id())
}
