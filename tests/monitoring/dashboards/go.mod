// Pins Grafana's own types of dashboards, into which tests decode ours.
// `.ci/go-programs monitoring` builds it.
module dashboards

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
