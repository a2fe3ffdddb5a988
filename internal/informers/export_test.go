package informers

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// WalkBack walks names in namespace shop back from to to from, as an informer of the set's first rule over configmaps does
// between two lists, and shows what it finds by name: "12 uid-1 m-12, 14 gone; m-17", the last being who made what the list
// shows. It asks once for each name at from, and once at to, before it begins.
func WalkBack(ctx context.Context, s *Set, slots chan struct{}, requests int64, d time.Duration, from, to uint64, names ...string) (map[string]string, bool, error) {
	resource := object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	i := s.add([]selection.Choice{{Resource: resource, Rules: []*selection.Rule{&s.sel.Rules[0]}}})[0].informer
	var changed []change
	for _, name := range names {
		q := question{ref: object.NewRef(&resource, "shop", name, ""), rv: from, selected: true}
		prior, err := i.ask(ctx, q)
		if err != nil {
			return nil, false, err
		}
		q.rv = to
		last, err := i.ask(ctx, q)
		if err != nil {
			return nil, false, err
		}
		c := change{key: q.ref.Key}
		if prior != nil {
			c.prior = prior.object
		}
		if last != nil {
			c.last, c.managers = last.object, last.managers
		}
		changed = append(changed, c)
	}
	found, whole, err := i.walkWithin(ctx, slots, requests, d, from, to, changed)
	shown := map[string]string{}
	for key, w := range found {
		var steps []string
		for k := range w.steps {
			steps = append(steps, w.steps[k].String()+by(w.steps[k].changedBy))
		}
		text := strings.Join(steps, ", ")
		if w.changedBy != nil {
			text += ";" + by(w.changedBy)
		}
		shown[key[strings.LastIndexByte(key, '/')+1:]] = text
	}
	return shown, whole, err
}

// Hasten has a set wait no longer than a test lasts: for farewells, for nodes that are gone.
func Hasten(s *Set) {
	s.patience = time.Second
	if s.departures != nil {
		s.departures.lasts, s.departures.every = 100*time.Millisecond, 10*time.Millisecond
	}
}

// Impatient has a set's Reload not wait for what comes to rest.
func Impatient(s *Set) { s.restWithin = 10 * time.Millisecond }

// by names the managers of a changedBy, each behind a space.
func by(changedBy []byte) (names string) {
	var entries []struct{ Manager string }
	if changedBy != nil && json.Unmarshal(changedBy, &entries) != nil {
		return " " + string(changedBy)
	}
	for _, e := range entries {
		names += " " + e.Manager
	}
	return names
}

// NewHearing is how a Set asks the bus for its scopes.
func NewHearing(hear func(context.Context, *object.Resource) (Heard, bool, error)) func(context.Context, *object.Resource, string) (Heard, bool, error) {
	return newHearing(hear).of
}

// NodesOutstanding is how much of the Nodes that a set follows is not acknowledged; same: what is, is what is known of them.
func NodesOutstanding(s *Set) (outstanding int, same bool) {
	nodes := s.departures.nodes
	m, _ := nodes.ledger.Mark()
	nodes.mu.Lock()
	defer nodes.mu.Unlock()
	return nodes.ledger.Outstanding(), m.state == nodes.state
}

// ConcurrentLists is how many lists run at a time.
const ConcurrentLists = apiserver.ConcurrentLists

// SettledGone reports whether a scope of which nothing exists any more, and all is acknowledged, has nothing more to tell: as it is, if its
// log was replaced, and if a snapshot is to follow the gap of that.
func SettledGone(s *Set) (asIs, replaced, sweeping bool) { return endsIf(s, (*store).isSettled) }

// EmptyDeparted is the same for the scope of a node that is gone.
func EmptyDeparted(s *Set) (asIs, replaced, sweeping bool) { return endsIf(s, (*store).isEmpty) }

func endsIf(s *Set, ends func(*store) bool) (asIs, replaced, sweeping bool) {
	resource := object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	st := s.add([]selection.Choice{{Resource: resource, Rules: []*selection.Rule{&s.sel.Rules[0]}}})[0].store
	st.buried, st.adopted, st.caughtUp = true, true, true
	asIs = ends(st)
	st.log.owed++
	replaced = ends(st)
	st.log.announced, st.sweep = st.log.owed, true
	return asIs, replaced, ends(st)
}

// Owes reports whether a snapshot has to begin, or is being sent.
func (s *Set) Owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.informers {
		i.store.mu.Lock()
		owes := i.store.sweep || i.store.snapshot != nil
		i.store.mu.Unlock()
		if owes {
			return true
		}
	}
	return false
}
