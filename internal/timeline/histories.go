package timeline

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// historySlack is how much earlier or later other scopes of the same etcd may have reached the resourceVersion of a progress event.
const historySlack = 5 * time.Minute

// Histories finds the resources whose resourceVersions are of another etcd than those of most
// resources of their cluster. Aggregated APIs have their own, and Events may. The zero value is
// ready for use. It is not safe for concurrent use.
//
// A record shows this in two ways. An APIService with a service says that its group is aggregated.
// And the progress events of scopes of one etcd, sent at about the same time, have about the same
// resourceVersion.
type Histories struct {
	clusters map[consume.ClusterKey]*clusterHistories
}

// clusterHistories are the Histories of one cluster.
type clusterHistories struct {
	aggregated map[string]bool      // by group
	events     map[string]time.Time // the last event of each APIService
	progress   map[string][]mark    // of each other resource, at least historySlack apart
	common     map[int64]mark       // the highest of the resources for which InCommonHistory returns true, by minute
	sorted     []mark               // common, in the order of time, each with the highest up to it; nil: to be made
}

// InCommonHistory reports whether API servers keep a resource ("pods", "deployments.apps") in the etcd of most resources. Histories compares
// others with these.
func InCommonHistory(resource string) bool {
	plural, group, _ := strings.Cut(resource, ".")
	return plural != "events" && slices.Contains([]string{"", "apps", "batch", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}, group)
}

// Note takes an event of the record.
func (h *Histories) Note(e *consume.Event) {
	service := e.Data != nil && e.Resource == "apiservices" && e.Group() == "apiregistration.k8s.io"
	if !service && e.Progress == nil {
		return
	}
	of := h.clusters[e.ClusterKey()]
	if of == nil {
		of = &clusterHistories{}
		if h.clusters == nil {
			h.clusters = map[consume.ClusterKey]*clusterHistories{}
		}
		h.clusters[e.ClusterKey()] = of
	}
	of.note(e)
}

func (h *clusterHistories) note(e *consume.Event) {
	switch {
	case e.Data != nil:
		h.noteService(e)
	case e.Progress != nil:
		for i := range e.Progress.Scopes {
			entry := &e.Progress.Scopes[i]
			m := claimOf(entry)
			m.time = cmp.Or(m.time, e.Time)
			h.noteClaim(entry.Resource, m)
		}
	}
}

// noteClaim notes the resourceVersion that a resource had reached at a time.
func (h *clusterHistories) noteClaim(resource string, m mark) {
	if m.at.seq == 0 {
		return
	}
	if !InCommonHistory(resource) {
		h.noteOther(strings.Clone(resource), m)
		return
	}
	if h.common == nil {
		h.common = map[int64]mark{}
	}
	minute := m.time.Unix() / 60
	h.common[minute], h.sorted = h.common[minute].max(m), nil
}

func (h *clusterHistories) noteOther(resource string, m mark) {
	if h.progress == nil {
		h.progress = map[string][]mark{}
	}
	if last := h.progress[resource]; len(last) == 0 || m.time.Sub(last[len(last)-1].time) >= historySlack {
		h.progress[resource] = append(last, m)
	}
}

func (h *clusterHistories) noteService(e *consume.Event) {
	if h.aggregated == nil {
		h.aggregated, h.events = map[string]bool{}, map[string]time.Time{}
	}
	var s struct {
		Spec struct {
			Group   string
			Service *struct{ Name string }
		}
	}
	if e.Time.Before(h.events[e.Name]) || json.Unmarshal(e.Data.After, &s) != nil || s.Spec.Group == "" {
		return // a deletion says nothing about the time before it
	}
	h.events[e.Name] = e.Time
	h.aggregated[s.Spec.Group] = s.Spec.Service != nil
}

// Other reports whether the resourceVersions of a resource are of another etcd than those of most resources, as Options.OtherHistory.
func (h *Histories) Other(cluster consume.ClusterKey, resource string) bool {
	of := h.clusters[cluster]
	return of != nil && of.other(resource)
}

func (h *clusterHistories) other(resource string) bool {
	_, group, _ := strings.Cut(resource, ".")
	if InCommonHistory(resource) {
		return false
	}
	if h.aggregated[group] {
		return true
	}
	compared, apart := 0, 0
	for _, m := range h.progress[resource] {
		low, high, ok := h.around(m.time)
		if !ok {
			continue
		}
		compared++
		if m.at.below(low) || high.below(m.at) {
			apart++
		}
	}
	return apart > compared/2
}

// around returns between which resourceVersions the common etcd was at a time: what it had reached a while before, and what it has reached a while
// after. If the record ends sooner, other scopes may not have sent their next progress, and high is no bound. It returns false if the record shows
// neither.
func (h *clusterHistories) around(t time.Time) (low, high point, ok bool) {
	if h.sorted == nil {
		h.sorted = slices.SortedFunc(maps.Values(h.common), func(a, b mark) int { return a.time.Compare(b.time) })
		for i := range h.sorted {
			h.sorted[i].at = h.sorted[i].max(h.sorted[max(i-1, 0)]).at
		}
	}
	upTo := func(t time.Time) int {
		n, _ := slices.BinarySearchFunc(h.sorted, t, func(m mark, t time.Time) int {
			if m.time.After(t) {
				return 1
			}
			return -1
		})
		return n
	}
	before, after := upTo(t.Add(-historySlack)), upTo(t.Add(historySlack))
	if before > 0 {
		low = h.sorted[before-1].at
	}
	if high = (point{history: math.MaxUint32}); after < len(h.sorted) {
		high = h.sorted[after-1].at
	}
	return low, high, after > before
}
