package consume_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// Events report what they omit, in both content modes.
func TestShortenedEvents(t *testing.T) {
	for _, mode := range []string{"structured", "binary"} {
		events := map[string]*consume.Event{}
		for _, r := range consumetest.Goldens(t, mode) {
			e, err := consume.FromMessage(r.Header, r.Body)
			if err != nil {
				t.Fatal(err)
			}
			events[r.Name] = e
		}
		short := events["short-updated-reference"]
		if short.DataRef == "" || short.DataRef != short.Data.DataRef || short.DeadLetterReason != "" ||
			short.Extensions != nil {
			t.Errorf("%s: dataref %q and %q, reason %q, extensions %v", mode, short.DataRef, short.Data.DataRef,
				short.DeadLetterReason, short.Extensions)
		}
		if !slices.Equal(short.Data.Truncated, []string{"before", "after", "patch"}) || short.Data.After != nil ||
			short.Data.Before != nil || short.Data.Patch != nil {
			t.Errorf("%s: without %v: %s", mode, short.Data.Truncated, short.Data.After)
		}
		if e := events["dead-letter"]; e.DeadLetterReason == "" || e.DataRef != "" || e.Data.After == nil {
			t.Errorf("%s: dead letter because %q", mode, e.DeadLetterReason)
		}
		gap := events["gap-dead-letter"]
		if gap.Stream.Reason != consume.ReasonDeadLetter || gap.Stream.DeadLetter != short.ID {
			t.Errorf("%s: gap %+v", mode, gap.Stream)
		}
		for _, name := range []string{"short-updated-reference", "dead-letter"} { // both ways
			record, err := events[name].MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			again := parse(t, string(record))
			if diff := cmp.Diff([]string{events[name].DataRef, events[name].DeadLetterReason}, []string{
				again.DataRef, again.DeadLetterReason,
			}); diff != "" {
				t.Errorf("%s: %s", mode, diff)
			}
		}
	}
}

// A shortened event is news like any other, but the whole event or a duplicate is not; a gap after
// a dead letter changes nothing.
func TestTrackerOfShortenedEvents(t *testing.T) {
	records := map[string]*consume.Event{}
	for _, r := range consumetest.Goldens(t, "structured") {
		records[r.Name] = parse(t, string(r.Body))
	}
	var tr consume.Tracker
	for _, step := range []struct {
		record string
		news   bool
		known  int
	}{
		{"short-created-reference", true, 1},
		{"created", false, 1},
		{"dead-letter", false, 1},
		{"gap-dead-letter", true, 1},
		{"gap-dead-letter", false, 1},
		{"short-updated-patch", true, 1},
		{"updated", false, 1},
		{"short-deleted-reference", true, 0},
		{"deleted", false, 0},
	} {
		v := tr.Apply(records[step.record])
		if v.News != step.news || len(v.Gone) > 0 || tr.Len() != step.known {
			t.Errorf("%s: %+v, %d objects", step.record, v, tr.Len())
		}
	}
}

// A sweep spares an object whose event is a dead letter, since the object exists. An object whose
// deletion is a dead letter is gone.
func TestTrackerSparesDeadLetters(t *testing.T) {
	event := func(id, typ, rest string) *consume.Event {
		return parse(t,
			`{"specversion":"1.0","id":"`+id+`","source":"/kubernetes/x","type":"dev.kubecdc.`+typ+
				`","apiversion":"v1","resource":"pods",`+rest+`}`)
	}
	pod := func(uid, name string) *consume.Event {
		return event("pods/"+uid+"/5", "object.created",
			`"namespace":"shop","name":"`+name+`","uid":"`+uid+
				`","op":"c","sequence":"00000000000000000005","data":{"op":"c","resourceVersion":"5","after":{}}`)
	}
	gap := func(letter string) *consume.Event {
		return event("pods/gap/0-5/"+letter, "gap",
			`"scope":"pods","data":{"reason":"dead-letter","deadLetter":"`+letter+`"}`)
	}
	snapshot := func(what string) *consume.Event {
		return event("pods/s1/"+what, "snapshot."+what,
			`"scope":"pods","data":{"snapshot":"s1","resourceVersion":"9","objects":0}`)
	}
	var tr consume.Tracker
	var gone []string
	for _, e := range []*consume.Event{
		pod("1", "a"), pod("2", "b"), pod("3", "c"), pod("4", "d"), pod("5", "e"), snapshot("started"),
		gap("pods/1/5/r/s1"), gap("pods/2/7/h1"), gap("pods/3/d"), gap("pods/3/d"), gap("pods/4/d/h1"),
		gap("pods/6/5/r/s1"), gap("pods/7/d"),
		pod("3", "c"), snapshot("completed"),
	} {
		for _, o := range tr.Apply(e).Gone {
			gone = append(gone, e.Type.Name()+" "+o.Name)
		}
	}
	if !slices.Equal(gone, []string{"gap c", "gap d", "snapshot.completed e"}) || tr.Len() != 2 {
		t.Errorf("gone are %v, %d remain", gone, tr.Len())
	}
}
