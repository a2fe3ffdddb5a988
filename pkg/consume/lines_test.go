package consume_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestLines(t *testing.T) {
	large := strings.Replace(string(pod(3)), `"after":{}`, `"after":{"x":"`+strings.Repeat("x", 200<<10)+`"}`, 1)
	in := string(pod(1)) + "\r\n\n  \n{\n" + string(pod(2)) + "\n" + large + "\n" + strings.Repeat("x", 64<<20+1) + "\n" + string(pod(4))
	l := consume.NewLines("", strings.NewReader(in), consume.Query{})
	var kept []*consume.Event
	for _, want := range []string{
		"pods/1/1", "line 4: JSON ends before the value does", "pods/1/2", "pods/1/3", "line 7: longer than 64 MiB", "pods/1/4", "EOF", "EOF",
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
	if got, err := kept[0].MarshalJSON(); err != nil || string(got) != string(pod(1)) {
		t.Errorf("%s, %v", got, err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("had enough"))
	if _, err := consume.NewLines("", strings.NewReader(in), consume.Query{}).Next(ctx); err == nil || err.Error() != "had enough" {
		t.Errorf("error %v, want the context's cause", err)
	}
	l = consume.NewLines("", io.MultiReader(strings.NewReader("\n"), iotest.ErrReader(errors.New("disk on fire"))), consume.Query{})
	var record *consume.RecordError
	if _, err := l.Next(t.Context()); err == nil || err.Error() != "line 2: disk on fire" || errors.As(err, &record) {
		t.Errorf("error %v", err)
	}
}
