#!/bin/bash
# Version: github.com/coreos/ignition/v2 v2.24.0, its validator, with the go-systemd that its go.mod names.
#
# Behaviour: whether a unit's long line refuses the whole configuration depends on what stands before it. The same setting of
# 3,000 bytes is refused near the beginning, taken after 2,100 bytes of short lines, and refused again after 4,200.
#
# Expected: each line above the 2,048 bytes that the message names is refused, wherever it stands; or none, as systemd takes them.
#
# Seen: the reader looks whether the next 2,048 bytes have a line feed, but only when it happens to have read that far ahead.
# A comment further up, or one less, decides whether the machine boots.
#
# Here: lines above 2,047 bytes are refused when a document is rendered, wherever they stand, with their number.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export GOWORK=off GOFLAGS=
GOBIN="$folder" go install github.com/coreos/ignition/v2/validate@v2.24.0 2> /dev/null
short_lines() { # bytes, a multiple of ten
  for ((left = $1; left > 0; left -= 10)); do echo -n '# a note.\n'; done
}
seen="$(
  for before in 0 1000 2100 3000 4200 5000 6200; do
    long="$(head -c 2998 /dev/zero | tr '\0' a)"
    unit="[Unit]\\n$(short_lines "$before")A=$long\\n"
    printf '{"ignition":{"version":"3.3.0"},"systemd":{"units":[{"name":"a.service","contents":"%s"}]}}' "$unit" > config.json
    ./validate config.json > said 2>&1 || true
    if grep -q 'line too long (max 2048 bytes)' said; then echo "$before refused"; else echo "$before taken"; fi
  done
)"
echo "$seen"
[ "$seen" = '0 refused
1000 refused
2100 taken
3000 taken
4200 refused
5000 refused
6200 taken' ]
