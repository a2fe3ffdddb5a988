package selection

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// ancients makes a history of one ConfigMap. Each step is a new content of the object; nil deletes
// it.
func ancients(t *testing.T, steps ...obj) (oracle.ObjectKey, []*Version) {
	t.Helper()
	key := oracle.ObjectKey{Resource: "configmaps", Namespace: "shop-a", Name: "web"}
	a := make(archive)
	uid := 0
	for i, step := range steps {
		rev := uint64(i + 1)
		var raw []byte
		if step != nil {
			if a.last(key, rev) == nil {
				uid++
			}
			m := obj{"namespace": key.Namespace, "name": key.Name, "uid": fmt.Sprint("u", uid)}
			if more, ok := step["metadata"].(obj); ok {
				maps.Copy(m, more)
			}
			o := obj{"apiVersion": "v1", "kind": "ConfigMap"}
			maps.Copy(o, step)
			o["metadata"] = m
			var err error
			raw, err = json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := a.add("/", "configmaps", "/shop-a/web", rev, raw); err != nil {
			t.Fatal(err)
		}
	}
	return key, a[key]
}

// TestSelectionOracle compares the evaluation of rules with results written by hand.
func TestSelectionOracle(t *testing.T) {
	team := func(name, text string) obj {
		return obj{"metadata": obj{"labels": obj{"team": name}}, "data": obj{"text": text}}
	}
	label := func(text string) *labelSelector {
		for _, l := range labelSelectors() {
			if l.Text == text {
				return &l
			}
		}
		t.Fatalf("no selector %s", text)
		return nil
	}
	where := func(text string) *condition {
		for _, c := range conditions() {
			if c.Text == text {
				return &c
			}
		}
		t.Fatalf("no expression %s", text)
		return nil
	}
	all := []string{"configmaps"}
	pay := team("payments", "1")
	search := team("search", "1")
	other := team("other", "1")
	for _, tc := range []struct {
		name    string
		config  Config
		history []obj
		want    []string // Op, revision and skipped; in brackets the reason for withholding.
	}{
		{
			"everything",
			Config{Rules: []Rule{{Resources: all}}},
			[]obj{pay, search, nil, pay},
			[]string{"r1", "u2", "d3", "c4"},
		},
		{
			"into a rule and out of all",
			Config{Rules: []Rule{{Resources: all, Labels: label("team=payments")}}},
			[]obj{other, pay, search, pay, nil, search, nil},
			[]string{"e2", "l3", "e4", "d5"},
		},
		{
			"from rule to rule, and the rule of what is there decides",
			Config{Rules: []Rule{
				{Resources: all, Labels: label("team=payments"), Operations: []string{"created", "deleted"}},
				{Resources: all, Labels: label("team==search")},
			}},
			[]obj{search, pay, search, other, pay, nil, pay, nil},
			[]string{"r1", "u2 (operations)", "u3+1", "l4", "e5", "d6", "c7", "d8"},
		},
		{
			"first rule that matches",
			Config{Rules: []Rule{
				{Resources: all, Namespaces: []string{"shop-*", "!shop-a"}, Operations: []string{"deleted"}},
				{Resources: []string{"*"}, Except: []string{"secrets"}, Namespaces: []string{
					"shop-?",
				}, Operations: []string{"created"}},
				{Resources: all},
			}},
			[]obj{pay, search, nil, pay, search, nil},
			[]string{"r1", "u2 (operations)", "d3 (operations)", "c4", "u5 (operations)", "d6 (operations)"},
		},
		{
			"what is withheld is counted until something is sent, or it is gone",
			Config{Rules: []Rule{
				{Resources: all, Where: where(`!name.endsWith("2")`), Operations: []string{"updated"}},
				{Resources: all},
			}, Noise: []string{"status-only"}},
			[]obj{pay, {"metadata": pay["metadata"], "data": pay["data"], "status": "a"}, {
				"metadata": pay["metadata"],
				"data":     pay["data"],
				"status":   "b",
			}, search, nil, pay, search},
			[]string{
				"r1", "u2 (noise:status-only)", "u3 (noise:status-only)", "u4+2", "d5 (operations)", "c6 (operations)",
				"u7+1",
			},
		},
		{
			"an expression that fails is sent",
			Config{Rules: []Rule{{Resources: all, Where: where(`labels["team"] == "payments" || op == "d"`)}}},
			[]obj{pay, {"data": obj{}}, search, pay, nil},
			[]string{"r1", "u2", "u3 (where)", "u4+1", "d5"},
		},
		{
			"or dropped",
			Config{Rules: []Rule{{
				Resources: all,
				Where:     where(`labels["team"] == "payments" || op == "d"`),
				Drop:      true,
			}}},
			[]obj{search, {"data": obj{}}, pay, nil},
			[]string{"r1 (where)", "u2 (error)", "u3+1", "d4"},
		},
		{
			"nothing but what is stripped differs",
			Config{Rules: []Rule{{Resources: all}}, Noise: []string{"managed-fields-only"}, Strip: []string{"data"}},
			[]obj{pay, team("payments", "2"), team("search", "2")},
			[]string{"r1", "u2 (noise:managed-fields-only)", "u3+1"},
		},
		{
			"an object that is there for what is masked alone",
			Config{Rules: []Rule{
				{Resources: all, Where: where(`op == "e" || !changedOnly("metadata.labels", "metadata.annotations")`)},
			}},
			[]obj{{"data": obj{}}, {"data": obj{}, "metadata": obj{"labels": obj{"a": "b"}}}, pay},
			[]string{"r1", "u2 (where)", "u3+1"},
		},
		{
			"what redaction removes is not taken for noise",
			Config{
				Rules: []Rule{{Resources: all, Redact: []string{"data.text"}}}, Noise: []string{"managed-fields-only"},
			},
			[]obj{pay, team("payments", "2")},
			[]string{"r1", "u2"},
		},
		{
			"a hash shows it",
			Config{
				Rules: []Rule{{Resources: all, Redact: []string{"data.text"}}}, Noise: []string{"managed-fields-only"},
				Redaction: Redaction{Key: []byte("0123456789abcdef")},
			},
			[]obj{pay, team("payments", "2"), team("payments", "2")},
			[]string{"r1", "u2", "u3 (noise:managed-fields-only)"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, versions := ancients(t, tc.history...)
			var got []string
			for _, e := range tc.config.chooseObject(key, versions, oracle.Snapshot{ID: "s", Rev: 1}, 100) {
				s := e.Op + oracle.FormatRev(e.Rev)
				if e.Skipped > 0 {
					s += fmt.Sprint("+", e.Skipped)
				}
				if e.Reason != "" {
					s += " (" + e.Reason + ")"
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSelectionContent compares stripped and redacted objects with results written by hand.
func TestSelectionContent(t *testing.T) {
	_, versions := ancients(t, obj{
		"metadata": obj{"labels": obj{"a.b": "1", "c": "2"}, "managedFields": []obj{{
			"manager": "x",
		}}, "annotations": obj{oracle.LastApplied: "{}", "keep": "1"}},
		"data": obj{"x": "1", "y.z": "2"},
		"spec": obj{"list": []obj{{"value": "v", "keep": 1}, {"value": nil}, {}}},
	})
	key := []byte("0123456789abcdef")
	for _, tc := range []struct {
		name   string
		config Config
		want   string // The remaining fields, without those that identify the object.
	}{
		{
			"nothing stripped",
			Config{
				Strip: []string{},
			},
			`{"annotations":{"keep":"1","` + oracle.LastApplied +
				`":"{}"},"data":{"x":"1","y.z":"2"},"labels":{"a.b":"1","c":"2"},"managedFields":[{"manager":"x"}],"spec":{"list":[{"keep":1,"value":"v"},{"value":null},{}]}}`,
		},
		{
			"the default",
			Config{},
			`{"annotations":{"keep":"1"},"data":{"x":"1","y.z":"2"},"labels":{"a.b":"1","c":"2"},"spec":{"list":[{"keep":1,"value":"v"},{"value":null},{}]}}`,
		},
		{"removed", Config{Strip: []string{`metadata.labels["a.b"]`}, Rules: []Rule{{Redact: []string{
			"spec.list[*].value", "data[*]",
		}}}}, `{"annotations":{"keep":"1"},"data":{},"labels":{"c":"2"},"spec":{"list":[{"keep":1},{},{}]}}`},
		{
			// Made with openssl dgst -mac HMAC over uid "u1", the path and the value, each after
			// its length.
			"hashed",
			Config{Redaction: Redaction{Key: key}, Rules: []Rule{{Redact: []string{
				"spec.list[*].value", `data["y.z"]`,
			}}}},
			`{"annotations":{"keep":"1"},"data":{"x":"1","y.z":"hmac-sha256:22b5ca23:wyV3ml7Lumsxq-FCMe9Btw"},"labels":{"a.b":"1","c":"2"},"spec":{"list":[{"keep":1,"value":"hmac-sha256:22b5ca23:xHOxD7V3j-hEkHpIOO05Qw"},{"value":null},{}]}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rule := -1
			if len(tc.config.Rules) > 0 {
				rule = 0
			}
			got := maps.Clone(tc.config.treat(versions[0], rule)) // treat may return the object of the history itself.
			m := got["metadata"].(Tree)
			for _, field := range []string{"labels", "annotations", "managedFields"} {
				if v, ok := m[field]; ok {
					got[field] = v
				}
			}
			for _, field := range []string{"apiVersion", "kind", "metadata"} {
				delete(got, field)
			}
			raw, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(raw)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

// obj is short for the JSON of objects.
type obj = map[string]any
