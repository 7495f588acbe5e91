// Decodes dashboards into Grafana's own types, and prints each field that Grafana does not know or
// that has a wrong value: grafana-dashboards FILE...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "name at least one file")
		os.Exit(2)
	}
	status := 0
	for _, path := range os.Args[1:] {
		for _, mistake := range mistakes(path) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, mistake)
			status = 1
		}
	}
	os.Exit(status)
}

func mistakes(path string) []error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return []error{err}
	}
	found := each("", new(dashboard.Dashboard).UnmarshalJSONStrict(raw))
	// The strict decoder says what is wrong, but keeps no panels. The other one keeps them.
	var decoded dashboard.Dashboard
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return append(found, err)
	}
	found = append(found, each("", decoded.Validate())...)
	var parts struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return append(found, err)
	}
	for index, part := range parts.Panels {
		place := fmt.Sprintf("panels[%d]", index)
		either := decoded.Panels[index]
		if either.Panel != nil {
			found = append(found, part.mistakes(place, either.Panel)...)
			continue
		}
		for index, part := range part.Panels {
			place := fmt.Sprintf("%s.panels[%d]", place, index)
			found = append(found, part.mistakes(place, &either.RowPanel.Panels[index])...)
		}
	}
	return found
}

// The parts of a panel that the package does not decode strictly with it.
type panel struct {
	FieldConfig json.RawMessage `json:"fieldConfig"`
	Panels      []panel         `json:"panels"`
}

func (part panel) mistakes(place string, decoded *dashboard.Panel) []error {
	var config dashboard.FieldConfigSource
	found := each(place+".fieldConfig.", config.UnmarshalJSONStrict(part.FieldConfig))
	// If the type of a panel or of a query is not known, none of its own fields is decoded.
	if _, known := cog.ConfigForPanelcfgVariant(decoded.Type); !known {
		found = append(found, fmt.Errorf("%s.type: unknown panel '%s'", place, decoded.Type))
	}
	for index, target := range decoded.Targets {
		if _, is := target.(variants.UnknownDataquery); is {
			found = append(found, fmt.Errorf("%s.targets[%d].datasource: unknown", place, index))
		}
	}
	return found
}

// Without mistakes, the package returns an empty list that is an error.
func each(place string, err error) []error {
	var list cog.BuildErrors
	if !errors.As(err, &list) {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var found []error
	for _, mistake := range list {
		found = append(found, fmt.Errorf("%s%w", place, mistake))
	}
	return found
}
