package encode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// nothing names all members that an event can omit.
var nothing = []string{"patch", "before", "after"}

// shortened returns the kinds of shortened events, by the name of their golden files.
func shortened() map[string]struct {
	delta string
	short encode.Short
} {
	const ref = "nats-obj://KUBECDC_LARGE/4f6e9c2d8a417b35f0c1d2e3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7"
	return map[string]struct {
		delta string
		short encode.Short
	}{
		"short-updated-patch":     {"updated", encode.Short{Without: []string{"patch"}}},
		"short-updated-before":    {"updated", encode.Short{Without: []string{"patch", "before"}}},
		"short-updated-reference": {"updated", encode.Short{Without: nothing, DataRef: ref}},
		"short-created-reference": {"created", encode.Short{Without: nothing, DataRef: ref}},
		"short-deleted-reference": {"deleted", encode.Short{Without: nothing, DataRef: ref}},
		"short-read-reference":    {"read", encode.Short{Without: nothing, DataRef: ref}},
		"short-entered-reference": {"entered-before-known", encode.Short{Without: nothing, DataRef: ref}},
		"short-left-reference":    {"left", encode.Short{Without: nothing, DataRef: ref}},
		"short-changed-by":        {"updated-by-many", encode.Short{Without: nothing}},
		"dead-letter": {"updated", encode.Short{
			Reason: "refused: publish to kubecdc.prod-eu-1.…: HTTP 400",
		}},
		"dead-letter-too-large": {"updated", encode.Short{Without: []string{
			"patch", "before",
		}, Reason: "too_large: it has 2000000 bytes"}},
		"dead-letter-with-reference": {"created", encode.Short{
			Without: nothing,
			DataRef: ref,
			Reason:  "refused: \"no\"\n",
		}},
	}
}

// byMany returns an update with so many managers that they alone make it large.
func byMany() *object.Delta {
	d := *deltas()["updated"]
	var b bytes.Buffer
	for i := range 400 {
		fmt.Fprintf(&b, `,{"manager":"operator-%d","operation":"Apply","time":"2026-11-20T15:00:00Z"}`, i)
	}
	b.Bytes()[0] = '['
	d.ChangedBy = append(b.Bytes(), ']')
	return &d
}

func TestEncodeShortGolden(t *testing.T) {
	var ev encode.Event
	ds := deltas()
	ds["updated-by-many"] = byMany()
	for _, name := range slices.Sorted(maps.Keys(shortened())) {
		tc := shortened()[name]
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(name+"-"+string(mode), func(t *testing.T) {
				o := full
				o.Mode = mode
				if err := encode.New(o).EncodeShort(&ev, ds[tc.delta], tc.short); err != nil {
					t.Fatal(err)
				}
				goldenEvent(t, name, mode, &ev)
				id := slices.Clone(ev.ID)
				if err := encode.New(o).Encode(&ev, ds[tc.delta]); err != nil || !bytes.Equal(ev.ID, id) ||
					ev.Truncated != nil {
					t.Errorf("the whole event: %v, id %s and that of the short one %s, truncated %v", err, ev.ID, id,
						ev.Truncated)
				}
			})
		}
	}
}

// truncated does not name members that the event would not have had anyway, or that are null.
func TestEncodeShortTruncated(t *testing.T) {
	all := map[string]bool{"before": true, "patch": true}
	for _, tc := range []struct {
		delta   string
		without []string
		options map[string]bool
		want    []string
	}{
		{"updated", nil, all, nil},
		{"updated", []string{"patch"}, all, []string{"patch"}},
		{"updated", []string{"before"}, all, []string{"before"}},
		{"updated", []string{"after"}, all, []string{"after", "patch"}},
		{"updated", nothing, all, []string{"before", "after", "patch"}},
		{"updated", nothing, map[string]bool{"patch": true}, []string{"after", "patch"}},
		{"updated", nothing, map[string]bool{"before": true}, []string{"before", "after"}},
		{"updated", nothing, nil, []string{"after"}},
		{"created", nothing, all, []string{"after"}},
		{"created", []string{"patch", "before"}, all, nil},
		{"deleted", nothing, all, []string{"before"}},
		{"deleted", []string{"patch"}, all, nil},
		{"read", nothing, all, []string{"after"}},
		{"entered", nothing, all, []string{"after"}},
		{"entered-before-known", nothing, all, []string{"before", "after", "patch"}},
		{"left", nothing, all, []string{"before"}},
		{"left", nothing, nil, nil},
		{"gap", nothing, all, nil},
	} {
		t.Run(fmt.Sprintf("%s without %v of %v", tc.delta, tc.without, tc.options), func(t *testing.T) {
			o := full
			o.Before = tc.options["before"]
			o.Patch = tc.options["patch"]
			o.Mode = encode.Binary
			var ev encode.Event
			if err := encode.New(o).EncodeShort(&ev, deltas()[tc.delta], encode.Short{
				Without: tc.without,
			}); err != nil {
				t.Fatal(err)
			}
			data := map[string]json.RawMessage{}
			if err := json.Unmarshal(ev.Body, &data); err != nil {
				t.Fatal(err)
			}
			var named []string
			if raw := data["truncated"]; raw != nil {
				if err := json.Unmarshal(raw, &named); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([][]string{tc.want, tc.want}, [][]string{named, ev.Truncated}); diff != "" {
				t.Error(diff)
			}
			for _, name := range named {
				if data[name] != nil {
					t.Errorf("%s is named in truncated, and there: %s", name, ev.Body)
				}
			}
			if want := map[string]string{"created": "before", "deleted": "after"}[tc.delta]; want != "" &&
				string(data[want]) != "null" {
				t.Errorf("%s is %s, want null", want, data[want])
			}
		})
	}
}

// An object that cannot be encoded is no error if the event omits it. Such an event becomes a dead
// letter.
func TestEncodeShortOfADamagedObject(t *testing.T) {
	for name, breakIt := range map[string]func(d *object.Delta){
		"malformed": func(d *object.Delta) { d.After = object.New(d.Ref, 1, 0, nil, []byte(`{"x" }`)) },
		"no before": func(d *object.Delta) { d.Before = nil },
		"no after":  func(d *object.Delta) { d.After = nil },
	} {
		d := deltas()["updated"]
		breakIt(d)
		var ev encode.Event
		broken := encode.New(full).Encode(&ev, d)
		if broken == nil {
			t.Fatalf("%s: no error of Encode", name)
		}
		if err := encode.New(full).EncodeShort(&ev, d, encode.Short{
			Without: nothing,
			Reason:  "encode: " + broken.Error(),
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkBySDK(t, &ev)
	}
}

func TestEncodeShortRefuses(t *testing.T) {
	var ev encode.Event
	for want, s := range map[string]encode.Short{
		`leave out "spec"`: {Without: []string{"patch", "spec"}},
		"a dataref of":     {DataRef: "https://x/" + strings.Repeat("x", 5000)},
	} {
		if err := encode.New(full).EncodeShort(&ev, deltas()["updated"], s); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A value that is just as long as it may be is neither refused nor shortened.
func TestEncodeShortAtItsLimits(t *testing.T) {
	ref := refOf(roles, "", strings.Repeat("r", 1024))
	d := &object.Delta{Op: object.Created, Ref: ref, ResourceVersion: 1, After: version(ref, 1, `{}`)}
	s := encode.Short{
		Without: nothing,
		DataRef: "https://x/" + strings.Repeat("x", 4096-len("https://x/")),
		Reason:  strings.Repeat("r", 1024),
	}
	var ev encode.Event
	if err := encode.New(full).EncodeShort(&ev, d, s); err != nil {
		t.Fatal(err)
	}
	got := checkBySDK(t, &ev).Extensions()
	for name, want := range map[string]string{
		"name":             ref.Name(),
		"dataref":          s.DataRef,
		"deadletterreason": s.Reason,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %s", name, got[name], want)
		}
	}
	s.DataRef += "x"
	if err := encode.New(full).EncodeShort(&ev, d, s); err == nil {
		t.Error("a longer dataref is taken")
	}
}

// An event without its object is small, whatever the object and its name are.
func TestEncodeShortIsSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		res := rapid.SampledFrom([]*object.Resource{deployments, roles}).Draw(t, "resource")
		namespace := ""
		if res.Namespaced {
			namespace = strings.Repeat("n", 63)
		}
		char := rapid.SampledFrom([]string{"a", `"`, "\x00", "ä", "\u0085", "\ufffe", "\xff", "🎈"}).Draw(t, "char")
		name := strings.Repeat(char,
			rapid.SampledFrom([]int{1, 253, 1024, 1025, 4096, 200_000}).Draw(t, "length")/len(char)+1)
		ref := refOf(res, namespace, name)
		body, _ := json.Marshal(map[string]string{
			"text": strings.Repeat("x", rapid.SampledFrom([]int{1, 1_400_000}).Draw(t, "body")),
		})
		d := &object.Delta{
			Op:              rapid.SampledFrom(object.Ops()).Draw(t, "op"),
			Ref:             ref,
			ResourceVersion: 1 << 63,
			Previous:        1<<63 - 1,
			History:         1 << 31,
			Snapshot:        "s",
			Before:          object.New(ref, 1, 0, nil, body),
			After:           object.New(ref, 2, 0, nil, body),
		}
		if rapid.Bool().Draw(t, "changed by many") {
			d.ChangedBy = []byte(
				`[` + strings.Repeat(`{"manager":"m"},`, rapid.IntRange(1, 100_000).Draw(t, "managers")) + `{}]`)
		}
		o := full
		o.Mode = rapid.SampledFrom([]encode.Mode{encode.Structured, encode.Binary}).Draw(t, "mode")
		s := encode.Short{
			Without: nothing,
			DataRef: "https://claims.example/" + strings.Repeat("c", 4000),
			Reason:  strings.Repeat("ä\x01", 10_000),
		}
		var ev encode.Event
		if err := encode.New(o).EncodeShort(&ev, d, s); err != nil {
			t.Fatal(err)
		}
		if ev.Size() > encode.MaxShort {
			t.Fatalf("%d bytes", ev.Size())
		}
		checkBySDK(t, &ev)
	})
}

// All events of an object with a long name have the same key. Two such objects have different keys.
func TestEncodeLongNames(t *testing.T) {
	keys := map[string]bool{}
	for _, last := range []string{"a", "b"} {
		ref := refOf(roles, "", strings.Repeat("r", 5000)+last)
		d := &object.Delta{Op: object.Created, Ref: ref, ResourceVersion: 1, After: version(ref, 1, `{}`)}
		var whole, short encode.Event
		if err := errors.Join(encode.New(full).Encode(&whole, d), encode.New(full).EncodeShort(&short, d, encode.Short{
			Without: nothing,
		})); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole.PartitionKey, short.PartitionKey) || len(whole.PartitionKey) > 1024 {
			t.Errorf("keys %s and %s", whole.PartitionKey, short.PartitionKey)
		}
		keys[string(whole.PartitionKey)] = true
	}
	if len(keys) != 2 {
		t.Errorf("keys %v, want two", keys)
	}
}

// EncodeWhole is the same as Encode in structured mode.
func TestEncodeWhole(t *testing.T) {
	binary := full
	binary.Mode = encode.Binary
	var whole, structured encode.Event
	for name, d := range deltas() {
		if err := errors.Join(encode.New(binary).EncodeWhole(&whole, d),
			encode.New(full).Encode(&structured, d)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole.Body, structured.Body) || whole.ContentType != structured.ContentType ||
			whole.Attributes != nil {
			t.Errorf("%s: %s", name, whole.Body)
		}
	}
}

func TestEventSize(t *testing.T) {
	for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
		o := full
		o.Mode = mode
		var ev encode.Event
		if err := encode.New(o).Encode(&ev, deltas()["updated"]); err != nil {
			t.Fatal(err)
		}
		want := len(ev.Body)
		for _, a := range ev.Attributes {
			want += len(a.Name) + len(a.Value)
		}
		if ev.Size() != want || mode == encode.Binary && want == len(ev.Body) {
			t.Errorf("%s: %d bytes, want %d", mode, ev.Size(), want)
		}
	}
}
