use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;

use super::*;
use osm_api::config::OperatingSystemConfigSpec;
use osm_render::UserData;

const FLATCAR: OperatingSystem = OperatingSystem::Flatcar;
const UBUNTU: OperatingSystem = OperatingSystem::Ubuntu;

fn a_config(provider: &CloudProvider, system: &OperatingSystem) -> OperatingSystemConfigSpec {
    let file = |path: &str, size: usize| json!({"path": path, "content": {"inline": {"data": "x".repeat(size)}}});
    serde_json::from_value(json!({
        "osName": system,
        "osVersion": "",
        "cloudProvider": {"name": provider},
        "bootstrapConfig": {"files": [file("/a", 1), file("/large", 30), file("/b", 2)]},
        "provisioningConfig": {"files": [file("/setup", 3)]},
    }))
    .unwrap()
}

/// What was rendered, with these documents.
fn rendered(
    (provider, system): &(CloudProvider, OperatingSystem),
    bootstrap: &str,
    provisioning: &str,
) -> Rendered {
    let config = a_config(provider, system);
    Rendered {
        stored_config: config.clone(),
        config,
        provisioning: UserData::new(provisioning.as_bytes().to_vec()),
        bootstrap: UserData::new(bootstrap.as_bytes().to_vec()),
    }
}

fn fit_bootstrap(
    place: &(CloudProvider, OperatingSystem),
    size: usize,
) -> Result<SizeChecked, TooLarge> {
    fit(rendered(place, &"x".repeat(size), ""))
}

#[test]
fn each_provider_takes_what_its_vendor_documents_and_not_a_byte_more() {
    // In base64, 49,149 bytes are 65,532 characters, and one more byte makes four more of them.
    for (provider, system, fits) in [
        (CloudProvider::Aws, FLATCAR, 16_384),
        (CloudProvider::Alibaba, UBUNTU, 32_768),
        (CloudProvider::Azure, UBUNTU, 65_535),
        (CloudProvider::DigitalOcean, UBUNTU, 65_536),
        (CloudProvider::Gce, UBUNTU, 262_144),
        (CloudProvider::Hetzner, UBUNTU, 32_768),
        (CloudProvider::Linode, UBUNTU, 49_149),
        (CloudProvider::Nutanix, UBUNTU, 32_768),
        (CloudProvider::OpenStack, FLATCAR, 49_149),
        (CloudProvider::Anexia, UBUNTU, 1_048_576),
        (CloudProvider::BareMetal, UBUNTU, 1_048_576),
        (CloudProvider::Edge, UBUNTU, 1_048_576),
        (CloudProvider::External, UBUNTU, 1_048_576),
        (CloudProvider::Fake, UBUNTU, 1_048_576),
        (CloudProvider::KubeVirt, UBUNTU, 1_048_576),
        (CloudProvider::OpenNebula, UBUNTU, 1_048_576),
        (CloudProvider::Scaleway, UBUNTU, 1_048_576),
        (CloudProvider::VSphere, FLATCAR, 1_048_576),
        (CloudProvider::VmwareCloudDirector, UBUNTU, 1_048_576),
    ] {
        let place = (provider, system);
        assert!(fit_bootstrap(&place, fits).is_ok(), "{place:?}");
        assert!(fit_bootstrap(&place, fits + 1).is_err(), "{place:?}");
    }
}

#[test]
fn aws_counts_compressed_bytes_but_on_flatcar() {
    let place = (CloudProvider::Aws, UBUNTU);
    assert!(fit_bootstrap(&place, 200_000).is_ok());
    let mut random = StdRng::seed_from_u64(1);
    let letters: String = (0..24_000)
        .map(|_| char::from(random.random_range(b'!'..=b'~')))
        .collect();
    let error = fit(rendered(&place, &letters, "")).unwrap_err().to_string();
    assert!(error.contains("bytes after gzip, "), "{error}");
    assert!(error.contains("the 16384 that aws takes"), "{error}");
}

#[test]
fn what_is_too_large_is_said_with_size_limit_and_largest_file() {
    let place = (CloudProvider::Hetzner, UBUNTU);
    assert_eq!(
        fit_bootstrap(&place, 40_000).unwrap_err().to_string(),
        "the bootstrap document has 40000 bytes, 7232 more than the 32768 that hetzner takes; its \
         largest file is /large with 30; make it smaller, set `encoding: gzip` for its large \
         files, or move them to provisioningConfig"
    );
    let error = fit_bootstrap(&(CloudProvider::OpenStack, UBUNTU), 60_000).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("80000 bytes in base64, 14465 more than the 65535"),
        "{error}"
    );
    let provisioning = "x".repeat(1_048_577);
    let error = fit(rendered(&place, "", &provisioning)).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "the provisioning document has 1048577 bytes, 1 more than the 1048576 that a Secret \
             takes; its largest file is /setup with 3; make it smaller, set `encoding: gzip` for \
             its large files, or let machines download them"
        ),
        "{error}"
    );
}

#[test]
fn a_config_that_etcd_would_refuse_is_too_large() {
    let mut rendered = rendered(&(CloudProvider::Aws, UBUNTU), "", "");
    rendered.stored_config.os_version = "x".repeat(1_500_000);
    let error = fit(rendered).unwrap_err().to_string();
    assert!(
        error.starts_with("the OperatingSystemConfig has "),
        "{error}"
    );
}

#[test]
fn from_four_fifths_of_a_limit_on_there_is_a_warning() {
    let near_limit = |size| {
        fit_bootstrap(&(CloudProvider::Hetzner, UBUNTU), size)
            .unwrap()
            .near_limit
    };
    assert_eq!(near_limit(26_214), None);
    assert_eq!(
        near_limit(26_215).unwrap(),
        "the bootstrap document has 26215 bytes, 80 % of the 32768 that hetzner takes; its \
         largest file is /large with 30"
    );
    let both = fit(rendered(
        &(CloudProvider::Hetzner, UBUNTU),
        &"x".repeat(30_000),
        &"x".repeat(1_000_000),
    ));
    let both = both.unwrap().near_limit.unwrap();
    assert!(both.contains("the bootstrap document") && both.contains("the provisioning document"));
}

#[test]
fn a_machines_name_has_room_in_the_document() {
    let place = (CloudProvider::Hetzner, UBUNTU);
    for placeholder in ["<MACHINE_NAME>", "%3CMACHINE_NAME%3E"] {
        let document = |size: usize| format!("{placeholder}{}", "x".repeat(size));
        assert!(fit(rendered(&place, &document(32_768 - 63), "")).is_ok());
        assert!(fit(rendered(&place, &document(32_768 - 62), "")).is_err());
    }
}

#[test]
fn a_file_counts_as_the_document_carries_it() {
    let mut rendered = rendered(&(CloudProvider::Hetzner, UBUNTU), &"x".repeat(40_000), "");
    let files = &mut rendered.config.bootstrap_config.files;
    let encoded = |file: &mut File, encoding: &str, size| {
        let inline = file.content.inline.as_mut().unwrap();
        inline.encoding = Some(encoding.to_owned());
        inline.data = "x".repeat(size);
    };
    encoded(&mut files[0], "b64", 60);
    encoded(&mut files[2], "gzip", 5_000);
    let error = fit(rendered).unwrap_err().to_string();
    assert!(error.contains("its largest file is /a with 80;"), "{error}");
}
