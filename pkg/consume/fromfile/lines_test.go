package fromfile_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// read returns the numbers of the next n events, or of all up to io.EOF where n is -1.
func read(tb testing.TB, r consume.Reader, n int) []int {
	tb.Helper()
	var got []int
	for len(got) != n {
		e, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) && n < 0 {
			return got
		}
		if err != nil {
			tb.Fatalf("after %d: %v", got, err)
		}
		number, err := strconv.Atoi(e.Sequence)
		if err != nil {
			tb.Fatal(err)
		}
		got = append(got, number)
	}
	return got
}

func numbers(from, to int) []int {
	var out []int
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

func TestLines(t *testing.T) {
	large := strings.Replace(string(consumetest.Pod(3)), `"after":{}`,
		`"after":{"x":"`+strings.Repeat("x", 200<<10)+`"}`, 1)
	in := string(consumetest.Pod(1)) + "\r\n\n  \n{\n" + string(consumetest.Pod(2)) + "\n" + large + "\n" +
		strings.Repeat("x", 64<<20+1) + "\n" + string(consumetest.Pod(4))
	l := fromfile.NewLines("", strings.NewReader(in), consume.Query{})
	var kept []*consume.Event
	for _, want := range []string{
		"pods/1/1", "line 4: JSON ends before the value does", "pods/1/2", "pods/1/3", "line 7: longer than 64 MiB",
		"pods/1/4", "EOF", "EOF",
	} {
		e, err := l.Next(t.Context())
		got := ""
		var record *consume.RecordError
		if errors.As(err, &record) != strings.HasPrefix(want, "line") {
			t.Errorf("%v is a RecordError or not, want the other", err)
		}
		if err != nil {
			got = err.Error()
		} else {
			got = e.ID
			kept = append(kept, e)
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	// An event stays as it is while others are read.
	if got, err := kept[0].MarshalJSON(); err != nil || string(got) != string(consumetest.Pod(1)) {
		t.Errorf("%s, %v", got, err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("had enough"))
	if _, err := fromfile.NewLines("", strings.NewReader(in), consume.Query{}).Next(ctx); err == nil ||
		err.Error() != "had enough" {
		t.Errorf("error %v, want the context's cause", err)
	}
	l = fromfile.NewLines("", io.MultiReader(strings.NewReader("\n"), iotest.ErrReader(errors.New("disk on fire"))),
		consume.Query{})
	var record *consume.RecordError
	if _, err := l.Next(t.Context()); err == nil || err.Error() != "line 2: disk on fire" || errors.As(err, &record) {
		t.Errorf("error %v", err)
	}
}

func TestFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(from, to int) {
		var all []byte
		for n := from; n <= to; n++ {
			all = append(append(all, consumetest.Pod(n)...), '\n')
		}
		if err := os.WriteFile("events.jsonl", all, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := &fromfile.File{Path: "events.jsonl"}
	begin := func(start consume.Start) consume.Reader {
		r, err := source.Read(t.Context(), consume.Query{Start: start})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	write(1, 10)
	r := begin(consume.Beginning())
	if diff := cmp.Diff(numbers(1, 4), read(t, r, 4)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	at := r.Positions()
	if want := []consume.Position{{Log: consume.Log{
		Name: "events.jsonl",
	}, Next: 5}}; !slices.Equal(at, want) || r.CaughtUp() {
		t.Errorf("positions %+v, want %+v; caught up: %t", at, want, r.CaughtUp())
	}
	r = begin(consume.After(at...))
	if diff := cmp.Diff(numbers(5, 10), read(t, r, -1)); diff != "" || !r.CaughtUp() {
		t.Errorf("caught up: %t, -want +got\n%s", r.CaughtUp(), diff)
	}
	at = r.Positions()
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) || !slices.Equal(at, r.Positions()) || at[0].Next != 11 {
		t.Errorf("%v, %+v, %+v", err, at, r.Positions())
	}
	if got := read(t, begin(consume.Since(time.Now().Add(time.Hour))), -1); got != nil {
		t.Errorf("later events: %v", got)
	}

	write(21, 23)
	r = begin(consume.After(at...))
	missed := new(consume.MissedError)
	if e, err := r.Next(t.Context()); !errors.As(err, &missed) || !missed.Recreated || missed.To != 3 {
		t.Fatalf("%v, %v", e, err)
	}
	if diff := cmp.Diff(numbers(21, 23), read(t, r, -1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := os.WriteFile("events.jsonl", []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	record := new(consume.RecordError)
	if _, err := begin(consume.Live()).Next(t.Context()); !errors.As(err, &record) ||
		err.Error() != "events.jsonl: line 1: JSON ends before the value does" {
		t.Errorf("error %v", err)
	}
	source.Path = filepath.Join(t.TempDir(), "none")
	if _, err := source.Read(t.Context(), consume.Query{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
