package answer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/answer"
)

func TestParsePathErrors(t *testing.T) {
	for _, text := range []string{
		"", ".", "spec..replicas", "spec.", "spec[", "spec[]", `data["app.conf]`, `data["\q"]`, `"spec"`, "{.spec",
		"{.a} {.b}", "spec[?(@.x)]", "spec[=x]", "spec[x=]",
	} {
		if p, err := answer.ParsePath(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}

// All forms of a path are read, and printed in one form.
func TestParsePathForms(t *testing.T) {
	for text, want := range map[string]string{
		"spec.replicas":                            "spec.replicas",
		".spec.replicas":                           "spec.replicas",
		"{.spec.replicas}":                         "spec.replicas",
		"{$.spec.replicas}":                        "spec.replicas",
		"$.spec.replicas":                          "spec.replicas",
		"/spec/replicas":                           "spec.replicas",
		"/data/app.conf":                           `data["app.conf"]`,
		"/metadata/annotations/a~1b~0c":            `metadata.annotations["a/b~c"]`,
		"metadata.labels[app]":                     "metadata.labels[app]",
		"metadata.labels[app.kubernetes.io/name]":  "metadata.labels[app.kubernetes.io/name]",
		"metadata.labels.a\\.b":                    `metadata.labels["a.b"]`,
		"data['app.conf']":                         `data["app.conf"]`,
		"containers[*].image":                      "containers[*].image",
		"containers[name=app].image":               "containers[name=app].image",
		`containers[name="app"].image`:             "containers[name=app].image",
		`{.containers[?(@.name=="app")].image}`:    "containers[name=app].image",
		`{.containers[?(@.name == 'app')].image}`:  "containers[name=app].image",
		"containers[app].volumeMounts[/data].name": "containers[app].volumeMounts[/data].name",
		"containers[0].image":                      "containers[0].image",
	} {
		p, err := answer.ParsePath(text)
		if err != nil || p.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, p, err, want)
		}
	}
}

// The value of a path is found by its name, by its label and by its index.
func TestPathOf(t *testing.T) {
	const object = `{"spec":{"replicas":3,"paused":null,"ports":[{"port":80},{"name":"web","port":9007199254740993}],"args":["-v","x"],` +
		`"mounts":[{"name":"v","mountPath":"/data"},{"name":"v","mountPath":"/tmp"}]},"data":{"app.conf":"c","a\"b":"q"},"metadata":{"labels":{"app":"x","0":"n"}}}`
	for path, want := range map[string]string{
		"spec.replicas":            `{"spec":{"replicas":3}}`,
		".spec.replicas":           `{"spec":{"replicas":3}}`,
		"/spec/replicas":           `{"spec":{"replicas":3}}`,
		"spec.paused":              `{"spec":{"paused":null}}`,
		"spec.ports[web].port":     `{"spec":{"ports":[{"name":"web","port":9007199254740993}]}}`,
		"spec.ports[name=web]":     `{"spec":{"ports":[{"name":"web","port":9007199254740993}]}}`,
		"spec.ports[port=80].port": `{"spec":{"ports":[{"port":80}]}}`,
		"spec.ports[80].port":      `{"spec":{"ports":[{"port":80}]}}`,
		"spec.ports[1].port":       `{"spec":{"ports":[{"port":9007199254740993}]}}`,
		"/spec/ports/1/port":       `{"spec":{"ports":[{"port":9007199254740993}]}}`,
		"spec.ports[0]":            `{"spec":{"ports":[{"port":80}]}}`,
		"spec.ports[*].port":       `{"spec":{"ports":[{"port":80},{"port":9007199254740993}]}}`,
		"spec.mounts[/tmp].name":   `{"spec":{"mounts":[{"mountPath":"/tmp","name":"v"}]}}`,
		"spec.args[1]":             `{"spec":{"args":[null,"x"]}}`,
		"spec.args[*]":             `{"spec":{"args":["-v","x"]}}`,
		`data["app.conf"]`:         `{"data":{"app.conf":"c"}}`,
		`data['app.conf']`:         `{"data":{"app.conf":"c"}}`,
		`data.app\.conf`:           `{"data":{"app.conf":"c"}}`,
		`data["a\"b"]`:             `{"data":{"a\"b":"q"}}`,
		"metadata.labels[app]":     `{"metadata":{"labels":{"app":"x"}}}`,
		"/metadata/labels/0":       `{"metadata":{"labels":{"0":"n"}}}`,
		"data.app.conf":            "",
		"spec.ports.web":           "",
		"spec.ports[2]":            "",
		"spec.ports[web].none":     "",
		"spec.ports[name=80]":      "",
		"spec.replicas.of":         "",
		"spec[*]":                  "",
		"spec[name=replicas]":      "",
		"status":                   "",
	} {
		p, err := answer.ParsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		was, is, isChange := p.Compare(nil, json.RawMessage(object))
		if string(is) != want || was != nil || isChange != (want != "") {
			t.Errorf("%s: got %s, %s, %t, want %s", path, was, is, isChange, want)
		}
		was, is, isChange = p.Compare(json.RawMessage(object), nil)
		if string(was) != want || is != nil || isChange != (want != "") {
			t.Errorf("%s of an object that goes: got %s, %s, %t, want %s", path, was, is, isChange, want)
		}
	}
}

// A value that comes or goes is not there in the other object, whose parents are. The value of an
// element is compared with that of the same element.
func TestPathCompare(t *testing.T) {
	const app, web, sidecar = `{"name":"app","image":"a:1"}`, `{"name":"web","image":"a:1"}`,
		`{"name":"sidecar","image":"s:1"}`
	list := func(elements string) string { return `{"spec":{"containers":[` + elements + `],"replicas":1}}` }
	for _, c := range []struct{ name, path, before, after, was, is string }{
		{"added", "spec.paused", list(""), `{"spec":{"paused":true}}`, `{"spec":{}}`, `{"spec":{"paused":true}}`},
		{"removed", "spec.paused", `{"spec":{"paused":true}}`, list(""), `{"spec":{"paused":true}}`, `{"spec":{}}`},
		{
			"added with its parent", "spec.paused", `{"data":{}}`, `{"spec":{"paused":true}}`, `{}`,
			`{"spec":{"paused":true}}`,
		},
		{
			"null is a value", "spec.paused", `{"spec":{}}`, `{"spec":{"paused":null}}`, `{"spec":{}}`,
			`{"spec":{"paused":null}}`,
		},
		{"the order of keys", "spec", `{"spec":{"a":1,"b":2}}`, `{"spec":{"b":2,"a":1}}`, "", ""},
		{"another element is inserted", "spec.containers[app].image", list(app), list(sidecar + "," + app), "", ""},
		{
			"of all, another element is inserted", "spec.containers[*].image", list(app), list(sidecar + "," + app),
			`{"spec":{"containers":[]}}`, `{"spec":{"containers":[` + `{"image":"s:1","name":"sidecar"}` + `]}}`,
		},
		{
			"another element is renamed", "spec.containers[app].image", list(app + "," + web),
			list(app + "," + sidecar), "", "",
		},
		{"the element at an index is renamed", "spec.containers[0].image", list(app), list(web), "", ""},
		{
			"the order of elements", "spec.containers[*].image", list(app + "," + sidecar), list(sidecar + "," + app),
			"", "",
		},
		{
			"an element is renamed", "spec.containers[app].image", list(app), list(web),
			`{"spec":{"containers":[{"image":"a:1","name":"app"}]}}`, `{"spec":{"containers":[]}}`,
		},
		{
			"another element at an index", "spec.containers[0].image", list(app), list(sidecar),
			`{"spec":{"containers":[{"image":"a:1"}]}}`, `{"spec":{"containers":[{"image":"s:1"}]}}`,
		},
		{
			"at an index, another list", "spec.containers[1].image", list(app + "," + web), list(sidecar),
			`{"spec":{"containers":[{"image":"a:1","name":"web"}]}}`, `{"spec":{"containers":[]}}`,
		},
		{
			"at an index without label", "spec.args[1]", `{"spec":{"args":["a","b"]}}`, `{"spec":{"args":["x","c"]}}`,
			`{"spec":{"args":[null,"b"]}}`, `{"spec":{"args":[null,"c"]}}`,
		},
		{
			"a field of an element comes", "spec.containers[*].tty", list(app), list(`{"name":"app","tty":true}`),
			`{"spec":{"containers":[{"name":"app"}]}}`, `{"spec":{"containers":[{"name":"app","tty":true}]}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := answer.ParsePath(c.path)
			if err != nil {
				t.Fatal(err)
			}
			was, is, isChange := p.Compare(json.RawMessage(c.before), json.RawMessage(c.after))
			if string(was) != c.was || string(is) != c.is || isChange != (c.was != "") {
				t.Errorf("got %s, %s, %t, want %s, %s", was, is, isChange, c.was, c.is)
			}
		})
	}
}

func TestPathNear(t *testing.T) {
	const object = `{"metadata":{"labels":{"app.kubernetes.io/name":"x"}},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"app","image":"a"}]}}},"status":{"replicas":1}}`
	for path, want := range map[string]string{
		"replicas":                               "spec.replicas status.replicas",
		"spec.replica":                           "spec.replicas",
		"spec.Replicas":                          "spec.replicas",
		"containers[*].image":                    "spec.template.spec.containers[*].image",
		"containers[app].image":                  "spec.template.spec.containers[app].image",
		"containers[name=app].image":             "spec.template.spec.containers[app].image",
		"spec.template.spec.containers.image":    "spec.template.spec.containers[*].image",
		"metadata.labels.app.kubernetes.io/name": `metadata.labels["app.kubernetes.io/name"]`,
		"spec.somethingElse":                     "",
	} {
		p, err := answer.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Near(json.RawMessage(object)), " "); !strings.HasPrefix(got, want) ||
			want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
