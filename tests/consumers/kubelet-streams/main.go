// Stands where an API server expects a kubelet, and forwards ports of pods with the kubelet's own
// code for streams: for each argument PORT=ADDRESS, that port of any pod leads to that address.
// Prints where it listens, and ends with its input. A kubelet itself would need a machine.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const (
	idle     = 5 * time.Minute
	creation = 30 * time.Second
)

// What each port of a pod leads to.
type ports map[string]string

func main() {
	pod := ports{}
	for _, argument := range os.Args[1:] {
		port, address, found := strings.Cut(argument, "=")
		if !found {
			fmt.Fprintf(os.Stderr, "%q is not PORT=ADDRESS\n", argument)
			os.Exit(2)
		}
		pod[port] = address
	}
	http.HandleFunc("/portForward/{namespace}/{pod}", pod.serve)
	server := httptest.NewTLSServer(http.DefaultServeMux)
	fmt.Println(server.Listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func (pod ports) serve(answer http.ResponseWriter, request *http.Request) {
	options, err := portforward.NewV4Options(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(answer, request, pod, request.PathValue("pod"), "", options, idle,
		creation, portforward.SupportedProtocols)
}

// PortForward copies between a stream and what the port leads to, until either ends.
func (pod ports) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	address, found := pod[fmt.Sprint(port)]
	if !found {
		return fmt.Errorf("nothing listens on port %d", port)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(connection, stream); ended <- err }()
	go func() { _, err := io.Copy(stream, connection); ended <- err }()
	return <-ended
}
