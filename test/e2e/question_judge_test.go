package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/oracle"
)

const exactly = "exact"

// reply is the answer to a question about one topic at the version or at the time of a LIST.
type reply struct {
	class   string
	topic   *topic
	sight   *sight
	byTime  bool
	early   bool // asked before the answer is final
	scopes  []pastScope
	objects map[oracle.ObjectKey]*oracle.Version
}

// certainty is the worst of the scopes that may have objects of the topic.
func (r *reply) certainty() string {
	order := []string{exactly, "late", "uncertain", "unknown"}
	worst := -1
	for _, s := range r.selected() {
		worst = max(worst, slices.Index(order, s.Certainty))
	}
	if worst < 0 {
		return "unknown"
	}
	return order[worst]
}

// selected returns the scopes that were selected at the moment, or had been. One that was started
// later, in place of others, does not count: at the moment, its objects were outside of the
// selection, or those of the others.
func (r *reply) selected() (out []pastScope) {
	for _, s := range r.scopes {
		beginsLater := s.cause().Kind == "before-record" && s.cause().To.Time.After(r.sight.at)
		if !beginsLater {
			out = append(out, s)
		}
	}
	return out
}

func (r *reply) moment() string {
	if r.byTime {
		return stamp(r.sight.at)
	}
	return fmt.Sprint("rv:", r.sight.rev)
}

// why says why the reply is not exact.
func (r *reply) why() string {
	var words []string
	for i := range r.scopes {
		s := &r.scopes[i]
		if s.Certainty != exactly {
			words = append(words,
				strings.TrimSpace(
					fmt.Sprintf("%s %s %s%s", s.Certainty, s.cause().Kind, s.cause().Reason, s.cause().Why)))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "no scope")
}

// expected returns what an exact answer must have: what the LIST had, as far as scopes are observed
// that select it. A scope that has ended has no objects.
func (r *reply) expected() map[oracle.ObjectKey]*oracle.Version {
	out := map[oracle.ObjectKey]*oracle.Version{}
	for key, v := range r.sight.lists[r.topic] {
		if slices.ContainsFunc(r.selected(), func(s pastScope) bool { return s.isObserved() && s.takes(v) }) {
			out[key] = v
		}
	}
	return out
}

// isObserved reports whether the scope has not ended, or has successors: until their records begin,
// the answer has its objects.
func (s *pastScope) isObserved() bool {
	return s.Ended == nil || s.Ended.Reason == string(consume.EndReplaced)
}

// takes reports whether the selector of the scope matches an object.
func (s *pastScope) takes(v *oracle.Version) bool {
	if node, ok := cutScope(s.Scope, "?fieldSelector=spec.nodeName="); ok {
		return v.Node == node
	}
	selector, ok := cutScope(s.Scope, "?labelSelector=")
	label, value, _ := strings.Cut(selector, "=")
	return !ok || v.Labels[label] == value
}

// cutScope returns the part of the name of a scope after a text.
func cutScope(scope, before string) (string, bool) {
	_, after, ok := strings.Cut(scope, before)
	return after, ok
}

// isBound reports whether an object belongs to the answer: to a scope that was selected.
func (r *reply) isBound(v *oracle.Version) bool {
	selected := r.selected()
	return len(selected) == len(r.scopes) || slices.ContainsFunc(selected, func(s pastScope) bool { return s.takes(v) })
}

// wrong says what is wrong in an exact answer, or "".
func (r *reply) wrong() string {
	var faults []string
	want := r.expected()
	for key, v := range want {
		got := r.objects[key]
		switch {
		case got == nil:
			faults = append(faults, fmt.Sprintf("%s revision %d is missing", key, v.Rev))
		case got.Rev != v.Rev || got.UID != v.UID || got.Digest != v.Digest:
			faults = append(faults,
				fmt.Sprintf("%s is revision %d, or has another content; the LIST has %d", key, got.Rev, v.Rev))
		}
	}
	for key, got := range r.objects {
		if want[key] == nil && r.isBound(got) {
			faults = append(faults, fmt.Sprintf("%s revision %d is not in the LIST", key, got.Rev))
		}
	}
	if !r.byTime && r.topic.isOwn {
		faults = append(faults, "its versions are of another etcd")
	}
	if r.endsWrongly() {
		faults = append(faults, "its end is not that of the selection")
	}
	slices.Sort(faults)
	return strings.Join(faults, "; ")
}

// grace is how long an agent may take to notice that a topic has ended or begun.
const grace = 10 * time.Second

// endsWrongly reports whether the answer says that nobody observes a topic that an agent's
// configuration selects, or the other way round.
func (r *reply) endsWrongly() bool {
	if r.topic.holds == nil {
		return slices.ContainsFunc(r.selected(), func(s pastScope) bool { return !s.isObserved() })
	}
	at := r.sight.at
	held := slices.ContainsFunc(r.topic.holds, func(s span) bool { return s.has(at) })
	for _, s := range r.topic.holds {
		if at.Sub(s.from).Abs() < grace || at.Sub(s.until).Abs() < grace {
			return false
		}
	}
	ended := !slices.ContainsFunc(r.selected(), func(s pastScope) bool { return s.isObserved() })
	return ended == held
}

// share counts answers of one class.
type share struct{ exact, of, excused, excusedExact int }

func (s share) percent() float64 {
	if s.of == 0 {
		return 0
	}
	return 100 * float64(s.exact) / float64(s.of)
}

// findings are the judgement of many replies.
type findings struct {
	wrong   []string
	shares  map[string]*share   // by class, and "rv" or "time"
	reasons map[string][]string // why answers are not exact that should be, each with its moments
}

// floors has the least share of exact answers of each class, in percent.
type floors map[string]float64

// judgeReplies compares the exact answers with the LISTs, and counts them. certainty returns that
// of a reply; a mutant returns another one.
func judgeReplies(replies []*reply, certainty func(*reply) string) findings {
	f := findings{shares: map[string]*share{}, reasons: map[string][]string{}}
	for _, r := range replies {
		isExact := certainty(r) == exactly
		if isExact {
			if text := r.wrong(); text != "" {
				f.wrong = append(f.wrong, fmt.Sprintf("%s in %s at %s (revision %d, %s): exact, and %s; its scopes: %s",
					r.topic.resource, r.topic.namespace, r.moment(), r.sight.rev, stamp(r.sight.at), text,
					r.saidOfScopes()))
			}
		}
		if r.early {
			continue
		}
		by := "rv"
		if r.byTime {
			by = "time"
		}
		name := r.class + " by " + by
		s := f.shares[name]
		if s == nil {
			s = &share{}
			f.shares[name] = s
		}
		if r.byTime && r.topic.isExcused(r.sight.at) || r.topic.isAside(r.sight.at) {
			s.excused++
			if isExact {
				s.excusedExact++
			}
			continue
		}
		s.of++
		if isExact {
			s.exact++
			continue
		}
		if _, hasFloor := questionFloors[r.class]; !hasFloor {
			continue
		}
		why := fmt.Sprintf("%s, %s in %s: %s", name, r.topic.resource, r.topic.namespace, r.why())
		f.reasons[why] = append(f.reasons[why], stamp(r.sight.at))
	}
	return f
}

func (r *reply) saidOfScopes() string {
	text, err := json.Marshal(r.scopes)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// isAside reports whether nothing is required of the answers about versions of a time.
func (p *topic) isAside(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	hidden := !p.hides.IsZero() && span{from: p.hides}.has(at)
	return hidden || slices.ContainsFunc(p.asides, func(s span) bool { return s.has(at) })
}

// missed returns the floors that the shares do not reach.
func (f *findings) missed(least floors) []string {
	var out []string
	counted := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(f.shares)) {
		class, _, _ := strings.Cut(name, " by ")
		s := f.shares[name]
		counted[class] += s.of
		if s.of > 0 && s.percent() < least[class] {
			out = append(out,
				fmt.Sprintf("%s: %.1f %% of %d answers are exact, the floor is %.0f %%", name, s.percent(), s.of,
					least[class]))
		}
	}
	for _, class := range slices.Sorted(maps.Keys(least)) {
		if counted[class] == 0 {
			out = append(out, class+": no answer counts")
		}
	}
	return out
}

// report prints the shares, and fails the test if an exact answer is wrong or a floor is missed.
// Two mutants of the answers must fail too: one that calls everything exact, and one that calls
// nothing exact.
func reportReplies(t *testing.T, replies []*reply, least floors) {
	t.Helper()
	said := judgeReplies(replies, (*reply).certainty)
	for _, name := range slices.Sorted(maps.Keys(said.shares)) {
		s := said.shares[name]
		t.Logf("%-18s %5.1f %% of %d answers are exact; beside faults %d of %d", name, s.percent(), s.of,
			s.excusedExact, s.excused)
	}
	for _, why := range slices.Sorted(maps.Keys(said.reasons)) {
		t.Logf("not exact: %s: at %s", why, strings.Join(said.reasons[why], ", "))
	}
	for _, text := range said.wrong {
		oracle.Fail(t, "%s", text)
	}
	for _, text := range said.missed(least) {
		t.Error(text)
	}
	all := judgeReplies(replies, func(*reply) string { return exactly })
	if len(all.wrong) == 0 {
		t.Error("answers that are all called exact pass")
	}
	none := judgeReplies(replies, func(*reply) string { return "unknown" })
	for class := range least {
		if !slices.ContainsFunc(none.missed(least),
			func(text string) bool { return strings.HasPrefix(text, class+" by ") }) {
			t.Errorf("%s: answers that are never exact pass", class)
		}
	}
	t.Logf("%d answers; called exact, %d are wrong", len(replies), len(all.wrong))
}
