// Prints what the kubelet of the Kubernetes that it is built with knows: a line for each feature
// gate (its default, if it is locked to it, and what else must be on), each flag, and each field of
// a KubeletConfiguration with its type. `.ci/kubelet-facts` runs it.
package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		return err
	}
	configuration, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(flags)
	options.AddKubeletConfigFlags(flags, configuration)
	options.AddGlobalFlags(flags)
	lines := gates()
	flags.VisitAll(func(flag *pflag.Flag) { lines = append(lines, "flag "+flag.Name) })
	lines = append(lines, fields("", reflect.TypeFor[v1beta1.KubeletConfiguration]())...)
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	return nil
}

func gates() []string {
	var lines []string
	needs := map[featuregate.Feature][]featuregate.Feature{}
	// Kubernetes before 1.35 has none.
	if gates, ok := any(utilfeature.DefaultMutableFeatureGate).(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	}); ok {
		needs = gates.Dependencies()
	}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		line := fmt.Sprintf("gate %s %s", name, map[bool]string{true: "on", false: "off"}[spec.Default])
		if spec.LockToDefault {
			line += " locked"
		}
		slices.Sort(needs[name])
		for _, need := range needs[name] {
			line += " " + string(need)
		}
		lines = append(lines, line)
	}
	return lines
}

func fields(prefix string, of reflect.Type) []string {
	var lines []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			lines = append(lines, fields(prefix, field.Type)...)
			continue
		}
		lines = append(lines, describe(prefix+name, field.Type)...)
	}
	return lines
}

func describe(path string, of reflect.Type) []string {
	if of.Kind() == reflect.Pointer {
		return describe(path, of.Elem())
	}
	pointer := reflect.PointerTo(of)
	switch {
	case pointer.Implements(reflect.TypeFor[json.Marshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return []string{"field " + path + " " + of.Name()}
	case of.Kind() == reflect.Struct:
		return append(fields(path+".", of), "field "+path+" object")
	case of.Kind() == reflect.Slice:
		return append(describe(path+"[]", of.Elem()), "field "+path+" list")
	case of.Kind() == reflect.Map:
		return append(describe(path+"{}", of.Elem()), "field "+path+" map")
	default:
		return []string{"field " + path + " " + of.Kind().String()}
	}
}
