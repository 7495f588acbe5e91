//! The address that a node registers with, found out in networks of their own.

use crate::{
    cases::every_profile,
    machine::Machine,
    programs::{in_namespaces, run, text},
    root::Root,
};

const SCRIPT: &str = "/opt/bin/setup_net_env.sh";
const LINKS: &str = "ip link set lo up
    for n in 0 1; do
      ip link add e$n type veth peer name p$n
      ip link set e$n up && ip link set p$n up
    done
    sysctl -q -w net.ipv6.conf.e0.accept_dad=0";
const SERVER: &str = "https://10.20.0.5:6443";

/// What the script writes on a machine with such a network.
fn address(network: &str, change: impl FnOnce(&mut Machine)) -> Result<String, String> {
    let profile = every_profile().iter().find(|it| it.name == "osp-ubuntu");
    let profile = profile.expect("it is a default profile");
    let mut machine = Machine::new("baremetal");
    SERVER.clone_into(&mut machine.access.server);
    change(&mut machine);
    let root = Root::new();
    root.write("etc/machine-name", "worker-1\n");
    root.place(&profile.render("address", machine), SCRIPT);
    let commands = format!(
        "set -e\n{LINKS}\n{network}\nexec bash {}",
        root.at(SCRIPT).display()
    );
    let output = run(in_namespaces("bash").args(["-c", &commands]));
    if !output.status.success() {
        return Err(text(&output));
    }
    let written = root.read("etc/kubernetes/nodeip.conf");
    let address = written
        .lines()
        .find_map(|line| line.strip_prefix("KUBELET_NODE_IP="));
    Ok(address.unwrap_or_default().to_owned())
}

#[test]
fn a_node_has_the_address_from_which_it_reaches_the_api_server() {
    let private = "ip addr add 10.0.0.2/24 dev e0; ip route add default via 10.0.0.1 dev e0";
    for (network, server, expected) in [
        // Routes over two links without addresses of their own, as with BGP.
        (
            "ip addr add 10.255.1.7/32 dev lo scope global
             ip addr add 169.254.1.2/30 dev e0 scope link
             ip route add default proto bgp src 10.255.1.7 \
               nexthop via 169.254.1.1 dev e0 onlink nexthop via 169.254.1.1 dev e1 onlink",
            SERVER,
            "10.255.1.7",
        ),
        // An address that moves between machines, before the machine's own.
        (
            &format!("ip addr add 192.0.2.50/32 dev e0; {private}"),
            SERVER,
            "10.0.0.2",
        ),
        (
            "ip addr add 10.0.0.2/24 dev e0; ip route add 10.20.0.0/16 via 10.0.0.1",
            SERVER,
            "10.0.0.2",
        ),
        // The API server is in a private network, and the default route is not.
        (
            "ip addr add 203.0.113.7/32 dev e0; ip route add 172.31.1.1 dev e0
             ip route add default via 172.31.1.1 dev e0; ip addr add 10.0.0.3/32 dev e1
             ip route add 10.0.0.1 dev e1; ip route add 10.20.0.0/16 via 10.0.0.1 dev e1",
            SERVER,
            "10.0.0.3",
        ),
        // A proxy on each machine leads to the API server.
        (private, "https://127.0.0.1:6443", "10.0.0.2"),
        (private, "https://[::1]:6443/", "10.0.0.2"),
        // So does one that has an address of its own.
        (
            &format!("ip addr add 192.168.30.10/32 dev lo; {private}"),
            "https://192.168.30.10:6443",
            "10.0.0.2",
        ),
    ] {
        let found = address(network, |machine| {
            server.clone_into(&mut machine.access.server);
        });
        assert_eq!(found.as_deref(), Ok(expected), "{network}: {server}");
    }
}

#[test]
fn what_cannot_be_found_out_is_said_or_set() {
    let two = "ip addr add 10.0.0.2/24 dev e0; ip addr add 192.0.2.7/24 dev e1
               ip addr add fd00::2/64 dev e0; ip route add default via 10.0.0.1 dev e0";
    let within = |networks: &str| {
        let networks = networks.to_owned();
        move |machine: &mut Machine| {
            let variables = &mut machine.settings.variables;
            variables.insert("nodeNetwork".to_owned(), networks);
        }
    };
    assert_eq!(
        address(two, within("192.0.2.0/24")).as_deref(),
        Ok("192.0.2.7")
    );
    let dual = |machine: &mut Machine| {
        machine.network = serde_json::json!({"ipFamily": "IPv4+IPv6"});
        within("192.0.2.0/24,fd00::/64")(machine);
    };
    assert_eq!(address(two, dual).as_deref(), Ok("192.0.2.7,fd00::2"));
    for (network, networks, said) in [
        (
            two,
            Some("198.51.100.0/24"),
            "is within 198.51.100.0/24, which is the variable nodeNetwork",
        ),
        (
            ":",
            None,
            "name the node's network in the variable nodeNetwork",
        ),
    ] {
        let found = address(network, |machine| {
            if let Some(networks) = networks {
                within(networks)(machine);
            }
        });
        let why = found.expect_err("there is no such address");
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn a_kubelet_that_starts_again_keeps_its_address_while_no_name_is_known() {
    let profile = every_profile().iter().find(|it| it.name == "osp-ubuntu");
    let profile = profile.expect("it is a default profile");
    let case = profile.render("address", Machine::new("baremetal"));
    let root = Root::new();
    root.install("getent", "#!/bin/bash\nexit 2\n");
    let output = root.run(&case, SCRIPT);
    assert!(!output.status.success(), "the first start finds nothing");
    assert!(
        text(&output).contains("has no address"),
        "{}",
        text(&output)
    );
    std::fs::create_dir_all(root.at("etc/kubernetes")).expect("a folder can be made");
    root.write("etc/kubernetes/nodeip.conf", "KUBELET_NODE_IP=10.0.0.2\n");
    assert!(root.run(&case, SCRIPT).status.success());
    let kept = root.read("etc/kubernetes/nodeip.conf");
    assert_eq!(kept, "KUBELET_NODE_IP=10.0.0.2\n");
}

#[test]
fn on_aws_a_node_of_flatcar_has_the_name_that_the_cloud_knows() {
    let profile = every_profile().iter().find(|it| it.name == "osp-flatcar");
    let profile = profile.expect("it is a default profile");
    for (external, metadata, expected) in [
        (
            true,
            "COREOS_EC2_HOSTNAME=ip-10-0-0-2.ec2.internal\n",
            Some("ip-10-0-0-2.ec2.internal"),
        ),
        (true, "COREOS_EC2_IPV4_LOCAL=10.0.0.2\n", None),
        (false, "", Some("short")),
    ] {
        let mut machine = Machine::new("aws");
        SERVER.clone_into(&mut machine.access.server);
        machine.settings.external_cloud_provider = external;
        let root = Root::new();
        root.write("etc/os-release", "NAME=Flatcar\nID=flatcar\n");
        std::fs::create_dir_all(root.at("run/metadata")).expect("a folder can be made");
        root.write("metadata", metadata);
        let starts = "#!/bin/bash\nroot=\"${0%/bin/*}\"\n[ \"$*\" = 'start coreos-metadata.service' ] && cp \"$root/metadata\" \"$root/run/metadata/flatcar\"\n";
        root.install("systemctl", starts);
        root.install(
            "ip",
            "#!/bin/bash\necho '10.20.0.5 via 10.0.0.1 dev e0 src 10.0.0.2 uid 0'\n",
        );
        root.install("hostname", "#!/bin/bash\necho short\n");
        let case = profile.render("address", machine);
        let output = root.run(&case, SCRIPT);
        assert_eq!(
            output.status.success(),
            expected.is_some(),
            "{}",
            text(&output)
        );
        if let Some(expected) = expected {
            let written = root.read("etc/kubernetes/nodeip.conf");
            assert!(
                written.contains(&format!("KUBELET_HOSTNAME={expected}\n")),
                "{written}"
            );
        }
        let unit = case.text("/etc/systemd/system/kubelet.service");
        let waits = unit
            .contains("After=network-online.target containerd.service coreos-metadata.service\n");
        assert_eq!(waits, external, "{unit}");
    }
}
