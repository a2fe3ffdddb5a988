package console_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/screen/console"
)

// sameInYAML fails unless the parser that kubectl uses reads the YAML of a JSON document as the
// same value.
func sameInYAML(t interface{ Fatalf(string, ...any) }, doc []byte) {
	text := console.ToYAML(doc)
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatalf("%s\n%s\n%v", doc, text, err)
	}
	// Not cmp.Diff: its time grows exponentially with the depth.
	if !reflect.DeepEqual(unmarshal(t, string(doc)), unmarshal(t, string(raw))) {
		t.Fatalf("%s\n%s\n%s", doc, text, raw)
	}
}

func TestYAMLMeansTheSame(t *testing.T) {
	for _, text := range []string{
		"", " ", "a", "true", "Yes", "n", "~", "null", "-", "--", "---", "---x", "--v=4", "-c", "- a", "a: b", "a:",
		"a #b", "a#b", "#", "1",
		"1e3", "0x1f", "0o17", "1_000", "1:30", "2026-11-20", "2026-11-20T15:00:00Z", "500m", "256Mi", "1.5", ".5",
		"10.0.0.1", "1e3m", "0b1", "12e", "12f",
		".inf", ".nan", "NaN", "<<", "=", "!a", "&a", "*a", "[a", "{a", "|", ">", "@a", "`a", "%a", "'a'", `"a"`, `a\b`,
		"a\n", "a\nb", "a\nb\n", "a\n\n\n",
		"\na", " a\nb", "a\n b\n", "a\n \nb", "a\n  \n", "a\tb", "\ta\nb", "a\n\tb", "a\r\nb", "a\u0085b", "\u2028",
		"\ufeffa\nb", "日本語", "🚀\nb", "a ", "a\x00",
		"\U000e0001", "key: |\n  x", "...", "... a", "? a", ": a", "a,b", "a]", "a}", "$a", "/a", "_a", "a\n---\nb\n",
		"a\n#b\n",
	} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		doc := `{"a":` + string(quoted) + `,"l":[` + string(quoted) + `,[` + string(quoted) + `,{"x":` +
			string(quoted) + `}]]}`
		sameInYAML(t, []byte(doc))
		if len(text) > 0 {
			sameInYAML(t, []byte(`{"m":{`+string(quoted)+`:{"b":1}}}`))
		}
	}
	for _, doc := range []string{
		`1`, `"a"`, `[]`, `{}`, `[[]]`, `[{}]`, `{"a":[]}`, `[[1,2],[3]]`, `[[["a"]]]`, `[{"a":{"b":[1]}},2]`,
		`{"a":-0.5e-7,"b":null,"c":false}`, `{"":1}`,
		`{"a":"\u0041\n\u2028\ud83d\ude80\/"}`,
	} {
		sameInYAML(t, []byte(doc))
	}
}

func TestAnyJSONMeansTheSameInYAML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := jsonValue(4).Draw(t, "value")
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab01ex.\n\n \t:#-?'\"\\|>[]{}&*!%@,\r\x00\u0085\u2028日🚀"))).
			Draw(t, "text")
		sameInYAML(t, marshal(t, map[string]any{"v": v, "t": text, "l": []any{text}}))
	})
}

// A value that is nested too deep is written as JSON, which is YAML.
func TestDeepYAML(t *testing.T) {
	doc := `"x\u001b\"y"`
	for range 150 {
		doc = `[{"a":` + doc + `}]`
	}
	sameInYAML(t, []byte(doc))
}
