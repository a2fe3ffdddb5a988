package object_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// frames reads all frames, each as "TYPE object", and returns the error after them.
func frames(r io.Reader, max int) (got []string, err error) {
	f := object.NewFrames(r, max)
	for {
		typ, obj, err := f.Next()
		if err != nil {
			return got, err
		}
		got = append(got, string(typ)+" "+string(obj))
	}
}

func TestFrames(t *testing.T) {
	const added = `{"type":"ADDED","object":{"a":{"b":"}\n]\"\\"}}}`
	for _, tc := range []struct {
		name string
		in   string
		want []string
		err  string // "" where it ends cleanly
	}{
		{name: "empty"},
		{name: "white space", in: " \r\n\n"},
		{
			name: "lines",
			in:   added + "\n" + `{"type":"BOOKMARK","object":{}}` + "\n",
			want: []string{`ADDED {"a":{"b":"}\n]\"\\"}}`, `BOOKMARK {}`},
		},
		{
			name: "no last newline",
			in:   added + "\n" + added,
			want: []string{`ADDED {"a":{"b":"}\n]\"\\"}}`, `ADDED {"a":{"b":"}\n]\"\\"}}`},
		},
		{
			name: "nothing between",
			in:   `{"type":"A","object":{}}{"type":"B","object":{}}`,
			want: []string{"A {}", "B {}"},
		},
		{
			name: "CRLF",
			in:   "{\"type\":\"A\",\"object\":{}}\r\n{\"type\":\"B\",\"object\":{}}\r\n",
			want: []string{"A {}", "B {}"},
		},
		{name: "object first", in: `{"object":{"x":1},"type":"A"}`, want: []string{`A {"x":1}`}},
		{
			name: "other members",
			in:   `{"v":[{}],"type":"A","w":{"type":"B"},"object":{"x":1},"z":null}`,
			want: []string{`A {"x":1}`},
		},
		{name: "a member after it", in: `{"type":"A","object":{"x":{}},"z":{}}`, want: []string{`A {"x":{}}`}},
		{name: "escaped", in: `{"typ\u0065":"\u0041DDED","object":{}}`, want: []string{`ADDED {}`}},
		{
			name: "pretty",
			in:   "{\n \"type\": \"A\",\n \"object\": {\n  \"x\": 1\n }\n}\n",
			want: []string{"A {\n  \"x\": 1\n }"},
		},
		{
			name: "lines, then pretty",
			in:   added + "\n{ \"type\":\n\"A\", \"object\":{}}\n" + added,
			want: []string{`ADDED {"a":{"b":"}\n]\"\\"}}`, "A {}", `ADDED {"a":{"b":"}\n]\"\\"}}`},
		},
		{
			name: "inside a frame",
			in:   added + "\n" + added[:len(added)-1],
			want: []string{`ADDED {"a":{"b":"}\n]\"\\"}}`},
			err:  "unexpected EOF",
		},
		{name: "inside a string", in: `{"type":"A`, err: "unexpected EOF"},
		{name: "no object", in: `{"type":"A"}`, err: "watch frame: no object"},
		{name: "no type", in: `{"object":{}}`, err: "watch frame: no type"},
		{name: "type null", in: `{"type":null,"object":{}}`, err: "watch frame: type is not a string"},
		{name: "not a frame", in: `<html>`, err: "unexpected '<' where a watch frame begins"},
		{name: "syntax", in: `{"type":"A" "object":{}}`, err: "unexpected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(tc.in), "bytes": iotest.OneByteReader(strings.NewReader(tc.in)),
				"with the error": iotest.DataErrReader(strings.NewReader(tc.in)), "choppy": newChoppy([]byte(tc.in), 1),
			} {
				got, err := frames(r, 1<<20)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
				if tc.err == "" && !errors.Is(err, io.EOF) || tc.err != "" && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: %v, want %q", name, err, tc.err)
				}
			}
		})
	}
}

// A line that looks like a frame without being one must be an error, and never another object.
func TestFramesLineThatIsNoFrame(t *testing.T) {
	const usual = `{"type":"A","object":{"x":{}}}` + "\n"
	s := object.NewScanner(nil)
	for _, line := range []string{
		`{"type":"A","object":{"x":{}},"more":{"y":{}}}` + "\n",
		`{"type":"A","object":{"x":{}},"object":{"y":{}}}` + "\n",
		`{"type":"A","object":{"x":{},"y":{"z":{}}` + "\n}}\n",
	} {
		f := object.NewFrames(strings.NewReader(usual+line), 1<<20)
		if _, _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
		_, obj, err := f.Next()
		if err == nil {
			_, _, err = s.Scan(nil, obj, "", "")
		}
		if err == nil {
			t.Errorf("%s: accepted as %s", line, obj)
		}
	}
}

func TestFramesTooLarge(t *testing.T) {
	small := `{"type":"A","object":{"x":1}}`
	large := `{"type":"A","object":{"x":"` + strings.Repeat("y", 20_000) + `"}}`
	for _, in := range []string{small + "\n" + large + "\n" + small, small + large, large} {
		for _, r := range []io.Reader{strings.NewReader(in), newChoppy([]byte(in), 7)} {
			got, err := frames(r, 10_000)
			if !errors.Is(err, object.ErrTooLarge) || len(got) > 1 {
				t.Errorf("%d frames, %v, want ErrTooLarge", len(got), err)
			}
		}
	}
	if got, err := frames(strings.NewReader(large+"\n"+large+"\n"), len(large)); len(got) != 2 ||
		!errors.Is(err, io.EOF) {
		t.Errorf("of exactly the limit: %d frames, %v", len(got), err)
	}
}

func TestFramesReaderFails(t *testing.T) {
	broken := errors.New("connection reset")
	for _, in := range []string{"", `{"type":"A","object":{}}`, `{"type":"A","object":{}}` + "\n" + `{"type":"A`} {
		got, err := frames(io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)), 1<<20)
		if !errors.Is(err, broken) || len(got) != strings.Count(in, "}}") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// A frame is ready when its whole line has been read, after one in the usual layout.
func TestFramesReady(t *testing.T) {
	const usual = `{"type":"A","object":{"x":1}}` + "\n"
	for _, tc := range []struct {
		after string
		want  bool
	}{
		{"", false},
		{usual, true},
		{" \r\n" + usual, true},
		{usual[:len(usual)-1], false},
		{usual[:len(usual)/2], false},
		{"{\"type\":\"A\",\n\"object\":{\"x\":1}}\n", false},
		{`{"object":{"x":1},"type":"A"}` + "\n", false},
	} {
		r := io.MultiReader(strings.NewReader(usual+tc.after), iotest.ErrReader(errors.New("read again")))
		f := object.NewFrames(r, 1<<20)
		if f.Ready() {
			t.Errorf("%q: ready before anything was read", tc.after)
		}
		if _, _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
		if got := f.Ready(); got != tc.want {
			t.Errorf("%q: ready: %t, want %t", tc.after, got, tc.want)
		}
		if _, _, err := f.Next(); tc.want && err != nil {
			t.Errorf("%q: ready, but %v", tc.after, err)
		}
	}
}

// The buffer of a watch must follow its frames, not the largest of them for ever.
func TestFramesLetGiantBuffersGo(t *testing.T) {
	frame := func(n int) string { return fmt.Sprintf(`{"type":"A","object":{"x":%q}}`+"\n", strings.Repeat("y", n)) }
	rec := &recorder{r: strings.NewReader(frame(10) + frame(3<<20) + frame(10) + strings.Repeat(frame(100), 4000))}
	f := object.NewFrames(rec, 4<<20)
	for {
		if _, _, err := f.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if rec.most < 1<<20 || rec.last > 64<<10 {
		t.Errorf("asked for up to %d bytes, at last for %d", rec.most, rec.last)
	}
}

// recorder notes how much it is asked for.
type recorder struct {
	r          io.Reader
	most, last int
}

func (r *recorder) Read(p []byte) (int, error) {
	r.most, r.last = max(r.most, len(p)), len(p)
	return r.r.Read(p)
}

func TestFramesAllocateNothing(t *testing.T) {
	pod := sample(t, "pod")
	frame := append(append([]byte(`{"type":"MODIFIED","object":`), pod...), "}\n"...)
	f := object.NewFrames(&lineReader{piece: frame}, 1<<20)
	next := func() {
		if _, obj, err := f.Next(); err != nil || !bytes.Equal(obj, pod) {
			t.Fatalf("%q, %v", obj, err)
		}
	}
	next()
	if n := testing.AllocsPerRun(100, next); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestItems(t *testing.T) {
	whole := object.ListMeta{
		Kind:               "PodList",
		APIVersion:         "v1",
		ResourceVersion:    "7",
		Continue:           "tok\"en",
		RemainingItemCount: 12,
	}
	for _, tc := range []struct {
		name string
		in   string
		want []string
		meta object.ListMeta
		err  string
	}{
		{
			name: "metadata before",
			in: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"tok\"en","remainingItemCount":12},"items":[{"a":1},{"b":"]"}]}` +
				"\n",
			want: []string{`{"a":1}`, `{"b":"]"}`},
			meta: whole,
		},
		{
			name: "metadata after",
			in:   `{"items":[{"a":1}],"metadata":{"remainingItemCount":12,"continue":"tok\"en","resourceVersion":"7"},"apiVersion":"v1","kind":"PodList"}`,
			want: []string{`{"a":1}`},
			meta: whole,
		},
		{name: "empty", in: `{"items":[]}`},
		{
			name: "null",
			in:   `{"metadata":{"resourceVersion":"7"},"items":null}`,
			meta: object.ListMeta{ResourceVersion: "7"},
		},
		{
			name: "other members",
			in:   `{"x":[{"items":[1]}],"items":[{}],"y":"z","n":-1.5e3,"t":true}`,
			want: []string{"{}"},
		},
		{name: "white space", in: "\n{ \"items\" : [ { \"a\" : 1 } ,\n{ } ] }\n", want: []string{`{ "a" : 1 }`, "{ }"}},
		{name: "no items", in: `{"kind":"Status","metadata":{}}`, err: "no items"},
		{name: "items twice", in: `{"items":[],"items":[{}]}`, err: "duplicate items"},
		{name: "items an object", in: `{"items":{}}`, err: "items is not an array"},
		{name: "nothing", in: ``, err: "unexpected EOF"},
		{name: "ends between items", in: `{"items":[{},`, want: []string{"{}"}, err: "unexpected EOF"},
		{name: "ends in an item", in: `{"items":[{},{"a`, want: []string{"{}"}, err: "unexpected EOF"},
		{name: "ends after the items", in: `{"items":[{}]`, want: []string{"{}"}, err: "unexpected EOF"},
		{name: "something after it", in: `{"items":[]}{`, err: "after the list"},
		{name: "not a list", in: `[]`, err: "where a list begins"},
		{
			name: "remainingItemCount a string",
			in:   `{"metadata":{"remainingItemCount":"1"},"items":[]}`,
			err:  "remainingItemCount",
		},
		{name: "resourceVersion a number", in: `{"metadata":{"resourceVersion":1},"items":[]}`, err: "resourceVersion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole":  strings.NewReader(tc.in),
				"bytes":  iotest.OneByteReader(strings.NewReader(tc.in)),
				"choppy": newChoppy([]byte(tc.in), 1),
			} {
				items := object.NewItems(r, 1<<20)
				var got []string
				var err error
				for err == nil {
					var item []byte
					item, err = items.Next()
					if err == nil {
						got = append(got, string(item))
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
				if tc.err == "" && !errors.Is(err, io.EOF) || tc.err != "" && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: %v, want %q", name, err, tc.err)
				}
				if tc.err == "unexpected EOF" && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s: %v is not io.ErrUnexpectedEOF", name, err)
				}
				if diff := cmp.Diff(tc.meta, items.Meta()); tc.err == "" && diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
		})
	}
}

func TestItemsTooLarge(t *testing.T) {
	items := object.NewItems(bytes.NewReader(listPage(sample(t, "pod"), 3)), 1000)
	if _, err := items.Next(); !errors.Is(err, object.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

// A page may be of any length, its items' limit notwithstanding.
func TestItemsOfALongPage(t *testing.T) {
	pod := sample(t, "pod")
	items := object.NewItems(newChoppy(listPage(pod, 500), 3), len(pod))
	n := 0
	for {
		item, err := items.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !bytes.Equal(item, pod) || !json.Valid(item) {
			t.Fatalf("item %d: %v", n, err)
		}
		n++
	}
	if n != 500 {
		t.Errorf("%d items", n)
	}
}

func TestVersionOf(t *testing.T) {
	for _, tc := range []struct{ in, want, err string }{
		{
			in:   `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"48211","creationTimestamp":null},"spec":{"containers":null},"status":{}}`,
			want: "48211",
		},
		{in: `{ "metadata" : { "labels" : {"resourceVersion":"1"} , "resourceVersion" : "2" } }`, want: "2"},
		{in: `{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"annotations":{"metadata":"x"}}}`},
		{in: `{"m\u0065tadata":{"resourceV\u0065rsion":"\u0033"}}`, want: "3"},
		{in: `{"metadata":null}`},
		{in: `{"metadata":{"resourceVersion":null}}`},
		{in: `{}`},
		{in: `{"metadata":{"resourceVersion":7}}`, err: "is not a string"},
		{in: `{"metadata":{"resourceVersion":"7"},"spec":{]}`, err: "unexpected ']'"},
		{in: `{"metadata":{"resourceVersion":"7"}`, err: "ends before"},
		{in: `{"metadata":{"resourceVersion":"7"}}}`, err: "unexpected '}'"},
		{in: `["metadata"]`, err: "is not an object"},
		{in: ``, err: "is not an object"},
	} {
		got, err := object.VersionOf([]byte(tc.in))
		if got != tc.want && tc.err == "" || (err == nil) != (tc.err == "") ||
			err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v, want %q, %q", tc.in, got, err, tc.want, tc.err)
		}
	}
}

// A bookmark costs little: there are thousands a minute.
func BenchmarkVersionOf(b *testing.B) {
	raw := []byte(
		`{"kind":"Thing","apiVersion":"shop.test/v1","metadata":{"resourceVersion":"48211","creationTimestamp":null}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := object.VersionOf(raw); err != nil {
			b.Fatal(err)
		}
	}
}
