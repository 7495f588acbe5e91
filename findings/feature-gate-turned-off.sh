#!/bin/bash
# Version: k8s.io/kubernetes v1.34.4 and v1.35.8, pkg/features, by which the kubelet and the other components read
# --feature-gates and featureGates.
#
# Behaviour: from 1.35 on, a beta gate that is on by default can often not be turned off alone. Where another gate that is on
# by default needs it, setting it to false is an error, and the component does not start. 1.34 takes it.
#
# Expected: that a gate which is neither locked nor gone can be set, in 1.35 as in 1.34: both list it with the same stage and the
# same default, and `kubelet --help` shows no relation between gates.
#
# Seen: the error names a gate that nobody set ("... is enabled, but depends on features that are disabled"). Turning both off
# works. A configuration with MatchLabelKeysInPodTopologySpread off, good for years, ends a kubelet with the upgrade to 1.35.
#
# Here: such a setting is refused where it is made, for the minors that refuse it.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cat > "$folder/main.go" << 'END'
package main

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	alone := map[string]bool{"MatchLabelKeysInPodTopologySpread": false}
	both := map[string]bool{"MatchLabelKeysInPodTopologySpread": false, "MatchLabelKeysInPodTopologySpreadSelectorMerge": false}
	for _, gates := range []map[string]bool{alone, both} {
		fmt.Println(len(gates), utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(gates) == nil)
	}
}
END
run() { # VERSION: whether one, and both, can be turned off
  local pins
  cd "$folder"
  export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0
  rm -f go.mod go.sum
  pins="$(go mod download -json "k8s.io/kubernetes@v$1" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')"
  {
    printf 'module finding\n\ngo 1.25.0\n\nrequire k8s.io/kubernetes v%s\n' "$1"
    # Its libraries are folders there, and have versions, too.
    awk -v version="v0.${1#1.}" '$2 == "=>" && $3 ~ /^\.\/staging/ { print "replace", $1, "=>", $1, version }' "$pins"
  } > go.mod
  go mod tidy > /dev/null 2>&1
  go run . | paste -sd ' '
}
older="$(run 1.34.4)" newer="$(run 1.35.8)"
echo "1.34.4: $older"
echo "1.35.8: $newer"
[ "$older" = "1 true 2 true" ] && [ "$newer" = "1 false 2 true" ]
