//! The scripts that run for as long as a machine does, or until another script succeeds.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use crate::{
    cases::case,
    programs::{command, run, text},
    root::Root,
};

const SUPERVISE: &str = "/opt/bin/supervise.sh";

#[test]
fn supervise_waits_longer_each_time_and_keeps_a_bounded_log() {
    let root = Root::new();
    root.place(case("osp-ubuntu/aws/1.34.1"), SUPERVISE);
    root.install(
        "attempt",
        "#!/bin/bash\nseq -f 'line %g' 100000\n\
         [ \"$(wc -l < \"${0%/bin/*}/delays\")\" -ge 10 ]\n",
    );
    let output = run(&mut root.bash(&[SUPERVISE, "bin/attempt"]));
    assert!(output.status.success(), "{}", text(&output));
    let delays = root.read("delays");
    let delays: Vec<_> = delays.lines().collect();
    assert_eq!(
        delays,
        ["2", "4", "8", "16", "32", "64", "128", "256", "300", "300"]
    );
    let log = String::from_utf8(output.stdout).expect("the log is text");
    assert_eq!(log.lines().count(), 11 * 250 + 10);
    assert!(log.contains("line 200\n") && log.contains("line 100000\n"));
    assert!(!log.contains("line 201\n"));
}

#[test]
fn the_stages_of_an_attempt_are_passed_on_before_it_ends_however_much_it_prints() {
    let root = Root::new();
    root.place(case("osp-ubuntu/aws/1.34.1"), SUPERVISE);
    // It ends when its input does.
    root.install(
        "attempt",
        "#!/bin/bash\necho begun\nseq 1000\necho 'attempt: a stage'\ncat\n",
    );
    let mut running = root
        .bash(&[SUPERVISE, "bin/attempt"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is there");
    let input = running.stdin.take();
    let output = BufReader::new(running.stdout.take().expect("it is piped"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines() {
            // The test may have failed already.
            let _ = sender.send(line.expect("it is text"));
        }
    });
    let next = || lines.recv_timeout(Duration::from_mins(1));
    let first = next();
    for _ in 0..199 {
        drop(next());
    }
    let stage = next();
    drop(input);
    let ended = running.wait().expect("it can be waited for");
    assert_eq!(first.as_deref(), Ok("begun"));
    assert_eq!(stage.as_deref(), Ok("attempt: a stage"));
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_service_is_restarted_a_minute_after_it_last_answered() {
    let root = Root::new();
    root.place(case("osp-ubuntu/aws/1.34.1"), "/opt/bin/health-monitor.sh");
    // Functions of its own shell, whose clock they set: what hangs takes as long as it may.
    let stubs = "sleep() { SECONDS=$((SECONDS + $1)); }
        curl() { SECONDS=$((SECONDS + 10)); return $((SECONDS > 100)); }
        timeout() { SECONDS=$((SECONDS + 20)); return $((SECONDS > 100)); }
        systemctl() { echo \"$1 $2 at $SECONDS\"; exit; }
        export -f sleep curl timeout systemctl
        exec bash \"$@\"";
    for (service, answered, most) in [("kubelet", 100, 20), ("containerd", 90, 30)] {
        let output = run(command("bash")
            .args(["-c", stubs, "stubs"])
            .arg(root.at("/opt/bin/health-monitor.sh"))
            .arg(service));
        let said = String::from_utf8_lossy(&output.stdout);
        let restarted = format!("restart {service}.service at ");
        let at = said.lines().find_map(|line| line.strip_prefix(&*restarted));
        let at: u32 = at.expect(&said).parse().expect("it is a number");
        let after = at - answered;
        assert!((60..60 + most).contains(&after), "{service}: {after} s");
    }
}

#[test]
fn a_start_waits_for_an_answer_and_otherwise_says_the_last_that_the_service_did() {
    let root = Root::new();
    root.place(case("osp-ubuntu/aws/1.34.1"), "/opt/bin/health-monitor.sh");
    for (answers_after, expected) in [(30, ""), (9_999, "kubelet does not answer: unknown flag\n")]
    {
        let stubs = format!(
            "sleep() {{ SECONDS=$((SECONDS + $1)); }}
             curl() {{ return $((SECONDS < {answers_after})); }}
             systemctl() {{ [ \"$*\" = 'restart kubelet.service' ]; }}
             journalctl() {{ echo unknown flag; }}
             export -f sleep curl systemctl journalctl
             exec bash \"$@\""
        );
        let output = run(command("bash")
            .args(["-c", &stubs, "stubs"])
            .arg(root.at("/opt/bin/health-monitor.sh"))
            .args(["kubelet", "start"]));
        assert_eq!(output.status.success(), expected.is_empty());
        assert_eq!(text(&output), expected);
    }
}
