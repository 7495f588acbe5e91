#!/bin/bash
# Version: containerd 2.2.9 and 2.3.7, built from github.com/containerd/containerd/v2 of Go's proxy.
#
# Behaviour: containerd 2.2 merges a configuration and its drop-ins as they are written, and the
# version of the file that it reads last is that of all. Sections of an older version are then taken
# for sections of the newer one, where nothing has their names.
#
# Expected: each file is read in its own version, as containerd 2.3 does.
#
# Seen, for 2.2.9: a drop-in of version 3 beside a configuration of version 2 drops the registries of
# the latter, without a warning. A configuration of version 4, which 2.2 refuses, is accepted as soon
# as a drop-in of version 2 or 3 follows it. 2.3.7 merges every pair.
#
# Here: profiles for systems whose containerd may be 1.7 write version 2, so drop-ins for their
# machines must have version 2 as well where containerd is 2.2.
set -euo pipefail
folder="$(mktemp -d)"
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT

build() { # a version
  go mod download "github.com/containerd/containerd/v2@v$1"
  cp -r "$(go env GOMODCACHE)/github.com/containerd/containerd/v2@v$1" "$folder/$1"
  chmod -R u+w "$folder/$1"
  (cd "$folder/$1" && GOFLAGS=-mod=mod go build -o "$folder/containerd-$1" ./cmd/containerd)
}

registries() { # a version of a configuration
  case "$1" in
    2) echo '[plugins."io.containerd.grpc.v1.cri".registry]' ;;
    *) echo '[plugins."io.containerd.cri.v1.images".registry]' ;;
  esac
}

runtime() { # a version of a configuration
  case "$1" in
    2) echo '[plugins."io.containerd.grpc.v1.cri".containerd]' ;;
    *) echo '[plugins."io.containerd.cri.v1.runtime".containerd]' ;;
  esac
}

pair() { # containerd's version, and those of a configuration and of its drop-in
  local place="$folder/$1-$2-$3" dumped
  mkdir -p "$place/conf.d"
  printf 'version = %s\nimports = ["%s/conf.d/*.toml"]\n%s\nconfig_path = "/registries"\n' \
    "$2" "$place" "$(registries "$2")" > "$place/config.toml"
  printf 'version = %s\n%s\ndefault_runtime_name = "other"\n' "$3" "$(runtime "$3")" \
    > "$place/conf.d/drop-in.toml"
  if ! dumped="$("$folder/containerd-$1" -c "$place/config.toml" config dump 2> /dev/null)"; then
    echo "$1, $2 and $3: refused"
    return
  fi
  grep -q 'default_runtime_name = .other' <<< "$dumped"
  if grep -q 'config_path = ./registries' <<< "$dumped"; then
    echo "$1, $2 and $3: merged"
  else
    echo "$1, $2 and $3: the registries are gone"
  fi
}

for version in 2.2.9 2.3.7; do
  build "$version"
  for main in 2 3 4; do
    for drop_in in 2 3 4; do
      pair "$version" "$main" "$drop_in"
    done
  done
done | tee "$folder/seen"
diff "$folder/seen" - << 'EOF'
2.2.9, 2 and 2: merged
2.2.9, 2 and 3: the registries are gone
2.2.9, 2 and 4: refused
2.2.9, 3 and 2: merged
2.2.9, 3 and 3: merged
2.2.9, 3 and 4: refused
2.2.9, 4 and 2: merged
2.2.9, 4 and 3: merged
2.2.9, 4 and 4: refused
2.3.7, 2 and 2: merged
2.3.7, 2 and 3: merged
2.3.7, 2 and 4: merged
2.3.7, 3 and 2: merged
2.3.7, 3 and 3: merged
2.3.7, 3 and 4: merged
2.3.7, 4 and 2: merged
2.3.7, 4 and 3: merged
2.3.7, 4 and 4: merged
EOF
