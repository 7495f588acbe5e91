//! A folder that stands for a machine's root, for scripts that would change the machine.

use std::{collections::BTreeSet, path::Path};

use crate::cases::Case;

/// Notes its name and arguments.
pub const NOTE: &str = "#!/bin/bash\necho \"${0##*/} $*\" >> \"${0%/bin/*}/calls\"\n";

/// In place of curl: notes the URL, and answers with a content or with the checksum of that
/// content.
pub const DOWNLOAD: &str = "#!/bin/bash
echo \"${!#}\" >> \"${0%/bin/*}/fetched\"
echo curl >> \"${0%/bin/*}/calls\"
case \"${!#}\" in
  *.sha256) printf content | sha256sum ;;
  *) printf content ;;
esac
";

/// The folders of a machine that scripts name.
const FOLDERS: [&str; 9] = [
    "/boot/",
    "/etc/",
    "/oem",
    "/opt/",
    "/proc/",
    "/run/",
    "/usr/local/",
    "/usr/share/oem",
    "/var/",
];

/// The script with every folder of the machine inside the root.
pub fn moved(script: &str, root: &Path) -> String {
    let root = root.display().to_string();
    let mut moved = script.to_owned();
    for folder in FOLDERS {
        let mut parts = moved.split(folder);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_inside = out.ends_with(|last: char| {
                last.is_alphanumeric() || matches!(last, '/' | '.' | '}' | '_')
            });
            out += if is_inside { "" } else { &root };
            out += folder;
            out += part;
        }
        moved = out;
    }
    moved
}

/// What the provisioning half lists of this kind.
pub fn listed(case: &Case, kind: &str) -> BTreeSet<String> {
    let [_, provisioning] = &case.artefacts;
    let of_line = |line: &str| {
        let (found, value) = line.split_once(' ').expect("a line is `KIND VALUE`");
        (found == kind).then(|| value.to_owned())
    };
    let lines = provisioning.lines().filter(|line| !line.is_empty());
    lines.filter_map(of_line).collect()
}
