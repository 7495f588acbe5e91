package main

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
)

// Matrix is every function with every field.
type Matrix struct {
	// Fields are the expressions that stand for @; those of the second list read the data in
	// which nothing that is optional is set.
	Filled []string `json:"filled"`
	Bare   []string `json:"bare"`
	Rows   []Row    `json:"rows"`
}

// Row is one template with what each field makes of it.
type Row struct {
	Template string `json:"template"`
	// Outputs has the indexes of fields by what they render to.
	Outputs map[string][]int `json:"outputs"`
	// Failed has the indexes of the fields with which it fails.
	Failed []int `json:"failed,omitempty"`
}

// refused depend on more than their arguments, or make keys.
var refused = strings.Fields(`ago bcrypt buildCustomCert date dateInZone dateModify date_in_zone
date_modify decryptAES derivePassword encryptAES env expandenv genCA genCAWithKey genPrivateKey
genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey getHostByName htmlDate
htmlDateInZone htpasswd mustDateModify mustToDate must_date_modify now randAlpha randAlphaNum
randAscii randBytes randInt randNumeric shuffle toDate unixEpoch uuidv4`)

// syntax has what is no entry of the map of functions.
var syntax = []string{
	"{{ @ }}", "{{ if @ }}yes{{ else }}no{{ end }}", "{{ with @ }}{{ . }}{{ end }}",
	"{{ range @ }}[{{ . }}]{{ end }}", "{{ range $k, $v := @ }}{{ $k }}={{ $v }};{{ end }}",
	"{{ not @ }}", "{{ and @ 1 }}", "{{ or @ 1 }}",
	"{{ eq @ @ }}", "{{ eq @ nil }}", "{{ eq 1 @ }}", "{{ eq @ 110 }}", "{{ eq @ 1.5 }}", "{{ eq @ \"aws\" }}",
	"{{ eq @ true }}", "{{ ne @ 110 }}", "{{ ne @ \"a\" }}", "{{ lt @ 100 }}", "{{ le @ 110 }}",
	"{{ gt @ 100 }}", "{{ ge 100 @ }}", "{{ lt @ \"b\" }}", "{{ lt @ 1.5 }}", "{{ gt @ @ }}",
	"{{ len @ }}", "{{ index @ 0 }}", "{{ index @ \"cpu\" }}", "{{ index (list 1 2) @ }}",
	"{{ slice @ 1 }}", "{{ slice @ 0 1 }}", "{{ slice \"abc\" @ }}", "{{ (dict \"k\" @).k }}",
	"{{ print @ }}", "{{ print @ @ 1 }}", "{{ println @ 1 }}", "{{ html @ }}", "{{ js @ }}", "{{ urlquery @ }}",
	"{{ printf @ }}", "{{ printf \"%s%s\" @ }}", "{{ printf \"a\" @ }}", "{{ printf \"%*d\" @ 1 }}",
	"{{ list @ }}", "{{ dict \"a\" @ }}", "{{ toJson (list @) }}", "{{ toYaml (dict \"a\" @) }}",
	"{{ toToml (dict \"a\" @) }}", "{{ add @ @ }}", "{{ add 255 (mul 11 @) }}Mi",
	"{{ eq (int @) 110 }}", "{{ eq (int64 @) 110 }}", "{{ gt (float64 @) 1.5 }}", "{{ lt (int @) 200 }}",
	"{{ has @ (list @) }}", "{{ has @ (list \"aws\" 110) }}", "{{ without (list @ 1) @ }}",
	"{{ uniq (list @ @ 110) }}", "{{ deepEqual @ @ }}", "{{ typeOf (list @) }}",
	"{{ kindOf (list @) }}", "{{ typeOf (int @) }} {{ typeOf (add @) }} {{ kindOf (add @) }}",
	"{{ until (int @) | len }}", "{{ until (add @) }}", "{{ repeat (int @) \"a\" }}", "{{ @.Nope }}",
	"{{ @.String }}", "{{ typeIs \"string\" @ }}", "{{ kindIs \"ptr\" @ }}", "{{ typeIsLike \"int32\" @ }}",
	"{{ default 5 @ }}", "{{ default @ 0 }}", "{{ coalesce @ 1 }}", "{{ ternary @ 1 true }}",
}

// matrix renders every function with each field in place of each of its arguments.
func matrix() *Matrix {
	bare := func() *Data { return &Data{CloudProviderName: "aws"} }
	made := &Matrix{Filled: fields(filled()), Bare: []string{
		".NetworkConfig", ".NetworkConfig.IsStaticIPConfig", ".NetworkConfig.GetIPFamily", ".HTTPProxy",
		".KubeReserved", ".MaxPods", ".ImageMinimumGCAge", ".ClusterDNSIPs", ".KubeletFeatureGates",
		".RHSubscription", ".FlatcarConfig", ".RhelConfig", ".KubeVersion",
	}}
	for _, text := range append(slices.Clone(syntax), calls()...) {
		row := Row{Template: text, Outputs: map[string][]int{}}
		for index, field := range made.Filled {
			row.add(index, field, filled)
		}
		for index, field := range made.Bare {
			row.add(len(made.Filled)+index, field, bare)
		}
		made.Rows = append(made.Rows, row)
	}
	return made
}

func (r *Row) add(index int, field string, data func() *Data) {
	text := strings.ReplaceAll(r.Template, "@", field)
	if strings.Contains(r.Template, "@.") {
		text = strings.ReplaceAll(r.Template, "@.", "("+field+").")
	}
	output, err := once(text, data())
	// What differs from one time to the next has an address in it.
	if again, _ := once(text, data()); err != nil || again != output {
		r.Failed = append(r.Failed, index)
		return
	}
	r.Outputs[output] = append(r.Outputs[output], index)
}

func once(text string, data *Data) (string, error) {
	parsed, err := template.New("file").Funcs(functions()).Parse(text)
	check(err)
	var out bytes.Buffer
	err = parsed.Execute(&out, data)
	return out.String(), err
}

// calls puts @ in place of each argument of each function, and something fitting in place of the
// others.
func calls() []string {
	var made []string
	all := functions()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains(refused, name) || strings.HasPrefix(name, "must") || name == "fail" {
			continue
		}
		kind := reflect.TypeOf(all[name])
		for position := range kind.NumIn() {
			for _, number := range []string{"2", "\"b\""} {
				text := "{{ " + name
				for index := range kind.NumIn() {
					if index == position {
						text += " @"
					} else {
						text += " " + filler(name, kind.In(index), number)
					}
				}
				if text += " }}"; !slices.Contains(made, text) {
					made = append(made, text)
				}
			}
		}
	}
	for _, verb := range "vdsqxXtfFeEgGcUobpT" {
		made = append(made, fmt.Sprintf("{{ printf \"%%%c\" @ }}", verb))
	}
	for _, verb := range []string{"%5d", "%-5v|", "%05d", "%+d", "%+v", "%#v", "%#x", "%.2f", "%.3s", "%8q", "% d"} {
		made = append(made, fmt.Sprintf("{{ printf \"%s\" @ }}", verb))
	}
	return made
}

// filler is an argument of a type.
func filler(name string, kind reflect.Type, free string) string {
	switch kind.String() {
	case "int":
		return "2"
	case "string":
		switch {
		case strings.HasPrefix(name, "semver"):
			return "\">=1.34.0-0\""
		case strings.HasPrefix(name, "regex"):
			return "\"[a-c0-9]\""
		}
		return "\"a,b\""
	case "bool":
		return "true"
	case "map[string]interface {}", "map[string]any":
		return "(dict \"a\" 1)"
	case "[]interface {}":
		return "(list 1 \"b\")"
	case "[]map[string]interface {}":
		return "(dict \"a\" 1)"
	case "[]string":
		return "\"a\""
	}
	if slices.Contains(strings.Fields("append push prepend first last rest initial reverse uniq without compact slice concat chunk join sortAlpha toStrings"), name) {
		return "(list \"a\" 1)"
	}
	return free
}

// fields are the expressions that read what a struct holds, at any depth.
func fields(data *Data) []string {
	made := walk("", reflect.ValueOf(*data))
	return append(made,
		".NetworkConfig.IsStaticIPConfig", ".NetworkConfig.GetIPFamily",
		".NetworkConfig.IPFamily.IsDualstack", ".NetworkConfig.GetIPFamily.HasIPv4",
		".NetworkConfig.IPFamily.HasIPv6", ".ImageMinimumGCAge.Seconds",
		".ImageMinimumGCAge.Duration.Minutes", "(index .ClusterDNSIPs 0)", ".KubeReserved.cpu",
		".KubeReserved.none", ".KubeletFeatureGates.A", "(semver .KubeVersion)",
		"(semver .KubeVersion).Minor", "(semver .KubeVersion).Prerelease",
		"((semver .KubeVersion).LessThan (semver \"1.35\"))", "(int64 .MaxPods)", "(float64 .MaxPods)",
	)
}

func walk(path string, value reflect.Value) []string {
	var made []string
	for index := range value.NumField() {
		name, field := path+"."+value.Type().Field(index).Name, value.Field(index)
		made = append(made, name)
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		if field.Kind() == reflect.Struct {
			made = append(made, walk(name, field)...)
		}
	}
	return made
}
