//! What a process takes, from outside of it: memory, processor time, descriptors, threads, the
//! series on its metrics page, and the time that its pages take.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

/// Linux tells processor time in hundredths of a second, whatever the kernel's own tick.
const TICK: Duration = Duration::from_millis(10);
/// Where `/livez` is asked from. Connections are limited by their source, and attacks have another.
const PROBER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Resident memory in KiB that no other process and no file shares.
    pub private_kib: u64,
    /// Resident memory in KiB, of which what several processes share counts for each in part: the
    /// sum over processes is what they take together.
    pub proportional_kib: u64,
    /// Processor time since its start, in milliseconds.
    pub cpu_milliseconds: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Lines of its metrics page that are no comments.
    pub series: u64,
    /// Tasks of its runtime, as its metrics page says.
    pub tasks: u64,
}

impl Sample {
    /// Looks at a process whose admin page is at an address.
    pub async fn take(pid: u32, admin: &str) -> anyhow::Result<Self> {
        // The page first: what it takes is then in the sample, in each one.
        let page = page(admin, "/metrics").await?;
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        let tasks = sum(&page, "osm_tasks")?;
        anyhow::ensure!(tasks > 0, "{admin} has no osm_tasks");
        Ok(Self {
            series: u64::try_from(series)?,
            tasks,
            ..Self::of(pid)?
        })
    }

    /// Looks at any process, without a page.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let memory = read("smaps_rollup")?;
        let stat = read("stat")?;
        let status = read("status")?;
        let count = |name: &str| std::fs::read_dir(folder.join(name)).map(Iterator::count);
        Ok(Self {
            resident_kib: field(&memory, "Rss:")?,
            private_kib: field(&memory, "Private_Dirty:")?,
            proportional_kib: field(&memory, "Pss:")?,
            cpu_milliseconds: cpu_milliseconds(&stat).context("reading the processor time")?,
            threads: field(&status, "Threads:")?,
            descriptors: u64::try_from(count("fd").context("counting descriptors")?)?,
            ..Self::default()
        })
    }

    /// Several processes as one; each counts for its share of what they have in common.
    #[must_use]
    pub fn together(samples: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| samples.iter().map(of).sum();
        Self {
            resident_kib: sum(|one| one.resident_kib),
            private_kib: sum(|one| one.private_kib),
            proportional_kib: sum(|one| one.proportional_kib),
            cpu_milliseconds: sum(|one| one.cpu_milliseconds),
            threads: sum(|one| one.threads),
            descriptors: sum(|one| one.descriptors),
            series: sum(|one| one.series),
            tasks: sum(|one| one.tasks),
        }
    }
}

/// The number behind a name.
fn field(text: &str, name: &str) -> anyhow::Result<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.with_context(|| format!("no {name}"))?
        .parse()
        .with_context(|| format!("{name} is no number"))
}

/// User and system time of `/proc/PID/stat`; the name before them may have spaces.
fn cpu_milliseconds(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let tick = u64::try_from(TICK.as_millis()).ok()?;
    Some((user + system) * tick)
}

/// The sum of a counter over all its labels.
pub async fn counter(admin: &str, name: &str) -> anyhow::Result<u64> {
    sum(&page(admin, "/metrics").await?, name)
}

fn sum(page: &str, name: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    for line in page.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        if rest.starts_with([' ', '{']) {
            let value = rest.rsplit_once(' ').map(|(_, value)| value);
            let value: u64 = value.unwrap_or_default().parse().context(line.to_owned())?;
            sum += value;
        }
    }
    Ok(sum)
}

/// How long the metrics take to arrive.
pub async fn metrics_page(admin: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    page(admin, "/metrics").await?;
    Ok(begun.elapsed())
}

/// How long the fleet page takes to arrive, with this many tenants on it.
pub async fn fleet_page(admin: &str, tenants: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let page = page(admin, "/fleet").await?;
    let took = begun.elapsed();
    let rows = page.matches("<tr data-state=").count();
    anyhow::ensure!(rows == tenants, "the fleet page has {rows} rows");
    Ok(took)
}

/// The text of a page.
pub(super) async fn page(admin: &str, path: &str) -> anyhow::Result<String> {
    let stream = TcpStream::connect(admin).await;
    request(stream.context("connecting")?, (admin, path)).await
}

/// Returns how long `/livez` takes for a prober with an address of its own, as a kubelet has one.
pub(super) async fn probe(admin: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((PROBER, 0)))?;
    let stream = socket.connect(admin.parse()?).await;
    request(stream.context("connecting")?, (admin, "/livez")).await?;
    Ok(begun.elapsed())
}

async fn request(mut stream: TcpStream, (admin, path): (&str, &str)) -> anyhow::Result<String> {
    let ask = async {
        let request = format!("GET {path} HTTP/1.0\r\nhost: {admin}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = ask.await.with_context(|| format!("reading {path}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    anyhow::ensure!(head.contains(" 200 "), "{path} answers {head}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_stands_behind_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 1 1 0 -1 0 10 0 0 0 25 17 0 0 20 0 3 0 1 1 1";
        assert_eq!(cpu_milliseconds(stat), Some(420));
    }

    #[test]
    fn a_counter_is_summed_over_its_labels_and_no_other_name() {
        let page = "# TYPE a counter\na_total{b=\"x\"} 2\na_total{b=\"y\"} 3\na_total_more 9\n";
        assert_eq!(sum(page, "a_total").unwrap(), 5);
        assert_eq!(sum(page, "b_total").unwrap(), 0);
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let text = "Rss:                5000 kB\nPss:                4000 kB\n";
        assert_eq!(field(text, "Pss:").unwrap(), 4000);
        assert!(field(text, "Swap:").is_err());
    }
}
