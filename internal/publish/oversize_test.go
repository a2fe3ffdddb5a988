package publish_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A creation has no patch. If it may give up nothing else, it is refused.
func TestOversizeHasNothingToGiveUp(t *testing.T) {
	j := newJournal()
	bus := &recorder{j: j, name: "bus", refuse: tooLarge(5_000)}
	o := publish.Options{Oversize: []string{publish.GiveUpPatch}}
	err := dispatchAll(t, bus, o, encode.Structured, nil, nil, created("web-1", 7, 10_000))
	if !errors.Is(err, publish.ErrTooLarge) || len(j.entries) > 0 {
		t.Errorf("got %v, journal %v", err, j.entries)
	}
}

// event.maxBytes is the size of the largest event that is sent whole.
func TestEventOfExactlyTheLimit(t *testing.T) {
	d := change(newJournal(), "web-1", 7, 10_000)
	var ev encode.Event
	if err := newEncoder(encode.Binary).Encode(&ev, d); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{
		ev.Size():     "bus web-1/7",
		ev.Size() - 1: "bus web-1/7 without patch",
	} {
		j := newJournal()
		d.Acker = j
		o := publish.Options{Oversize: allOversize, MaxEventBytes: limit}
		if err := dispatchAll(t, &recorder{j: j, name: "bus"}, o, encode.Binary, nil, nil, d); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want, "ack web-1/7"}, j.entries); diff != "" {
			t.Errorf("at a limit of %d bytes: %s", limit, diff)
		}
	}
}

// The log line of a shortened event has its size before all steps, and as it was sent.
func TestShortenedEventIsLoggedWithItsSizes(t *testing.T) {
	j, log := newJournal(), new(logBuffer)
	var sizes []int
	bus := &recorder{j: j, name: "bus", refuse: func(e *consume.Event, size int) error {
		sizes = append(sizes, size)
		return tooLarge(15_000)(e, size)
	}}
	o := publish.Options{Oversize: allOversize}
	if err := dispatchAll(t, bus, o, encode.Structured, nil, log, change(j, "web-1", 7, 10_000)); err != nil {
		t.Fatal(err)
	}
	if len(sizes) != 3 || lines(log.String(), fmt.Sprintf("bytes=%d bytes_sent=%d", sizes[0], sizes[2])) != 1 {
		t.Errorf("the bus got events of %v bytes, log:\n%s", sizes, log)
	}
}
