#!/bin/bash
# Runs the stages of Ignition that write, with FOLDER/document.ign, into FOLDER/root, and lists
# there with FOLDER/listing what was written: type, mode, owner and path of each. To be run in mount
# and process namespaces of its own.
#
# usage: ignition.sh FOLDER IGNITION
set -euo pipefail
folder=$1
ignition=$2
root=$folder/root
mkdir -p "$root/etc/selinux" "$folder/programs"

# What Ignition expects of a system's image. Users are added by this machine's useradd.
echo 'root:x:0:0:root:/root:/bin/bash' > "$root/etc/passwd"
echo 'root:x:0:' > "$root/etc/group"
echo 'root:*:20000:0:99999:7:::' > "$root/etc/shadow"
echo 'root:*::' > "$root/etc/gshadow"
printf 'SELINUX=disabled\nSELINUXTYPE=targeted\n' > "$root/etc/selinux/config"
printf '#!/bin/sh\n' > "$folder/programs/setfiles"
chmod 755 "$folder/programs/setfiles"

for stage in fetch files; do
  PATH=$folder/programs:/usr/sbin:/usr/bin:/sbin:/bin \
    IGNITION_CONFIG_FILE=$folder/document.ign \
    "$ignition" --platform=file --stage="$stage" --root="$root" --log-to-stdout \
    --config-cache="$folder/ignition.json" --state-file="$folder/state" \
    --neednet="$folder/neednet"
done
cd "$root"
find . -printf '%y %m %u %P\n' > "$folder/listing"
# Who reads them may not be root.
chmod -R a+rX .
