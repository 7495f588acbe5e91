// The oracle renders cases with Go's own text/template and sprig, so that tests can compare.
//
// It reads cases from a file (see README.md) and writes them back with what came out.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"gopkg.in/yaml.v3"
)

// Case is one template with what it rendered to.
type Case struct {
	Template string `json:"template"`
	Output   string `json:"output,omitempty"`
	Failed   bool   `json:"failed,omitempty"`
}

// Network is the type of the one struct that profiles reach by a pointer.
type Network struct {
	CIDR     string `json:"cidr"`
	Gateway  string `json:"gateway"`
	DNS      DNS    `json:"dns"`
	IPFamily string `json:"ipFamily"`
}

// DNS lists servers.
type DNS struct {
	Servers []string `json:"servers"`
}

// IsStaticIPConfig can be called on nil.
func (n *Network) IsStaticIPConfig() bool {
	return n != nil && (n.CIDR != "" || n.Gateway != "" || len(n.DNS.Servers) > 0)
}

// GetIPFamily can be called on nil.
func (n *Network) GetIPFamily() string {
	if n == nil {
		return ""
	}
	return n.IPFamily
}

// Duration prints as a text.
type Duration struct {
	time.Duration
}

// Ubuntu is a struct by value.
type Ubuntu struct {
	DistUpgradeOnBoot bool `json:"distUpgradeOnBoot"`
}

// Data is what templates read; the tests render the same values.
type Data struct {
	KubeVersion                 string
	ClusterDNSIPs               []string
	CloudProviderName           string
	HostCACert                  string
	ExternalCloudProvider       bool
	HTTPProxy                   *string
	NoProxy                     *string
	KubeletFeatureGates         map[string]bool
	KubeReserved                *map[string]string
	SystemReserved              *map[string]string
	EvictionHard                *map[string]string
	MaxPods                     *int32
	ImageGCHighThresholdPercent *int32
	ImageMinimumGCAge           *Duration
	NetworkConfig               *Network
	UbuntuConfig                Ubuntu
	ContainerLogMaxSize         *string
}

func data() *Data {
	proxy, size, pods := "http://proxy.example.com:3128", "", int32(110)
	return &Data{
		KubeVersion:           "v1.34.1",
		ClusterDNSIPs:         []string{"10.0.0.10", "fd00::a"},
		CloudProviderName:     "aws",
		ExternalCloudProvider: true,
		HTTPProxy:             &proxy,
		KubeletFeatureGates:   map[string]bool{"B": false, "A": true, "C": true},
		KubeReserved:          &map[string]string{"memory": "1Gi", "cpu": "200m"},
		SystemReserved:        &map[string]string{},
		MaxPods:               &pods,
		ImageMinimumGCAge:     &Duration{90 * time.Second},
		ContainerLogMaxSize:   &size,
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: oracle <cases> <golden.json>")
		os.Exit(2)
	}
	source, err := os.ReadFile(os.Args[1])
	check(err)
	var made any
	if strings.HasSuffix(os.Args[1], ".json") {
		made = profiles(source)
	} else {
		made = templates(string(source))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	check(encoder.Encode(made))
	check(os.WriteFile(os.Args[2], out.Bytes(), 0o644))
}

// templates renders each line by itself.
func templates(source string) []Case {
	var cases []Case
	for _, text := range strings.Split(strings.TrimSuffix(source, "\n"), "\n") {
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		text = strings.ReplaceAll(text, "⏎", "\n")
		output, err := render(text)
		if err != nil && os.Getenv("ORACLE_ERRORS") != "" {
			fmt.Fprintln(os.Stderr, err)
		}
		cases = append(cases, Case{Template: text, Output: output, Failed: err != nil})
	}
	return cases
}

// render does what is done with a file of a profile.
func render(text string) (string, error) {
	return execute(template.New("file").Funcs(functions()).Parse(text))
}

func functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	all["toYaml"] = func(value any) string {
		out, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	all["fromYaml"] = func(text string) map[string]any {
		value := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			value["Error"] = err.Error()
		}
		return value
	}
	all["fromYamlArray"] = func(text string) []any {
		value := []any{}
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			value = []any{err.Error()}
		}
		return value
	}
	all["toJson"] = func(value any) string {
		out, err := json.Marshal(value)
		if err != nil {
			return ""
		}
		return string(out)
	}
	all["fromJson"] = func(text string) map[string]any {
		value := map[string]any{}
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			value["Error"] = err.Error()
		}
		return value
	}
	all["fromJsonArray"] = func(text string) []any {
		value := []any{}
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			value = []any{err.Error()}
		}
		return value
	}
	all["toToml"] = func(value any) string {
		var out bytes.Buffer
		if err := toml.NewEncoder(&out).Encode(value); err != nil {
			return err.Error()
		}
		return out.String()
	}
	all["fromToml"] = func(text string) map[string]any {
		value := map[string]any{}
		if err := toml.Unmarshal([]byte(text), &value); err != nil {
			value["Error"] = err.Error()
		}
		return value
	}
	return all
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
