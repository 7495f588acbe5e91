#!/bin/bash
# Version: github.com/containerd/containerd/v2 2.2.9 of Go's proxy, with the HTTP servers of Go 1.26,
# of Node 20.20.2 and of Python 3.11.7.
#
# Behaviour: containerd asks a registry on localhost by HTTPS first, and by HTTP if that is none.
#
# Expected: a server without TLS cannot complete a handshake, so that it is asked by HTTP, whatever
# server it is.
#
# Seen: it is asked by HTTP only if its answer to the handshake begins with `HTTP/`, as that of most
# servers does, which complain about a request that they cannot read. Python's answers such a request
# by HTTP 0.9, without that line, and one that closes the connection has no answer: images of such
# registries cannot be pulled, with an error that speaks of TLS.
#
# Here: the page about registries names the case, and the test's registry answers as Go's do.
set -euo pipefail
folder="$(mktemp -d)"
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod << 'EOF'
module fallback

go 1.26

require github.com/containerd/containerd/v2 v2.2.9
EOF
cat > main.go << 'EOF'
package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
)

func ask(server, address string) {
	transport := &http.Transport{TLSHandshakeTimeout: 5 * time.Second}
	client := http.Client{Transport: docker.NewHTTPFallback(transport)}
	answer, err := client.Head("https://" + address + "/v2/")
	if err != nil {
		fmt.Println(server+": not reached")
		return
	}
	fmt.Println(server+": reached by", answer.Request.URL.Scheme, answer.StatusCode)
}

func main() {
	own := httptest.NewServer(http.NotFoundHandler())
	ask("Go", strings.TrimPrefix(own.URL, "http://"))
	for _, argument := range os.Args[1:] {
		server, address, _ := strings.Cut(argument, "=")
		ask(server, address)
	}
	closing, _ := net.Listen("tcp", "localhost:0")
	go func() {
		for {
			connection, _ := closing.Accept()
			connection.Close()
		}
	}()
	ask("one that closes the connection", closing.Addr().String())
}
EOF
go mod tidy 2> /dev/null
python3 - << 'EOF' > python 2> /dev/null &
import http.server
server = http.server.ThreadingHTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
print("Python=localhost:%d" % server.server_port, flush=True)
server.serve_forever()
EOF
node -e '
const server = require("http").createServer((_, answer) => { answer.statusCode = 404; answer.end(); });
server.listen(0, "localhost", () => console.log("Node=localhost:" + server.address().port));
' > node &
until [ -s python ] && [ -s node ]; do sleep 0.1; done
go run . "$(cat node)" "$(cat python)" 2> log | tee seen
diff seen - << 'EOF'
Go: reached by http 404
Node: reached by http 404
Python: not reached
one that closes the connection: not reached
EOF
