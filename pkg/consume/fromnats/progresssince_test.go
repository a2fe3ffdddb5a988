package fromnats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// A query leaves out the progress that was stored before a time, and nothing else, in the order of
// the stream and across a restart of the server.
func TestProgressSince(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, "KUBECDC")
	for n := 1; n <= 20; n++ { // the even ones are progress
		subject := "kubecdc.x.object.core.pods.shop.web"
		if n%2 == 0 {
			subject = "kubecdc.x.progress.w"
		}
		msg := &nats.Msg{Subject: subject, Data: pod(n), Header: nats.Header{"content-type": {
			"application/cloudevents+json",
		}}}
		if _, err := js.PublishMsg(t.Context(), msg, jetstream.WithMsgID(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Millisecond) // each has a time of its own
	}
	stored := func(n uint64) time.Time {
		msg, err := stream.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return msg.Time
	}
	since12 := stored(12)
	since9 := stored(9)
	never := time.Now().Add(time.Hour)
	subjects := []string{"kubecdc.*.object.>", "kubecdc.*.progress.*"}
	from := func(start, progress int) (want []int) {
		for n := start; n <= 20; n++ {
			if n%2 == 1 || n >= progress {
				want = append(want, n)
			}
		}
		return want
	}
	for name, c := range map[string]struct {
		subjects []string
		start    consume.Start
		since    time.Time
		want     []int
	}{
		"from the beginning":           {subjects, consume.Beginning(), since12, from(1, 12)},
		"since an object":              {subjects, consume.Beginning(), since9, from(1, 10)},
		"after a later position":       {subjects, after(14), since12, from(15, 0)},
		"after an earlier position":    {subjects, after(4), since12, from(5, 12)},
		"since a time that is earlier": {subjects, consume.Since(since9), since12, from(9, 12)},
		"since a time that is later":   {subjects, consume.Since(since12), since9, from(12, 0)},
		"no progress yet":              {subjects, consume.Beginning(), never, from(1, 21)},
		"all progress":                 {subjects, consume.Beginning(), time.Time{}, from(1, 0)},
		"one subject for all":          {[]string{"kubecdc.>"}, consume.Beginning(), since12, from(1, 0)},
		"progress alone":               {subjects[1:], consume.Beginning(), since12, []int{12, 14, 16, 18, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fromnats.JetStream{URL: b.ClientURL(), Subjects: c.subjects}
			r := open(t, s, consume.Query{Start: c.start, ProgressSince: c.since, StopAtEnd: true})
			if diff := cmp.Diff(c.want, read(t, r, -1)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}

	r := open(t, fromnats.JetStream{URL: b.ClientURL(), Subjects: subjects}, consume.Query{
		Start:         consume.Beginning(),
		ProgressSince: since12,
		StopAtEnd:     true,
	})
	got := read(t, r, 8)
	b.stop()
	b.start()
	if diff := cmp.Diff(from(1, 12), append(got, read(t, r, -1)...)); diff != "" {
		t.Errorf("across a restart: -want +got\n%s", diff)
	}
}
