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
work="$(mktemp -d -p /run)"
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

# list: the list of files in a document for cloud-init or Ignition.
list() {
  local encoded
  encoded="$(awk -v path="- path: '$folder/files'" '$0 == path { n = NR } n && /^    / { print $1; exit }' "$1")"
  if [ "$encoded" ]; then
    base64 -d <<< "$encoded"
  else
    encoded="$(sed -n "s|.*\"path\":\"$folder/files\"[^}]*\"source\":\"data:,\([^\"]*\)\".*|\1|p" "$1")"
    printf %b "${encoded//%/\\x}"
  fi
}

# replace DIGEST MODE CONTENT PATH: writes a file beside its place, and moves it there.
replace() {
  mkdir -p "${4%/*}" && base64 -d <<< "$3" > "$4.osm-new" && [ "$(sha256sum < "$4.osm-new")" = "$1  -" ] &&
    chmod "$2" "$4.osm-new" && sync "$4.osm-new" && mv "$4.osm-new" "$4" && echo "replaced $4" >&2 && return 0
  rm -f "$4.osm-new"
  return 1
}

# place LIST: puts the files into place that are other ones there and that their readers read again
# by themselves. Each is whole at any time; if this ends early, the next time does the rest.
place() {
  local digest mode content path
  while read -r digest mode content path; do
    if [ "$content" = - ] || grep -qxF "$digest $mode $content $path" "$folder/files"; then
      continue
    fi
    replace "$digest" "$mode" "${content#.}" "$path" || return 1
  done < "$1"
  while read -r _ _ content path; do
    if [ "$content" != - ] && ! cut -d ' ' -f 4- "$1" | grep -qxF "$path"; then
      rm -f "$path" && echo "removed $path" >&2 || return 1
    fi
  done < "$folder/files"
  { awk '$3 == "-"' "$folder/files" && awk '$3 != "-"' "$1"; } > "$work/files" &&
    install -m 600 "$work/files" "$folder/files.new" && sync "$folder/files.new" &&
    mv "$folder/files.new" "$folder/files"
}

# follow: looks at the document that new machines get, and notes what only a new machine has of it.
follow() {
  local content
  content="$(ask "$document" --header @"$folder/header" \
    --header 'Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1' |
    value operatingsystemmanager.k8c.io/content)" || return 1
  [ "$content" ] || return 1
  if [ "$content" != "$(cat "$state/content" 2> /dev/null)" ]; then
    ask "$document" --header @"$folder/header" | value cloud-config > "$work/encoded" &&
      base64 -d < "$work/encoded" > "$work/document" && list "$work/document" > "$work/list" || return 1
    [ "$(tail -n 1 "$work/list")" = end ] && sed -i '$d' "$work/list" && place "$work/list" || return 1
    # The lines of one list alone.
    awk '$3 == "-"' "$work/list" | sort - <(awk '$3 == "-"' "$folder/files") | uniq -u | cut -d ' ' -f 4- |
      sort -u > "$state/behind" && echo "$content" > "$state/content" || return 1
  fi
}

# differing: the path of each file that is missing, or has another content, mode or owner.
differing() {
  local digest mode path
  while read -r digest mode _ path; do
    if [ "$(stat --format '%a %u %g' -- "$path" 2> /dev/null)" != "$mode 0 0" ] ||
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

if [ "$document" ] && [ "$seconds" -ge "$(cat "$state/next" 2> /dev/null || echo 0)" ]; then
  # Machines of one deployment do not ask at the same time.
  echo $((seconds + 90 + RANDOM % 60)) > "$state/next"
  if follow; then
    rm -f "$state/failing"
  elif [ ! -f "$state/failing" ]; then
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
if read -r since begun 2> /dev/null < "$state/failing" && [ $((seconds - begun)) -ge 900 ]; then
  message="$message; following the document has failed since $since"
fi

# What was reported last: its status, since when, and when that was; and the rest.
known_status='' since='' sent=0 known=''
if [ -f "$state/last" ]; then
  { read -r known_status since sent; read -r known; } < "$state/last"
fi
[ "$status" = "$known_status" ] || since="$now"
age=$((seconds - sent))
if [ "$reason $message" = "$known" ] && [ "$age" -ge 0 ] && [ "$age" -lt 3600 ]; then
  exit 0
fi
printf '{"status":{"conditions":[{"type":"DocumentApplied","status":"%s","reason":"%s","message":"%s","lastHeartbeatTime":"%s","lastTransitionTime":"%s"}]}}' \
  "$status" "$reason" "$message" "$now" "$since" |
  ask "nodes/$node/status" --cert "$certificate" --request PATCH --data @- --output /dev/null \
    --header 'Content-Type: application/strategic-merge-patch+json' || exit 1
printf '%s\n' "$status $since $seconds" "$reason $message" > "$state/last.new"
mv "$state/last.new" "$state/last"
