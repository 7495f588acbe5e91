package main

import (
	"bytes"
	"encoding/json"
	"os"
	"text/template"
)

// Profile is one file with the named templates beside it, and what the file rendered to.
type Profile struct {
	Templates map[string]string `json:"templates"`
	File      string            `json:"file"`
	Output    string            `json:"output,omitempty"`
	Failed    bool              `json:"failed,omitempty"`
}

// profiles renders files whose named templates are interpreted twice.
func profiles(source []byte) []Profile {
	var cases []Profile
	check(json.Unmarshal(source, &cases))
	for index := range cases {
		output, err := cases[index].render()
		cases[index].Output, cases[index].Failed = output, err != nil
		if err != nil && os.Getenv("ORACLE_ERRORS") != "" {
			println(err.Error())
		}
	}
	return cases
}

func (p *Profile) render() (string, error) {
	texts := map[string]string{}
	for name, text := range p.Templates {
		rendered, err := execute(template.New(name).Funcs(functions()).Parse(text))
		if err != nil {
			return "", err
		}
		texts[name] = rendered
	}
	file, err := template.New("/f").Funcs(functions()).Parse(p.File)
	if err != nil {
		return "", err
	}
	for name, text := range texts {
		file, err = file.Parse("\n{{- define \"" + name + "\" }}\n" + text + "\n{{- end }}")
		if err != nil {
			return "", err
		}
	}
	return execute(file, nil)
}

func execute(parsed *template.Template, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, data())
	return out.String(), err
}
