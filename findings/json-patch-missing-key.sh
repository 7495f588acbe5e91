#!/bin/bash
# Version: gopkg.in/evanphx/json-patch.v4 v4.13.0, which kube-apiserver 1.37 applies JSON patches with, and
# github.com/evanphx/json-patch/v5 v5.9.11, its next major version.
#
# Behaviour: to v4, a key that a map lacks is null. It can be replaced, it equals null, and it can be copied; but it can be
# neither removed nor moved. v5 refuses all of that but the test.
#
# Expected: as RFC 6902 says, in both: "The target location MUST exist for the operation to be successful" (4.3), and the same for
# the sources of copy and move (4.5, 4.4).
#
# Seen: copying a key that is not there adds a null, with no error. What replaces a key that may be missing works against an API
# server, and fails with programs that apply the same patch with v5, or with another library, before it is sent.
#
# Here: the API server in memory follows v4, which a test holds against the real one.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cat > "$folder/main.go" << 'EOF'
package main

import (
	"fmt"

	v4 "gopkg.in/evanphx/json-patch.v4"
	v5 "github.com/evanphx/json-patch/v5"
)

func main() {
	document := []byte(`{"map":{"a":"1"}}`)
	for _, operation := range []string{
		`{"op":"replace","path":"/map/b","value":"2"}`,
		`{"op":"test","path":"/map/b","value":null}`,
		`{"op":"copy","from":"/map/b","path":"/map/c"}`,
		`{"op":"move","from":"/map/b","path":"/map/c"}`,
		`{"op":"remove","path":"/map/b"}`,
	} {
		four, five := "refused", "refused"
		patch, err := v4.DecodePatch([]byte("[" + operation + "]"))
		if err != nil {
			panic(err)
		}
		if patched, err := patch.Apply(document); err == nil {
			four = string(patched)
		}
		newer, err := v5.DecodePatch([]byte("[" + operation + "]"))
		if err != nil {
			panic(err)
		}
		if patched, err := newer.Apply(document); err == nil {
			five = string(patched)
		}
		fmt.Printf("%s v4 %s v5 %s\n", patch[0].Kind(), four, five)
	}
}
EOF
cd "$folder"
export GOWORK=off GOFLAGS=
go mod init seen 2> /dev/null
go get gopkg.in/evanphx/json-patch.v4@v4.13.0 github.com/evanphx/json-patch/v5@v5.9.11 2> /dev/null
seen="$(go run .)"
echo "$seen"
[ "$seen" = 'replace v4 {"map":{"a":"1","b":"2"}} v5 refused
test v4 {"map":{"a":"1"}} v5 {"map":{"a":"1"}}
copy v4 {"map":{"a":"1","c":null}} v5 refused
move v4 refused v5 refused
remove v4 refused v5 refused' ]
