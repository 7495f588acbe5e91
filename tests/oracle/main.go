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

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: oracle <cases> <golden.json>")
		os.Exit(2)
	}
	source, err := os.ReadFile(os.Args[1])
	check(err)
	var made any
	switch os.Args[1] {
	case "fields.go":
		writeRows(os.Args[2], matrix())
		return
	case "urls.go":
		check(os.WriteFile(os.Args[2], lines(urls()), 0o644))
		return
	}
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

// lines has a row of JSON on each line.
func lines(rows [][2]any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, row := range rows {
		check(encoder.Encode(row))
	}
	return out.Bytes()
}

// writeRows writes one row per line.
func writeRows(path string, made *Matrix) {
	var out bytes.Buffer
	line := func(value any) {
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		check(encoder.Encode(value))
	}
	line(made.Filled)
	line(made.Bare)
	for _, row := range made.Rows {
		line(row)
	}
	check(os.WriteFile(path, out.Bytes(), 0o644))
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
