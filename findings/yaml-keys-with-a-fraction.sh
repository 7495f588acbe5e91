#!/bin/bash
# Version: sigs.k8s.io/yaml 1.6.0, with which kubectl reads manifests.
#
# Behaviour: a key of a map that is a number with a fraction or an exponent becomes a text with the
# digits that 32 bits keep.
#
# Expected: the shortest text that reads as the same number, as for a value, or the text of the key.
# The README says that YAML is converted to JSON.
#
# Seen: keys of nine digits become others, two keys become one, of which one is lost without an
# error, also in the strict mode that refuses a key that stands twice, and which one differs from run
# to run. The same numbers as values keep their digits.
#
# Here: files are refused if kubectl reads one of their keys as another text.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod << 'EOF'
module keys

go 1.22

require sigs.k8s.io/yaml v1.6.0
EOF
cat > main.go << 'EOF'
package main

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

func main() {
	for _, text := range []string{
		"123456789.25: a",
		"a: 123456789.25",
		"16777216.0: a\n16777217.0: a",
		"0.1: a",
	} {
		var read map[string]any
		err := yaml.UnmarshalStrict([]byte(text), &read)
		shown, _ := json.Marshal(read)
		fmt.Printf("%q: %s, %v\n", text, shown, err)
	}
	kept := map[any]bool{}
	for range 200 {
		var read map[string]any
		_ = yaml.UnmarshalStrict([]byte("16777216.0: a\n16777217.0: b"), &read)
		kept[read["1.6777216e+07"]] = true
	}
	fmt.Printf("%d values of two keys that became one were kept in turn\n", len(kept))
}
EOF
go mod tidy 2> /dev/null
go run . | tee seen
diff seen - << 'EOF'
"123456789.25: a": {"1.2345679e+08":"a"}, <nil>
"a: 123456789.25": {"a":123456789.25}, <nil>
"16777216.0: a\n16777217.0: a": {"1.6777216e+07":"a"}, <nil>
"0.1: a": {"0.1":"a"}, <nil>
2 values of two keys that became one were kept in turn
EOF
