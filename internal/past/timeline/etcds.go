package timeline

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Etcd says whether the resourceVersions of a resource are of the etcd of most resources of its
// cluster. The zero value is not one.
type Etcd int

// Whether a resource is in the etcd of most resources.
const (
	SameEtcd Etcd = iota + 1
	OtherEtcd
	UnknownEtcd // not known yet
)

// Etcds finds the resources whose resourceVersions are of another etcd than those of most
// resources of their cluster. Aggregated APIs have their own, and Events may. The zero value is
// ready for use. It is not safe for concurrent use.
//
// A record shows this in two ways. The progress of agents names the etcd of each resource, or says
// that it is not known. And an APIService with a service says that its group is aggregated. How far
// resources have come at a time shows nothing: a quiet one may be far behind.
type Etcds struct {
	clusters map[consume.ClusterKey]*clusterEtcds
	custom   map[string]bool // resources that a CustomResourceDefinition defines
}

// clusterEtcds are the Etcds of one cluster.
type clusterEtcds struct {
	aggregated map[string]bool      // by group
	events     map[string]time.Time // the last event of each APIService
	writers    map[string]*writerEtcds
}

// writerEtcds is what one agent says of etcds.
type writerEtcds struct {
	run    string
	number int               // of the last progress
	heard  time.Time         // of the last progress
	names  map[string]string // of the etcd of each resource
	// same and other have what earlier names said.
	same, other map[string]bool
}

// InCommonEtcd reports whether API servers keep a resource ("pods", "deployments.apps") in the
// etcd of most resources, unless --etcd-servers-overrides names it.
func InCommonEtcd(resource string) bool {
	plural, group, _ := strings.Cut(resource, ".")
	return plural != "events" &&
		slices.Contains([]string{"", "apps", "batch", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}, group)
}

// Note takes an event of the record.
func (h *Etcds) Note(e *consume.Event) {
	switch {
	case e.Progress != nil:
		h.cluster(e.ClusterKey()).noteProgress(e.Progress, e.Time)
	case e.Data == nil:
	case e.Resource == "apiservices" && e.Group() == "apiregistration.k8s.io":
		h.cluster(e.ClusterKey()).noteService(e)
	case e.Resource == "customresourcedefinitions" && e.Group() == "apiextensions.k8s.io":
		h.NoteCustom(e.Name)
	}
}

// NoteCustom notes that a CustomResourceDefinition defines a resource. An API server stores its
// objects in its own etcd.
func (h *Etcds) NoteCustom(resource string) {
	if h.custom == nil {
		h.custom = map[string]bool{}
	}
	h.custom[strings.Clone(resource)] = true
}

func (h *Etcds) cluster(key consume.ClusterKey) *clusterEtcds {
	of := h.clusters[key]
	if of == nil {
		of = &clusterEtcds{}
		if h.clusters == nil {
			h.clusters = map[consume.ClusterKey]*clusterEtcds{}
		}
		h.clusters[consume.ClusterKey{Source: strings.Clone(key.Source), UID: strings.Clone(key.UID)}] = of
	}
	return of
}

// Etcd returns whether a resource is in the etcd of most resources, as Options.Etcd.
func (h *Etcds) Etcd(cluster consume.ClusterKey, resource string) Etcd {
	of := h.clusters[cluster]
	if of == nil {
		of = &clusterEtcds{}
	}
	_, group, _ := strings.Cut(resource, ".")
	isSame, isOther := h.custom[resource] || InCommonEtcd(resource), of.aggregated[group]
	for _, w := range of.writers {
		same, other := w.judge(resource)
		isSame, isOther = isSame || same, isOther || other
	}
	switch {
	case isOther:
		return OtherEtcd
	case isSame:
		return SameEtcd
	}
	return UnknownEtcd
}

func (h *clusterEtcds) noteProgress(p *consume.Progress, at time.Time) {
	w := h.writers[p.Writer]
	switch {
	case w == nil:
		if h.writers == nil {
			h.writers = map[string]*writerEtcds{}
		}
		w = &writerEtcds{same: map[string]bool{}, other: map[string]bool{}, names: map[string]string{}}
		h.writers[strings.Clone(p.Writer)] = w
	case consume.CompareRuns(p.Run, w.run) < 0:
		return // late
	case p.Run != w.run:
		w.settle()
		w.names = map[string]string{} // it names all again
		w.number, w.heard = 0, consume.RunBegan(p.Run)
	}
	if p.Number > w.number {
		isMissing := w.run != "" && p.Since.After(w.heard)
		if isMissing {
			w.doubt()
		}
		w.number, w.heard = p.Number, at
	}
	w.run = strings.Clone(p.Run)
	w.note(p)
}

// doubt notes that progress is missing that may have said that an etcd is another one.
func (w *writerEtcds) doubt() {
	w.settle()
	for resource := range w.same {
		w.names[resource] = consume.EtcdUnknown
	}
}

// note notes the names in a progress of the present run.
func (w *writerEtcds) note(p *consume.Progress) {
	changes, renames := false, false
	for i := range p.Scopes {
		s := &p.Scopes[i]
		was := w.names[s.Resource]
		isChange := s.Etcd != "" && s.Etcd != was && was != "" && was != consume.EtcdUnknown
		changes = changes || isChange
		renames = renames || isChange && InCommonEtcd(s.Resource)
	}
	if changes {
		w.settle()
	}
	if renames { // perhaps all names are other ones, in further events
		clear(w.names)
	}
	for i := range p.Scopes {
		if s := &p.Scopes[i]; s.Etcd != "" && s.Etcd != w.names[s.Resource] {
			w.names[strings.Clone(s.Resource)] = strings.Clone(s.Etcd)
		}
	}
}

// settle notes what the names say before one of them changes.
func (w *writerEtcds) settle() {
	for resource := range w.names {
		same, other := w.judge(resource)
		w.same[resource], w.other[resource] = same, other
	}
}

// judge returns whether a resource is in the etcd of most resources, and whether it was in another
// one, by what the agent has said. If it is neither, that is not known, or not any more.
func (w *writerEtcds) judge(resource string) (same, other bool) {
	same, other = w.same[resource], w.other[resource]
	name, most := w.names[resource], w.common()
	switch {
	case name == "":
		return same, other
	case name == consume.EtcdUnknown || most == "":
		return false, other
	}
	return name == most, other || name != most
}

// common returns the name of the etcd that most of the resources have that are usually in one; "":
// it is not known.
func (w *writerEtcds) common() (most string) {
	sizes := map[string]int{}
	for resource, name := range w.names {
		if name != consume.EtcdUnknown && InCommonEtcd(resource) {
			sizes[name]++
		}
	}
	for name, n := range sizes {
		if most == "" || n > sizes[most] || n == sizes[most] && name < most {
			most = name
		}
	}
	return most
}

func (h *clusterEtcds) noteService(e *consume.Event) {
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
