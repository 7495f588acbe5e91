folder=/etc/osm/machine
state=/var/lib/osm-machine
certificate=/var/lib/kubelet/pki/kubelet-client-current.pem
now="$(date -u +%Y-%m-%dT%H:%M:%SZ)"
seconds="$(date +%s)"

node="$(openssl x509 -noout -subject -nameopt RFC2253 -in "$certificate" 2> /dev/null |
  sed -n 's/.*CN=system:node:\([^,]*\).*/\1/p')"
# Until the kubelet has its certificate, the machine is no node.
[ "$node" ] || exit 0
mkdir -p "$state"
work="$(mktemp -d -p /run)" || exit 1
trap 'rm -rf "$work"' EXIT
[ -s "$folder/ca.crt" ] && trust=(--cacert "$folder/ca.crt" --capath /dev/null)

# ask PATH OPTION...: a request to the API server.
ask() {
  curl --fail --silent --show-error --proto '=https' --connect-timeout 10 --max-time 20 \
    "${proxy[@]}" "${trust[@]}" "${@:2}" "$server/api/v1/$1"
}

# value NAME: the text of a field in an object, which is in base64 or has no quotes.
value() {
  grep -o "\"$1\": *\"[^\"]*\"" | sed -n '1s/.*"\([^"]*\)"$/\1/p'
}

# list DOCUMENT: the list of files in a document for cloud-init or Ignition; nothing if it has none.
list() {
  local encoded
  encoded="$(awk -v path="- path: '$folder/files'" '$0 == path { n = NR } n && /^    / { print $1; exit }' "$1")"
  if [ "$encoded" ]; then
    base64 -d <<< "$encoded"
  else
    printf %b "$(sed -n "s|.*\"path\":\"$folder/files\"[^}]*\"source\":\"data:,\([^\"]*\)\".*|\1|p" "$1" | sed 's/%/\\x/g')"
  fi
}

# without_content LIST: its lines as digest, mode and path; of OTHERS, of files that are not taken.
without_content() {
  awk -v only="${2:-}" 'NF > 3 && (only == "" || $3 == "-")' "$1" | cut -d ' ' -f 1,2,4-
}

# replace DIGEST MODE CONTENT PATH: writes a file beside its place, and moves it there. The name
# begins with a dot, which those who read a whole folder leave out.
replace() {
  local at new
  mkdir -p "${4%/*}" && at="$(readlink -f -- "$4")" && new="${at%/*}/.${at##*/}.osm-new" || return 1
  (umask 077 && base64 -d <<< "$3" > "$new") && [ "$(sha256sum < "$new")" = "$1  -" ] &&
    chmod "$2" "$new" && sync "$new" && mv "$new" "$at" && echo "replaced $4" >&2 && return 0
  rm -f "$new"
  return 1
}

# place LIST: puts the files into place that differ between the two lists and that their readers
# read again by themselves. What somebody has changed on this machine alone stays. Each file is
# whole at any time; what an attempt that did not end may have put into place is noted.
place() {
  local digest mode content path
  cat "$folder/files" "$state/placing" > "$work/before" 2> /dev/null
  : > "$work/known"
  [ -s "$state/placing" ] || without_content "$folder/files" > "$work/known"
  cat "$1" >> "$state/placing" || return 1
  while read -r digest mode content path; do
    if [ ! "$path" ] || [ "$content" = - ] || grep -qxF -- "$digest $mode $path" "$work/known"; then
      continue
    fi
    replace "$digest" "$mode" "${content#.}" "$path" || return 1
  done < "$1"
  awk 'NF > 3 && $3 != "-"' "$work/before" | cut -d ' ' -f 4- | sort -u > "$work/taken"
  cut -d ' ' -f 4- "$1" > "$work/paths"
  while read -r path; do
    grep -qxF -- "$path" "$work/paths" && continue
    rm -f "$path" && echo "removed $path" >&2 || return 1
    # The empty folder of a registry would hide the one for all of them.
    case "$path" in
      /etc/containerd/certs.d/*) rmdir --ignore-fail-on-non-empty "${path%/*}" 2> /dev/null ;;
    esac
  done < "$work/taken"
  # What is taken is as in the new list, and anything else as it was.
  awk '
    NF < 4 { next }
    { path = $0; sub(/^[^ ]* [^ ]* [^ ]* /, "", path) }
    NR == FNR { now[path] = $3; if ($3 != "-") print; next }
    path in now && now[path] != "-" { next }
    $3 == "-" { print; next }
    path in now { print $1, $2, "-", path }' "$1" "$folder/files" > "$work/files" &&
    install -m 600 "$work/files" "$folder/files.new" && sync "$folder/files.new" &&
    mv "$folder/files.new" "$folder/files" && rm -f "$state/placing"
}

# follow: looks at the document that new machines get, and notes what only a new machine has of it.
follow() {
  local content
  content="$(ask "$document" --header @"$folder/header" \
    --header 'Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1' |
    value operatingsystemmanager.k8c.io/content)"
  [ "$content" ] || return 1
  [ "$content" != "$(cat "$state/content" 2> /dev/null)" ] || return 0
  rm -f "$state/content"
  ask "$document" --header @"$folder/header" | value cloud-config > "$work/encoded" &&
    base64 -d < "$work/encoded" > "$work/document" && list "$work/document" > "$work/list" || return 1
  : > "$work/behind"
  if [ -s "$work/list" ]; then
    case "$(tail -n 1 "$work/list")" in
      'end Reload') place "$work/list" || return 1 ;;
      'end Report') ;;
      *) return 1 ;;
    esac
    # The lines of one list alone, without this script, with which the machine goes on.
    { without_content "$work/list" others; without_content "$folder/files" others; } | sort | uniq -u |
      cut -d ' ' -f 3- | sort -u | grep -vxF /opt/bin/osm-machine > "$work/behind"
  elif ! grep -q '^#cloud-config\|^{"ignition"' "$work/document"; then
    return 1
  fi
  mv "$work/behind" "$state/behind" && echo "$content" > "$state/content"
}

# differing: the path of each file that is missing, or has another content, mode or owner.
differing() {
  local digest mode path
  while read -r digest mode _ path; do
    [ "$path" ] && [ "$digest" != - ] || continue
    if [ "$(stat -L --format '%a %u %g' -- "$path" 2> /dev/null)" != "$mode 0 0" ] ||
      [ "$(sha256sum 2> /dev/null < "$path")" != "$digest  -" ]; then
      echo "$path"
    fi
  done < "$folder/files"
}

# failing: each service of the document that has failed, or is started again and again.
failing() {
  local path unit
  while read -r _ _ _ path; do
    unit="${path#/etc/systemd/system/}"
    case "$unit" in
      */*) continue ;;
      *.service) ;;
      *) continue ;;
    esac
    case "$(systemctl show --property ActiveState --property SubState "$unit")" in
      *ActiveState=failed* | *SubState=auto-restart*) echo "$unit" ;;
    esac
  done < "$folder/files"
}

# named: the first five lines and how many more there are, in a text that JSON takes as it is.
named() {
  LC_ALL=C tr -c '[:print:]\n' '?' | tr '"\\' '??' | cut -c -200 | awk '
    ++n <= 5 { text = text (n > 1 ? ", " : "") $0 }
    END { print text (n > 5 ? " and " n - 5 " more" : "") }'
}

# due: whether it is time to look at the document. Machines of one deployment do not ask together.
due() {
  local next
  next="$(cat "$state/next" 2> /dev/null)"
  [[ $next =~ ^[0-9]+$ ]] && [ "$next" -gt "$seconds" ] && [ "$next" -lt $((seconds + 150)) ] && return 1
  echo $((seconds + 90 + RANDOM % 60)) > "$state/next"
}

if [ "$document" ] && due; then
  if follow; then
    rm -f "$state/failing"
  elif [ ! -s "$state/failing" ]; then
    echo "$now $seconds" > "$state/failing"
  fi
fi

status=False reason='' message=''
# tell REASON TEXT LINES: adds to the message; the first reason counts.
tell() {
  [ "$3" ] || return 0
  reason="${reason:-$1}"
  message="$message${message:+; }$2: $(named <<< "$3")"
}
tell FilesDiffer 'not as in the document' "$(differing)"
tell ServicesFail failing "$(failing)"
tell Behind 'a newer document differs in' "$(cat "$state/behind" 2> /dev/null)"
if [ ! "$reason" ]; then
  status=True
  reason=Applied
  message='the files are as in the document, and its services run'
fi
since='' begun=''
[ -f "$state/failing" ] && read -r since begun < "$state/failing"
if [[ $begun =~ ^[0-9]+$ ]] && [ $((seconds - begun)) -ge 900 ]; then
  message="$message; following the document has failed since $since"
fi

# What was reported last: its status, since when, and when that was; and the rest.
known_status='' since='' sent=0 known=''
if [ -f "$state/last" ]; then
  { read -r known_status since sent; read -r known; } < "$state/last"
fi
[ "$status" = "$known_status" ] && [ "$since" ] || since="$now"
[[ $sent =~ ^[0-9]+$ ]] || sent=0
age=$((seconds - sent))
if [ "$reason $message" = "$known" ] && [ "$age" -ge 0 ] && [ "$age" -lt 3600 ]; then
  exit 0
fi
printf '{"status":{"conditions":[{"type":"DocumentApplied","status":"%s","reason":"%s","message":"%s","lastHeartbeatTime":"%s","lastTransitionTime":"%s"}]}}' \
  "$status" "$reason" "$message" "$now" "$since" |
  ask "nodes/$node/status" --cert "$certificate" --request PATCH --data @- --output /dev/null \
    --header 'Content-Type: application/strategic-merge-patch+json' || exit 1
printf '%s\n' "$status $since $seconds" "$reason $message" > "$state/last.new" &&
  mv "$state/last.new" "$state/last"
