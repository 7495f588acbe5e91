//! Random templates that no one would write, built from the words of real ones. However they are
//! nested, both forms must render the same.

use super::{a_go_profile, compare, convert, file_of};

const FIELDS: [&str; 20] = [
    "$.KubeVersion",
    "$.HTTPProxy",
    "$.NoProxy",
    "$.MaxPods",
    "$.KubeReserved",
    "$.KubeReserved.cpu",
    "$.SystemReserved",
    "$.ClusterDNSIPs",
    "$.KubeletFeatureGates",
    "$.KubeletFeatureGates.WatchList",
    "$.NetworkConfig",
    "$.NetworkConfig.CIDR",
    "$.NetworkConfig.DNS.Servers",
    "$.NetworkConfig.IsStaticIPConfig",
    "$.UbuntuConfig",
    "$.UbuntuConfig.DistUpgradeOnBoot",
    "$.variables.site",
    "$.HostCACert",
    "$.ExternalCloudProvider",
    ".",
];
const TEXTS: [&str; 7] = ["a", "\n", " \n  ", "b\n", "{%", "\u{a0}", "{"];

struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 20) % sides as u64).unwrap()
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.throw(from.len())]
    }

    fn value(&mut self, depth: usize) -> String {
        let field = self.pick(&FIELDS).to_owned();
        if depth == 0 {
            return field;
        }
        match self.throw(9) {
            0 => format!("(and {} {})", self.value(depth - 1), self.value(depth - 1)),
            1 => format!("(or {} {})", self.value(depth - 1), self.value(depth - 1)),
            2 => format!("(not {})", self.value(depth - 1)),
            3 => format!("(eq {} \"plain\")", self.value(depth - 1)),
            4 => format!("(not (ne {field} \"plain\"))"),
            5 => format!("(default \"x\" {})", self.value(depth - 1)),
            6 => format!("(semverCompare \">=1.33\" {field})"),
            _ => field,
        }
    }

    /// Returns a tag, with or without trims.
    fn tag(&mut self, content: &str) -> String {
        let (left, right) = (self.pick(&["{{", "{{-"]), self.pick(&["}}", "-}}"]));
        format!("{left} {content} {right}")
    }

    fn nodes(&mut self, depth: usize) -> String {
        let count = 1 + self.throw(3);
        (0..count).map(|_| self.node(depth)).collect()
    }

    fn node(&mut self, depth: usize) -> String {
        let kind = self.throw(if depth == 0 { 3 } else { 8 });
        let value = self.value(2);
        match kind {
            0 | 1 => self.pick(&TEXTS).to_owned(),
            2 => self.tag(&value),
            3 => self.tag(&format!("$v := {value}")) + &self.tag("$v"),
            4 => self
                .tag("/* why */")
                .replace("{{ /", "{{/")
                .replace("/ }}", "/}}"),
            5 => self.block(&format!("if {value}"), depth),
            6 => self.block(&format!("with {value}"), depth),
            _ => {
                let list = self.pick(&FIELDS);
                let head = self.pick(&["range", "range $k, $x :=", "range $x :="]);
                self.block(&format!("{head} {list}"), depth)
            }
        }
    }

    fn block(&mut self, head: &str, depth: usize) -> String {
        let mut text = self.tag(head) + &self.nodes(depth - 1);
        if self.throw(2) == 0 {
            let value = self.value(1);
            let word = if head.starts_with("if") && self.throw(2) == 0 {
                format!("else if {value}")
            } else {
                "else".to_owned()
            };
            text += &self.tag(&word);
            text += &self.nodes(depth - 1);
        }
        text + &self.tag("end")
    }
}

#[test]
fn drawn_templates_render_in_both_forms_alike() {
    let (mut converted_count, mut equal, mut wrong) = (0, 0, Vec::new());
    for seed in 1..=400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (named, file) = (dice.nodes(2), dice.nodes(3));
        let file = format!("{file}{{{{ template \"t\" }}}}");
        let world = a_go_profile(&[("t", &named)], &file);
        let Ok(converted) = convert(&world.profile) else {
            continue;
        };
        converted_count += 1;
        let comparison = compare(&world.profile, &converted, 6).unwrap();
        equal += comparison.equal;
        if !comparison.different.is_empty() {
            let jinja = &converted.provisioning_config.templates["t"];
            wrong.push(format!(
                "{named:?} {file:?}\n  {jinja:?} {:?}\n  {:?}",
                file_of(&converted),
                comparison.different
            ));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        converted_count > 100 && equal > 200,
        "{converted_count} {equal}"
    );
}
