
fail() {
  echo "$1" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "run this script as root"
if [ -e /etc/bootstrap-complete ]; then
  echo "this machine is set up already"
  exit 0
fi

missing=()
for program in curl jq cloud-init; do
  command -v "$program" > /dev/null || missing+=("$program")
done
if [ "${#missing[@]}" -gt 0 ]; then
  if command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qy -o DPkg::Lock::Timeout=300 update
    apt-get -qy -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}"
  elif command -v dnf > /dev/null; then
    dnf -qy install "${missing[@]}"
  else
    fail "install ${missing[*]} and run this script again"
  fi
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# Not as an argument: every user of the machine sees those.
printf 'Authorization: Bearer %s\n' "$token" > "$work/header"
trust=()
if [ -n "$authority" ]; then
  printf '%s\n' "$authority" > "$work/ca.crt"
  trust=(--cacert "$work/ca.crt" --capath /dev/null)
fi
curl --fail --silent --show-error --globoff --proto '=https' --connect-timeout 10 --max-time 60 \
  --retry 5 "${trust[@]}" --header "@$work/header" --output "$work/secret" \
  "$server/api/v1/namespaces/cloud-init-settings/secrets/$secret" ||
  fail "cannot fetch Secret $secret from $server"
jq --exit-status --raw-output '.data["cloud-config"] // empty' "$work/secret" > "$work/base64" ||
  fail "Secret $secret has no key cloud-config"
base64 --decode "$work/base64" > "$work/document" ||
  fail "the key cloud-config of Secret $secret is not base64"
grep -q '^#cloud-config' "$work/document" ||
  fail "the key cloud-config of Secret $secret is no document for cloud-init"

document="/etc/cloud/cloud.cfg.d/$secret.cfg"
mkdir -p /etc/cloud/cloud.cfg.d
install -m 600 "$work/document" "$document"
# What an earlier run of cloud-init did must not be taken for this one's, but the machine keeps its
# network and its host keys.
printf 'network: {config: disabled}\nssh_deletekeys: false\n' > /etc/cloud/cloud.cfg.d/99-osm-keep.cfg
rm -f /etc/systemd/system/bootstrap.service
cloud-init clean
version="$(cloud-init --version 2>&1 | grep -oE '[0-9]+\.[0-9]+' | head -n 1)" ||
  fail "cloud-init does not tell its version"
if printf '24.1\n%s\n' "$version" | sort -VC; then
  cloud-init init --file "$document" || echo "cloud-init ended with $?"
else
  cloud-init --file "$document" init || echo "cloud-init ended with $?"
fi
# Warnings make cloud-init fail, and a missing data source does not: only the files tell.
[ -f /etc/systemd/system/bootstrap.service ] ||
  fail "cloud-init did not write the files of $document"

systemctl daemon-reload
systemctl enable bootstrap.service
systemctl restart bootstrap.service
echo "bootstrap.service has started; follow it with: journalctl -fu bootstrap.service"
