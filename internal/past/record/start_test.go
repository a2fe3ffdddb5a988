package record_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// jetStream is a stream of JetStream in memory, with the records of one partition of a topic.
type jetStream struct {
	records []topicRecord
	first   int // earlier ones were removed
	read    map[string]int
	final   int            // snapshots that the last query for all kinds of events has read
	last    map[string]int // by subject
}

// streamOf returns the only partition of a topic as a stream.
func streamOf(k *kafkaTopic) *jetStream {
	j := &jetStream{
		records: slices.Clone(k.partitions[0].records),
		first:   k.partitions[0].first,
		read:    map[string]int{},
		last:    map[string]int{},
	}
	for i := range j.records {
		e := *j.records[i].e
		e.Position = consume.Position{Log: consume.Log{Name: "KUBECDC"}, Next: uint64(i + 2)}
		j.records[i].e = &e
		_, subject := subjectOf(&e)
		j.last[subject] = i
	}
	return j
}

// subjectOf returns the kind of an event, and a name for its subject.
func subjectOf(e *consume.Event) (kind, subject string) {
	switch {
	case e.Progress != nil:
		return "progress", "progress." + e.Progress.Writer
	case e.Stream == nil:
		return "object", "object." + e.Resource + "." + e.UID
	case e.Type == consume.TypeSnapshotStarted || e.Type == consume.TypeSnapshotCompleted:
		return "stream", "stream." + e.Resource
	}
	return "scope", "scope." + e.Scope
}

func (j *jetStream) Traits() consume.Traits { return seeks }

func (j *jetStream) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	if q.Events == consume.AllEvents {
		j.final = 0
	}
	return &jetStreamReader{j, q, j.first}, nil
}

// hasScope reports whether the record has a start, an end or a gap of a scope, "pods pods/shop", at
// a moment.
func (j *jetStream) hasScope(name string, m timeline.Moment) bool {
	return slices.ContainsFunc(j.records[j.first:], func(r topicRecord) bool {
		kind, _ := subjectOf(r.e)
		return kind == "scope" && r.e.Resource+" "+r.e.Scope == name && m.Includes(r.e)
	})
}

// hasMixedSnapshots reports whether a snapshot was continued while another agent took one of the
// same scope.
func (j *jetStream) hasMixedSnapshots() bool {
	writers := map[string]string{}
	isMixed, isContinued := false, false
	for _, r := range j.records {
		if s := r.e.Stream; s != nil && s.Writer != "" {
			isMixed = isMixed || writers[r.e.Scope] != "" && writers[r.e.Scope] != s.Writer
			writers[r.e.Scope] = s.Writer
			isContinued = isContinued || r.e.Type == consume.TypeSnapshotStarted && s.Continued
		}
	}
	return isMixed && isContinued
}

type jetStreamReader struct {
	*jetStream

	q  consume.Query
	at int
}

// asksFor reports whether the query asks for the record at a place.
func (r *jetStreamReader) asksFor(at int) bool {
	e, stored := r.records[at].e, r.records[at].stored
	kind, subject := subjectOf(e)
	kinds := map[consume.Events][]string{
		consume.AllEvents: {"object", "stream", "scope", "progress"}, consume.ObjectEvents: {"object"},
		consume.StreamEvents: {"stream", "scope", "progress"}, consume.ScopeEvents: {
			"scope", "progress",
		}, consume.ProgressEvents: {"progress"},
	}
	isWanted := func(o consume.Objects) bool {
		isNamed := e.Data == nil || o.Name == "" || o.Name == e.Name
		return (o.Resource == "" || o.Resource == e.Resource) && (o.Scope == "" || o.Scope == e.Scope) && isNamed
	}
	switch {
	case !slices.Contains(kinds[r.q.Events], kind):
		return false
	case kind == "progress" && stored.Before(r.q.ProgressSince), stored.Before(r.q.Start.Time()):
		return false
	case kind != "progress" && r.q.Objects != nil && !slices.ContainsFunc(r.q.Objects, isWanted):
		return false
	}
	return !r.q.LastOfEach || r.last[subject] == at
}

func (r *jetStreamReader) Next(context.Context) (*consume.Event, error) {
	for _, p := range r.q.Start.Positions() {
		r.at = max(r.at, int(p.Next)-1)
	}
	for r.at < len(r.records) {
		r.at++
		if r.asksFor(r.at - 1) {
			e := *r.records[r.at-1].e
			kind, _ := subjectOf(&e)
			r.jetStream.read[kind]++
			if kind == "stream" && r.q.Events == consume.AllEvents {
				r.final++
			}
			return &e, nil
		}
	}
	return nil, io.EOF
}

func (r *jetStreamReader) Positions() []consume.Position { return nil }
func (r *jetStreamReader) CaughtUp() bool                { return r.at == len(r.records) }
func (r *jetStreamReader) Close() error                  { return nil }

func (r *jetStreamReader) Whole(_ context.Context, e *consume.Event) (*consume.Event, error) {
	return e, nil
}

// A state from a part of the stream events is the same, and as certain, as one from all of them.
// Agents are killed, some for ever, and end their scopes; their clocks differ; the bus is away;
// snapshots are continued; retention has removed records.
func TestPartOfTheStreamEventsIsEnough(t *testing.T) {
	selections := map[string]*record.Selection{
		"all": {}, "pods": {Resources: []record.Resource{{Plural: "pods"}}}, "nodes": {Resources: []record.Resource{{
			Plural: "nodes",
		}}},
		"pods of shop":  {Resources: []record.Resource{{Plural: "pods"}}, Namespace: "shop"},
		"pods of tools": {Resources: []record.Resource{{Plural: "pods"}}, Namespace: "tools"},
	}
	names := []string{"all", "pods", "nodes", "pods of shop", "pods of tools"}
	less := 0
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		k, end := drawTopic(t, begin, 1)
		j := streamOf(k)
		if j.hasMixedSnapshots() {
			return // the answer from all records depends on where they begin
		}
		s := selections[rapid.SampledFrom(names).Draw(t, "question")]
		seconds := int(end.Sub(begin).Seconds())
		moment := timeline.At(
			begin.Add(time.Duration(rapid.IntRange(-60, seconds+4*3600).Draw(t, "second")) * time.Second))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			moment = timeline.Moment{}
		case 1:
			moment = timeline.Now(end)
		}
		ask := func(r *record.Record) (*timeline.State, int) {
			clear(j.read)
			states, _, err := r.States(t.Context(), s, moment)
			if err != nil {
				t.Fatal(err)
			}
			return states[0], j.read["object"]
		}
		whole, of := ask(&record.Record{Source: seeking(j, false)})
		r := &record.Record{Source: j}
		r.SetReadBefore(time.Duration(rapid.IntRange(1, 300).Draw(t, "before")) * time.Minute)
		part, n := ask(r)
		if n < of {
			less++
		}
		want, got := scopesOf(whole), scopesOf(part)
		for name, w := range want {
			g, has := got[name]
			isLater := !k.hasScope(&w, moment) && w.Certainty == certainty.Unknown // it starts after the moment
			// Without starts and gaps, a scope cannot be distinguished from a snapshot of a part of
			// another one.
			isLost := !j.hasScope(name, moment)
			isNothing := !has && (isLater || isLost)
			if !isNothing && (!has || g.Certainty != w.Certainty) {
				t.Fatalf("%s at %s: %v, and from all records %v\n%+v\n%+v\n%s", name, moment, g.Certainty, w.Certainty,
					g, w, k)
			}
		}
		for name, g := range got { // it may find scopes that start after the moment
			if _, has := want[name]; !has && g.Certainty != certainty.Unknown {
				t.Fatalf("%s at %s: %v, and the record does not show it\n%s", name, moment, g.Certainty, k)
			}
		}
		if slices.ContainsFunc(whole.Scopes(), func(s certainty.Scope) bool { return s.Name == "" }) {
			return // retention has removed all of an agent but objects
		}
		if w, g := objectsOf(whole), objectsOf(part); !slices.Equal(w, g) {
			t.Fatalf("at %s: %v\nfrom all records: %v\n%+v\n%+v\n%s", moment, g, w, got, want, k)
		}
	})
	if less == 0 && !testing.Short() { // a short run has few worlds
		t.Error("no question has left out an event")
	}
}

// A record of some weeks: a question reads the stream events around the last snapshot, and those of
// scopes that have ended. An agent that is gone is found by its last progress.
func TestEarlierStreamEventsAreNotRead(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	const days = 12
	for _, c := range []struct {
		name  string
		until int // the day from which on the agent of pods/tools does not work
		end   consume.EndReason
		most  int // events of scopes and snapshots
		want  certainty.Level
		pods  int
	}{
		{"both work", days, "", 60, certainty.Exact, 2},
		{"one scope has ended", 3, consume.EndDeselected, 80, certainty.Exact, 1},
		{"one agent is gone", 3, "", 200, certainty.Unknown, 2},
		{"an operator has ended a scope", 3, consume.EndForgotten, 200, certainty.Unknown, 2},
	} {
		k := &kafkaTopic{partitions: []*topicPartition{{}}, distinct: true}
		world := &cluster{objects: map[string]live{}}
		agents := []*scopeAgent{}
		for n, ns := range []string{"shop", "tools"} {
			o := live{resource: "pods", namespace: ns, name: "a", rv: n + 1}
			world.objects[o.uid()] = o
			agents = append(agents, &scopeAgent{
				writerOfDay: writerOfDay{name: "w" + ns, resource: "pods"},
				t:           k,
				scope:       "pods/" + ns,
				ns:          ns,
				every:       24 * 60,
			})
		}
		world.rv = 2
		for _, a := range agents {
			a.begin(world, 0, begin, begin)
		}
		for m := range days * 24 * 60 {
			now := begin.Add(time.Duration(m) * time.Minute)
			for _, a := range agents {
				if a.ns == "tools" && m == c.until*24*60 {
					a.works = false
					if c.end != "" {
						e := a.stream(now, consume.TypeScopeEnded, world.rv)
						e.Stream.End = c.end
						k.putAll(now, e)
					}
				}
				if !a.works {
					continue
				}
				if m%(24*60) == 12*60 { // it starts again
					a.killed = m
					a.begin(world, m, now, now)
				}
				if m%(24*60) == 0 {
					a.takeWhole(world, m, now)
				}
				a.progress(world, now.Add(30*time.Second))
			}
		}
		j := streamOf(k)
		asked := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
		at := timeline.At(begin.Add((days-2)*24*time.Hour + 13*time.Hour))
		states, _, err := (&record.Record{Source: j}).States(t.Context(), asked, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := j.read["stream"] + j.read["scope"]; got > c.most {
			t.Errorf("%s: %d stream events were read, want %d at most", c.name, got, c.most)
		}
		if got := certainty.Worst(states[0].Scopes()); got != c.want || len(states[0].Scopes()) != 2 {
			t.Errorf("%s: %v, want %v: %+v", c.name, got, c.want, states[0].Scopes())
		}
		if got := len(states[0].Objects()); got != c.pods {
			t.Errorf("%s: %d objects, want %d", c.name, got, c.pods)
		}
	}
}
