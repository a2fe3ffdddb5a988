package object_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

func redactingAnnotations(tb testing.TB, c *object.Cutter, secret bool) *object.Cutter {
	tb.Helper()
	if secret {
		return must(c.RedactCopies("", "secrets"))
	}
	return must(c.RedactCopies("", "pods"))
}

// Controllers copied tokens into annotations, and these reached the bus.
func TestTokensInAnnotationsAreRemoved(t *testing.T) {
	in := `{"metadata":{"uid":"u","annotations":{"a":"b","openshift.io/token-secret.value":"hunter2",` +
		`"openshift.io\/token-secret.v\u0061lue":"hunter2","vcluster.loft.sh/token-x7f":"hunter2",` +
		`"openshift.io/token-secret.name":"n"}},"openshift.io/token-secret.value":"x"}`
	want := `{"metadata":{"uid":"u","annotations":{"a":"b","openshift.io/token-secret.name":"n"}},"openshift.io/token-secret.value":"x"}`
	mac := newMAC(t, testKey, false)
	for what, c := range map[string]*object.Cutter{
		"nothing else is redacted": nil,
		"strip":                    cutter(t, "status"),
		"a path, removed":          redacting(t, nil, nil, "spec.x"),
		"a path, hashed":           redacting(t, nil, mac, "spec.x"),
		"all annotations, hashed":  redacting(t, nil, mac, `metadata.annotations["openshift.io/token-secret.value"]`),
	} {
		if diff := cmp.Diff(want, scan(t, redactingAnnotations(t, c, false), in)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if got := scan(t, must(redactingAnnotations(t, nil, false).With("status")), in); got != want {
		t.Errorf("a cutter with one more path: %s", got)
	}
	if got := scan(t, redacting(t, redactingAnnotations(t, nil, false), mac, "status"), in); got != want {
		t.Errorf("a cutter that redacts one more path: %s", got)
	}
}

// A Secret keeps listed annotations only: nobody knows all names under which tools copy its values.
func TestSecretKeepsListedAnnotationsOnly(t *testing.T) {
	in := `{"metadata":{"uid":"u","annotations":{"a":"hunter2"`
	want := `{"metadata":{"uid":"u","annotations":{`
	for n, name := range object.SecretAnnotations() {
		in += `,"` + name + `":"v"`
		if n > 0 {
			want += ","
		}
		want += `"` + name + `":"v"`
	}
	in += `,"kubectl.kubernetes.io/last-applied-configuration":"hunter2"},"annotations":{"b":"hunter2"}},"type":"x"}`
	want += `},"annotations":{}},"type":"x"}`
	for what, c := range map[string]*object.Cutter{
		"removed": redacting(t, nil, nil, object.SecretPaths(false)...),
		"hashed":  redacting(t, nil, newMAC(t, testKey, false), object.SecretPaths(true)...),
	} {
		if diff := cmp.Diff(want, scan(t, redactingAnnotations(t, c, true), in)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

func TestAnnotationsAreInTheFingerprint(t *testing.T) {
	all := map[string]bool{
		cutter(t, "a").Fingerprint():                                                         true,
		redactingAnnotations(t, cutter(t, "a"), false).Fingerprint():                         true,
		redactingAnnotations(t, cutter(t, "a"), true).Fingerprint():                          true,
		redactingAnnotations(t, nil, false).Fingerprint():                                    true,
		redactingAnnotations(t, nil, true).Fingerprint():                                     true,
		must((*object.Cutter)(nil).RedactCopies("", "configmaps")).Fingerprint():             true,
		must((*object.Cutter)(nil).RedactCopies("fleet.cattle.io", "bundles")).Fingerprint(): true,
	}
	if len(all) != 7 || all[""] {
		t.Errorf("fingerprints of seven cutters: %v", all)
	}
}

// The guide lists the annotations that the code removes and keeps.
func TestGuideListsAnnotations(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/redact.md")
	if err != nil {
		t.Fatal(err)
	}
	checkGuideList(t, string(guide), "credential annotations", object.CredentialAnnotations())
	checkGuideList(t, string(guide), "annotations of Secrets", object.SecretAnnotations())
	_, table, _ := strings.Cut(string(guide), "<!-- carriers -->\n| resource | field | of |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "<!-- end -->")
	want := ""
	for _, c := range object.Carriers() {
		resource := "`" + (&object.Resource{Group: c.Group, Name: c.Resource}).String() + "`"
		if c.Marker != "" {
			resource += ", only those that contain `" + c.Marker + "`"
		}
		want += "| " + resource + " | `" + strings.Join(c.Paths, "`, `") + "` | " + c.By + " |\n"
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("carriers: %s", diff)
	}
	var copies []string
	for _, path := range object.Copies() {
		if name, ok := strings.CutPrefix(path, `metadata.annotations["`); ok {
			copies = append(copies, strings.TrimSuffix(name, `"]`))
		}
	}
	for _, name := range copies {
		if !strings.Contains(string(guide), "`"+name+"`") {
			t.Errorf("the guide lacks %s", name)
		}
	}
}

// checkGuideList compares the list between two comments of the guide with the code.
func checkGuideList(t *testing.T, guide, what string, want []string) {
	t.Helper()
	_, list, _ := strings.Cut(guide, "<!-- "+what+" -->\n")
	list, _, _ = strings.Cut(list, "<!-- end -->")
	var got []string
	for line := range strings.Lines(list) {
		if name, ok := strings.CutPrefix(line, "- `"); ok {
			name, _, _ = strings.Cut(name, "`")
			got = append(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}
