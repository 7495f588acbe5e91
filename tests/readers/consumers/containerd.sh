#!/bin/bash
# Starts a containerd with the configuration in FOLDER/etc, asks it for images as a kubelet does,
# and leaves what it said in FOLDER. To be run in mount, network and process namespaces of its own:
# it lays folders over /etc, /opt and /run.
#
# usage: containerd.sh FOLDER CONTAINERD-PROGRAMS OTHER-PROGRAMS IMAGE...
set -euo pipefail
folder=$1
PATH=$2:$3:/usr/sbin:/usr/bin:/sbin:/bin
shift 3

ip link set lo up
private=$folder/private
mkdir "$private"
mount -t tmpfs tmpfs "$private"
for covered in etc opt; do
  mkdir -p "$private/$covered"/{upper,work}
  mount -t overlay overlay "/$covered" \
    -o "lowerdir=/$covered,upperdir=$private/$covered/upper,workdir=$private/$covered/work"
done
mount -t tmpfs tmpfs /run
cp -r "$folder/etc/." /etc/
echo "127.0.0.1 own.test" >> /etc/hosts

# A registry that nobody vouches for, and one without TLS. They want a name and a password, and
# note what they get.
python3 - "$folder" <<'PYTHON' &
import http.server
import socket
import ssl
import sys
import threading

folder = sys.argv[1]

class Registry(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        given = self.headers.get("Authorization")
        with open(folder + "/authorizations", "a") as notes:
            print(given, file=notes)
        self.send_response(404 if given else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="here"')
        self.end_headers()
    do_GET = do_HEAD

class Plain(Registry):
    # What programs in Go answer to who begins with TLS.
    def handle(self):
        if self.request.recv(1, socket.MSG_PEEK) == b"\x16":
            self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        else:
            super().handle()

plain = http.server.ThreadingHTTPServer(("127.0.0.1", 5001), Plain)
threading.Thread(target=plain.serve_forever).start()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/registry.crt", folder + "/registry.key")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Registry)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
PYTHON
until (: < /dev/tcp/127.0.0.1/5000) 2> /dev/null; do
  kill -0 $!
  sleep 0.02
done

if ! containerd config dump > "$folder/dump.toml" 2> "$folder/dump.log"; then
  cat "$folder/dump.log" >&2
  exit 1
fi
containerd --log-level debug --root "$private/root" --state "$private/state" \
  > "$folder/containerd.log" 2>&1 &
until ctr version > /dev/null 2>&1; do
  if ! kill -0 $! 2> /dev/null; then
    cat "$folder/containerd.log" >&2
    exit 1
  fi
  sleep 0.02
done
ctr plugins ls > "$folder/plugins" 2> /dev/null
ctr deprecations list --format json > "$folder/deprecations.json" 2> /dev/null
{
  printf 'GET /v1/metrics HTTP/1.0\r\n\r\n' >&3
  cat <&3
} 3<> /dev/tcp/127.0.0.1/1338 > "$folder/metrics"
cri-pull "$@" > "$folder/pulls"
