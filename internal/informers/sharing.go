package informers

import (
	"context"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/etcds"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/pause"
)

// Progress says which resources share an etcd: only their resourceVersions can be compared. Package
// etcds decides that by lists of one object. Until it is known of a resource, progress says so.
//
// The lists have no selectors: a selector could make an API server look through all objects. All
// scopes of a resource are in one etcd.

const (
	// firstRound is when the first lists are compared, after the start.
	firstRound = 10 * time.Second
	// sayAgain is the interval at which progress repeats the etcds of all resources, and the
	// version of the API server: retention removes earlier events.
	sayAgain = time.Hour
)

// sharing knows which resources share an etcd, and the version of the API server. Three goroutines
// use it: see the groups of fields.
type sharing struct {
	mu      sync.Mutex
	numbers map[string]int // of the etcd of each resource, as far as it is known
	version string         // of the API server; "": not known
	changed bool           // the version has changed since the last round

	// The goroutine of compareEtcds alone uses the fields below.
	etcds   *etcds.Etcds
	resumed map[string]checkpoint.Scope // of the last run, by resource

	// The goroutine that sends the progress alone uses the fields below.
	said        map[string]string    // of the etcd of each resource
	saidSince   map[string]time.Time // when that was said first
	saidVersion string
	saidAt      time.Time // when all was said; zero: not yet
}

// resume sets the etcds that the last checkpoint has. It must be called before compareEtcds.
func (s *sharing) resume(all map[string]checkpoint.Scope) {
	last := 0
	s.numbers, s.resumed = map[string]int{}, map[string]checkpoint.Scope{}
	for _, c := range all {
		r := object.Resource{Group: c.Group, Name: c.Resource}
		last = max(last, c.Etcd)
		if c.Etcd != 0 && s.resumed[r.String()].Etcd == 0 {
			s.numbers[r.String()], s.resumed[r.String()] = c.Etcd, c
		}
	}
	s.etcds = etcds.New(last)
}

// etcdOf returns the number of the etcd of a resource, 0 if it is not known.
func (s *sharing) etcdOf(r *object.Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[r.String()]
}

// compareEtcds finds out which resources share an etcd, until ctx ends.
func (m *Manager) compareEtcds(ctx context.Context) {
	for wait := firstRound; pause.For(ctx, wait) == nil; wait = etcds.Every {
		m.compareOnce(ctx)
	}
}

// noteVersion notes the version of the API server, which may have other etcds than the last one.
func (s *sharing) noteVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = s.changed || s.version != "" && s.version != version
	s.version = version
}

// takeChanged reports whether the version of the API server has changed since the last call.
func (s *sharing) takeChanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.changed
	s.changed = false
	return changed
}

// compareOnce makes a round of lists.
func (m *Manager) compareOnce(ctx context.Context) {
	informers := map[string]*running{}
	known := map[string]etcds.Resource{}
	for _, i := range m.observing() {
		v, _ := i.View()
		if i.Spec().Internal || i.Phase().IsLeaving() || !v.Loaded {
			continue
		}
		name := i.Resource().String()
		informers[name] = i
		r := known[name]
		aggregated := i.IsAggregated()
		known[name] = etcds.Resource{
			Name:       name,
			Aggregated: aggregated,
			Custom:     !aggregated && i.Definition() != "",
			History:    max(r.History, v.History),
		}
	}
	m.sharing.observe(known)
	if m.sharing.takeChanged() {
		m.sharing.etcds.CompareAgain()
	}
	m.sharing.etcds.Round(time.Now(), func(resource string) (uint64, error) {
		return m.latestOf(ctx, informers[resource])
	})
	m.sharing.publish(known)
}

// observe passes the resources on, with what the last run knew of them.
func (s *sharing) observe(known map[string]etcds.Resource) {
	for name, r := range known {
		if c, ok := s.resumed[name]; ok && c.History != r.History {
			s.resumed = nil // an etcd was restored since
		}
	}
	var all []etcds.Resource
	for name, r := range known {
		if c := s.resumed[name]; c.Aggregated == r.Aggregated {
			r.Etcd = c.Etcd
		}
		delete(s.resumed, name) // used once: later the resource may be in another etcd
		all = append(all, r)
	}
	if !s.etcds.Observe(all) {
		s.resumed = nil
	}
	s.publish(known)
}

// publish makes what is known now visible to etcdOf. A resource that is not loaded yet keeps what
// the last run knew.
func (s *sharing) publish(known map[string]etcds.Resource) {
	numbers := map[string]int{}
	for name, c := range s.resumed {
		numbers[name] = c.Etcd
	}
	for name := range known {
		numbers[name] = s.etcds.Of(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers = numbers
}

// latestOf returns the resourceVersion of a list of one object of an informer's resource.
func (m *Manager) latestOf(ctx context.Context, i *running) (uint64, error) {
	if err := m.deps.Proofs.Wait(ctx); err != nil {
		return 0, err
	}
	within, cancel := context.WithTimeout(ctx, apiserver.ProbeTimeout)
	defer cancel()
	return m.client.Latest(within, i.Resource(), i.Selection().Namespace, apiserver.MetadataOnly, metav1.ListOptions{})
}

// statement is what one progress says of etcds, and of the version of the API server.
type statement struct {
	etcds   map[string]string // by resource; the progress does not mention the others
	version string            // "": nothing is said
	isAll   bool              // all is said
	at      time.Time
}

// nextStatement returns what the progress must say of these resources now. If something was said
// first at since or later, it is repeated: a reader may lack an event.
func (s *sharing) nextStatement(all []entries, since, now time.Time) statement {
	isAll := s.saidAt.IsZero() || now.Sub(s.saidAt) >= sayAgain
	out := statement{etcds: map[string]string{}, isAll: isAll, at: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		name, etcd := e.scopes[0].Resource.String(), object.UnknownEtcd
		if n := s.numbers[name]; n != 0 {
			etcd = strconv.Itoa(n)
		}
		isRecent := !s.saidSince[name].Before(since)
		if isAll || isRecent || s.said[name] != etcd {
			out.etcds[name] = etcd
		}
	}
	if isAll || s.saidVersion != s.version {
		out.version = s.version
	}
	return out
}

// addTo adds the statement to the first entry of each resource.
func (st *statement) addTo(all []entries) {
	for _, e := range all {
		etcd := st.etcds[e.scopes[0].Resource.String()]
		e.scopes[0].Etcd = etcd
		e.joined[0].Etcd = etcd
	}
}

// noteSaid notes that the bus has a statement.
func (s *sharing) noteSaid(st *statement) {
	if s.said == nil {
		s.said, s.saidSince = map[string]string{}, map[string]time.Time{}
	}
	for name, etcd := range st.etcds {
		if s.said[name] != etcd {
			s.said[name], s.saidSince[name] = etcd, st.at
		}
	}
	if st.version != "" {
		s.saidVersion = st.version
	}
	if st.isAll {
		s.saidAt = st.at
	}
}
