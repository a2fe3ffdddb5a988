package object_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	secretManifest = `{"apiVersion":"v1","data":{"k":"aHVudGVyMg=="},"kind":"Secret",` +
		`"metadata":{"annotations":{"helm.sh/hook":"x","copy":"hunter2"},"name":"s"},"stringData":{"k":"hunter2"},"type":"Opaque"}`
	withoutValues = `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"helm.sh/hook":"x"},"name":"s"},"type":"Opaque"}`
	bareSecret    = `{"apiVersion":"v1","kind":"Secret"}`
)

func copiesOf(tb testing.TB, group, resource string) *object.Cutter {
	tb.Helper()
	return must((*object.Cutter)(nil).RedactCopies(group, resource))
}

// Manifests inside custom resources carried the values of Secrets whole: Karmada's Work, Open
// Cluster Management's ManifestWork, Crossplane's Object.
func TestEmbeddedSecretsLoseTheirValues(t *testing.T) {
	text := func(manifest string) string {
		return quote(`{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","spec":{"manifests":[` + manifest + `]}}`)
	}
	reference := `{"apiVersion":"v1","kind":"Secret","name":"s","key":"k"}`
	deep := strings.Repeat(`{"a":[`, 300) + "%s" + strings.Repeat(`]}`, 300)
	for _, tc := range []struct{ name, in, want string }{
		{
			"a list of manifests", `{"spec":{"manifests":[{"a":1},` + secretManifest + `,{"data":{"k":"v"}}]}}`,
			`{"spec":{"manifests":[{"a":1},` + withoutValues + `,{"data":{"k":"v"}}]}}`,
		},
		{
			"one manifest, and its state",
			`{"spec":{"manifest":` + secretManifest + `},"status":{"manifest":` + secretManifest + `}}`,
			`{"spec":{"manifest":` + withoutValues + `},"status":{"manifest":` + withoutValues + `}}`,
		},
		{"deep", fmt.Sprintf(`{"spec":`+deep+`}`, secretManifest), fmt.Sprintf(`{"spec":`+deep+`}`, withoutValues)},
		{
			"deeper than an event",
			`{"a":` + strings.Repeat("[", 9000) + secretManifest + strings.Repeat("]", 9000) + `}`,
			`{"a":` + strings.Repeat("[", 9000) + withoutValues + strings.Repeat("]", 9000) + `}`,
		},
		{
			"spelled with escapes",
			`{"a":{"ap\u0069Version":"v\u0031","kind":"S\u0065cret","d\u0061ta":{"k":"hunter2"}}}`,
			`{"a":{"ap\u0069Version":"v\u0031","kind":"S\u0065cret"}}`,
		},
		{
			"values first", `{"a": {"data" : {"k":"hunter2"} , "kind" : "Secret" , "apiVersion" : "v1"} , "b":1}`,
			`{"a": { "kind" : "Secret" , "apiVersion" : "v1"} , "b":1}`,
		},
		{
			"two kinds", `{"a":{"apiVersion":"v1","kind":"Secret","kind":"X","data":{"k":"hunter2"}}}`,
			`{"a":{"apiVersion":"v1","kind":"Secret","kind":"X"}}`,
		},
		{
			"one inside another", `{"a":{"apiVersion":"v1","kind":"Secret","data":{},"x":` + secretManifest + `}}`,
			`{"a":` + bareSecret + `}`,
		},
		{
			"metadata that is none",
			`{"a":{"apiVersion":"v1","kind":"Secret","data":{"k":"hunter2"},"metadata":"hunter2"}}`,
			`{"a":` + bareSecret + `}`,
		},
		{
			"the copies of the object",
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` + text(secretManifest) +
				`,"banzaicloud.com/last-applied":"compressed","a":"b"},"managedFields":[]},"spec":` + secretManifest +
				`}`,
			`{"metadata":{"annotations":{"a":"b"}},"spec":` + withoutValues + `}`,
		},
		{
			"a copy of what the object has no longer",
			`{"metadata":{"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":` +
				text(secretManifest) + `}},"spec":{}}`, `{"metadata":{"annotations":{"a":"b"}},"spec":{}}`,
		},
		{
			"a copy with a reference",
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` + text(reference) + `}}}`,
			"",
		},
		{"a reference", `{"spec":{"ref":` + reference + `,"data":{"k":"v"}},"data":{"k":"v"}}`, ""},
		{"another version", `{"a":{"apiVersion":"v2","kind":"Secret","data":{"k":"v"}}}`, ""},
		{
			"another kind",
			`{"a":{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"Secret"}},"b":{"kind":"Secret","x":"v1"}}`, "",
		},
		{
			"parts that belong to several objects",
			`{"a":{"apiVersion":"v1","kind":"Secret","spec":{"data":{"k":"v"}}}}`, "",
		},
	} {
		if tc.want == "" {
			tc.want = tc.in
		}
		if diff := cmp.Diff(tc.want, scan(t, copiesOf(t, "example.com", "works"), tc.in)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		_, m, err := object.NewScanner(copiesOf(t, "example.com", "works")).Scan(nil, []byte(tc.in), "", "")
		if err != nil || m.Hides != (tc.want != tc.in) {
			t.Errorf("%s: hides %v, %v", tc.name, m.Hides, err)
		}
	}
}

// Other paths are redacted and stripped in an object that embeds a Secret, too.
func TestEmbeddedSecretsBesideOtherPaths(t *testing.T) {
	mac := newMAC(t, testKey, false)
	c := must(redacting(t, cutter(t, "status"), mac, "spec.token").RedactCopies("example.com", "works"))
	in := `{"metadata":{"uid":"u"},"spec":{"a":` + secretManifest + `,"token":"hunter2"},"status":1}`
	want := `{"metadata":{"uid":"u"},"spec":{"a":` + withoutValues + `,"token":"` +
		macOf(testKey, "u", "spec.token", "hunter2") + `"}}`
	if diff := cmp.Diff(want, scan(t, c, in)); diff != "" {
		t.Error(diff)
	}
}

// Manifests as text, or compressed, are removed whole.
func TestCarriersOfManifests(t *testing.T) {
	for _, tc := range []struct{ group, resource, in, want string }{
		{
			"", "configmaps",
			`{"data":{"release":"H4sIhunter2","a":"b"},"metadata":{"name":"sh.helm.release.v1.web.v3"}}`,
			`{"data":{"a":"b"},"metadata":{"name":"sh.helm.release.v1.web.v3"}}`,
		},
		{
			"", "configmaps", `{"data":{"release":"stable"},"metadata":{"name":"settings"}}`,
			`{"data":{"release":"stable"},"metadata":{"name":"settings"}}`,
		},
		{
			"fleet.cattle.io", "bundles",
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},` +
				`"spec":{"resources":[{"content":"hunter2","name":"a"}]}}`,
			`{"metadata":{"annotations":{}},"spec":{"resources":[{"name":"a"}]}}`,
		},
		{"fleet.cattle.io", "contents", `{"content":"H4sIhunter2","sha256sum":"x"}`, `{"sha256sum":"x"}`},
		{
			"core.oam.dev", "resourcetrackers", `{"spec":{"compression":{"data":"H4sIhunter2","type":"gzip"}}}`,
			`{"spec":{"compression":{"type":"gzip"}}}`,
		},
		{
			"core.oam.dev", "applicationrevisions", `{"spec":{"compression":{"data":"hunter2","type":"zstd"}}}`,
			`{"spec":{"compression":{"type":"zstd"}}}`,
		},
		{
			"core.gardener.cloud", "shootstates",
			`{"spec":{"gardener":[{"data":{"k":"hunter2"},"name":"ca"}],"resources":[{"data":{"k":"hunter2"}}]}}`,
			`{"spec":{"gardener":[{"name":"ca"}],"resources":[{}]}}`,
		},
		{
			"example.com", "bundles", `{"spec":{"resources":[{"content":"x"}]}}`,
			`{"spec":{"resources":[{"content":"x"}]}}`,
		},
	} {
		for what, c := range map[string]*object.Cutter{
			"":       nil,
			"hashed": redacting(t, nil, newMAC(t, testKey, false), "spec.x"),
		} {
			if diff := cmp.Diff(tc.want, scan(t, must(c.RedactCopies(tc.group, tc.resource)), tc.in)); diff != "" {
				t.Errorf("%s.%s %s: %s", tc.resource, tc.group, what, diff)
			}
		}
	}
}

// FuzzCopies compares with a search in the decoded document.
func FuzzCopies(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"m":[` + secretManifest + `]}}`, `{"a":{"data":[],"apiVersion":"v1","kind":"S\u0065cret"}}`,
		`{"kind":"Secret"}`, `{"a":[]}`, `[{}]`,
		`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
			quote(`{"x":`+secretManifest+`}`) + `}}}`,
		`{"a":{"apiVersion":"v1","kind":"Secret","data":{},"x":` + secretManifest + `}}`,
		`{"a":{"data":1,"kind":"Secret","apiVersion":"v1"},}`,
	} {
		f.Add(seed)
	}
	c := copiesOf(f, "example.com", "works")
	f.Fuzz(func(t *testing.T, in string) {
		plain, _, err := object.NewScanner(nil).Scan(nil, []byte(in), "", "")
		out, _, got := object.NewScanner(c).Scan(nil, []byte(in), "", "")
		if (err == nil) != (got == nil) {
			t.Fatalf("without the search %v, with it %v", err, got)
		}
		if err != nil {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(plain, &before) != nil {
			return // deeper than the decoder's limit
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if path := embedded(after); path != "" {
			t.Errorf("%s is left in %s", path, out)
		}
		plainly := !strings.Contains(in, "metadata") && strings.Count(in, "kind") < 2 &&
			strings.Count(in, "apiVersion") < 2 && !strings.Contains(in, `\`)
		if embedded(before) == "" && plainly {
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// embedded returns where a value has a Secret with values, "" if it has none.
func embedded(v any) string {
	members := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		members = v
	case []any:
		for n, x := range v {
			members[fmt.Sprint(n)] = x
		}
	}
	for name, x := range members {
		if o, ok := x.(map[string]any); ok && o["apiVersion"] == "v1" && o["kind"] == "Secret" {
			for _, values := range []string{"data", "stringData"} {
				if _, has := o[values]; has {
					return name + "." + values
				}
			}
		}
		if below := embedded(x); below != "" {
			return name + "." + below
		}
	}
	return ""
}
