//! Machines that become nodes, from what the manager's real binary has written for them: one site
//! with everything, and the cases that are tried on it.

mod site;

use std::path::PathBuf;
use std::time::Duration;

use crate::demo::screen::{Look, Screen};
use crate::machine::{Image, Images, Progress};

pub use self::site::Site;

/// Three times what a machine takes on two processors that nothing else uses.
const JOIN_TIMEOUT: Duration = Duration::from_mins(20);

/// What is needed to try anything.
#[derive(Debug)]
pub struct Params {
    /// The `osm` program.
    pub osm: PathBuf,
    /// Disks and the mirror's files.
    pub images: Images,
    /// The disk that machines boot from.
    pub image: Image,
    /// Where everything is printed.
    pub screen: Screen,
}

/// Boots one machine, and waits until it is a Ready node.
///
/// # Errors
///
/// When it does not come that far.
pub async fn join(params: &Params) -> anyhow::Result<()> {
    let screen = params.screen;
    let mut site = Box::pin(Site::start(params)).await?;
    let mut machine = site.power_on(params.image, "virtual-1").await?;
    screen.heading("The machine virtual-1, seconds after power on");
    let mut progress = Progress::new(site.worker_client().await?, move |reached| {
        let after = format!("{:6.0}", reached.after.as_secs_f64());
        screen.print(&format!(
            "{}  {}",
            screen.paint(Look::Dim, &after),
            reached.stage
        ));
    });
    progress
        .until(&mut machine, "node Ready", JOIN_TIMEOUT)
        .await?;
    for request in site.mirror().requests() {
        screen.print(&request);
    }
    drop(machine);
    site.end().await
}
