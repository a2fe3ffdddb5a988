package encode_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"

	"github.com/google/go-cmp/cmp"
)

// deepPair returns two versions of an object that diverge on each of so many levels, and have size
// bytes at the bottom.
func deepPair(levels, size int) (before, after []byte) {
	const leaf = `"abcdefghijklmnopqrstuvwxyz"`
	bottom := `["b"` + strings.Repeat(`,`+leaf, size/2/len(leaf)) + strings.Repeat(`,12345678`, size/2/9)
	nest := func(key, last string) []byte {
		return []byte(
			`{"o":` + strings.Repeat(`{"a":`, levels) + bottom + last + strings.Repeat(`,"`+key+`":1}`, levels) + `}`)
	}
	return nest("y", `,1]`), nest("z", `,2]`)
}

func updateOf(name string, before, after []byte) *object.Delta {
	ref := object.NewRef(pods, "shop", name, "uid-"+name)
	return &object.Delta{
		Op: object.Updated, Ref: ref, Scope: "pods", ResourceVersion: 8, Previous: 7, Observed: observed.UnixNano(),
		Before: object.New(ref, 7, 0, nil, before),
		After:  object.New(ref, 8, 0, nil, after),
	}
}

// An event whose patch would cost too much has both objects and says that the patch is missing, the
// same each time.
func TestCostlyPatchIsAbsentAndTruncatedSaysSo(t *testing.T) {
	before, after := deepPair(20, 6<<20)
	d := updateOf("web-1", before, after)
	e := encode.New(full)
	var ev, again encode.Event
	for _, ev := range []*encode.Event{&ev, &again} {
		if err := e.Encode(ev, d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"patch"}, ev.Truncated); diff != "" {
			t.Fatal(diff)
		}
	}
	if !bytes.Equal(ev.Body, again.Body) {
		t.Error("another body the second time")
	}
	got, err := consume.Parse(ev.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Data.Before, before) || !bytes.Equal(got.Data.After, after) {
		t.Errorf("objects of %d and %d bytes, want %d and %d", len(got.Data.Before), len(got.Data.After), len(before),
			len(after))
	}
	if got.Data.Patch != nil || !slices.Equal(got.Data.Truncated, []string{"patch"}) || got.DataRef != "" {
		t.Errorf("a patch of %d bytes, truncated %v, reference %q", len(got.Data.Patch), got.Data.Truncated,
			got.DataRef)
	}
}
