package yamltext_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/object/yamltext"
)

// JSON permits characters that the parser of YAML rejects, and escapes of surrogates.
func TestYAMLOfEveryCharacter(t *testing.T) {
	for _, value := range []string{
		"\u009b31m", "\x7f", "\u0085", "\ufeff", "\ufffe", "\u202e", `\u001b[2J`, `\ud83d\ude80`, "\U000e0001",
		`<\u2028>`,
	} {
		raw := []byte(`{"a":"` + value + `","b":9007199254740993}`)
		text, err := yamltext.FromJSON(raw)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		var got, want struct{ A string }
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &got); err != nil || got != want ||
			!strings.Contains(string(text), "b: 9007199254740993\n") {
			t.Errorf("%q: got %q, %v\n%s", value, got.A, err, text)
		}
	}
}
