#!/bin/bash
# Version: gopkg.in/yaml.v3 3.0.1 of Go's proxy, yaml 2.8.1 of npm.
#
# Behaviour: what yaml.v3 writes of three kinds of values is another value when it is read.
#
# Expected: a writer quotes what its own reader, or one of YAML 1.2, would take for something else,
# as this one does for `true` and for dates.
#
# Seen: the key `<<` is written plain and read as a merge, so that it is gone. A text that begins with
# U+2028 and has a line feed loses it. After U+2028 on one line, spaces are inserted that yaml.v3
# takes off again, and that stay in the text for a reader of YAML 1.2, to which it is no line break.
#
# Here: toYaml of existing profiles writes the same bytes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod << 'EOF'
module otherwise

go 1.22

require gopkg.in/yaml.v3 v3.0.1
EOF
cat > main.go << 'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"gopkg.in/yaml.v3"
)

func main() {
	for index, value := range []any{
		map[string]any{"<<": map[string]any{"a": 1}},
		map[string]any{"k": "\u2028a\nb"},
		map[string]any{"k": "a\u2028b"},
	} {
		written, _ := yaml.Marshal(value)
		os.WriteFile(fmt.Sprintf("%d.yaml", index), written, 0o600)
		var read any
		err := yaml.Unmarshal(written, &read)
		before, _ := json.Marshal(value)
		after, _ := json.Marshal(read)
		fmt.Printf("yaml.v3: %s becomes %s, %v\n", before, after, err)
	}
}
EOF
go mod tidy 2> /dev/null
npm install --silent --no-fund --no-audit yaml@2.8.1 > /dev/null
cat > read.js << 'EOF'
const { parse } = require("yaml");
const { readFileSync } = require("fs");
console.log("yaml: " + JSON.stringify(parse(readFileSync("2.yaml", "utf8"))).replaceAll("\u2028", "\\u2028"));
EOF
{ go run . && node read.js; } | tee seen
diff seen - << 'EOF'
yaml.v3: {"\u003c\u003c":{"a":1}} becomes {"a":1}, <nil>
yaml.v3: {"k":"\u2028a\nb"} becomes {"k":"a\nb"}, <nil>
yaml.v3: {"k":"a\u2028b"} becomes {"k":"a\u2028b"}, <nil>
yaml: {"k":"a\u2028    b"}
EOF
