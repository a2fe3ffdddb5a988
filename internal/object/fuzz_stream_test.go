package object_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// choppy splits what it gives anywhere, gives nothing at times, and may give its last bytes with
// the error.
type choppy struct {
	data []byte
	rng  *rand.Rand
	err  error
}

func (r *choppy) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, r.err
	}
	n := min(len(p), len(r.data), r.rng.IntN(1<<r.rng.IntN(12)))
	copy(p, r.data[:n])
	r.data = r.data[n:]
	if len(r.data) == 0 && r.rng.IntN(2) == 0 {
		return n, r.err
	}
	return n, nil
}

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func newChoppy(data []byte, seed uint64) *choppy {
	return &choppy{data: data, rng: rand.New(rand.NewPCG(seed, 0)), err: io.EOF}
}

func FuzzFrames(f *testing.F) {
	var all, pretty []byte
	for _, name := range samples {
		frame := append(append([]byte(`{"type":"MODIFIED","object":`), sample(f, name)...), "}\n"...)
		all = append(all, frame...)
		var buf bytes.Buffer
		if err := json.Indent(&buf, frame, "", "  "); err != nil {
			f.Fatal(err)
		}
		pretty = append(pretty, buf.Bytes()...)
	}
	f.Add(all, uint64(1))
	f.Add(all[:len(all)*2/3], uint64(2))
	f.Add(pretty, uint64(3))
	f.Add(bytes.ReplaceAll(all, []byte("\n"), nil), uint64(4))
	for i, s := range []string{
		`{"type":"ADDED","object":{}}` + "\n" + `{"object":{"a":"}"},"type":"DEL\u0045TED"}{"type":"X","object":[{}]}`,
		`{"type":"ADDED","object":{"a":{}}}` + "\n" + `{"type":"ADDED","object":{"a":{}},"more":{}}` + "\n",
		`{"type":"ADDED","object":{"a":{}}}` + "\n" + `{"type":"ADDED","object":{"a":{},"b":{"c":{}}` + "\n}}",
		`{"type":"A","object":1}` + "\r\n" + `{"type":"A"} {"object":{}} [] {`,
		`{"type":"A","type":null,"object":{}}`, `{"type":"A","object":{},"object":{"a":[1}}`,
		`{"x":{},"type":"A","object":"}"}`,
		`{"type":"A","object":{"a":"\\\"}"}}`, "  \n", "x", `{"type":"A","object":{}} x`, `{"type":"A" "object":{}}`,
		`{"type":"A","object":{},}`,
	} {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		in := newChoppy(data, seed)
		counted := 0
		frames := object.NewFrames(readerFunc(func(p []byte) (int, error) {
			counted++
			return in.Read(p)
		}), 1<<20)
		oracle := json.NewDecoder(bytes.NewReader(data))
		for {
			ready, before := frames.Ready(), counted
			typ, obj, err := frames.Next()
			if ready && (err != nil || counted != before) {
				t.Fatalf("ready, but %d reads and %v", counted-before, err)
			}
			var want map[string]json.RawMessage
			wantErr := oracle.Decode(&want)
			var wantType *string
			sound := wantErr == nil && json.Unmarshal(want["type"], &wantType) == nil && wantType != nil &&
				*wantType != "" && want["object"] != nil
			switch {
			case errors.Is(err, io.EOF):
				if !errors.Is(wantErr, io.EOF) {
					t.Fatalf("ended, want %q, %v", want, wantErr)
				}
				return
			case err != nil:
				if sound {
					t.Fatalf("%v, want %q", err, want)
				}
				return
			case !json.Valid(obj): // for Scan to refuse
				if sound && !bytes.Contains(data, []byte("\n")) {
					t.Fatalf("object %q, want %q", obj, want)
				}
				return
			case !sound:
				t.Fatalf("%q %q, want %q, %v", typ, obj, want, wantErr)
			case string(typ) != *wantType || !bytes.Equal(obj, want["object"]):
				t.Fatalf("%q %q, want %q", typ, obj, want)
			}
		}
	})
}

func FuzzItems(f *testing.F) {
	f.Add(listPage(sample(f, "pod"), 5), uint64(1))
	f.Add(listPage(sample(f, "event"), 12), uint64(2))
	for i, s := range []string{
		`{"items":[],"metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":12},"kind":"L","apiVersion":"v1"}`,
		`{"items":null,"metadata":null}`, `{"items":[1,"a",{"b":[]},null,[]]}`, `{"metadata":{}}`, `{"items":[1,]}`,
		`{"items":[,1]}`,
		`{"items":[1 2]}`, `{"items":[{}],"x":{"y":[{}]},"k":tru}`, `{"items":[{}],}`, `{,"items":[]}`,
		`{"items":[]} x`, `{"items":[{}`,
		`{"items":{}}`, `{"items":[],"items":[1]}`,
		`{"i\u0074ems":[{"a":"]"}],"metadata":{"resourceVersion":"\u0031"}}`, "[]", "", "{}",
		` { "items" : [ { } , 1 ] , "metadata" : { "remainingItemCount" : null } } `, `{"items":[-]}`,
		`{"items":[1e5,true]}`,
	} {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, page []byte, seed uint64) {
		items := object.NewItems(newChoppy(page, seed), 1<<20)
		var got []string
		allValid := true
		var err error
		for {
			var item []byte
			item, err = items.Next()
			if err != nil {
				break
			}
			allValid = allValid && json.Valid(item)
			got = append(got, string(item))
		}
		if _, again := items.Next(); again == nil {
			t.Fatal("an item after an error")
		}
		var want struct {
			tree  map[string]json.RawMessage
			items []json.RawMessage
			meta  struct{ ResourceVersion, Continue, RemainingItemCount json.RawMessage }
		}
		if !json.Valid(page) {
			if errors.Is(err, io.EOF) && allValid {
				t.Fatalf("accepted %q", page)
			}
			return
		}
		wrong := json.Unmarshal(page, &want.tree) != nil || want.tree["items"] == nil ||
			json.Unmarshal(want.tree["items"], &want.items) != nil
		var kind, version string
		for _, text := range []struct {
			name string
			to   *string
		}{{"kind", &kind}, {"apiVersion", &version}} {
			if v := want.tree[text.name]; v != nil {
				wrong = json.Unmarshal(v, text.to) != nil || wrong
			}
		}
		var members map[string]json.RawMessage
		if v := want.tree["metadata"]; v != nil {
			wrong = json.Unmarshal(v, &members) != nil || wrong
		}
		var meta object.ListMeta
		for name, to := range map[string]any{
			"resourceVersion":    &meta.ResourceVersion,
			"continue":           &meta.Continue,
			"remainingItemCount": &meta.RemainingItemCount,
		} {
			if v := members[name]; v != nil {
				wrong = json.Unmarshal(v, to) != nil || wrong
			}
		}
		meta.Kind, meta.APIVersion = kind, version
		if !errors.Is(err, io.EOF) {
			if !wrong && !repeats(page) {
				t.Fatalf("%q: %v", page, err)
			}
			return
		}
		if wrong {
			t.Fatalf("accepted %q", page)
		}
		if diff := cmp.Diff(meta, items.Meta()); diff != "" {
			t.Fatalf("%q: %s", page, diff)
		}
		var wantItems []string
		for _, item := range want.items {
			wantItems = append(wantItems, string(item))
		}
		if diff := cmp.Diff(wantItems, got); diff != "" {
			t.Fatalf("%q: %s", page, diff)
		}
	})
}
