// Asks a containerd for images as a kubelet does, so that containerd uses the registries and the
// credentials of its configuration. `ctr` would use its own. What containerd answers is printed.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	connection, err := grpc.NewClient("unix:///run/containerd/containerd.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client := runtime.NewImageServiceClient(connection)
	for _, image := range os.Args[1:] {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		_, err := client.PullImage(ctx, &runtime.PullImageRequest{
			Image: &runtime.ImageSpec{Image: image},
		})
		cancel()
		fmt.Println(image, err)
	}
}
