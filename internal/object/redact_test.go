package object_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

const testKey = "0123456789abcdef0123456789abcdef"

func newMAC(tb testing.TB, key string, acrossObjects bool) *object.MAC {
	tb.Helper()
	m, err := object.NewMAC([]byte(key), acrossObjects)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// quote returns text as a JSON string.
func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func redacting(tb testing.TB, c *object.Cutter, mac *object.MAC, paths ...string) *object.Cutter {
	tb.Helper()
	c, err := c.Redact(paths, mac)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func scan(tb testing.TB, c *object.Cutter, raw string) string {
	tb.Helper()
	out, _, err := object.NewScanner(c).Scan(nil, []byte(raw), "", "")
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}

// macOf returns the replacement of a value, computed independently of the package. Each part is
// preceded by its length.
func macOf(key string, parts ...string) string {
	sign := func(text []byte) []byte {
		h := hmac.New(sha256.New, []byte(key))
		h.Write(text)
		return h.Sum(nil)
	}
	var text []byte
	for _, part := range parts {
		text = append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	return "hmac-sha256:" + hex.EncodeToString(sign([]byte("kubecdc key id"))[:4]) + ":" +
		base64.RawURLEncoding.EncodeToString(sign(text)[:16])
}

func TestRedactRemoves(t *testing.T) {
	const in = `{"metadata":{"uid":"u","managedFields":[{"manager":"m"}],"annotations":{"a":"b",` +
		`"kubectl.kubernetes.io/last-applied-configuration":"secret"}},` +
		`"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{}}]},{}]},"data":{"a":"1","b":null}}`
	for _, tc := range []struct {
		paths []string
		want  string
	}{
		{[]string{
			"data",
		}, `"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{}}]},{}]}}`},
		{[]string{
			"data[*]",
		}, `"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{}}]},{}]},"data":{}}`},
		{[]string{
			"spec.containers[*].env[*].value",
		}, `"spec":{"containers":[{"env":[{"name":"A"},{"name":"B","valueFrom":{}}]},{}]},"data":{"a":"1","b":null}}`},
		{[]string{"spec[*]", "data.a"}, `"spec":{},"data":{"b":null}}`},
	} {
		got := scan(t, redacting(t, nil, nil, tc.paths...), in)
		if diff := cmp.Diff(`{"metadata":{"uid":"u","annotations":{"a":"b"}},`+tc.want, got); diff != "" {
			t.Errorf("%v: %s", tc.paths, diff)
		}
	}
}

// A scan says whether values were redacted: those at paths, and those of Secrets and manifests in
// other objects. A stripped value does not count as redacted, and a null or an empty object is no
// value.
func TestRedactedIsSaid(t *testing.T) {
	mac := newMAC(t, testKey, false)
	secrets := func(c *object.Cutter) *object.Cutter {
		c, err := c.RedactCopies("", "secrets")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	removed := secrets(redacting(t, cutter(t, "metadata.labels"), nil, object.SecretPaths(false)...))
	hashed := secrets(redacting(t, cutter(t, "metadata.labels"), mac, object.SecretPaths(true)...))
	const release = `"metadata":{"name":"sh.helm.release.v1.web.v1"}`
	for _, tc := range []struct {
		c    *object.Cutter
		in   string
		want bool
	}{
		{removed, `{"metadata":{"uid":"u","labels":{"a":"b"},"annotations":{"a":"b"}},"type":"Opaque"}`, false},
		{removed, `{"metadata":{"uid":"u"},"data":{"a":"1"}}`, true},
		{removed, `{"metadata":{"uid":"u"},"stringData":{"a":"1"}}`, true},
		{removed, `{"data":null,"stringData":{ }}`, false},
		{hashed, `{"metadata":{"uid":"u","labels":{"a":"b"}},"type":"Opaque"}`, false},
		{hashed, `{"metadata":{"uid":"u"},"data":{"a":"1"}}`, true},
		{hashed, `{"data":{"a":null}}`, false},
		{secrets(nil), `{"data":{"a":"1"}}`, false},
		{redacting(t, nil, nil, "spec.a", "spec.b[*].c"), `{"spec":{"b":[{"d":1},{"c":0}]}}`, true},
		{redacting(t, nil, nil, "spec.a", "spec.b[*].c"), `{"spec":{"b":[{"d":1},{"c":[]}]}}`, false},
		{redacting(t, redacting(t, nil, nil, "spec.a"), nil, "spec.b"), `{"spec":{"a":false}}`, true},
		{redacting(t, redacting(t, nil, nil, "spec.a"), mac, "spec.b"), `{"spec":{"a":""}}`, true},
		{redacting(t, cutter(t, "spec.a"), nil, "spec.b"), `{"spec":{"a":1}}`, false},
		{copiesOf(t, "example.com", "works"), `{"spec":` + secretManifest + `}`, true},
		{copiesOf(t, "example.com", "works"), `{"spec":{"kind":"Secret"}}`, false},
		{copiesOf(t, "", "configmaps"), `{` + release + `,"data":{"release":"H4s"}}`, true},
		{copiesOf(t, "", "configmaps"), `{` + release + `,"data":{"other":"H4s"}}`, false},
		{copiesOf(t, "", "configmaps"), `{"metadata":{"name":"a"},"data":{"release":"H4s"}}`, false},
		{copiesOf(t, "fleet.cattle.io", "contents"), `{"content":"H4s"}`, true},
		{copiesOf(t, "fleet.cattle.io", "contents"), `{"metadata":{"managedFields":[{"manager":"m"}]}}`, false},
	} {
		out, m, err := object.NewScanner(tc.c).Scan(nil, []byte(tc.in), "", "")
		if err != nil || m.Redacted != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.in, m.Redacted, err, tc.want)
			continue
		}
		if o := object.NewScanned(nil, 1, m, nil, out); o.Redacted() != tc.want || o.Deep() || o.Size() != len(out) {
			t.Errorf("%s: the object says %v", tc.in, o.Redacted())
		}
	}
}

// TestRedactCutsCopies: redaction removes the annotations in which kubectl and other tools store
// copies of values. It does so for Secrets and other objects, whether values are removed or hashed.
// Annotations with similar names stay.
func TestRedactCutsCopies(t *testing.T) {
	names := []string{
		"kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "kapp.k14s.io/original-diff",
		"kapp.k14s.io/original-diff-full",
		"objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied",
		"kopf.zalando.org/last-handled-configuration",
		"metacontroller.k8s.io/last-applied-configuration", "app.oam.dev/last-applied-configuration",
		"qbec.io/last-applied",
	}
	in, want := `{"metadata":{"uid":"u","annotations":{"kapp.k14s.io/original-diff-md5":"d","a":"b"`, ""
	want = in + `}},"type":"x"}`
	for _, name := range names {
		in += `,"` + name + `":"{\"data\":\"hunter2\"}"`
	}
	in += `}},"type":"x"}`
	mac := newMAC(t, testKey, false)
	for what, c := range map[string]*object.Cutter{
		"a Secret, removed": redacting(t, nil, nil, object.SecretPaths(false)...),
		"a Secret, hashed":  redacting(t, nil, mac, object.SecretPaths(true)...),
		"a path, removed":   redacting(t, nil, nil, "spec.x"),
		"a path, hashed":    redacting(t, cutter(t, "status"), mac, "spec.x"),
	} {
		if diff := cmp.Diff(want, scan(t, c, in)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if got := scan(t, cutter(t, "spec.x"), in); got != in {
		t.Errorf("where nothing is redacted: %s", got)
	}
}

func TestRedactReplaces(t *testing.T) {
	mac := newMAC(t, testKey, false)
	value := func(path, value string) string { return `"` + macOf(testKey, "u-1", path, value) + `"` }
	for _, tc := range []struct {
		name  string
		in    string // after the metadata
		cut   []string
		paths []string
		want  string
	}{
		{name: "string", in: `"a":"1"`, paths: []string{"a"}, want: `"a":` + value("a", "1")},
		{name: "text, not spelling", in: `"a":"\u0041\n"`, paths: []string{"a"}, want: `"a":` + value("a", "A\n")},
		{name: "empty string", in: `"a":""`, paths: []string{"a"}, want: `"a":` + value("a", "")},
		{name: "number", in: `"a":-1.50`, paths: []string{"a"}, want: `"a":` + value("a", "-1.50")},
		{name: "boolean", in: `"a":false`, paths: []string{"a"}, want: `"a":` + value("a", "false")},
		{name: "null is no value", in: `"a":null`, paths: []string{"a"}, want: `"a":null`},
		{name: "object, as it stands", in: `"a":{"b": [1]}`, paths: []string{
			"a",
		}, want: `"a":` + value("a", `{"b": [1]}`)},
		{name: "array", in: `"a":[]`, paths: []string{"a"}, want: `"a":` + value("a", "[]")},
		{
			name: "members by their names", in: `"data":{"k":"1","tls.crt":"2","":"3","q\"":"4"}`, paths: []string{
				"data[*]",
			},
			want: `"data":{"k":` + value("data.k", "1") + `,"tls.crt":` + value(`data["tls.crt"]`, "2") + `,"":` +
				value(`data[""]`, "3") +
				`,"q\"":` + value(`data["q\""]`, "4") + `}`,
		},
		{
			name:  "elements by no name",
			in:    `"s":[{"e":[{"v":"1","n":"x"},{"v":"2"}]},{"e":[{"v":"1"}]}]`,
			paths: []string{"s[*].e[*].v"},
			want: `"s":[{"e":[{"v":` + value("s[*].e[*].v", "1") + `,"n":"x"},{"v":` + value("s[*].e[*].v", "2") +
				`}]},{"e":[{"v":` + value("s[*].e[*].v", "1") + `}]}]`,
		},
		{
			name: "mixed nesting", in: `"s":{"x":[["1"]],"y":{"z":"2"}}`, paths: []string{"s[*][*]", "s.x[*][*]"},
			want: `"s":{"x":[` + value("s.x[*]", `["1"]`) + `],"y":{"z":` + value("s.y.z", "2") + `}}`,
		},
		{
			name: "escaped names", in: `"d\u0061ta":{"\u006b":"1"}`, paths: []string{"data.k"},
			want: `"d\u0061ta":{"\u006b":` + value("data.k", "1") + `}`,
		},
		{
			name: "all of one name", in: `"a":"1","a":"2","\u0061":{"b":3}`, paths: []string{"a"},
			want: `"a":` + value("a", "1") + `,"a":` + value("a", "2") + `,"\u0061":` + value("a", `{"b":3}`),
		},
		{name: "cut beside", in: `"c":[1],"a":"1","c":2,"b":"2","c":3`, cut: []string{"c"}, paths: []string{
			"b", "a",
		}, want: `"a":` + value("a", "1") + `,"b":` + value("b", "2")},
		{name: "cut wins", in: `"a":"1","b":"2"`, cut: []string{"a"}, paths: []string{
			"a", "b",
		}, want: `"b":` + value("b", "2")},
		{name: "cut of one member wins", in: `"a":{"x":"1","y":"2"}`, cut: []string{"a.x"}, paths: []string{
			"a[*]",
		}, want: `"a":{"y":` + value("a.y", "2") + `}`},
		{name: "the shorter path wins", in: `"a":{"x":"1","y":2}`, cut: []string{"a.x"}, paths: []string{
			"a", "a.y",
		}, want: `"a":` + value("a", `{"x":"1","y":2}`)},
		{name: "the shorter path wins, cut", in: `"a":{"x":"1","y":2},"b":1`, cut: []string{"a"}, paths: []string{
			"a.y",
		}, want: `"b":1`},
		{name: "white space", in: ` "a" : "1" , "b" : [ "2" ] `, paths: []string{
			"b[*]",
		}, want: ` "a" : "1" , "b" : [ ` + value("b[*]", "2") + ` ] `},
		{name: "nothing there", in: `"a":{"b":1}`, paths: []string{"x[*]", "a.b.c", "a.b[*]"}, want: `"a":{"b":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := redacting(t, cutter(t, tc.cut...), mac, tc.paths...)
			const meta = `"metadata":{"name":"n","uid":"u-1"}`
			if diff := cmp.Diff(`{`+meta+`,`+tc.want+`}`, scan(t, c, `{`+meta+`,`+tc.in+`}`)); diff != "" {
				t.Error("uid before the values:", diff)
			}
			if diff := cmp.Diff(`{`+tc.want+`,`+meta+`}`, scan(t, c, `{`+tc.in+`,`+meta+`}`)); diff != "" &&
				len(tc.cut) == 0 {
				t.Error("uid after the values:", diff)
			}
		})
	}
}

// Scans are independent of each other. The objects have no kind, and their uid may be missing, null
// or repeated.
func TestRedactReusesNothing(t *testing.T) {
	s := object.NewScanner(redacting(t, nil, newMAC(t, testKey, false), "data[*]"))
	for _, tc := range []struct{ in, uid string }{
		{`{"data":{"k":"v"},"metadata":{"uid":"one"}}`, "one"},
		{`{"data":{"k":"v"},"metadata":{"uid":"two"}}`, "two"},
		{`{"data":{"k":"v"}}`, ""},
		{`{"data":{"k":"v"},"metadata":{"uid":null}}`, ""},
		{`{"metadata":{"uid":"one"},"data":{"k":"v"},"metadata":{"uid":"\u0074hree"}}`, "three"},
		{`{"data":{"k":"v","w":"` + strings.Repeat("x", 1<<17) + `"},"metadata":{"uid":"four"}}`, "four"},
		{`{"data":{"k":"v"},"metadata":{"uid":"one"}}`, "one"},
	} {
		if _, _, err := s.Scan(nil, []byte(`{"data":{"k":"left over","l":"x"},"metadata":{"uid":1}}`), "Secret",
			"v1"); err == nil {
			t.Fatal("no error for a uid that is a number")
		}
		out, _, err := s.Scan([]byte("head"), []byte(tc.in), "Secret", "v1")
		if err != nil {
			t.Fatal(err)
		}
		want := `"k":"` + macOf(testKey, tc.uid, "data.k", "v") + `"`
		if !strings.HasPrefix(string(out), `head{"kind":"Secret","apiVersion":"v1",`) ||
			!strings.Contains(string(out), want) {
			t.Errorf("%.300s\nis %.300s\nwant in it %s", tc.in, out, want)
		}
	}
}

func TestMACCoversUIDPathAndValue(t *testing.T) {
	seen := map[string]string{}
	for _, uid := range []string{"u", "ub", "", "u\x00\x00\x00\x00\x00\x00\x00\x01b"} {
		for _, name := range []string{"a", "b", "ab", "bb", "a.b"} {
			for _, value := range []string{"", "a", "b", "ab", "\x00\x00\x00\x00\x00\x00\x00\x01b"} {
				got := scan(t, redacting(t, nil, newMAC(t, testKey, false), "data[*]"),
					fmt.Sprintf(`{"metadata":{"uid":%s},"data":{%s:%s}}`, quote(uid), quote(name), quote(value)))
				_, got, _ = strings.Cut(got, "hmac-sha256:")
				this := fmt.Sprintf("%q %q %q", uid, name, value)
				if other, twice := seen[got]; twice {
					t.Errorf("%s and %s have one MAC", this, other)
				}
				seen[got] = this
			}
		}
	}
	if len(seen) != 4*5*5 {
		t.Errorf("%d MACs", len(seen))
	}
}

func TestMACAcrossObjects(t *testing.T) {
	across := redacting(t, nil, newMAC(t, testKey, true), "data[*]", "env[*].value")
	for _, in := range []string{
		`{"metadata":{"uid":"1","namespace":"n"},"data":{"x":"v","y":"\u0076"},"env":[{"value":"v"}]}`,
		`{"data":{"z":"v"},"metadata":{"namespace":"n","uid":"2"}}`,
	} {
		got := scan(t, across, in)
		want, all := macOf(testKey, "n", "v"), strings.Count(got, "hmac-sha256:")
		if n := strings.Count(got, want); n == 0 || n != all {
			t.Errorf("%s: %d of %d values are %s", got, n, all, want)
		}
	}
	if got := scan(t, across, `{"data":{"x":"w"}}`); !strings.Contains(got, macOf(testKey, "", "w")) {
		t.Error("another value of an object without a namespace:", got)
	}
	if macOf(testKey, "n", "v") == macOf(testKey, "n", "w") {
		t.Error("the test compares nothing")
	}
}

// A guess in one namespace shows nothing about values of another one.
func TestGuessesInAnotherNamespaceMatchNothing(t *testing.T) {
	across := redacting(t, nil, newMAC(t, testKey, true), "data[*]")
	of := func(namespace string) string {
		got := scan(t, across, `{"metadata":{"namespace":"`+namespace+`"},"data":{"x":"v"}}`)
		_, mac, _ := strings.Cut(got, "hmac-sha256:")
		return mac
	}
	victim := of("victim")
	if again := of("victim"); again != victim {
		t.Errorf("one value in one namespace: %s and %s", victim, again)
	}
	if attacker := of("attacker"); attacker == victim {
		t.Errorf("one value in two namespaces: %s", attacker)
	}
}

func TestNewMAC(t *testing.T) {
	for _, key := range []string{"", "123456789012345", "123456789012345\r\n\n"} {
		_, err := object.NewMAC([]byte(key), false)
		if err == nil || !strings.Contains(err.Error(), "openssl rand -base64 32") ||
			strings.Contains(err.Error(), "12345") {
			t.Errorf("%q: %v", key, err)
		}
	}
	key := []byte(testKey + "\n")
	m, err := object.NewMAC(key, false)
	if err != nil {
		t.Fatal(err)
	}
	clear(key) // the caller's copy
	want := scan(t, redacting(t, nil, newMAC(t, testKey, false), "a"), `{"a":1}`)
	if got := scan(t, redacting(t, nil, m, "a"), `{"a":1}`); got != want {
		t.Errorf("a line end after the key: %s, want %s", got, want)
	}
	if other := newMAC(t, testKey+"x", false); m.ID() == other.ID() || len(m.ID()) != 8 ||
		m.ID() != newMAC(t, testKey, true).ID() {
		t.Errorf("ids %s, %s", m.ID(), other.ID())
	}
	if id := (*object.MAC)(nil).ID(); id != "" {
		t.Errorf("id of no key: %s", id)
	}
}

func TestMACDoesNotPrintItsKey(t *testing.T) {
	m := newMAC(t, testKey, false)
	var out bytes.Buffer
	type holder struct {
		Exported   *object.MAC
		unexported *object.MAC
		cutter     *object.Cutter
	}
	h := holder{m, m, redacting(t, nil, m, "a")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+"\n", m)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", *h.cutter)
		fmt.Fprintf(&out, verb+"\n", object.NewScanner(h.cutter))
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("m", "mac", m, "holder", h)
	}
	text := strings.ToLower(out.String())
	if n := strings.Count(text, "redacted"); n < 10 {
		t.Errorf("only %d times REDACTED in %s", n, text)
	}
	for _, form := range []string{
		testKey, hex.EncodeToString([]byte(testKey)), base64.StdEncoding.EncodeToString([]byte(testKey)), "48 49 50 51",
	} {
		if strings.Contains(text, strings.ToLower(form)) {
			t.Errorf("the key is in %s", text)
		}
	}
}

func TestRedactErrors(t *testing.T) {
	mac := newMAC(t, testKey, false)
	for _, m := range []*object.MAC{nil, mac} {
		for _, path := range []string{"", "a[", "metadata", "metadata.name", "metadata[*]", "kind", "[*]"} {
			if _, err := cutter(t, "x").Redact([]string{"fine", path}, m); err == nil {
				t.Errorf("%q: no error", path)
			}
		}
	}
	if _, err := redacting(t, nil, mac, "a").Redact([]string{"b"}, newMAC(t, testKey, false)); err == nil {
		t.Error("two keys: no error")
	}
	var many []string
	for i := range 20 { // each name of each level has its own tree below it
		path := strings.Split(strings.Repeat("[*] ", 20), " ")[:20]
		path[i] = fmt.Sprintf("[\"n%d\"]", i)
		many = append(many, "a"+strings.Join(path, ""))
	}
	if _, err := object.NewCutter(many); err == nil || !strings.Contains(err.Error(), "too many paths") {
		t.Errorf("paths that make a million: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	mac, across := newMAC(t, testKey, false), newMAC(t, testKey, true)
	all := map[string]string{}
	for _, tc := range []struct {
		name string
		same []*object.Cutter
	}{
		{"nothing", []*object.Cutter{
			nil, cutter(t), redacting(t, nil, nil), redacting(t, nil, mac), redacting(t, cutter(t), mac),
		}},
		{"a", []*object.Cutter{cutter(t, "a"), cutter(t, "a", "a.b", `["a"]`, "a[*].c", "a")}},
		{"b", []*object.Cutter{cutter(t, "b")}},
		{"ab", []*object.Cutter{cutter(t, "a", "b"), cutter(t, "b", "a"), cutter(t, `["\u0061"]`, "b.c", "b")}},
		{"a.b", []*object.Cutter{cutter(t, "a.b")}},
		{"a.b, one name", []*object.Cutter{cutter(t, `["a.b"]`)}},
		{"a[*]", []*object.Cutter{cutter(t, "a[*]"), cutter(t, "a[*]", "a.b"), cutter(t, "a.b", "a[*]", "a.b.c")}},
		{"a[*].x", []*object.Cutter{cutter(t, "a[*].x"), cutter(t, "a[*].x", "a.b.x")}},
		{"removed", []*object.Cutter{
			redacting(t, nil, nil, "a"), cutter(t, append(object.Copies(), "a")...),
			redacting(t, cutter(t, object.ManagedFields), nil, "a"),
		}},
		{"replaced", []*object.Cutter{
			redacting(t, nil, mac, "a"), redacting(t, nil, newMAC(t, testKey, false), "a", "a.b"),
			redacting(t, cutter(t, object.LastApplied), mac, "a"), redacting(t, redacting(t, nil, mac, "a"), mac, "a"),
		}},
		{"replaced, removed in one", []*object.Cutter{redacting(t, cutter(t, "a.b"), mac, "a[*]")}},
		{"replaced in one", []*object.Cutter{redacting(t, nil, mac, "a[*]")}},
		{"across objects", []*object.Cutter{redacting(t, nil, across, "a")}},
		{"another key", []*object.Cutter{redacting(t, nil, newMAC(t, testKey+"x", false), "a")}},
		{"with", []*object.Cutter{must(redacting(t, nil, mac, "a").With("b")), redacting(t, cutter(t, "b"), mac, "a")}},
	} {
		want := tc.same[0].Fingerprint()
		for i, c := range tc.same {
			if got := c.Fingerprint(); got != want {
				t.Errorf("%s: %d is %q, 0 is %q", tc.name, i, got, want)
			}
		}
		if other, twice := all[want]; twice {
			t.Errorf("%s is %s: %q", tc.name, other, want)
		}
		all[want] = tc.name
		if (want == "") != (tc.name == "nothing") {
			t.Errorf("%s: %q", tc.name, want)
		}
	}
}

func must(c *object.Cutter, err error) *object.Cutter {
	if err != nil {
		panic(err)
	}
	return c
}

func TestSecretPaths(t *testing.T) {
	raw := string(sample(t, "secret"))
	removed := scan(t, redacting(t, nil, nil, object.SecretPaths(false)...), raw)
	hashed := scan(t, redacting(t, nil, newMAC(t, testKey, false), object.SecretPaths(true)...), raw)
	tree := decode(t, []byte(raw)).(map[string]any)
	values := 0
	for _, group := range []string{"data", "stringData"} {
		data, _ := tree[group].(map[string]any)
		for name, value := range data {
			values++
			for what, out := range map[string]string{"removed": removed, "hashed": hashed} {
				if strings.Contains(out, value.(string)) {
					t.Errorf("%s: %s.%s is in %s", what, group, name, out)
				}
			}
			want := macOf(testKey, tree["metadata"].(map[string]any)["uid"].(string), `data["`+name+`"]`,
				value.(string))
			if !strings.Contains(name, ".") {
				want = macOf(testKey, tree["metadata"].(map[string]any)["uid"].(string), "data."+name, value.(string))
			}
			if !strings.Contains(hashed, `"`+name+`":"`+want+`"`) {
				t.Errorf("no %s for %s in %s", want, name, hashed)
			}
		}
	}
	if values == 0 {
		t.Fatal("the sample has no values")
	}
	for _, out := range []string{removed, hashed} {
		if strings.Contains(out, "managedFields") || strings.Contains(out, "last-applied") {
			t.Errorf("what repeats values is in %s", out)
		}
	}
}
