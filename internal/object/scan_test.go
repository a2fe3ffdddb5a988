package object_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

var scanTable = []struct {
	name string
	in   string
	cut  []string
	want string // "" where it is an error
	err  string // a part of it
}{
	{name: "nothing to cut", in: `{"a":1}`, cut: []string{"b"}, want: `{"a":1}`},
	{name: "first", in: `{"a":1,"b":2,"c":3}`, cut: []string{"a"}, want: `{"b":2,"c":3}`},
	{name: "middle", in: `{"a":1,"b":2,"c":3}`, cut: []string{"b"}, want: `{"a":1,"c":3}`},
	{name: "last", in: `{"a":1,"b":2,"c":3}`, cut: []string{"c"}, want: `{"a":1,"b":2}`},
	{name: "first two", in: `{"a":1,"b":2,"c":3}`, cut: []string{"a", "b"}, want: `{"c":3}`},
	{name: "last two", in: `{"a":1,"b":2,"c":3}`, cut: []string{"b", "c"}, want: `{"a":1}`},
	{name: "first and last", in: `{"a":1,"b":2,"c":3}`, cut: []string{"a", "c"}, want: `{"b":2}`},
	{name: "all", in: `{"a":1,"b":2,"c":3}`, cut: []string{"a", "b", "c"}, want: `{}`},
	{name: "an inner object becomes empty", in: `{"x":{"a":1},"b":2}`, cut: []string{"x.a"}, want: `{"x":{},"b":2}`},
	{name: "white space", in: " { \"a\" : 1 ,\n\t\"b\" : 2 }\r\n", cut: []string{"a"}, want: "{\n\t\"b\" : 2 }"},
	{name: "white space, last", in: `{ "a" : 1 , "b" : 2 }`, cut: []string{"b"}, want: `{ "a" : 1 }`},
	{name: "escaped name", in: `{"d\u0061ta":1,"b":2}`, cut: []string{"data"}, want: `{"b":2}`},
	{name: "escaped parent", in: `{"m\u0065ta":{"x":1,"y":2}}`, cut: []string{"meta.x"}, want: `{"m\u0065ta":{"y":2}}`},
	{name: "name of surrogates", in: `{"\ud83d\ude00":1,"b":2}`, cut: []string{"😀"}, want: `{"b":2}`},
	{name: "name of half a surrogate", in: `{"\ud83d":1,"b":2}`, cut: []string{"\ufffd"}, want: `{"b":2}`},
	{name: "name of invalid UTF-8", in: "{\"\xff\":1,\"b\":2}", cut: []string{"\ufffd"}, want: `{"b":2}`},
	{name: "every occurrence", in: `{"a":1,"b":2,"a":3,"\u0061":4}`, cut: []string{"a"}, want: `{"b":2}`},
	{
		name: "every occurrence of a parent",
		in:   `{"x":{"a":1,"c":1},"x":{"c":2,"a":2}}`,
		cut:  []string{"x.a"},
		want: `{"x":{"c":1},"x":{"c":2}}`,
	},
	{
		name: "elements",
		in:   `{"l":[{"a":1,"b":2},{"a":3},4,[{"a":5}]]}`,
		cut:  []string{"l[*].a"},
		want: `{"l":[{"b":2},{},4,[{"a":5}]]}`,
	},
	{name: "every element", in: `{"l":[1,[2],{"a":3}]}`, cut: []string{"l[*]"}, want: `{"l":[]}`},
	{
		name: "elements of elements",
		in:   `{"l":[[{"a":1}],{"a":2}]}`,
		cut:  []string{"l[*][*].a"},
		want: `{"l":[[{}],{"a":2}]}`,
	},
	{
		name: "a parent that is no object",
		in:   `{"x":[{"a":1}],"y":null,"z":"a"}`,
		cut:  []string{"x.a", "y.a", "z.a", "z[*]"},
		want: `{"x":[{"a":1}],"y":null,"z":"a"}`,
	},
	{name: "a path and its beginning", in: `{"x":{"a":1,"b":2},"c":3}`, cut: []string{"x.a", "x"}, want: `{"c":3}`},
	{
		name: "quoted name",
		in:   `{"x":{"a.b":{"c":1,"d":2}}}`,
		cut:  []string{`x["a.b"].c`},
		want: `{"x":{"a.b":{"d":2}}}`,
	},
	{
		name: "numbers as they are",
		in:   `{"a":[1.0,1e400,-0,12345678901234567890]}`,
		want: `{"a":[1.0,1e400,-0,12345678901234567890]}`,
	},

	{name: "empty", in: ``, err: "ends before"},
	{name: "white space only", in: " \n", err: "ends before"},
	{name: "array", in: `[]`, err: "not an object"},
	{name: "null", in: `null`, err: "not an object"},
	{name: "two values", in: `{} {}`, err: "byte 3"},
	{name: "trailing comma", in: `{"a":1,}`, err: "byte 7"},
	{name: "trailing comma in what is skipped", in: `{"a":{"b":[1,]}}`, err: "byte 13"},
	{name: "wrong bracket", in: `{"a":[1}}`, err: "byte 7"},
	{name: "control character", in: "{\"a\":\"\n\"}", err: "byte 6"},
	{name: "bad escape", in: `{"a":"\x"}`, err: "byte 7"},
	{name: "bad hex", in: `{"a":"\u00g0"}`, err: "byte 10"},
	{name: "leading zero", in: `{"a":01}`, err: "byte 6"},
	{name: "bare minus", in: `{"a":-}`, err: "byte 6"},
	{name: "metadata an array", in: `{"metadata":[]}`, err: "metadata is not an object"},
	{name: "name a number", in: `{"metadata":{"name":1}}`, err: "metadata.name is not a string"},
	{name: "uid an object", in: `{"metadata":{"uid":{}}}`, err: "metadata.uid is not a string"},
	{name: "kind null", in: `{"kind":null}`, err: "kind is not a string"},
}

func TestScan(t *testing.T) {
	for _, tc := range scanTable {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := object.NewScanner(cutter(t, tc.cut...)).Scan(nil, []byte(tc.in), "", "")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScanMetadata(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   string
		want scanned
	}{
		{"none", `{}`, scanned{}},
		{"metadata null", `{"metadata":null}`, scanned{}},
		{"names null", `{"metadata":{"name":null,"namespace":null}}`, scanned{}},
		{
			"any order",
			`{"metadata":{"uid":"u","resourceVersion":"7","name":"n","namespace":"s"},"apiVersion":"v1","kind":"K"}`,
			scanned{APIVersion: "v1", Kind: "K", Namespace: "s", Name: "n", UID: "u", ResourceVersion: "7"},
		},
		{"escapes", `{"m\u0065tadata":{"n\u0061me":"\u00fc\ud83d\ude00\ud800x\/\b\f\n\r\t\"\\"}}`, scanned{
			Name: "ü😀\ufffdx/\b\f\n\r\t\"\\",
		}},
		{"the last of one name", `{"metadata":{"name":"a","name":"b"}}`, scanned{Name: "b"}},
		{
			"the last metadata", `{"metadata":{"name":"a","uid":"u","managedFields":[{}]},"metadata":{"name":"b"}}`,
			scanned{Name: "b"},
		},
		{"the last is null", `{"metadata":{"name":"a","name":null}}`, scanned{}},
		{
			"deeper ones do not count",
			`{"spec":{"kind":"X","metadata":{"name":"x"}},"metadata":{"labels":{"name":"x"}}}`,
			scanned{},
		},
		{
			"managers", `{"metadata":{"managedFields":[
				{"manager":"a","operation":"Apply","time":"2026-11-20T15:00:00Z","fieldsV1":{"f:time":{},"time":"2030-01-01T00:00:00Z"}},
				{"manager":"b","operation":"Update","subresource":"status","time":"2026-11-20T16:00:00+01:00"},
				{"manager":"c","time":"2024-02-29T23:59:59Z"},{"time":"2023-02-29T00:00:00Z"},{"time":"soon"},{"time":7,"manager":[]},9,null,[{"manager":"x"}],{}]}}`,
			scanned{ManagedAt: 1795186800, Managers: []managed{
				{"a", "Apply", "", "2026-11-20T15:00:00Z", 1795186800},
				{"b", "Update", "status", "2026-11-20T16:00:00+01:00", 1795186800},
				{"c", "", "", "2024-02-29T23:59:59Z", 1709251199},
				{"", "", "", "2023-02-29T00:00:00Z", 0},
				{"", "", "", "soon", 0},
				{},
				{},
			}},
		},
		{"managers of another type", `{"metadata":{"managedFields":{"manager":"x"}}}`, scanned{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, paths := range [][]string{nil, {"metadata.managedFields"}, {"metadata.managedFields[*].time"}} {
				_, m, err := object.NewScanner(cutter(t, paths...)).Scan(nil, []byte(tc.in), "", "")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, textual(m)); diff != "" {
					t.Errorf("cutting %q: %s", paths, diff)
				}
			}
		})
	}
}

func TestScanSplicesKindAndAPIVersion(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"metadata":{"name":"a"}}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`},
		{` { } `, `{"kind":"Pod","apiVersion":"v1" }`},
		{`{"data":{}}`, `{"kind":"Pod","apiVersion":"v1"}`},
		{`{"x":1,"kind":"Job"}`, `{"apiVersion":"v1","x":1,"kind":"Job"}`},
		{`{"x":1,"apiVersion":"b/v2"}`, `{"kind":"Pod","x":1,"apiVersion":"b/v2"}`},
		{`{"apiVersion":"b/v2","kind":"Job"}`, `{"apiVersion":"b/v2","kind":"Job"}`},
	} {
		out, m, err := object.NewScanner(cutter(t, "data")).Scan([]byte("before "), []byte(tc.in), "Pod", "v1")
		if err != nil {
			t.Fatalf("%s: %v", tc.in, err)
		}
		if diff := cmp.Diff("before "+tc.want, string(out)); diff != "" {
			t.Errorf("%s: %s", tc.in, diff)
		}
		var want struct{ Kind, APIVersion string }
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if string(m.Kind) != want.Kind || string(m.APIVersion) != want.APIVersion {
			t.Errorf("%s: %s %s, want %+v", tc.in, m.Kind, m.APIVersion, want)
		}
	}
}

// A version of an object must not differ by how it has come, or the patch to the next one would say
// so.
func TestScanListedAndWatchedAreOne(t *testing.T) {
	for _, name := range samples {
		watched := sample(t, name)
		_, m, err := object.NewScanner(nil).Scan(nil, watched, "", "")
		if err != nil {
			t.Fatal(err)
		}
		kind, apiVersion := string(m.Kind), string(m.APIVersion)
		listed := bytes.Replace(watched, fmt.Appendf(nil, `"kind":%q,"apiVersion":%q,`, kind, apiVersion), nil, 1)
		if len(listed) == len(watched) {
			t.Fatal("nothing taken out")
		}
		s := object.NewScanner(stripped(t))
		a, _, errA := s.Scan(nil, watched, kind, apiVersion)
		b, _, errB := s.Scan(nil, listed, kind, apiVersion)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, gone := range []string{"managedFields", "last-applied", "f:data"} {
			if bytes.Contains(a, []byte(gone)) {
				t.Errorf("%s: %s is still there", name, gone)
			}
		}
	}
}

func TestScanTruncated(t *testing.T) {
	s := object.NewScanner(stripped(t))
	for _, name := range samples {
		raw := sample(t, name)
		for n := range raw {
			if out, m, err := s.Scan(nil, raw[:n], "", ""); !errors.Is(err, jsonscan.ErrTruncated) || out != nil ||
				m != nil {
				t.Fatalf("%s[:%d]: %v, want ErrTruncated", name, n, err)
			}
		}
	}
}

func TestScanDepth(t *testing.T) {
	nested := func(n int, opening, closing string) string {
		return `{"a":` + strings.Repeat(opening, n) + "1" + strings.Repeat(closing, n) + "}"
	}
	s := object.NewScanner(cutter(t, "b", "c.d"))
	for _, kind := range [][2]string{{"[", "]"}, {`{"x":`, "}"}, {`[{"x":`, "}]"}} {
		per := strings.Count(kind[0], "[") + strings.Count(kind[0], "{")
		for _, n := range []int{9999 / per, 9999/per + 1} {
			raw := []byte(nested(n, kind[0], kind[1]))
			out, _, err := s.Scan(nil, raw, "", "")
			if want := json.Valid(raw); (err == nil) != want || want && !bytes.Equal(out, raw) {
				t.Errorf("%d times %s: %v, json.Valid = %t", n, kind[0], err, want)
			}
		}
	}
	if _, _, err := s.Scan(nil, []byte(strings.Repeat(`{"a":`, 5_000_000)), "", ""); err == nil {
		t.Error("no error for 5,000,000 levels")
	}
}

func TestScanAllocatesNothing(t *testing.T) {
	s := object.NewScanner(stripped(t))
	inputs := [][]byte{
		[]byte(`{"metadata":{"name":"\u0061","managedFields":[{"manager":"\u0061","time":"2026-11-30T15:00:00Z"}]}}`),
	}
	for _, name := range samples {
		inputs = append(inputs, sample(t, name))
	}
	dst, by := make([]byte, 0, 16<<10), make([]byte, 0, 1<<10)
	if n := testing.AllocsPerRun(100, func() {
		for _, raw := range inputs {
			_, m, err := s.Scan(dst, raw, "Kind", "group/v1")
			if err != nil {
				t.Fatal(err)
			}
			m.AppendChangedBy(by, 0)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestScanGiant(t *testing.T) {
	var in bytes.Buffer
	in.WriteString(`{"kind":"ConfigMap","metadata":{"name":"giant","managedFields":[]},"data":{"blob":"`)
	in.WriteString(strings.Repeat(`0123456789abcdef\n`, 180_000))
	in.WriteString(`"},"binaryData":{`)
	for i := range 2000 {
		fmt.Fprintf(&in, `"k%d":"AAAA",`, i)
	}
	in.WriteString(`"z":""}}`)
	raw := in.Bytes()
	if len(raw) < 3_000_000 {
		t.Fatalf("only %d bytes", len(raw))
	}
	out, m, err := object.NewScanner(stripped(t)).Scan(nil, raw, "ConfigMap", "v1")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1",` + strings.Replace(string(raw[1:]), `,"managedFields":[]`, "", 1)
	if string(out) != want || string(m.Name) != "giant" {
		t.Error("a giant object differs")
	}
	codec := object.NewCodec(raw)
	back, err := object.New(nil, 1, 0, codec, out).AppendJSON(nil)
	if err != nil || !bytes.Equal(back, out) {
		t.Errorf("a giant object differs when unpacked: %v", err)
	}
}

func TestAppendChangedBy(t *testing.T) {
	entry := func(manager, at, fields string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":"Update","time":"2026-11-20T15:00:0%sZ","fieldsV1":%s}`, manager,
			at, fields)
	}
	scan := func(entries ...string) *object.Scanned {
		t.Helper()
		raw := `{"metadata":{"managedFields":[` + strings.Join(entries, ",") + `]}}`
		_, m, err := object.NewScanner(stripped(t)).Scan(nil, []byte(raw), "", "")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	specA, specAB := `{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:a":{},"f:b":{}}}`
	deployer := entry("deployer", "0", specA)
	editor := entry("editor", "1", specA)
	controller := entry("controller", "1", specA)
	timeless := `{"manager":"kubectl","operation":"Update","subresource":"scale","fieldsV1":{}}`
	for _, tc := range []struct {
		name         string
		prev, next   []string
		wantManagers []string
	}{
		{"created", nil, []string{deployer, editor}, []string{"deployer", "editor"}},
		{"later", []string{deployer}, []string{deployer, editor}, []string{"editor"}},
		{"nobody", []string{deployer, editor}, []string{deployer, editor}, nil},
		{"another in the same second", []string{deployer, controller}, []string{
			deployer, controller, editor,
		}, []string{"editor"}},
		{"fields lost to another in the same second", []string{controller, entry("editor", "1", specAB)}, []string{
			editor, controller, entry("scaler", "1", specA),
		}, []string{"scaler"}},
		{"one entry less", []string{deployer, editor}, []string{deployer}, nil},
		{"without a time", []string{deployer}, []string{deployer, timeless, `7`, `{}`}, []string{"kubectl"}},
		{"without a time, again", []string{timeless, deployer}, []string{timeless, deployer, editor}, []string{
			"editor",
		}},
	} {
		var got []string
		if by := scan(tc.next...).AppendChangedBy(nil, scan(tc.prev...).Managed); by != nil {
			var entries []struct{ Manager, Operation, Time string }
			if err := json.Unmarshal(by, &entries); err != nil {
				t.Fatalf("%s: %s: %v", tc.name, by, err)
			}
			for _, e := range entries {
				got = append(got, e.Manager)
			}
		}
		if diff := cmp.Diff(tc.wantManagers, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}

	m := scan(deployer, `{"manager":"a \"b\"\u0000","operation":"Apply","time":"2026-11-20T15:00:01Z"}`)
	want := `[{"manager":"a \"b\"\u0000","operation":"Apply","time":"2026-11-20T15:00:01Z"}]`
	if diff := cmp.Diff(want, string(m.AppendChangedBy(nil, scan(deployer).Managed))); diff != "" {
		t.Error(diff)
	}
	if got := m.AppendChangedBy([]byte("x"), m.Managed); string(got) != "x" {
		t.Errorf("%q, want x", got)
	}
}
