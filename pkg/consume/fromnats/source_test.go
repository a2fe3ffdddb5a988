package fromnats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// A reader that continues at the positions of another one returns what that one did not, wherever
// that one began.
func TestJetStreamPositions(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	put(t, js, 1, 10)
	msg, err := stream.GetMsg(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	source := fromnats.JetStream{URL: b.ClientURL()}
	for name, tc := range map[string]struct {
		start consume.Start
		read  int
		next  uint64
	}{
		"live":                 {consume.Live(), 0, 11},
		"beginning":            {consume.Beginning(), 0, 1},
		"beginning, three":     {consume.Beginning(), 3, 4},
		"since":                {consume.Since(msg.Time), 0, 8},
		"since, all":           {consume.Since(msg.Time), 3, 11},
		"since a later moment": {consume.Since(time.Now().Add(time.Minute)), 0, 11},
		"after, one":           {after(4), 1, 6},
	} {
		r := open(t, source, consume.Query{Start: tc.start})
		read(t, r, tc.read)
		at := r.Positions()
		if len(at) != 1 || at[0].Name != "KUBECDC" || at[0].Next != tc.next || at[0].ID == "" {
			t.Errorf("%s: positions %+v, want %d", name, at, tc.next)
		}
		if got, want := r.CaughtUp(), tc.next == 11; got != want {
			t.Errorf("%s: caught up: %t", name, got)
		}
		rest := read(t, open(t, source, consume.Query{Start: consume.After(at...), StopAtEnd: true}), -1)
		if diff := cmp.Diff(numbers(int(tc.next), 10), rest); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestEventHasItsPosition(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	r := open(t, fromnats.JetStream{URL: b.ClientURL()}, consume.Query{Start: consume.Beginning()})
	for n := range 3 {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Position != r.Positions()[0] || e.Position.Next != uint64(n+2) {
			t.Errorf("position %+v of record %d, the reader's is %+v", e.Position, n+1, r.Positions())
		}
	}
}

// A stream that was created again while nobody read is read from its beginning, and the reader says
// so once.
func TestJetStreamRecreatedWhileNobodyReads(t *testing.T) {
	b := startBus(t)
	_, js := b.client()
	b.stream(js, "KUBECDC")
	put(t, js, 1, 3)
	source := fromnats.JetStream{URL: b.ClientURL()}
	r := open(t, source, consume.Query{Start: consume.Beginning()})
	read(t, r, 3)
	at := r.Positions()
	if err := js.DeleteStream(t.Context(), "KUBECDC"); err != nil {
		t.Fatal(err)
	}
	b.stream(js, "KUBECDC")
	put(t, js, 11, 20)
	r = open(t, source, consume.Query{Start: consume.After(at...), StopAtEnd: true})
	missed := new(consume.MissedError)
	if e, err := r.Next(t.Context()); !errors.As(err, &missed) || !missed.Recreated || missed.Log != at[0].Log {
		t.Fatalf("%v, %v", e, err)
	}
	if diff := cmp.Diff(numbers(11, 20), read(t, r, -1)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	again := open(t, source, consume.Query{Start: consume.After(r.Positions()...), StopAtEnd: true})
	if got := read(t, again, -1); got != nil {
		t.Errorf("read %v", got)
	}
}
