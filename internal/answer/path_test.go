package answer_test

import (
	"encoding/json"
	"testing"

	"github.com/kubecdc/kubecdc/internal/answer"
)

func TestParsePathErrors(t *testing.T) {
	for _, text := range []string{"", ".", "spec..replicas", "spec.", "spec[", "spec[]", `data["app.conf]`, `data["\q"]`, `"spec"`} {
		if p, err := answer.ParsePath(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}

func TestPathOf(t *testing.T) {
	const object = `{"spec":{"replicas":3,"paused":null,"ports":[{"port":80},{"name":"web","port":9007199254740993}],"args":["-v","x"]},"data":{"app.conf":"c","a\"b":"q"}}`
	for path, want := range map[string]string{
		"spec.replicas":         `{"spec":{"replicas":3}}`,
		".spec.replicas":        `{"spec":{"replicas":3}}`,
		"spec.paused":           `{"spec":{"paused":null}}`,
		"spec.ports[web].port":  `{"spec":{"ports":[{"name":"web","port":9007199254740993}]}}`,
		"spec.ports[1].port":    `{"spec":{"ports":[{"name":"web","port":9007199254740993}]}}`,
		"spec.ports[0]":         `{"spec":{"ports":[{"port":80}]}}`,
		"spec.args[1]":          `{"spec":{"args":["x"]}}`,
		`data["app.conf"]`:      `{"data":{"app.conf":"c"}}`,
		`data["a\"b"]`:          `{"data":{"a\"b":"q"}}`,
		"data.app.conf":         "",
		"spec.ports.web":        "",
		"spec[replicas]":        "",
		"spec.ports[2]":         "",
		"spec.ports[web].none":  "",
		"spec.replicas.of":      "",
		"status":                "",
		"spec.ports[web][port]": "",
	} {
		p, err := answer.ParsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got := string(p.Of(json.RawMessage(object))); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		if got := p.Of(nil); got != nil {
			t.Errorf("%s of no object: %s", path, got)
		}
	}
}
