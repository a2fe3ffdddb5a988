package timeline

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Etcd says whether the resourceVersions of a resource are of the etcd that most resources of its
// cluster are in. The zero value is none of the constants.
type Etcd int

// Whether a resource is in the etcd of most resources.
const (
	SameEtcd Etcd = iota + 1
	OtherEtcd
	UnknownEtcd // not known yet
)

// Etcds finds the resources that are in another etcd than most resources of their cluster. Their
// resourceVersions cannot be compared with those of the others. Aggregated APIs have their own
// etcd, and Events may have one.
//
// A record shows this in two ways. The progress of agents names the etcd of each resource, or says
// that it is not known. And an APIService with a service shows that its group is aggregated. The
// resourceVersions at a time show nothing: a quiet resource may be far behind.
//
// The zero value is ready for use. It is not safe for concurrent use.
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
	run      string
	number   int               // of the last progress
	lastTime time.Time         // of the last progress
	names    map[string]string // of the etcd of each resource
	// same and other have the resources that earlier names showed to be in the etcd of most
	// resources, or in another one.
	same, other map[string]bool
}

// InCommonEtcd reports whether API servers keep a resource ("pods", "deployments.apps") in the
// etcd of most resources, unless --etcd-servers-overrides names it.
func InCommonEtcd(resource string) bool {
	groups := []string{"", "apps", "batch", "rbac.authorization.k8s.io", "apiextensions.k8s.io"}
	plural, group, _ := strings.Cut(resource, ".")
	return plural != "events" && slices.Contains(groups, group)
}

// Note takes an event of the record.
func (es *Etcds) Note(e *consume.Event) {
	switch {
	case e.Progress != nil:
		es.cluster(e.ClusterKey()).noteProgress(e.Progress, e.Time)
	case e.Data == nil:
	case e.Resource == "apiservices" && e.Group() == "apiregistration.k8s.io":
		es.cluster(e.ClusterKey()).noteService(e)
	case e.Resource == "customresourcedefinitions" && e.Group() == "apiextensions.k8s.io":
		es.NoteCustom(e.Name)
	}
}

// NoteCustom notes that a CustomResourceDefinition defines a resource. An API server stores its
// objects in its own etcd.
func (es *Etcds) NoteCustom(resource string) {
	if es.custom == nil {
		es.custom = map[string]bool{}
	}
	es.custom[strings.Clone(resource)] = true
}

func (es *Etcds) cluster(key consume.ClusterKey) *clusterEtcds {
	c := es.clusters[key]
	if c == nil {
		c = &clusterEtcds{}
		if es.clusters == nil {
			es.clusters = map[consume.ClusterKey]*clusterEtcds{}
		}
		es.clusters[cloneCluster(key)] = c
	}
	return c
}

// Etcd returns whether a resource is in the etcd of most resources, as Options.Etcd.
func (es *Etcds) Etcd(cluster consume.ClusterKey, resource string) Etcd {
	c := es.clusters[cluster]
	if c == nil {
		c = &clusterEtcds{}
	}
	_, group, _ := strings.Cut(resource, ".")
	isSame, isOther := es.custom[resource] || InCommonEtcd(resource), c.aggregated[group]
	for _, w := range c.writers {
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

func (c *clusterEtcds) noteProgress(p *consume.Progress, at time.Time) {
	w := c.writers[p.Writer]
	switch {
	case w == nil:
		if c.writers == nil {
			c.writers = map[string]*writerEtcds{}
		}
		w = &writerEtcds{same: map[string]bool{}, other: map[string]bool{}, names: map[string]string{}}
		c.writers[strings.Clone(p.Writer)] = w
	case consume.CompareRuns(p.Run, w.run) < 0:
		return // it comes late
	case p.Run != w.run:
		w.keepNames()
		w.names = map[string]string{} // it names all again
		w.number, w.lastTime = 0, consume.RunBegan(p.Run)
	}
	if p.Number > w.number {
		isMissing := w.run != "" && p.Since.After(w.lastTime)
		if isMissing {
			w.noteMissing()
		}
		w.number, w.lastTime = p.Number, at
	}
	w.run = strings.Clone(p.Run)
	w.noteNames(p)
}

// noteMissing notes that progress is missing. It may have said that a resource has another etcd.
func (w *writerEtcds) noteMissing() {
	w.keepNames()
	for resource := range w.same {
		w.names[resource] = consume.EtcdUnknown
	}
}

// noteNames notes the names in a progress of the present run.
func (w *writerEtcds) noteNames(p *consume.Progress) {
	hasChange, hasRename := false, false
	for i := range p.Scopes {
		s := &p.Scopes[i]
		was := w.names[s.Resource]
		isChange := s.Etcd != "" && s.Etcd != was && was != "" && was != consume.EtcdUnknown
		hasChange = hasChange || isChange
		hasRename = hasRename || isChange && InCommonEtcd(s.Resource)
	}
	if hasChange {
		w.keepNames()
	}
	if hasRename { // all names may have changed: the others follow in further events
		clear(w.names)
	}
	for i := range p.Scopes {
		if s := &p.Scopes[i]; s.Etcd != "" && s.Etcd != w.names[s.Resource] {
			w.names[strings.Clone(s.Resource)] = strings.Clone(s.Etcd)
		}
	}
}

// keepNames keeps what the names show, before one of them changes.
func (w *writerEtcds) keepNames() {
	for resource := range w.names {
		same, other := w.judge(resource)
		w.same[resource], w.other[resource] = same, other
	}
}

// judge returns, by what the agent has said, whether a resource is in the etcd of most resources,
// and whether it was in another one. If neither is the case, it is not known, or not any more.
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

// common returns the name of the etcd of most resources; "": it is not known. Only resources count
// that API servers usually keep in one etcd.
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

func (c *clusterEtcds) noteService(e *consume.Event) {
	if c.aggregated == nil {
		c.aggregated, c.events = map[string]bool{}, map[string]time.Time{}
	}
	var s struct {
		Spec struct {
			Group   string
			Service *struct{ Name string }
		}
	}
	if e.Time.Before(c.events[e.Name]) || json.Unmarshal(e.Data.After, &s) != nil || s.Spec.Group == "" {
		return // a deletion says nothing about the time before it
	}
	c.events[e.Name] = e.Time
	c.aggregated[s.Spec.Group] = s.Spec.Service != nil
}
