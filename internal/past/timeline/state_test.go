package timeline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A generated world writes a record. At random moments, the versions, the State and its counts must
// match a naive model of the record. So must the difference of two States. The certainty must be
// that of the world. If it is exact, the State must match etcd.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.live(t)
		for range 10 {
			w.check(w.moment())
		}
		w.check(timeline.Now(w.clock))
		for range 5 {
			w.checkDiff(w.moment(), w.moment())
		}
	})
}

// live lets the agent work for a while, in a cluster that changes.
func (w *world) live(t *rapid.T) {
	w.start("")
	minutes := func(t *rapid.T, least int) time.Duration {
		return time.Duration(rapid.IntRange(least, 12).Draw(t, "minutes")) * time.Minute
	}
	some := func(t *rapid.T) {
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				w.create()
			case 1:
				w.alter(false)
			case 2:
				w.alter(true)
			}
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"create": func(*rapid.T) { w.create() },
		"change": some,
		"send":   func(*rapid.T) { w.each(func(i *informer) { i.send(w) }) },
		"work": func(*rapid.T) {
			w.each(func(i *informer) {
				for range 8 {
					i.send(w)
				}
			})
		},
		"again": func(*rapid.T) { w.again() },
		"pass":  func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second) },
		"away": func(t *rapid.T) {
			w.stop()
			some(t)
			w.pass(minutes(t, 3))
			some(t)
			w.start(rapid.SampledFrom([]string{"history", "recovered", "expired", "compacted"}).Draw(t, "history"))
		},
		"lose the position": func(t *rapid.T) {
			w.stop()
			some(t)
			w.pass(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second)
			some(t)
			w.start("lost")
		},
		"cut": func(t *rapid.T) {
			w.pass(time.Second) // what another cut has left is sent
			w.cut = true
			w.pass(minutes(t, 1))
			some(t)
			w.pass(minutes(t, 0))
			w.cut = false
		},
		"expire": func(t *rapid.T) {
			i := w.agent[rapid.SampledFrom([]string{plain, labelled}).Draw(t, "scope")]
			w.expire(i, rapid.Bool().Draw(t, "recovered"), func() { some(t) })
		},
		"silence": func(t *rapid.T) {
			i := w.agent[rapid.SampledFrom([]string{plain, labelled}).Draw(t, "scope")]
			w.silence(i, func() {
				some(t)
				w.pass(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
				some(t)
			})
		},
		"snapshot": func(t *rapid.T) {
			i := w.agent[rapid.SampledFrom([]string{plain, labelled}).Draw(t, "scope")]
			if i.snapshot == nil && i.first != (point{}) && !w.cut {
				i.begin(w, false)
			}
		},
		"reform": func(t *rapid.T) {
			w.reform(w.agent[rapid.SampledFrom([]string{plain, labelled}).Draw(t, "scope")])
		},
		"backup":  func(*rapid.T) { w.backup = len(w.etcd[w.history()]) },
		"restore": func(*rapid.T) { w.restore() },
	})
	if rapid.Bool().Draw(t, "settle") {
		w.settle()
	}
}

// moment draws a moment, preferably one at which something happens.
func (w *world) moment() timeline.Moment {
	e := w.log[rapid.IntRange(0, len(w.log)-1).Draw(w.t, "moment")]
	if e.Progress != nil {
		entry := &e.Progress.Scopes[0]
		if entry.ResourceVersion == "" || rapid.Bool().Draw(w.t, "by time") {
			return timeline.At(e.Time.Add(-time.Duration(rapid.IntRange(0, 700).Draw(w.t, "before")) * time.Second))
		}
		return timeline.AtVersion(number(entry.ResourceVersion)+uint64(rapid.IntRange(0, 2).Draw(w.t, "above"))-1,
			entry.History)
	}
	if rapid.Bool().Draw(w.t, "by time") {
		offsets := []time.Duration{-1, 0, 1, time.Second, time.Minute}
		return timeline.At(e.Time.Add(rapid.SampledFrom(offsets).Draw(w.t, "offset")))
	}
	if e.Sequence == "" {
		return timeline.At(e.Time)
	}
	rv := number(e.Sequence)
	return timeline.AtVersion(rv+uint64(rapid.IntRange(0, 2).Draw(w.t, "above"))-1, e.History())
}

func number(s string) uint64 {
	var n uint64
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		panic(err)
	}
	return n
}

func (w *world) check(m timeline.Moment) {
	t := w.t
	defer w.logRecord()
	s := timeline.NewState(m, timeline.Options{})
	for _, e := range w.log {
		s.Add(e)
	}
	got := map[string]string{}
	for _, v := range s.Objects() {
		got[v.UID] = fmt.Sprintf("%s/%s %s %s %s", v.Namespace, v.Name, v.ResourceVersion, v.After, v.DataRef)
	}
	want, p := map[string]string{}, naive(w.log, m)
	for _, v := range p.live {
		want[v.UID] = fmt.Sprintf("%s/%s %s %s %s", v.Namespace, v.Name, v.ResourceVersion, v.After, v.DataRef)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("at %s: -naive +state\n%s", m, diff)
	}
	if diff := gocmp.Diff(p.counts(), counts(s)); diff != "" {
		t.Fatalf("at %s: -naive +scopes\n%s", m, diff)
	}
	w.checkVersions(m, p)
	w.checkDone(m, s)
	w.checkPartitions(m, s)
	for _, scope := range s.Scopes() {
		i := w.agent[scope.Name]
		if isJudged := len(lettersOf(&scope)) == 0; isJudged {
			if want := w.certainty(i, m); scope.Certainty != want {
				t.Fatalf("at %s: %s is %s, want %s: %+v", m, scope.Name, scope.Certainty, want, scope)
			}
		}
		for _, id := range lettersOf(&scope) {
			if !slices.ContainsFunc(w.log,
				func(e *consume.Event) bool { return e.ID == id && e.DeadLetterReason != "" }) {
				t.Fatalf("at %s: %s lacks %s, which is not among the dead letters", m, scope.Name, id)
			}
		}
		// The end of the record lacks changes that are in flight, or hidden since the last
		// progress.
		onItsWay := m.IsNow() && (!w.alive || len(i.queue) > 0 || i.acked < i.observed || i.hidden != nil)
		if scope.Certainty == certainty.Exact && !onItsWay {
			w.checkTruth(m, s, i)
		}
	}
}

// logRecord logs the record of a failed test.
func (w *world) logRecord() {
	if !w.t.Failed() {
		return
	}
	for n, e := range w.log {
		if e.Progress != nil || e.Stream != nil {
			text, err := json.Marshal([]any{e.Progress, e.Stream})
			w.t.Logf("%3d %s %s %s %v", n, e.Time.Format("15:04:05.000"), e.ID, text, err)
			continue
		}
		skipped := 0
		if e.Data != nil {
			skipped = e.Data.Skipped
		}
		w.t.Logf("%3d %s %s %s %s before=%t skipped=%d %s", n, e.Time.Format("15:04:05.000"), e.ID, e.Type, e.Name,
			e.Data != nil && e.Data.Before != nil, skipped, e.DeadLetterReason)
	}
}

// counts returns the counts of each scope.
func counts(s *timeline.State) map[string]string {
	out := map[string]string{}
	for _, scope := range s.Scopes() {
		out[scope.Name] = fmt.Sprintf("skipped %d, left %d, redacted %d", scope.Skipped, scope.Left, scope.Redacted)
	}
	return out
}

// checkVersions compares the versions that a Fold returns for each event with those of the model.
func (w *world) checkVersions(m timeline.Moment, p *past) {
	f := timeline.NewFold(m, timeline.Options{})
	var got []*timeline.Version
	for _, e := range w.log {
		got = append(got, f.Add(e)...)
	}
	if diff := gocmp.Diff(p.versions, got); diff != "" {
		w.t.Fatalf("at %s: -naive +versions\n%s", m, diff)
	}
}

// checkDiff checks the difference of the States at two moments, which are filled by one pass.
func (w *world) checkDiff(from, to timeline.Moment) {
	defer w.logRecord()
	a, b := timeline.NewState(from, timeline.Options{}), timeline.NewState(to, timeline.Options{})
	for _, e := range w.log {
		timeline.States{a, b}.Add(e)
	}
	var got []string
	for _, d := range timeline.Diff(a, b) {
		got = append(got, difference(d.Before, d.After))
	}
	if diff := gocmp.Diff(naive(w.log, from).differences(naive(w.log, to)), got); diff != "" {
		w.t.Fatalf("from %s to %s: -naive +diff\n%s", from, to, diff)
	}
}

// checkDone checks that records after Done change nothing. Done must not depend on how many times
// it is called.
func (w *world) checkDone(m timeline.Moment, all *timeline.State) {
	isDone := func(records int) bool {
		s := timeline.NewState(m, timeline.Options{})
		for _, e := range w.log[:records] {
			s.Add(e)
		}
		return s.Done()
	}
	s := timeline.NewState(m, timeline.Options{})
	for n, e := range w.log {
		if s.Done() {
			if !isDone(n) || isDone(n-1) {
				w.t.Fatalf("at %s: done after %d records; asked once, then: %t, and one record before: %t", m, n,
					isDone(n), isDone(n-1))
			}
			if slices.ContainsFunc(s.Scopes(), func(s certainty.Scope) bool { return len(lettersOf(&s)) > 0 }) {
				return // a later snapshot may show their objects
			}
			if diff := gocmp.Diff(w.summary(all), w.summary(s)); diff != "" {
				w.t.Fatalf("at %s, read up to record %d: -all +done\n%s", m, n, diff)
			}
			return
		}
		s.Add(e)
	}
}

// checkPartitions reads the record from several partitions, as those of a Kafka topic. The events
// of an object are in one partition, stream events in each. There is no order between partitions.
func (w *world) checkPartitions(m timeline.Moment, whole *timeline.State) {
	partitions := make([][]*consume.Event, 3)
	for _, e := range w.log {
		for n := range partitions {
			if own := len(e.UID) > 0 && (int(e.Namespace[0])+int(e.Name[0]))%3 != n; own || e.DeadLetterReason != "" {
				continue
			}
			part := *e
			part.Position = consume.Position{Log: consume.Log{Name: "kubecdc.x", Partition: n}}
			partitions[n] = append(partitions[n], &part)
		}
	}
	s := timeline.NewState(m, timeline.Options{})
	for n := rapid.IntRange(0, 2).
		Draw(w.t, "partition"); slices.ContainsFunc(partitions,
		func(p []*consume.Event) bool { return len(p) > 0 }); n = (n + 1) % 3 {
		batch := min(len(partitions[n]), rapid.IntRange(0, 30).Draw(w.t, "records"))
		for _, e := range partitions[n][:batch] {
			s.Add(e)
		}
		partitions[n] = partitions[n][batch:]
	}
	if diff := gocmp.Diff(w.summary(whole), w.summary(s)); diff != "" {
		w.t.Fatalf("at %s: -one log +partitions\n%s", m, diff)
	}
	if diff := gocmp.Diff(counts(whole), counts(s)); diff != "" {
		w.t.Fatalf("at %s: -one log +partitions\n%s", m, diff)
	}
}

// summary returns a State without the objects for which a snapshot may show a withheld version.
func (w *world) summary(s *timeline.State) []string {
	var out []string
	for _, v := range s.Objects() {
		if !slices.ContainsFunc(slices.Concat(w.etcd...), func(r revision) bool { return r.uid == v.UID && r.noise }) {
			out = append(out, v.ID)
		}
	}
	for _, scope := range s.Scopes() {
		kinds := make([]certainty.Kind, 0, len(scope.Causes))
		for _, c := range scope.Causes {
			kinds = append(kinds, c.Kind)
		}
		out = append(out, fmt.Sprint(scope.Name, scope.Certainty, kinds, lettersOf(&scope)))
	}
	return out
}

// checkTruth compares the objects of a scope with those in etcd.
func (w *world) checkTruth(m timeline.Moment, s *timeline.State, i *informer) {
	history, counts := w.history(), func(revision) bool { return true }
	switch rv, h, ok := m.ResourceVersion(); {
	case ok:
		history, counts = h, func(r revision) bool { return r.rv <= rv }
	case !m.IsNow():
		for n, at := range w.began {
			if !at.After(m.Time()) {
				history = uint32(n)
			}
		}
		counts = func(r revision) bool { return !r.time.After(m.Time()) }
	}
	want := w.objects(i.scope, history, counts)
	maps.DeleteFunc(want, func(_ string, o thing) bool { return !o.selected() })
	got := map[string]*timeline.Version{}
	for _, v := range s.Objects() {
		if scopeOf(v.Namespace) == i.scope {
			got[v.Namespace+"/"+v.Name] = v
		}
	}
	for key, o := range want {
		v := got[key]
		if v == nil || v.UID != o.uid {
			w.t.Fatalf("at %s: %s is exact, and %s is %+v, want %+v", m, i.scope, key, v, o)
		}
		if number(v.ResourceVersion) != o.rv {
			w.t.Fatalf("at %s: %s is exact, and %s has %s, want %d", m, i.scope, key, v.ResourceVersion, o.rv)
		}
		if want := i.formAt(m); v.After != nil && !strings.Contains(string(v.After), fmt.Sprintf(`"form":%d}`, want)) {
			w.t.Fatalf("at %s: %s is exact, and %s is %s, want form %d", m, i.scope, key, v.After, want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		w.t.Fatalf("at %s: %s is exact, and has %v, which do not exist", m, i.scope, slices.Collect(maps.Keys(got)))
	}
}

// formAt returns the form of the objects at a moment at which the scope is exact.
func (i *informer) formAt(m timeline.Moment) int {
	rv, history, byVersion := m.ResourceVersion()
	form := 0
	for _, last := range i.reforms {
		isLater := last.time.Before(m.Time())
		if byVersion {
			isLater = last.before(point{history: history, rv: rv})
		}
		if m.IsNow() || isLater {
			form++
		}
	}
	return form
}

// certainty returns the certainty that a State must report for a scope.
func (w *world) certainty(i *informer, m timeline.Moment) certainty.Level {
	rv, history, byVersion := m.ResourceVersion()
	at := point{history, rv, m.Time()}
	before := func(p, q point) bool {
		if byVersion {
			return p.before(q)
		}
		return p.time.Before(q.time)
	}
	switch {
	case i.first == (point{}), !m.IsNow() && before(at, i.first):
		return certainty.Unknown
	case slices.ContainsFunc(i.gaps, func(g *gap) bool {
		open := g.right == (point{})
		return (m.IsNow() && open || !m.IsNow() && before(g.from, at) && (open || before(at, g.right)))
	}):
		return certainty.Uncertain
	case byVersion && before(i.reached, at):
		return certainty.Unknown
	case !m.IsNow():
		return i.certainty(m)
	case w.clock.Sub(latest(i.to, i.whole.time)) > timeline.MaxLag:
		return certainty.Unknown
	}
	isOpen := func(h hiddenIn) bool { return h.IsOpen() && !h.versions }
	if n := len(i.reports); n > 0 && slices.ContainsFunc(i.reports[n-1].hidden, isOpen) {
		return certainty.Uncertain
	}
	return certainty.Exact
}

// An object that has left the selection is shown as such until its end is known. The end of an
// earlier object of its name does not matter.
func TestEndOfAnObjectThatHasLeft(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]int{"3 d web/1 @13": 0, "3 d web/0 @13": 1} {
		s := timeline.NewState(timeline.Moment{}, timeline.Options{})
		for _, e := range record(`
			0 c web/0 @10
			1 c web/1 @11
			2 l web/1 @12
			` + end) {
			s.Add(e)
		}
		if got := s.Left(); len(got) != want || s.Len() != 0 {
			t.Errorf("after %q: %d objects have left, and %d are there, want %d and 0", end, len(got), s.Len(), want)
		}
	}
}

// The creation of a later object was lost: its first event says that it left the selection. The
// older object of its name has no end in the record, so it is still listed, and counts as redacted.
func TestCountsOfTwoObjectsOfAName(t *testing.T) {
	s := timeline.NewState(timeline.At(minute("3.5")), timeline.Options{})
	for _, e := range record(`
		0 begin @10 initial
		0 started S1 @10
		0 completed S1 @10
		1 c web/1 @12 after={"data":{"key":"hmac-sha256:k1:c2FtZQ"}}
		2 gap expired 12-20 since=1
		2 l web/2 @20
		3 progress @20
		4 progress @20`) {
		s.Add(e)
	}
	if len(s.Objects()) != 1 || len(s.Left()) != 1 {
		t.Errorf("%d objects, and %d that left, want one of each", len(s.Objects()), len(s.Left()))
	}
	scope := s.Scopes()[0]
	if scope.Redacted != 1 || scope.Left != 1 {
		t.Errorf("redacted %d, left %d, want one of each", scope.Redacted, scope.Left)
	}
}

// Filters withhold a version of an object that the State has. After a restore of etcd, an object
// exists again that was gone. The versions withheld before its first event do not count for the
// State.
func TestVersionsWithheldOfAnObjectThatIsGone(t *testing.T) {
	for name, end := range map[string]string{
		"deleted":         "1 d web/1 @20\n1.5 started S2 @30\n1.6 completed S2 @30\n",
		"swept":           "1.5 started S2 @30\n1.6 completed S2 @30\n",
		"just deleted":    "1 d web/1 @20\n",
		"it still exists": "",
	} {
		s := timeline.NewState(timeline.At(minute("3.5")), timeline.Options{})
		for _, e := range record(
			"0 started S1 @10\n0 r web/1 @5 S1\n0.1 completed S1 @10\n" + end + `2 gap rewound 30-15 since=1 @15 h1
			2 started S3 @15 h1
			4 u web/1 @16 was=5 skipped=2 h1`) {
			s.Add(e)
		}
		want := 0
		if end == "" {
			want = 2
		}
		if got := s.Scopes()[0].Skipped; got != want {
			t.Errorf("%s: %d versions withheld, want %d", name, got, want)
		}
	}
}

// A version is among the dead letters. A snapshot reads it after the API server has begun to serve
// another form, which the version did not have at an earlier moment.
func TestDeadLetterThatIsReadInAnotherForm(t *testing.T) {
	for name, c := range map[string]struct {
		at   uint64
		gap  string
		want certainty.Level
	}{
		"before the other form": {15, "3 gap content-changed 20-21 since=2", certainty.Uncertain},
		"after it":              {30, "3 gap content-changed 20-21 since=2", certainty.Exact},
		"no other form":         {15, "3 gap content-changed 20-21 since=2 recovered", certainty.Exact},
	} {
		s := timeline.NewState(timeline.AtVersion(c.at, 0), timeline.Options{})
		for _, e := range record(`
			0 started S1 @10
			0.1 completed S1 @10
			1 gap dead-letter 11-12 since=1 letter=pods/1/12
			2 progress @20
			` + c.gap + `
			3 started S2 @25
			3.1 r web/1 @12 S2
			3.2 completed S2 @25
			4 progress @30
			5 progress @31`) {
			s.Add(e)
		}
		if got := s.Scopes()[0]; got.Certainty != c.want || len(s.Objects()) != 1 {
			t.Errorf("%s: %v with %d objects, want %v with one: %+v", name, got.Certainty, len(s.Objects()), c.want,
				got)
		}
	}
}

// A Secret without values counts as redacted, whatever else it has. So does a release of Helm in a
// ConfigMap.
func TestRedacted(t *testing.T) {
	for _, c := range []struct {
		resource, object string
		says             string // the event; "": nothing
		want             bool
	}{
		{
			"configmaps/sh.helm.release.v1.web.v1", `{"metadata":{"name":"sh.helm.release.v1.web.v1"},"data":{}}`, "",
			true,
		},
		{
			"configmaps/sh.helm.release.v1.web.v1",
			`{"metadata":{"name":"sh.helm.release.v1.web.v1"},"data":{"release":"H4s"}}`, "", false,
		},
		{"configmaps/sh.helm.release.v1.web.v1", ``, "", false},
		{"secrets", `{"metadata":{"name":"a"},"type":"Opaque"}`, "", true},
		{"secrets", `{"metadata":{"labels":{"data":"x"},"annotations":{"stringData":"x"}}}`, "", true},
		{"secrets", `{"data":{"k":"hmac-sha256:00c0ffee:x"}}`, "", true},
		{"secrets", `{"data":{"k":"djE="}}`, "", false},
		{"secrets", `{"stringData":{"k":"v"}}`, "", false},
		{"secrets", ``, "", false},
		{"configmaps", `{"metadata":{"name":"a"}}`, "", false},
		{"configmaps", `{"data":{"k":"hmac-sha256:00c0ffee:x"}}`, "", true},
		{"secrets", `{"metadata":{"name":"empty"},"type":"Opaque"}`, "false", false},
		{"secrets", `{"metadata":{"name":"a"},"type":"Opaque"}`, "true", true},
		{"secrets", `{"data":{"k":"hmac-sha256:00c0ffee:x"}}`, "true", true},
		{"secrets", ``, "true", false},
		{"deployments.apps", `{"spec":{}}`, "true", true},
	} {
		resource, name, _ := strings.Cut(c.resource, "/")
		v := &timeline.Version{Object: consume.Object{Resource: resource, Name: name}}
		if c.says != "" {
			v.SaysRedacted = new(c.says == "true")
		}
		if c.object != "" {
			v.After = []byte(c.object)
		}
		if got := v.Redacted(); got != c.want {
			t.Errorf("%s %s: %v", c.resource, c.object, got)
		}
	}
}
