#!/bin/bash
# Runs /mnt/run as a machine's only program; its namespaces (mount, pid, uts, ipc) are private
# already. ROOT is the machine's root folder, which nothing writes to. WORK has what the machine
# gets (image/, laid over the root, and mnt/, which both sides see), and is given what came of it:
# written/ (what is new or changed), modes (of each of these files), log and status.
set -euo pipefail
root="$1" work="$2"

# In memory: an overlay cannot lie over another one, which is what a container's disk is.
mkdir "$work/memory"
mount -t tmpfs -o mode=755 tmpfs "$work/memory"
cd "$work/memory"
mkdir changes overlay machine run
mount -t overlay overlay -o "lowerdir=$root,upperdir=changes,workdir=overlay" machine
cp -r --preserve=mode "$work/image/." machine
mount --bind run machine/run
mount --bind "$work/mnt" machine/mnt
mount -t tmpfs tmpfs machine/tmp
mount -t tmpfs -o mode=755 tmpfs machine/dev
for device in null zero full random urandom; do
  touch "machine/dev/$device"
  mount --bind "/dev/$device" "machine/dev/$device"
done
ln -s /proc/self/fd machine/dev/fd
mount -t proc proc machine/proc
# Most of these settings are the whole kernel's.
mount --bind machine/proc/sys machine/proc/sys
mount -o remount,bind,ro machine/proc/sys

status=0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
  PYTHONDONTWRITEBYTECODE=1 \
  setpriv --bounding-set=-net_admin,-sys_boot,-sys_module,-sys_rawio,-sys_time,-syslog \
  chroot machine /mnt/run > "$work/log" 2>&1 < /dev/null || status=$?
echo "$status" > "$work/status"

(cd changes && find . -type f -printf '%m %U %G /%P\n') > "$work/modes"
(cd run && find . -type f -printf '%m %U %G /run/%P\n') >> "$work/modes"
mkdir "$work/written"
# Without what marks a removed file, which is a device.
(cd changes && find . -type f -print0 | tar -c --null -T - ) | tar -x -C "$work/written"
mkdir -p "$work/written/run"
(cd run && find . -type f -print0 | tar -c --null -T - ) | tar -x -C "$work/written/run"
# The caller reads and removes them, whoever he is.
chown -R --reference="$work" "$work"/{written,modes,log,status,mnt}
chmod -R u+rwX "$work/written" "$work/mnt"
