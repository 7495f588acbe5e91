//! One virtual machine: QEMU without hardware virtualization, which not every place has. What it
//! writes to its disk is forgotten when it ends; a reboot keeps it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use tokio::time::Instant;

use super::controller::NODE_ADDRESS;
use super::images::{Image, Images};
use super::program;
use super::shell::Shell;
use crate::control_plane::{Component, Process};

/// Linux 6.12 ends in a double fault on an emulated processor with `cx16`.
const PROCESSOR: &str = "Nehalem,-cx16";
const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Params<'a> {
    /// The name that it gets from the provider.
    pub name: &'a str,
    /// Where its files are; the folder is made.
    pub folder: PathBuf,
    /// All disks.
    pub images: &'a Images,
    /// The disk that it boots from.
    pub image: Image,
    /// What the provider hands to cloud-init.
    pub user_data: &'a str,
    /// What its clock says when it is powered on, such as `2025-11-26T12:00:00`; else the time.
    pub clock: Option<&'a str>,
}

/// A running machine. Dropping it is pulling its plug.
pub struct Machine {
    name: String,
    folder: PathBuf,
    powered_on: Instant,
    process: Process,
}

impl Machine {
    /// Powers it on.
    ///
    /// # Errors
    ///
    /// When its files cannot be written, or QEMU does not start.
    pub fn power_on(params: &Params<'_>) -> anyhow::Result<Self> {
        let Params { name, folder, .. } = params;
        // What an earlier machine of this name has left is not this one's.
        if folder.exists() {
            std::fs::remove_dir_all(folder).context("removing an earlier machine's files")?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        write_seed(params)?;
        let component = Component {
            name: "qemu",
            flags: flags(params),
        };
        let process = Process::spawn(Path::new(PROGRAM), component, folder)
            .with_context(|| format!("starting {PROGRAM}: `.ci/needs nodes` installs it"))?;
        Ok(Self {
            name: (*name).to_owned(),
            folder: folder.clone(),
            powered_on: Instant::now(),
            process,
        })
    }

    /// The name that it got from the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was powered on.
    pub fn powered_on(&self) -> Instant {
        self.powered_on
    }

    /// Pulls its plug, and returns when it is gone.
    ///
    /// # Errors
    ///
    /// When the system cannot say that it is gone.
    pub async fn power_off(self) -> anyhow::Result<()> {
        Ok(self.process.stop().await?)
    }

    /// Everything that it has shown on its console so far.
    pub fn console(&self) -> String {
        // Before its first line there is no file.
        let bytes = std::fs::read(self.folder.join("console.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    /// An error if QEMU has ended by itself.
    ///
    /// # Errors
    ///
    /// With what QEMU said.
    pub fn check(&mut self) -> anyhow::Result<()> {
        Ok(self.process.check()?)
    }

    /// A root shell in it, on its second serial port.
    ///
    /// # Errors
    ///
    /// When QEMU does not offer the port.
    pub async fn shell(&self) -> anyhow::Result<Shell> {
        Shell::connect(&self.folder.join("shell.sock")).await
    }
}

/// The disk that cloud-init finds its data on.
#[expect(
    clippy::disallowed_methods,
    reason = "runs the developer's own programs"
)]
fn write_seed(params: &Params<'_>) -> anyhow::Result<()> {
    let Params {
        name,
        folder,
        user_data,
        ..
    } = params;
    let meta_data = format!("instance-id: {name}\nlocal-hostname: {name}\n");
    for (file, text) in [("user-data", *user_data), ("meta-data", &meta_data)] {
        std::fs::write(folder.join(file), text).with_context(|| format!("writing {file}"))?;
    }
    let mut command = Command::new("genisoimage");
    command
        .args([
            "-quiet", "-output", "seed.iso", "-volid", "cidata", "-joliet", "-rock",
        ])
        .args(["user-data", "meta-data"])
        .current_dir(folder);
    program::run(&mut command)
}

fn flags(params: &Params<'_>) -> Vec<String> {
    let file = |name| params.images.file(params.image, name).display().to_string();
    let flags = [
        ("-name", params.name.to_owned()),
        ("-machine", "q35".to_owned()),
        ("-accel", "tcg,thread=multi".to_owned()),
        ("-cpu", PROCESSOR.to_owned()),
        ("-smp", "2".to_owned()),
        ("-m", "2048".to_owned()),
        ("-display", "none".to_owned()),
        ("-kernel", file("vmlinuz")),
        ("-initrd", file("initrd.img")),
        (
            "-append",
            "root=LABEL=root rw console=ttyS0 mitigations=off".to_owned(),
        ),
        (
            "-drive",
            format!(
                "file={},format=raw,if=virtio,snapshot=on,cache=unsafe",
                file("disk.img")
            ),
        ),
        (
            "-drive",
            "file=seed.iso,format=raw,if=virtio,readonly=on".to_owned(),
        ),
        (
            "-netdev",
            format!("user,id=n,hostfwd=tcp:{NODE_ADDRESS}:10250-:10250"),
        ),
        ("-device", "virtio-net-pci,netdev=n".to_owned()),
        ("-device", "virtio-rng-pci".to_owned()),
        ("-rtc", format!("base={}", params.clock.unwrap_or("utc"))),
        ("-serial", "file:console.log".to_owned()),
        ("-serial", "unix:shell.sock,server=on,wait=off".to_owned()),
    ];
    let pairs = flags.into_iter();
    std::iter::once("-nodefaults".to_owned())
        .chain(pairs.flat_map(|(flag, value)| [flag.to_owned(), value]))
        .collect()
}
