// Reads kubelet configurations, and those of image credential providers, as the kubelet of a minor
// does: kubelet-config 1.34 FILE... Decoding is strict, so that an unknown field, a field that
// stands twice and a value of a wrong type are errors; then quantities are parsed, which the
// configuration carries as text. No released program does only this, and a kubelet itself goes
// on to need a machine.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	oldestproviders "k8s.io/kubelet-1.34/config/v1"
	oldest "k8s.io/kubelet-1.34/config/v1beta1"
	providers "k8s.io/kubelet/config/v1"
	"k8s.io/kubelet/config/v1beta1"
)

func main() {
	scheme := runtime.NewScheme()
	known := map[string][]func(*runtime.Scheme) error{
		"1.34": {oldest.AddToScheme, oldestproviders.AddToScheme},
		"1.37": {v1beta1.AddToScheme, providers.AddToScheme},
	}
	for _, add := range known[os.Args[1]] {
		if err := add(scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	status := 0
	for _, path := range os.Args[2:] {
		if err := check(decoder, path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			status = 1
			continue
		}
		fmt.Println(path, "ok")
	}
	os.Exit(status)
}

func check(decoder runtime.Decoder, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	object, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return err
	}
	switch it := object.(type) {
	case *v1beta1.KubeletConfiguration:
		return all(it.KubeReserved, it.SystemReserved, it.EvictionHard, it.ContainerLogMaxSize)
	case *oldest.KubeletConfiguration:
		return all(it.KubeReserved, it.SystemReserved, it.EvictionHard, it.ContainerLogMaxSize)
	case *providers.CredentialProviderConfig, *oldestproviders.CredentialProviderConfig:
		return nil
	}
	return fmt.Errorf("a %T is no KubeletConfiguration", object)
}

func all(kubeReserved, systemReserved, evictionHard map[string]string, logSize string) error {
	size := map[string]string{}
	if logSize != "" {
		size[""] = logSize
	}
	return errors.Join(
		quantities("kubeReserved", kubeReserved),
		quantities("systemReserved", systemReserved),
		quantities("evictionHard", evictionHard),
		quantities("containerLogMaxSize", size),
	)
}

// Thresholds of evictions may be percentages, which the decoder of quantities does not know.
func quantities(field string, texts map[string]string) error {
	var problems []error
	for name, text := range texts {
		number, isPercentage := strings.CutSuffix(text, "%")
		if isPercentage && field != "evictionHard" {
			number = text
		}
		if _, err := resource.ParseQuantity(number); err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %q: %w", field, name, text, err))
		}
	}
	return errors.Join(problems...)
}
