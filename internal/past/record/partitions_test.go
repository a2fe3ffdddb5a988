package record_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// drawTopic draws the record of some hours, in at most so many partitions.
func drawTopic(t *rapid.T, begin time.Time, partitions int) (*kafkaTopic, time.Time) {
	k := &kafkaTopic{appendTimes: rapid.IntRange(0, 3).Draw(t, "append times") == 0, distinct: partitions == 1}
	for range rapid.IntRange(1, partitions).Draw(t, "partitions") {
		k.partitions = append(k.partitions, &topicPartition{})
	}
	c := &cluster{objects: map[string]live{}}
	var agents []*scopeAgent
	skews := map[string]time.Duration{} // of agents that see the same objects
	for _, resource := range []string{"pods", "nodes"} {
		skews[resource] = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, -1, -40, 40, 200}).Draw(t, "skew")) *
			time.Minute
	}
	k.clocksDiffer = skews["pods"] != skews["nodes"]
	for n, scope := range [][3]string{
		{"pods", "pods", ""}, {"pods", "pods", ""}, {"pods", "pods/shop", "shop"}, {
			"pods", "pods/tools?labelSelector=a=b", "tools",
		}, {"nodes", "nodes", ""},
	} {
		if rapid.IntRange(0, 2).Draw(t, "exists") == 0 {
			continue
		}
		agents = append(agents, &scopeAgent{
			writerOfDay: writerOfDay{name: fmt.Sprint("w", n), resource: scope[0], skew: skews[scope[0]]},
			t:           k,
			scope:       scope[1],
			ns:          scope[2],
			every:       rapid.IntRange(20, 200).Draw(t, "every"),
		})
	}
	minutes := rapid.IntRange(10, 400).Draw(t, "minutes")
	for m := range minutes {
		now := begin.Add(time.Duration(m) * time.Minute)
		for p, part := range k.partitions {
			fate := rapid.IntRange(0, 200).Draw(t, "leader")
			if !part.hasNone && fate == 0 || part.hasNone && fate < 20 {
				k.lead(p, now, part.hasNone)
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			o := c.change(t)
			for _, a := range agents {
				a.change(now, o)
			}
		}
		for _, a := range agents {
			a.live(t, c, m, now)
		}
		for _, a := range agents {
			a.snapshot(t, c, m, now.Add(10*time.Second))
		}
		for _, a := range agents {
			a.progress(c, now.Add(30*time.Second))
		}
	}
	end := begin.Add(time.Duration(minutes) * time.Minute)
	for p := range k.partitions {
		k.lead(p, end, true)
	}
	switch rapid.IntRange(0, 3).Draw(t, "retention") {
	case 0: // by time
		from := begin.Add(time.Duration(rapid.IntRange(0, minutes).Draw(t, "from")) * time.Minute)
		for _, part := range k.partitions {
			part.first = max(0, slices.IndexFunc(part.records, func(r topicRecord) bool { return !r.at.Before(from) }))
		}
	case 1: // by size
		for _, part := range k.partitions {
			part.first = rapid.IntRange(0, len(part.records)).Draw(t, "first")
		}
	}
	return k, end
}

// String returns the events about scopes of each partition, without most of the progress.
func (k *kafkaTopic) String() string {
	var b strings.Builder
	for p, part := range k.partitions {
		fmt.Fprintf(&b, "partition %d from %d:\n", p, part.first)
		for i, r := range part.records {
			isQuiet := r.e.Progress != nil && i > 0 && i < len(part.records)-1 && part.records[i-1].e.Progress != nil &&
				part.records[i+1].e.Progress != nil
			if r.e.Data == nil && !isQuiet {
				fmt.Fprintln(&b, i, r.e.Time.Format(time.TimeOnly), r.e.Type, r.e.Scope, r.e.Progress, r.e.Stream)
			}
		}
	}
	return b.String()
}

// stateOf returns the state from all records: of each partition up to the end, or until it has
// passed the moment.
func (k *kafkaTopic) stateOf(s *record.Selection, m timeline.Moment, upToEnd bool) *timeline.State {
	state := timeline.NewState(m, timeline.Options{Asked: s.Asks})
	isDone := map[consume.Log]bool{}
	for _, e := range k.all() {
		log := e.Position.Log
		if !s.Takes(e) || isDone[log] {
			continue
		}
		state.Add(e)
		isDone[log] = !upToEnd && state.DoneIn(log)
	}
	for p := range k.partitions {
		state.NoteLog(consume.Log{Name: "topic", Partition: p})
	}
	return state
}

// hasScope reports whether the record has an event about a scope at a moment or before it.
func (k *kafkaTopic) hasScope(s *certainty.Scope, m timeline.Moment) bool {
	all := k.all()
	writers := map[string]bool{}
	for _, e := range all {
		if e.Stream != nil && e.Scope == s.Name {
			writers[e.Stream.Writer] = true
		}
	}
	return slices.ContainsFunc(all, func(e *consume.Event) bool {
		return m.Includes(e) &&
			(e.Stream != nil && e.Scope == s.Name || e.Progress != nil && writers[e.Progress.Writer])
	})
}

func scopesOf(s *timeline.State) map[string]certainty.Scope {
	out := map[string]certainty.Scope{}
	for _, scope := range s.Scopes() {
		out[scope.Resource+" "+scope.Name] = scope
	}
	return out
}

func objectsOf(s *timeline.State) (out []string) {
	for _, v := range s.Objects() {
		out = append(out, fmt.Sprintf("%s/%s/%s@%s", v.Resource, v.Namespace, v.Name, v.ResourceVersion))
	}
	return out
}

// A state from a part of each partition is the same, and as certain, as one from all records.
// Agents are killed, some for ever; their clocks differ; partitions have no leader; snapshots are
// continued; retention has removed records.
func TestPartsOfPartitionsAreEnough(t *testing.T) {
	selections := map[string]*record.Selection{
		"all": {}, "pods": {Resources: []record.Resource{{Plural: "pods"}}}, "nodes": {Resources: []record.Resource{{
			Plural: "nodes",
		}}},
		"pods of shop":  {Resources: []record.Resource{{Plural: "pods"}}, Namespace: "shop"},
		"pods of tools": {Resources: []record.Resource{{Plural: "pods"}}, Namespace: "tools"},
	}
	names := []string{"all", "pods", "nodes", "pods of shop", "pods of tools"}
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		k, end := drawTopic(t, begin, 3)
		name := rapid.SampledFrom(names).Draw(t, "question")
		asked := *selections[name]
		asked.ClusterUID = rapid.SampledFrom([]string{"", "c"}).Draw(t, "uid")
		s := &asked
		seconds := int(end.Sub(begin).Seconds())
		moment := timeline.At(
			begin.Add(time.Duration(rapid.IntRange(-60, seconds+4*3600).Draw(t, "second")) * time.Second))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			moment = timeline.Moment{}
		case 1:
			moment = timeline.Now(end)
		}
		r := &record.Record{Source: k}
		states, _, err := r.States(t.Context(), s, moment)
		if err != nil {
			t.Fatal(err)
		}
		whole := k.stateOf(s, moment, false)
		want, got := scopesOf(whole), scopesOf(states[0])
		for name, w := range want {
			g, has := got[name]
			switch {
			case has && g.Certainty == w.Certainty:
			case has && g.Certainty > w.Certainty && g.Ended != nil:
				// another agent of the scope does not work any more
			case !has && w.Certainty == certainty.Unknown && !k.hasScope(&w, moment): // it starts after the moment
			case !has && isCovered(&w, got, s): // an agent that does not work any more, of objects that another one has
			default:
				t.Fatalf("%s at %s: %v, and from all records %v\n%+v\n%+v\n%s", name, moment, g.Certainty, w.Certainty,
					g, w, k)
			}
		}
		if !k.clocksDiffer { // otherwise an agent sends events of a time that the progress of others has passed
			for name, w := range scopesOf(k.stateOf(s, moment, true)) {
				// An end is exact, although a partition may have only what came later.
				if g, has := got[name]; has && g.Ended == nil && g.Certainty < w.Certainty {
					t.Fatalf("%s at %s: %v, and up to the end of the record %v\n%+v\n%+v\n%s", name, moment,
						g.Certainty, w.Certainty, g, w, k)
				}
			}
		}
		for name, g := range got {
			if _, has := want[name]; !has && g.Certainty != certainty.Unknown {
				// it may find scopes that start after the moment
				t.Fatalf("%s at %s: %v, and the record does not show it", name, moment, g.Certainty)
			}
		}
		if slices.ContainsFunc(whole.Scopes(), func(s certainty.Scope) bool { return s.Name == "" }) {
			return // retention has removed all of an agent but objects
		}
		if w, g := objectsOf(whole), objectsOf(states[0]); !slices.Equal(w, g) {
			t.Fatalf("at %s: %v\nfrom all records: %v\n%+v\n%+v\n%s", moment, g, w, got, want, k)
		}
	})
}

// isCovered reports whether another scope has all objects that are asked for.
func isCovered(w *certainty.Scope, got map[string]certainty.Scope, s *record.Selection) bool {
	for _, g := range got {
		isWhole := g.Name == g.Resource || g.Name == "pods/shop" && s.Namespace == "shop"
		if len(s.Resources) > 0 && g.Resource == w.Resource && isWhole {
			return true
		}
	}
	return false
}

// An agent that was killed days ago has no progress near the moment. Its scope is found all the
// same, unless another scope has all objects that are asked for.
func TestScopeOfAnAgentThatIsGone(t *testing.T) {
	t.Parallel()
	k := &kafkaTopic{partitions: []*topicPartition{{}, {}, {}}}
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c := &cluster{objects: map[string]live{}}
	for _, o := range []live{{resource: "pods", namespace: "shop", name: "a", rv: 1}, {
		resource:  "pods",
		namespace: "tools",
		name:      "b",
		rv:        1,
	}} {
		c.objects[o.uid()] = o
	}
	alive := &scopeAgent{writerOfDay: writerOfDay{
		name:     "w1",
		resource: "pods",
	}, t: k, scope: "pods/shop", ns: "shop", every: 360}
	gone := &scopeAgent{writerOfDay: writerOfDay{
		name:     "w2",
		resource: "pods",
	}, t: k, scope: "pods/tools?labelSelector=a=b", ns: "tools", every: 360}
	for m := range 3 * 1440 {
		for _, a := range []*scopeAgent{alive, gone} {
			now := begin.Add(time.Duration(m) * time.Minute)
			switch {
			case a == gone && m > 1000:
				continue
			case !a.started:
				a.begin(c, m, now, now)
			}
			if m >= a.due {
				a.takeWhole(c, m, now.Add(10*time.Second))
			}
			a.progress(c, now.Add(30*time.Second))
		}
	}
	pods := []record.Resource{{Plural: "pods"}}
	for name, q := range map[string]struct {
		s       *record.Selection
		want    certainty.Level
		objects int
	}{
		"pods":         {&record.Selection{Resources: pods}, certainty.Unknown, 2},
		"all":          {&record.Selection{}, certainty.Unknown, 2},
		"pods of shop": {&record.Selection{Resources: pods, Namespace: "shop", ClusterUID: "c"}, certainty.Exact, 1},
	} {
		k.read = 0
		r := &record.Record{Source: k}
		states, _, err := r.States(t.Context(), q.s, timeline.At(begin.Add(60*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		if got := certainty.Worst(states[0].Scopes()); got != q.want || len(states[0].Objects()) != q.objects {
			t.Errorf("%s: %v, %d objects, want %v, %d", name, got, len(states[0].Objects()), q.want, q.objects)
		}
		if name == "pods of shop" && k.read > 5*1440 {
			t.Errorf("%s: %d records are read", name, k.read)
		}
	}
}

// The events of a partition that was added after the moment do not make the answer less certain.
func TestPartitionThatIsYoungerThanTheMoment(t *testing.T) {
	t.Parallel()
	k, begin := calmTopic(2)
	young := &topicPartition{}
	k.partitions = append(k.partitions, young)
	for _, r := range k.partitions[0].records {
		if r.e.Data == nil && r.e.Time.After(begin.Add(36*time.Hour)) {
			e := *r.e
			k.put(4, r.stored, e)
		}
	}
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
	for hours, want := range map[int]certainty.Level{29: certainty.Exact, 35: certainty.Exact, 37: certainty.Unknown} {
		r := &record.Record{Source: k}
		states, _, err := r.States(t.Context(), pods, timeline.At(begin.Add(time.Duration(hours)*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		if got := certainty.Worst(states[0].Scopes()); got != want || len(states[0].Objects()) != 1 {
			t.Errorf("after %d hours: %v, %d objects, want %v", hours, got, len(states[0].Objects()), want)
		}
	}
}

// calmTopic is the record of some days of a cluster, with a snapshot of each scope a day.
func calmTopic(days int) (*kafkaTopic, time.Time) {
	k := &kafkaTopic{partitions: []*topicPartition{{}, {}, {}, {}}}
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	c := &cluster{objects: map[string]live{}}
	for _, o := range []live{{resource: "pods", namespace: "shop", name: "a", rv: 1}, {
		resource: "nodes",
		name:     "b",
		rv:       1,
	}} {
		c.objects[o.uid()] = o
	}
	agents := []*scopeAgent{
		{writerOfDay: writerOfDay{name: "w1", resource: "pods"}, t: k, scope: "pods", every: 1440},
		{writerOfDay: writerOfDay{name: "w2", resource: "nodes"}, t: k, scope: "nodes", every: 1440},
	}
	for m := range days * 1440 {
		now := begin.Add(time.Duration(m) * time.Minute)
		for _, a := range agents {
			if !a.started {
				a.begin(c, m, now, now)
			}
			if m >= a.due {
				a.takeWhole(c, m, now.Add(10*time.Second))
			}
			a.progress(c, now.Add(30*time.Second))
		}
		c.rv++
		o := live{resource: "pods", namespace: "shop", name: "a", rv: c.rv}
		c.objects[o.uid()] = o
		agents[0].change(now.Add(40*time.Second), o)
	}
	return k, begin
}

// A state at a noon costs at most the records of a day, whatever the length of the record: of a
// resource that a scope has as a whole. Other questions read one more partition.
func TestStateCostsADay(t *testing.T) {
	t.Parallel()
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}, ClusterUID: "c"}
	read := map[int]int{}
	for _, days := range []int{3, 12} {
		k, begin := calmTopic(days)
		perDay := len(k.all()) / days
		for name, c := range map[string]struct {
			s    *record.Selection
			most float64 // days
		}{
			"pods": {pods, 0.75}, "all": {&record.Selection{}, 0.75 + 0.25*float64(days)},
		} {
			moment := timeline.At(begin.Add(time.Duration(days-2)*24*time.Hour + 12*time.Hour))
			k.read = 0
			r := &record.Record{Source: k}
			states, _, err := r.States(t.Context(), c.s, moment)
			if err != nil {
				t.Fatal(err)
			}
			if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Exact {
				t.Errorf("%s, %d days: the state is %v", name, days, worst)
			}
			if got := float64(k.read) / float64(perDay); got > c.most {
				t.Errorf("%s, %d days: the records of %.2f days were read, want at most %.2f", name, days, got, c.most)
			}
			if name == "pods" {
				read[days] = k.read
			}
		}
	}
	if read[3] != read[12] {
		t.Errorf("%d records are read of 3 days, and %d of 12 days", read[3], read[12])
	}
}

// No agent of a cluster works any more. Its objects are part of an answer about all clusters, and
// that is not certain.
func TestClusterThatIsGone(t *testing.T) {
	k, begin := calmTopic(3)
	gone, _ := calmTopic(3)
	for p, part := range gone.partitions {
		for _, r := range part.records {
			if r.stored.After(begin.Add(20 * time.Hour)) {
				continue
			}
			e := *r.e
			e.Source = "/kubernetes/y"
			e.Cluster = "y"
			e.ClusterUID = "d"
			e.ID = "y" + e.ID
			k.partitions[p].records = append(k.partitions[p].records, topicRecord{r.at, &e, r.stored})
		}
	}
	for p, part := range k.partitions {
		slices.SortStableFunc(part.records, func(a, b topicRecord) int { return a.stored.Compare(b.stored) })
		for i := range part.records {
			part.records[i].e.Position = consume.Position{Log: consume.Log{
				Name:      "topic",
				Partition: p,
			}, Next: uint64(i + 1)}
		}
	}
	s := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
	states, _, err := (&record.Record{Source: k}).States(t.Context(), s, timeline.At(begin.Add(60*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Unknown || states[0].Len() != 2 {
		t.Errorf("%v, %d objects; one cluster is gone", worst, states[0].Len())
	}
}

// A moment before the record, and one before a topic of several: the scopes begin later.
func TestTopicThatIsYoungerThanTheMoment(t *testing.T) {
	k, begin := calmTopic(2)
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
	for _, hours := range []int{-1, -10} {
		states, _, err := (&record.Record{Source: k}).States(t.Context(), pods,
			timeline.At(begin.Add(time.Duration(hours)*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		scopes := states[0].Scopes()
		if len(scopes) != 1 || scopes[0].Find(certainty.BeforeRecord) == nil {
			t.Errorf("%d hours after the beginning: %+v", hours, scopes)
		}
	}
	two := &kafkaTopic{names: map[int]string{4: "b", 5: "b", 6: "b", 7: "b"}}
	const later = 36 * time.Hour
	for i := range 8 {
		two.partitions = append(two.partitions, &topicPartition{})
		for _, r := range k.partitions[i%len(k.partitions)].records {
			isNodes := r.e.Resource == "nodes" || r.e.Progress != nil && r.e.Progress.Writer == "w2"
			if isNodes != (i >= 4) {
				continue
			}
			e := *r.e
			if i >= 4 { // the agent of nodes begins later
				e.Time = e.Time.Add(later)
			}
			if i >= 4 && e.Progress != nil {
				p := *e.Progress
				p.Since, p.Scopes = p.Since.Add(later), slices.Clone(p.Scopes)
				for j := range p.Scopes {
					p.Scopes[j].To = p.Scopes[j].To.Add(later)
				}
				e.Progress = &p
			}
			e.Position = consume.Position{Log: consume.Log{
				Name:      two.nameOf(i),
				Partition: i,
			}, Next: uint64(len(two.partitions[i].records) + 1)}
			two.partitions[i].records = append(two.partitions[i].records, topicRecord{e.Time, &e, e.Time})
		}
	}
	states, _, err := (&record.Record{Source: two}).States(t.Context(), &record.Selection{},
		timeline.At(begin.Add(30*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Unknown {
		t.Errorf("%v, and the nodes are in a topic that is younger", worst)
	}
}
