// SPDX-License-Identifier: Apache-2.0
// Renders the chart where there is no helm, with what helm itself is made of: Go's templates and sprig. Knows the
// functions and objects that our chart uses, no others. From Debian's packages golang-go,
// golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev:
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run render.go [FLAG…] CHART [VALUES.yaml…]
//
// What it does not do is to check the values: that is the schema's job (tests/chart/chart_test.py).
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

var (
	release   = flag.String("release", "gpuloom", "the release's name")
	namespace = flag.String("namespace", "gpuloom-system", "the release's namespace")
	service   = flag.String("service", "Helm", "who manages the objects")
	defaults  = flag.String("defaults", "", "values.yaml in place of the chart's own: an upgrade with --reuse-values")
	upgrade   = flag.Bool("upgrade", false, "an upgrade, not an installation")
	apis      = flag.String("apis", "", "what the cluster has besides Kubernetes itself, with commas: GROUP/VERSION/KIND")
	cluster   = flag.String("cluster", "", "the objects that the cluster has: a YAML list")
	only      = flag.String("only", "", "print this template alone")
)

// Values is a type of its own in helm, too, which some of sprig's functions do not take for a map.
type Values map[string]interface{}

type apiVersions map[string]bool

func (known apiVersions) Has(name string) bool { return known[name] }

type files struct{ chart string }

func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	check(err)
	return string(text)
}

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

// lookup is helm's, for lists: with an empty name, all objects of a kind.
func lookup(version, kind, namespace, name string) (map[string]interface{}, error) {
	if name != "" {
		return nil, fmt.Errorf("lookup of one object is not known here")
	}
	if *cluster == "" {
		return map[string]interface{}{}, nil
	}
	text, err := os.ReadFile(*cluster)
	check(err)
	objects := []map[string]interface{}{}
	check(yaml.Unmarshal(text, &objects))
	items := []interface{}{}
	for _, object := range objects {
		metadata := object["metadata"].(map[string]interface{})
		if object["apiVersion"] == version && object["kind"] == kind && metadata["namespace"] == namespace {
			items = append(items, object)
		}
	}
	return map[string]interface{}{"items": items}, nil
}

// templates are all files below templates/, as helm finds them, by their paths there.
func templates(folder string) (names []string) {
	root := filepath.Join(folder, "templates")
	check(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(root, path)
			names = append(names, name)
		}
		return err
	}))
	return names
}

func functions(all *template.Template) template.FuncMap {
	known := sprig.TxtFuncMap()
	known["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		check(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	known["fromYaml"] = func(text string) map[string]interface{} {
		value := map[string]interface{}{}
		check(yaml.Unmarshal([]byte(text), &value))
		return value
	}
	known["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	known["lookup"] = lookup
	return known
}

func main() {
	flag.Parse()
	folder := flag.Arg(0)
	if *defaults == "" {
		*defaults = filepath.Join(folder, "values.yaml")
	}
	values := load(*defaults)
	for _, path := range flag.Args()[1:] {
		merge(values, load(path))
	}
	chart := map[string]interface{}{}
	for key, value := range load(filepath.Join(folder, "Chart.yaml")) {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	versions := apiVersions{}
	for _, name := range strings.Split(*apis, ",") {
		versions[name] = true
	}
	root := map[string]interface{}{
		"Values": Values(values),
		"Chart":  chart,
		"Release": map[string]interface{}{
			"Name": *release, "Namespace": *namespace, "Service": *service, "IsUpgrade": *upgrade, "IsInstall": !*upgrade,
		},
		"Capabilities": map[string]interface{}{"APIVersions": versions},
		"Files":        files{folder},
	}
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	names := templates(folder)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(folder, "templates", name))
		check(err)
		_, err = all.New(name).Parse(string(text))
		check(err)
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "_") || (*only != "" && *only != name) {
			continue
		}
		var text strings.Builder
		check(all.ExecuteTemplate(&text, name, root))
		fmt.Printf("---\n# Source: %s\n%s\n", name, text.String())
	}
}
