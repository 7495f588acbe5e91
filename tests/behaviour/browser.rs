//! A browser without a screen: Chromium, which Debian has as `chromium-headless-shell`.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::server::ok;

/// Names under which systems have it.
const NAMES: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];
/// What a page may take to be shown.
const DEADLINE: std::time::Duration = std::time::Duration::from_mins(1);

/// What the machine prefers.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    Dark,
    Light,
}

/// A desk, a tablet and a telephone: the widths and heights of windows, in pixels.
pub const WINDOWS: [Window; 3] = [Window(1280, 640), Window(768, 900), Window(390, 844)];

/// The width and the height of a window, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Window(pub u32, pub u32);

/// What a page looks like once its script has run, as HTML.
pub async fn dom(url: &str, scheme: Scheme) -> String {
    show(url, (scheme, WINDOWS[0]), "--dump-dom").await
}

/// Writes a picture of a page.
pub async fn screenshot(url: &str, how: (Scheme, Window), path: &Path) {
    let picture = format!("--screenshot={}", path.display());
    show(url, how, &picture).await;
}

/// Returns the value of a script's expression on a page, given as HTML, in a window.
pub async fn measured(html: &str, window: Window, expression: &str) -> String {
    let measure = format!("<script>document.title = 'measured ' + ({expression})</script></html>");
    let folder = ok(tempfile::tempdir(), "there is room for a folder");
    let file = folder.path().join("page.html");
    // Without the header, no policy forbids this script.
    ok(
        std::fs::write(&file, html.replace("</html>", &measure)),
        "it is written",
    );
    let url = format!("file://{}", file.display());
    let shown = show(&url, (Scheme::Light, window), "--dump-dom").await;
    let measured = shown.split_once("<title>measured ").map(|(_, rest)| rest);
    let measured = measured.and_then(|rest| rest.split('<').next());
    measured.expect("the script has measured").to_owned()
}

async fn show(url: &str, (scheme, window): (Scheme, Window), how: &str) -> String {
    let profile = ok(tempfile::tempdir(), "there is room for a folder");
    let scheme = match scheme {
        Scheme::Dark => 0,
        Scheme::Light => 1,
    };
    let arguments = [
        "--headless",
        // It shows our own page alone, and its sandbox refuses to run as root.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        how,
    ];
    let shown = Command::new(program().await)
        .args(arguments)
        .arg(format!("--window-size={},{}", window.0, window.1))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let shown = ok(
        tokio::time::timeout(DEADLINE, shown).await,
        "the page is shown in time",
    );
    let shown = ok(shown, "the browser runs");
    let [said, told] =
        [shown.stdout, shown.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(shown.status.success(), "{told}");
    // Its console: errors of the script, and what the policy of the page forbids.
    let mut console = told.lines().filter(|line| line.contains(":CONSOLE"));
    assert_eq!(console.next(), None, "{told}");
    said
}

async fn program() -> &'static str {
    let mut found = None;
    for name in NAMES {
        let mut asked = Command::new(name);
        asked
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if found.is_none() && asked.status().await.is_ok_and(|it| it.success()) {
            found = Some(name);
        }
    }
    found.expect("Chromium is installed: apt-get install chromium-headless-shell")
}
