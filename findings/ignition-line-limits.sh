#!/bin/bash
# Version: github.com/coreos/ignition/v2 v2.24.0, its validator, with the go-systemd that its go.mod names.
#
# Behaviour: how long a line of a unit may be depends on what the line is. A setting and a line of spaces may have 2,047 bytes, a
# comment and the name of a section 2,048.
#
# Expected: one limit for all lines, the 2,048 bytes that the message names; or that of systemd, whose reader takes a mebibyte.
#
# Seen: of one unit, a comment of 2,048 bytes is accepted, and a setting of the same length refuses the whole configuration with
# "line too long (max 2048 bytes)". systemd takes both.
#
# Here: settings and comments above 2,047 bytes are refused when a document is rendered, with their line.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export GOWORK=off GOFLAGS=
GOBIN="$folder" go install github.com/coreos/ignition/v2/validate@v2.24.0 2> /dev/null
letters() { head -c "$1" /dev/zero | tr '\0' a; }
verdict() { # lines of a unit, as in JSON
  printf '{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"a.service","contents":"%s\\n"}]}}' "$1" > config.json
  ./validate config.json > said 2>&1 || true
  if grep -q 'line too long (max 2048 bytes)' said; then echo -n ' refused'; else echo -n ' taken'; fi
}
seen="$(
  for bytes in 2047 2048 2049; do
    echo -n "$bytes:"
    verdict "[Unit]\\nA=$(letters "$((bytes - 2))")"
    verdict "# $(letters "$((bytes - 2))")"
    verdict "[$(letters "$((bytes - 2))")]"
    verdict "[Unit]\\n$(letters "$bytes" | tr a ' ')"
    echo
  done
)"
echo "bytes: setting comment section spaces"
echo "$seen"
[ "$seen" = '2047: taken taken taken taken
2048: refused taken taken refused
2049: refused refused refused refused' ]
