package informers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/backfill"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// WalkBack walks names in namespace shop back from to to from, as an informer of the manager's
// first rule over configmaps does between two lists. It returns the versions by name, and the
// manager of the listed version: "12 uid-1 m-12, 14 gone; m-17". Before it begins, it asks for each
// name once at from and once at to.
func WalkBack(
	ctx context.Context, m *Manager, slots chan struct{}, requests int64, d time.Duration, from, to uint64,
	names ...string,
) (map[string]string, bool, error) {
	resource := object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	m.deps.Walks = slots
	choice := selection.Choice{Resource: resource, Rules: []*selection.Rule{&m.sel.Rules[0]}}
	i := m.enroll(m.newSpecs([]selection.Choice{choice}, nil)[0])
	var changed []backfill.Change
	for _, name := range names {
		q := backfill.Question{Ref: object.NewRef(&resource, "shop", name, ""), At: from, Selected: true}
		before, err := i.Ask(ctx, q)
		if err != nil {
			return nil, false, err
		}
		q.At = to
		after, err := i.Ask(ctx, q)
		if err != nil {
			return nil, false, err
		}
		c := backfill.Change{Key: q.Ref.Key}
		if before != nil {
			c.Before = before.Object
		}
		if after != nil {
			c.After, c.Managers = after.Object, after.Managers
		}
		changed = append(changed, c)
	}
	o := backfill.Options{
		HasSelector:       i.Selection().HasSelector(),
		HasServerSelector: i.Selection().HasServerSelector(),
		Requests:          requests,
		Time:              d,
	}
	found, complete, err := backfill.Walk(ctx, i, backfill.Gap{From: from, To: to, Changed: changed}, o)
	shown := map[string]string{}
	for key, r := range found {
		var versions []string
		for _, v := range r.Versions {
			text := fmt.Sprint(v.ResourceVersion, " gone")
			if v.Object != nil {
				text = fmt.Sprint(v.ResourceVersion, " ", v.Object.Ref.UID)
			}
			if v.Outside {
				text += " outside"
			}
			versions = append(versions, text+by(v.ChangedBy))
		}
		text := strings.Join(versions, ", ")
		if r.ChangedBy != nil {
			text += ";" + by(r.ChangedBy)
		}
		shown[key[strings.LastIndexByte(key, '/')+1:]] = text
	}
	return shown, complete, err
}

// Hasten shortens a manager's waits for tombstones and for deleted nodes to less than the duration
// of a test.
func Hasten(m *Manager) {
	m.limits.unreadable = time.Second
	if m.deletedNodes != nil {
		m.deletedNodes.observeFor = 100 * time.Millisecond
	}
}

// Impatient makes a manager's Reload wait only 10 ms for informers to drain.
func Impatient(m *Manager) { m.limits.reload = 10 * time.Millisecond }

// SpendLookups uses up the budget of lookups for d.
func SpendLookups(m *Manager, d time.Duration) {
	var delay time.Duration
	for now := time.Now(); delay < d; {
		delay = m.deps.Lookups.ReserveN(now, 1).DelayFrom(now)
	}
}

// by returns the managers of a changedBy, each preceded by a space.
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

// NewHearing returns the function by which a Manager asks the bus for the last events of its
// scopes.
func NewHearing(hear func(context.Context, *object.Resource) (informer.LastEvent, bool, error)) func(
	context.Context, *object.Resource, string,
) (informer.LastEvent, bool, error) {
	return informer.NewLastEvents(hear, nil).Of
}

// NodesOutstanding returns how many deltas of the followed Nodes are not acknowledged, and whether
// their position matches the last-known Nodes.
func NodesOutstanding(m *Manager) (outstanding int, same bool) {
	nodes := m.deletedNodes.existing
	p, _ := nodes.Position()
	return nodes.View().InFlight, nodes.Matches(&p.Scope, nil) == store.MatchesForms
}

// ConcurrentLists is the number of lists that run at a time.
const ConcurrentLists = apiserver.ConcurrentLists

// Owes reports whether a snapshot is due or being sent.
func (m *Manager) Owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.active.informers {
		if i.Store().View().Sweeping {
			return true
		}
	}
	return false
}

// OweAtMost limits the versions that informers keep because of lists to about n, besides one of
// each object.
func OweAtMost(o *Options, n int) { o.maxVersions = n }

// Retired returns how many scopes a manager keeps although all of their tombstones are on the bus.
func Retired(m *Manager) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.active.tombstones {
		if t.HasEnded() {
			n++
		}
	}
	return n
}

// Unnamed is unnamed.
var Unnamed = unnamed
