//! The flags of `webhook`, as they are typed.

use super::{
    controller_flags::log_format,
    go_flags::{Flag, Place},
};
use crate::telemetry::logs::LogFormat;

/// The flags of `webhook`, as they are typed. Empty texts are flags that were not given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the usage of each flag stands in the table below"
)]
pub struct WebhookFlags {
    pub metrics_bind_address: String,
    pub health_probe_bind_address: String,
    pub leader_elect: bool,
    pub namespace: String,
    pub cert_dir: String,
    pub kubeconfig: String,
    pub log_debug: bool,
    pub log_format: LogFormat,
}

impl Default for WebhookFlags {
    fn default() -> Self {
        Self {
            metrics_bind_address: ":8080".to_owned(),
            health_probe_bind_address: ":8081".to_owned(),
            leader_elect: false,
            namespace: String::new(),
            cert_dir: "/tmp/k8s-webhook-server/serving-certs".to_owned(),
            kubeconfig: String::new(),
            log_debug: false,
            log_format: LogFormat::Json,
        }
    }
}

/// The flags of `webhook`.
pub const WEBHOOK_FLAGS: &[Flag<WebhookFlags>] = &[
    Flag {
        name: "metrics-bind-address",
        usage: "Where /metrics is served; 0 is nowhere.",
        place: Place::Text(|flags| &mut flags.metrics_bind_address),
    },
    Flag {
        name: "health-probe-bind-address",
        usage: "Where /healthz and /readyz are served; 0 is nowhere.",
        place: Place::Text(|flags| &mut flags.health_probe_bind_address),
    },
    Flag {
        name: "leader-elect",
        usage: "Accepted, and without effect: every replica answers.",
        place: Place::Switch(|flags| &mut flags.leader_elect),
    },
    Flag {
        name: "namespace",
        usage: "The namespace of profiles and configs. Required.",
        place: Place::Text(|flags| &mut flags.namespace),
    },
    Flag {
        name: "cert-dir",
        usage: "The folder with tls.crt and tls.key.",
        place: Place::Text(|flags| &mut flags.cert_dir),
    },
    Flag {
        name: "kubeconfig",
        usage: "Accepted, and without effect: no cluster is asked.",
        place: Place::Text(|flags| &mut flags.kubeconfig),
    },
    Flag {
        name: "log-debug",
        usage: "Log more.",
        place: Place::Switch(|flags| &mut flags.log_debug),
    },
    Flag {
        name: "log-format",
        usage: "The form of a log line: JSON or Console.",
        place: Place::Func(
            |flags, value| {
                flags.log_format = log_format(value)?;
                Ok(())
            },
            "JSON",
        ),
    },
];
