//! The bootstrap script of a machine, attempt by attempt: its `sleep` is a program that notes the
//! delay and what the attempt has written, and waits until the test has taken a fault away.

use crate::boot::machine::{Machine, Network, Running, Stopped};

/// In place of waiting for the seconds that it is told.
const SLEEP: &str = r#"#!/bin/bash
echo "$1" >> /mnt/delays
attempt="$(wc -l < /mnt/delays)"
/mnt/changed > "/mnt/changed-$attempt"
cp /mnt/output "/mnt/output-$attempt.new"
mv "/mnt/output-$attempt.new" "/mnt/output-$attempt"
until [ -e "/mnt/repair-$attempt" ]; do /bin/sleep 0.05; done
bash "/mnt/repair-$attempt"
/mnt/begin
"#;

/// What the bootstrap unit would start, twice, as after a restart of the machine.
const BOOTSTRAP: &str = r#"
cat > /mnt/changed << 'END'
#!/bin/bash
find / /run -xdev -newer /mnt/begun -type f
END
cat > /mnt/begin << 'END'
#!/bin/bash
touch /mnt/begun
# A file's time is that of the last tick: what is written from here on is of a later one.
/bin/sleep 0.05
END
chmod 755 /mnt/changed /mnt/begin
start="$(sed -n 's/^ExecStart=//p' /etc/systemd/system/bootstrap.service)"
/mnt/begin
$start > /mnt/output 2>&1 || exit 1
cp /mnt/calls /mnt/calls-first
RESTART
/mnt/begin
$start > /mnt/output-second 2>&1 || exit 1
/mnt/changed > /mnt/changed-second
"#;

/// A machine that has booted, and tries to fetch.
pub struct Bootstrap {
    running: Running,
    attempts: usize,
    told: usize,
}

/// One failed attempt.
pub struct Attempt {
    pub output: String,
    /// The files that it wrote and left.
    pub changed: String,
}

impl Bootstrap {
    /// Starts the machine. Two scripts stand for what comes before its bootstrap unit, and for
    /// what happens on it before the unit starts again.
    pub fn start(machine: Machine, before: &str, restart: &str) -> Self {
        machine.put_program("/usr/local/bin/sleep", SLEEP);
        let script = BOOTSTRAP.replace("RESTART", restart);
        Self {
            running: machine.start(Network::Shared, &format!("{before}{script}")),
            attempts: 0,
            told: 0,
        }
    }

    /// Waits until one more attempt has failed.
    pub fn next_failure(&mut self) -> Attempt {
        self.attempts += 1;
        let all = self.running.wait_for(&format!("output-{}", self.attempts));
        let output = all.get(self.told..).unwrap_or_default().to_owned();
        self.told = all.len();
        let changed = self.running.wait_for(&format!("changed-{}", self.attempts));
        Attempt { output, changed }
    }

    /// Lets the machine try again, after a script on it.
    pub fn repair(&self, script: &str) {
        let name = format!("repair-{}", self.attempts);
        self.running.share(&name, script.as_bytes());
    }

    /// Waits until it has succeeded.
    pub fn finish(self) -> Stopped {
        self.running.stop()
    }
}
