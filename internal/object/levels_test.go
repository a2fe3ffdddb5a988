package object_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// levels returns a value with n levels of objects and arrays.
func levels(n int) string {
	return strings.Repeat(`[{"a":`, n/2) + strings.Repeat(`[`, n%2) + "1" + strings.Repeat(`]`, n%2) +
		strings.Repeat(`}]`, n/2)
}

// The levels are those of the object without the values that were cut or replaced.
func TestScanCountsLevels(t *testing.T) {
	mac, err := object.NewMAC([]byte(strings.Repeat("k", 32)), false)
	if err != nil {
		t.Fatal(err)
	}
	redacted, err := cutter(t, "cut", "metadata.managedFields").Redact([]string{"data[*]"}, mac)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		in   string
		cut  *object.Cutter
		want int
	}{
		{"empty", `{}`, nil, 1},
		{"flat", `{"a":1,"b":"[[[["}`, nil, 1},
		{"metadata", `{"metadata":{"name":"x"}}`, nil, 2},
		{"managedFields", `{"metadata":{"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]}}`, nil, 6},
		{"deepest first", `{"a":` + levels(7) + `,"b":` + levels(3) + `}`, nil, 8},
		{"deepest last", `{"a":` + levels(3) + `,"b":` + levels(7) + `}`, nil, 8},
		{"beside a path", `{"x":{"a":` + levels(5) + `,"b":1}}`, cutter(t, "x.b"), 7},
		{"cut", `{"a":` + levels(3) + `,"cut":` + levels(9_000) + `}`, redacted, 4},
		{"cut after", `{"cut":` + levels(9_000) + `,"a":` + levels(3) + `}`, redacted, 4},
		{"managedFields cut", `{"metadata":{"managedFields":[{"fieldsV1":` + levels(700) + `}]}}`, redacted, 2},
		{"replaced", `{"data":{"a":` + levels(700) + `}}`, redacted, 2},
		{"none after many", `{"a":1}`, nil, 1},
		{"the most", `{"a":` + levels(9_999) + `}`, nil, 10_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := object.NewScanner(tc.cut)
			if _, _, err := s.Scan(nil, []byte(`{"a":`+levels(50)+`}`), "", ""); err != nil { // of the object before
				t.Fatal(err)
			}
			_, m, err := s.Scan(nil, []byte(tc.in), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if m.Levels != tc.want {
				t.Errorf("got %d levels, want %d", m.Levels, tc.want)
			}
		})
	}
}

// An object keeps in its packed form whether it is deep.
func TestObjectIsDeep(t *testing.T) {
	codec := object.NewCodec([]byte(`{"kind":"Widget","spec":` + levels(200) + `}`))
	for _, c := range []*object.Codec{nil, codec} {
		for _, n := range []int{1, 10, object.MaxLevels, object.MaxLevels + 1, 9_999} {
			raw := fmt.Appendf(nil, `{"a":%s}`, levels(n-1))
			out, m, err := object.NewScanner(nil).Scan(nil, raw, "", "")
			if err != nil {
				t.Fatal(err)
			}
			o := object.NewScanned(object.NewRef(&object.Resource{Name: "widgets"}, "shop", "x", "u"), 7, m, c, out)
			if got, want := o.Deep(), n > object.MaxLevels; got != want {
				t.Errorf("%d levels: deep %t, want %t", n, got, want)
			}
			got, err := o.AppendJSON(nil)
			if err != nil || !bytes.Equal(raw, got) || o.Size() != len(raw) {
				t.Errorf("%d levels: %v, got %d bytes, size %d, want %d", n, err, len(got), o.Size(), len(raw))
			}
		}
	}
	if object.New(nil, 7, 0, nil, nil).Deep() {
		t.Error("an object without content is deep")
	}
}
