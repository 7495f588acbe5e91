set -o pipefail
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

# compared TAKEN LIST...: digest, mode and path of the files of lists; without TAKEN, of those alone
# that are not taken. This script is left out: the machine goes on with it.
compared() {
  awk -v taken="$1" '
    NF > 3 && (taken || $3 == "-") {
      head = $1 " " $2 " "
      sub(/^[^ ]* [^ ]* [^ ]* /, "")
      if ($0 != "/opt/bin/osm-machine") print head $0
    }' "${@:2}"
}

# is_so DIGEST MODE PATH: whether a file has this content and mode, and belongs to root.
is_so() {
  [ "$(stat -L --format '%a %u %g' -- "$3" 2> /dev/null)" = "$2 0 0" ] && [ "$(sha256sum 2> /dev/null < "$3")" = "$1  -" ]
}

# replace DIGEST MODE CONTENT PATH: writes a file beside its place, and moves it there. The name
# begins with a dot, which those who read a whole folder leave out.
replace() {
  local at new
  mkdir -p "${4%/*}" && at="$(readlink -f -- "$4")" && new="${at%/*}/.${at##*/}.osm-new" || return 1
  (umask 077 && base64 -d <<< "$3" > "$new") && [ "$(sha256sum < "$new")" = "$1  -" ] && chmod "$2" "$new" &&
    sync "$new" && mv -T "$new" "$at" && echo "replaced $4" >&2 && return 0
  rm -f "$new"
  return 1
}

# note PATH: remembers that a file is being replaced, until the list says so.
note() {
  grep -qxF -- "$1" "$state/placing" && return 0
  { cat "$state/placing" && printf '%s\n' "$1"; } > "$state/placing.new" && sync "$state/placing.new" &&
    mv "$state/placing.new" "$state/placing" && sync "$state"
}

# place LIST: puts the files into place that differ between the two lists and that their readers
# read again by themselves. What somebody has changed on this machine alone stays. Each file is
# whole at any time; one that fails does not hold up the others, and the next time does the rest.
place() {
  local digest mode content path result=0
  [ -e "$state/placing" ] || : > "$state/placing" || return 1
  # What is as in the document of this machine, as far as nobody has begun to replace it.
  awk '
    FILENAME == ARGV[1] { begun[$0]; next }
    NF > 3 { head = $1 " " $2 " "; sub(/^[^ ]* [^ ]* [^ ]* /, ""); if (!($0 in begun)) print head $0 }' \
    "$state/placing" "$folder/files" > "$work/known" || return 1
  # What was taken, and is gone. What was not taken stays.
  awk '
    FILENAME != ARGV[3] { if (NF < 4) next; content = $3; sub(/^[^ ]* [^ ]* [^ ]* /, "") }
    FILENAME == ARGV[1] { there[$0]; next }
    FILENAME == ARGV[2] && content == "-" { there[$0]; next }
    !($0 in there) { print }' "$1" "$folder/files" "$state/placing" > "$work/gone" || return 1
  while read -r digest mode content path; do
    if [ ! "$path" ] || [ "$content" = - ] || grep -qxF -- "$digest $mode $path" "$work/known" ||
      is_so "$digest" "$mode" "$path"; then
      continue
    fi
    note "$path" && replace "$digest" "$mode" "${content#.}" "$path" || result=1
  done < "$1"
  while read -r path; do
    [ ! -d "$path" ] || continue
    rm -f -- "$path" "${path%/*}/.${path##*/}.osm-new" && echo "removed $path" >&2 || result=1
    # The empty folder of a registry would hide the one for all of them.
    case "$path" in
      /etc/containerd/certs.d/*) rmdir --ignore-fail-on-non-empty "${path%/*}" 2> /dev/null ;;
    esac
  done < "$work/gone"
  [ "$result" = 0 ] || return 1
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
  : > "$work/behind" || return 1
  if [ -s "$work/list" ]; then
    local taken=''
    case "$(tail -n 1 "$work/list")" in
      'end Reload') place "$work/list" || return 1 ;;
      'end Report') taken=1 ;;
      *) return 1 ;;
    esac
    # The lines of one list alone.
    compared "$taken" "$work/list" "$folder/files" | sort | uniq -u | cut -d ' ' -f 3- | sort -u > "$work/behind" ||
      return 1
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
    is_so "$digest" "$mode" "$path" || echo "$path"
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
  return 0
}

# is_time TEXT: whether it is a time that an API server takes.
is_time() {
  [[ $1 =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$ ]]
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
if is_time "$since" && [[ $begun =~ ^[0-9]+$ ]] && [ $((seconds - 10#$begun)) -ge 900 ]; then
  message="$message; following the document has failed since $since"
fi

# What was reported last: its status, since when, and when that was; and the rest.
known_status='' since='' sent=0 known=''
if [ -f "$state/last" ]; then
  { read -r known_status since sent; read -r known; } < "$state/last"
fi
[ "$status" = "$known_status" ] && is_time "$since" || since="$now"
[[ $sent =~ ^[0-9]+$ ]] || sent=0
age=$((seconds - 10#$sent))
if [ "$reason $message" = "$known" ] && [ "$age" -ge 0 ] && [ "$age" -lt 3500 ]; then
  exit 0
fi
# The annotation, with the time, is for those who list the metadata of nodes alone.
printf '{"metadata":{"annotations":{"operatingsystemmanager.k8c.io/machine-report":"%s %s"}},"status":{"conditions":[{"type":"DocumentApplied","status":"%s","reason":"%s","message":"%s","lastHeartbeatTime":"%s","lastTransitionTime":"%s"}]}}' \
  "$reason" "$now" "$status" "$reason" "$message" "$now" "$since" |
  ask "nodes/$node/status" --cert "$certificate" --request PATCH --data @- --output /dev/null \
    --header 'Content-Type: application/strategic-merge-patch+json' || exit 1
printf '%s\n' "$status $since $seconds" "$reason $message" > "$state/last.new" &&
  mv "$state/last.new" "$state/last"
