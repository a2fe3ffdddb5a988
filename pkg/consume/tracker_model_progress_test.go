package consume_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// agentRun is one run of an agent, which has started some scopes and sends progress.
type agentRun struct {
	writer       string
	epoch, began int
	number       int // of the last progress
	started      map[string]bool
}

func newRun(writer string) *agentRun { return &agentRun{writer: writer, started: map[string]bool{}} }

func (r *agentRun) String() string { return fmt.Sprintf("%d-%d", r.epoch, r.began) }

// isBefore reports whether a run of the same writer is earlier.
func (r *agentRun) isBefore(o *agentRun) bool {
	return cmp.Or(cmp.Compare(r.epoch, o.epoch), cmp.Compare(r.began, o.began)) < 0
}

func (w *world) drawRun() *agentRun { return rapid.SampledFrom(w.runs[:]).Draw(w.t, "run") }

// startRun starts the next run of a writer, which starts all scopes. The clock of another machine,
// where the next leader is, may be behind.
func (w *world) startRun(writer int) {
	r := newRun(w.runs[writer].writer)
	r.epoch, r.began = w.runs[writer].epoch, w.runs[writer].began+rapid.IntRange(1, 99).Draw(w.t, "later")
	if rapid.Bool().Draw(w.t, "another leader") {
		r.epoch, r.began = r.epoch+1, rapid.IntRange(0, 99).Draw(w.t, "began")
	}
	w.runs[writer] = r
	for _, scope := range scopes { // the bus has them before other records of the run
		w.deliver(r.startOf(w, scope))
	}
}

func (r *agentRun) begin(w *world, scope string) { w.say(r.startOf(w, scope)) }

// startOf returns the start of a scope.
func (r *agentRun) startOf(w *world, scope string) *consume.Event {
	r.started[scope] = true
	return r.turn(w, consume.TypeScopeStarted, scope)
}

// turn returns a start or an end of a scope.
func (r *agentRun) turn(w *world, typ consume.EventType, scope string) *consume.Event {
	w.ids++
	e := w.marker(typ, scope, &snapshot{id: fmt.Sprint(w.ids, "/")})
	e.Stream.Writer, e.Stream.Run = r.writer, r.String()
	return e
}

func (r *agentRun) end(w *world, scope string) {
	delete(r.started, scope)
	w.say(r.turn(w, consume.TypeScopeEnded, scope))
}

// isStarted reports whether the log shows that the run observes a scope.
func (r *agentRun) isStarted(w *world, scope string) bool {
	e := w.marker(consume.TypeScopeStarted, scope, &snapshot{})
	e.Time = w.now()
	e.Stream.Writer, e.Stream.Run = r.writer, r.String()
	return w.model.observes(e, e.Scope, len(w.model.log))
}

// progress names some scopes. One entry is about all others that the run has started.
func (r *agentRun) progress(w *world) {
	r.number++
	e := w.event()
	resource := e.GroupResource()
	e.APIVersion, e.Resource = "", ""
	e.Type, e.ID = consume.TypeProgress, fmt.Sprintf("progress/%s/%s/%d", r.writer, r, r.number)
	e.Progress = &consume.Progress{Writer: r.writer, Run: r.String(), Number: r.number}
	claim := func(s consume.ScopeProgress) {
		s.Resource = resource
		if rapid.IntRange(0, 4).Draw(w.t, "claims nothing") > 0 {
			s.ResourceVersion = fmt.Sprint(max(w.rv, 4) - rapid.Uint64Range(0, 3).Draw(w.t, "lag"))
			s.History = uint32(w.history)
			s.To = w.now().Add(-time.Duration(rapid.IntRange(0, 9).Draw(w.t, "behind")) * time.Second)
		}
		e.Progress.Scopes = append(e.Progress.Scopes, s)
	}
	others := 0
	for _, scope := range scopes {
		if rapid.Bool().Draw(w.t, "name "+scope) {
			claim(consume.ScopeProgress{Scope: w.scopeName(scope)})
		} else if r.started[scope] {
			others++
		}
	}
	if others > 0 {
		claim(consume.ScopeProgress{Count: others})
	}
	w.say(e)
}

// say delivers a record of a run, or holds it back.
func (w *world) say(e *consume.Event) {
	if rapid.IntRange(0, 9).Draw(w.t, "hold") > 0 {
		w.deliver(e)
		return
	}
	e.Time = w.now().Add(-time.Duration(999-len(w.held)) * time.Millisecond)
	w.held = append(w.held, e)
}

// now is the time of the next record.
func (w *world) now() time.Time { return noon.Add(time.Duration(len(w.log)+1) * time.Second) }

// deliverHeld delivers a record that was held back.
func (w *world) deliverHeld() {
	if len(w.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.held)-1).Draw(w.t, "held")
	e := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	w.deliver(e)
}

func (w *world) formerProgress() *consume.Event {
	w.ids++
	e := w.marker(consume.TypeProgress, scopes[0], &snapshot{id: fmt.Sprint(w.ids), rv: w.rv})
	e.Stream = nil
	return e
}

// scopeName is the name of a scope in this world.
func (w *world) scopeName(scope string) string {
	return strings.Replace(scope, "pods", w.event().GroupResource(), 1)
}

// reached returns what the Tracker says of each scope.
func (w *world) reached() map[string]consume.Reached {
	out := map[string]consume.Reached{}
	for _, scope := range append(slices.Clone(scopes), "pods/a", "pods/b") {
		e := w.event()
		if r, ok := w.read.tracker.Reached(e.ClusterKey(), w.scopeName(scope)); ok {
			out[scope] = r
		}
	}
	return out
}

// reachedByModel is the same by the contract, from the whole log.
func (w *world) reachedByModel() map[string]consume.Reached {
	out := map[string]consume.Reached{}
	for _, scope := range scopes {
		if r := w.model.reached(w.scopeName(scope)); !r.Time.IsZero() {
			out[scope] = r
		}
	}
	return out
}

// writerOf returns the writer and the run of a record, if it names them.
func writerOf(e *consume.Event) (*agentRun, bool) {
	r := &agentRun{}
	name := ""
	switch {
	case e.Progress != nil:
		r.writer, name = e.Progress.Writer, e.Progress.Run
	case e.Stream != nil:
		r.writer, name = e.Stream.Writer, e.Stream.Run
	}
	if name == "" {
		return nil, false
	}
	if _, err := fmt.Sscanf(name, "%d-%d", &r.epoch, &r.began); err != nil {
		panic(err)
	}
	return r, true
}

// counts reports whether no record among the first n of the log is of a later run of the writer of
// a record.
func (m *model) counts(e *consume.Event, n int) bool {
	r, _ := writerOf(e)
	return !slices.ContainsFunc(m.log[:n], func(o *consume.Event) bool {
		other, ok := writerOf(o)
		return ok && other.writer == r.writer && r.isBefore(other)
	})
}

// isOfRun reports whether a record of the log is of the same run as e.
func isOfRun(e, o *consume.Event) bool {
	r, _ := writerOf(e)
	other, ok := writerOf(o)
	return ok && r.writer == other.writer && r.String() == other.String()
}

// isNewsOfRun reports whether a record, which is no copy, is not late.
func (m *model) isNewsOfRun(e *consume.Event) bool {
	return m.counts(e, len(m.log)) && !slices.ContainsFunc(m.log, func(o *consume.Event) bool {
		switch {
		case !isOfRun(e, o):
			return false
		case e.Progress != nil:
			return o.Progress != nil && o.Progress.Number > e.Progress.Number
		}
		return o.Scope == e.Scope && o.Time.After(e.Time)
	})
}

// observes reports whether the first n records show that the run of e had started the scope before
// the time of e, and not ended it. A record that is older than an earlier one of them is late.
func (m *model) observes(e *consume.Event, scope string, n int) bool {
	var since, last time.Time
	observes := false
	for i, o := range m.log[:n] {
		if o.Progress != nil || o.Scope != scope || !isOfRun(e, o) || !m.counts(o, i) || !o.Time.After(last) {
			continue
		}
		last = o.Time
		switch {
		case o.Type == consume.TypeScopeEnded:
			observes = false
			continue
		case observes:
		case o.Type == consume.TypeScopeStarted:
			since = o.Time
		default:
			since = time.Time{} // the log may lack the start
		}
		observes = true
	}
	return observes && since.Before(e.Time)
}

// entry returns what a progress says of a scope; nil: nothing.
func (m *model) entry(n int, scope string) *consume.ScopeProgress {
	resource, _, _ := strings.Cut(scope, "/")
	var others *consume.ScopeProgress
	for i := range m.log[n].Progress.Scopes {
		switch s := &m.log[n].Progress.Scopes[i]; {
		case s.Scope == scope:
			return s
		case s.Scope == "" && s.Resource == resource:
			others = s
		}
	}
	if others == nil || !m.observes(m.log[n], scope, n) {
		return nil
	}
	return others
}

func (m *model) reached(scope string) consume.Reached {
	var out consume.Reached
	ended := map[string]time.Time{} // the last end or start of the last progress's writer, by run
	for n, e := range m.log {
		r, ok := writerOf(e)
		if !ok || !m.counts(e, n) {
			continue
		}
		if e.Progress == nil {
			if e.Scope != scope || e.Time.Before(ended[r.writer+r.String()]) || !m.isFirst(n) && !isStartOfSnapshot(e) {
				continue
			}
			ended[r.writer+r.String()] = e.Time
			if out.Writer == r.writer {
				out.Ended = e.Type == consume.TypeScopeEnded
			}
			continue
		}
		if !m.news[n] {
			continue
		}
		entry := m.entry(n, scope)
		if entry == nil {
			continue
		}
		if !e.Time.Before(out.Time) {
			out.Time = e.Time
			out.Writer = r.writer
			out.Run = r.String()
			out.Ended = false
		}
		if entry.ResourceVersion == "" {
			continue
		}
		if cmp.Or(cmp.Compare(entry.History, out.History),
			cmp.Compare(number(entry.ResourceVersion), numberOr0(out.ResourceVersion))) >= 0 {
			out.ResourceVersion, out.History = entry.ResourceVersion, entry.History
		}
		if entry.To.After(out.To) {
			out.To = entry.To
		}
	}
	return out
}

func isStartOfSnapshot(e *consume.Event) bool { return e.Type == consume.TypeSnapshotStarted }

// isFirst reports whether the nth record is no copy.
func (m *model) isFirst(n int) bool {
	return !slices.ContainsFunc(m.log[:n], func(o *consume.Event) bool { return o.ID == m.log[n].ID })
}

func numberOr0(s string) uint64 {
	if s == "" {
		return 0
	}
	return number(s)
}
