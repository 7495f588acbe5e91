//! The scripts that run for as long as a machine does, or until another script succeeds.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use crate::{
    cases,
    programs::{command, run, text, write_program},
};

#[test]
fn supervise_waits_longer_each_time_and_keeps_a_bounded_log() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let at = |name: &str| folder.path().join(name);
    let case = cases::case("osp-ubuntu/aws/1.34.1");
    let supervise = case
        .bootstrap
        .texts
        .get("/opt/bin/supervise.sh")
        .expect("the script is there");
    fs::write(at("supervise.sh"), supervise).expect("a script can be written");
    write_program(
        &at("sleep"),
        "#!/bin/bash\necho \"$1\" >> \"$(dirname \"$0\")/delays\"\n",
    );
    write_program(
        &at("attempt"),
        "#!/bin/bash\nseq -f 'line %g' 100000\n\
         [ \"$(wc -l < \"$(dirname \"$0\")/delays\")\" -ge 10 ]\n",
    );
    fs::write(at("delays"), "").expect("a list can be written");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let output = run(command("bash")
        .env("PATH", path)
        .arg(at("supervise.sh"))
        .arg(at("attempt")));
    assert!(output.status.success(), "{}", text(&output));
    let delays = fs::read_to_string(at("delays")).expect("the delays were noted");
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
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let at = |name: &str| folder.path().join(name);
    let case = cases::case("osp-ubuntu/aws/1.34.1");
    let supervise = &case.bootstrap.texts["/opt/bin/supervise.sh"];
    fs::write(at("supervise.sh"), supervise).expect("a script can be written");
    // It ends when its input does.
    write_program(
        &at("attempt"),
        "#!/bin/bash\necho begun\nseq 1000\necho 'attempt: a stage'\ncat\n",
    );
    let mut running = command("bash")
        .arg(at("supervise.sh"))
        .arg(at("attempt"))
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
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let script = folder.path().join("health-monitor.sh");
    let case = cases::case("osp-ubuntu/aws/1.34.1");
    let monitor = &case.provisioning.texts["/opt/bin/health-monitor.sh"];
    fs::write(&script, monitor).expect("a script can be written");
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
            .arg(&script)
            .arg(service));
        let said = String::from_utf8_lossy(&output.stdout);
        let restarted = format!("restart {service}.service at ");
        let at = said.lines().find_map(|line| line.strip_prefix(&*restarted));
        let at: u32 = at.expect(&said).parse().expect("it is a number");
        let after = at - answered;
        assert!((60..60 + most).contains(&after), "{service}: {after} s");
    }
}
