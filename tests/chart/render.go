// SPDX-License-Identifier: Apache-2.0
// Renders the chart where there is no helm, with what helm itself is made of: Go's templates and sprig. Knows the
// functions and objects that our chart uses, no others. From Debian's packages golang-go,
// golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev:
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run render.go CHART [VALUES.yaml]
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	check(err)
	values := map[string]interface{}{}
	check(yaml.Unmarshal(text, &values))
	return values
}

// merge is helm's: maps into maps, null takes away.
func merge(into, from map[string]interface{}) {
	for key, value := range from {
		to, isMap := into[key].(map[string]interface{})
		more, both := value.(map[string]interface{})
		switch {
		case value == nil:
			delete(into, key)
		case isMap && both:
			merge(to, more)
		default:
			into[key] = value
		}
	}
}

func main() {
	folder := os.Args[1]
	values := load(filepath.Join(folder, "values.yaml"))
	for _, path := range os.Args[2:] {
		merge(values, load(path))
	}
	chart := map[string]interface{}{}
	for key, value := range load(filepath.Join(folder, "Chart.yaml")) {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	root := map[string]interface{}{
		"Values":  values,
		"Chart":   chart,
		"Release": map[string]interface{}{"Name": "gpuloom", "Namespace": "gpuloom-system", "Service": "Helm"},
	}
	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		check(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	functions["fromYaml"] = func(text string) map[string]interface{} {
		value := map[string]interface{}{}
		check(yaml.Unmarshal([]byte(text), &value))
		return value
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all.Funcs(functions)
	files, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	check(err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		check(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		check(err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		text, err := functions["include"].(func(string, interface{}) (string, error))(name, root)
		check(err)
		fmt.Printf("---\n# Source: %s\n%s\n", name, text)
	}
}
