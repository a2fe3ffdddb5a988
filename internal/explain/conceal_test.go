package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/explain"
)

// secretValues are wrong for most keys, each in another way, and right for some.
func secretValues() []string {
	return []string{
		"Tr0ub4dorXcorrectHorse",
		`quo"ted\Tr0ub4dor` + "\n" + `Xline: [second`,
		"https://Tr0ub4dor:horseStaple@battery.example:99999/hook?x=Y#frag",
		"http://battery-staple.example/Tr0ub4dorHook",
		"nats://battery-staple.example:4222",
		"314159265358979323846264338327",
		"31415926parsecs",
		"object.Tr0ub4dorX(horse",
		`size(object.Tr0ub4dorX) == "horseStaple" ? 1 : 2`,
		`object.name.matches("(Tr0ub4dor[")`,
		"tr0ub4dor in (horse",
		"!battery-staple-*",
		`spec["tr0ub4dor-horse`,
		"spec.tr0ub4dor.horse",
		"/var/run/tr0ub4dor/horse",
		"tr0ub4dors.v1.horse.example.com",
		"kumquats.v1.tr0ub4dor.example",
		"{{.Tr0ub4dorX}} {{",
		"kubecdc.{{.Tr0ub4dorX}}",
		"4123456789MB",
	}
}

// document returns a file that has a text at a generic path, below the keys that need not be there.
func document(key, text string) string {
	parts := strings.Split(key, ".")
	value := text
	for i := len(parts) - 1; i >= 0; i-- {
		name, isList := strings.CutSuffix(parts[i], "[]")
		if isList {
			value = "[" + value + "]"
		}
		value = "{" + name + ": " + value + "}"
	}
	doc := strings.TrimSuffix(strings.TrimPrefix(value, "{"), "}") + "\n"
	for _, needed := range []string{
		"apiVersion: " + config.APIVersion, "bus: {stdout: {}}", "watch: [{resources: [pods, configmaps]}]",
	} {
		if name, _, _ := strings.Cut(needed, ":"); name != parts[0] && name+"[]" != parts[0] {
			doc += needed + "\n"
		}
	}
	if rest, ok := strings.CutPrefix(doc, "watch: [{"); ok && !strings.HasPrefix(key, "watch[].resources") {
		doc = "watch: [{resources: [pods, configmaps], " + rest
	}
	return doc
}

// printed returns everything that config check and config explain print about a file.
func printed(t *testing.T, text string, set ...yamldoc.Override) string {
	t.Helper()
	f, err := config.ParseOverridden([]byte(text), "f.yaml", set, agent.CheckRules)
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for _, d := range f.Doubts(explain.Doubts) {
		fmt.Fprintln(&b, d)
	}
	s := explain.Summarize(f)
	s.Write(&b)
	encode(t, &b, s)
	for _, name := range []string{"pods", "configmaps", "secrets", "events"} {
		r, err := config.FindResource(name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := explain.Resource(f, r)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		e.Write(&b)
		encode(t, &b, e)
	}
	return b.String()
}

func encode(t *testing.T, b *bytes.Buffer, v any) {
	t.Helper()
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
}

// partOf returns a part of 8 bytes of a value that a text has, "" if it has none. The scheme of a
// URL is in messages anyway.
func partOf(value, text string) string {
	low := strings.ToLower(text)
	for i := 0; i+8 <= len(value); i++ {
		if part := strings.ToLower(value[i : i+8]); part != "https://" && strings.Contains(low, part) {
			return part
		}
	}
	return ""
}

// An error, and the summary of a valid file, showed what came from the environment. For every key
// and several values, no output has a part of it.
func TestNoOutputShowsWhatCameFromTheEnvironment(t *testing.T) {
	valid, invalid := 0, 0
	for n, value := range secretValues() {
		if testing.Short() && n%5 != 0 {
			continue
		}
		t.Setenv("SECRET", value)
		for _, key := range append(config.Keys(), "watch[]", "tracing.unknown", "unknown", "watch[].redact[]",
			"watch[].namespaces[]",
			"watch[].resources[]", "watch[].except[]", "watch[].operations[]", "bus.kafka.brokers[]", "strip[]",
			"noise[]", "oversize[]") {
			for _, written := range []string{`"${SECRET}"`, `"pre-${SECRET}"`, `["${SECRET}", "${SECRET}"]`} {
				text := document(key, written)
				out := printed(t, text)
				if strings.Contains(out, "watch[0]") {
					invalid++
				} else {
					valid++
				}
				if part := partOf(value, strings.ReplaceAll(out, text, "")); part != "" {
					t.Errorf("%s: %s: shows %q of %q:\n%s", key, written, part, value, out)
				}
			}
			set := yamldoc.Override{Source: "--set", Path: strings.ReplaceAll(key, "[]", "[0]"), Value: "${SECRET}"}
			if part := partOf(value, printed(t, document("cluster", "c"), set)); part != "" {
				t.Errorf("--set %s: shows %q of %q", key, part, value)
			}
		}
	}
	if valid == 0 || invalid == 0 {
		t.Errorf("%d files without an error in a rule, %d with one", valid, invalid)
	}
}

func TestErrorNamesTheVariable(t *testing.T) {
	t.Setenv("SECRET", "Tr0ub4dor")
	for text, want := range map[string]string{
		document("snapshot.every",
			`"${SECRET}"`): "snapshot.every: must be a duration such as 90s, 2m, 12h or 7d, got the value of ${SECRET}",
		document("cluster", `"a ${SECRET} b"`):           "got the value of ${SECRET}",
		document("watch[].where", `"object.${SECRET}("`): "watch[0].where: must be a CEL expression",
	} {
		if got := printed(t, text); !strings.Contains(got, want) || !strings.Contains(got, "${SECRET}") {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	t.Setenv("SECRET", "shop-payments")
	text := document("watch[].namespaces[]", `"${SECRET}"`)
	if got := printed(t, text); !strings.Contains(got, "in namespaces ${SECRET}") {
		t.Errorf("the summary of a valid file: %s", got)
	}
}
