package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// topic is one resource in one namespace: what a LIST has, and what a question is about.
type topic struct {
	class string // of the scope: the floors are those of classes
	// classByVersion is the class of answers about a version. Empty: class.
	classByVersion string
	resource       string
	namespace      string
	kind           string // of its objects
	make           func(name, text string) obj
	change         func(text string) obj                  // a merge patch that changes an object
	removal        string                                 // a query for deletions
	withhold       func(ctx context.Context, n int) error // makes a change that filters withhold
	isOwn          bool                                   // another server has it: its versions are of another etcd

	exists map[string]bool // by name

	mu       sync.Mutex
	absences []absence
	// asides are spans in which filters withhold something: nothing is required of the share.
	asides []span
	// hides is when filters began to withhold something.
	hides time.Time
	// wrote is when it was written.
	wrote []time.Time
	// holds has the spans in which an agent's configuration selects it. Nil: always.
	holds []span
}

// span is a time. A zero until is one that is not over.
type span struct{ from, until time.Time }

func (s span) has(at time.Time) bool {
	return !at.Before(s.from) && (s.until.IsZero() || !at.After(s.until))
}

// absence is a time in which a fault keeps the agent from observing a topic, widened by what the
// agent cannot know.
type absence struct {
	span
	why string
}

func (p *topic) excuse(why string, from, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absences = append(p.absences, absence{span{from, until}, why})
}

// isExcused reports whether a fault may be why a time is not exact.
func (p *topic) isExcused(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.absences, func(a absence) bool { return a.has(at) })
}

func (p *topic) collection() string { return world.Collection(p.resource, p.namespace) }

// plainObject returns a maker of objects of a kind whose label step is the text. body has the
// fields that the API server requires.
func plainObject(apiVersion, kind string, body obj) func(name, text string) obj {
	return func(name, text string) obj {
		o := obj{
			"apiVersion": apiVersion, "kind": kind,
			"metadata": obj{"name": name, "labels": obj{"step": text, "team": "payments"}},
		}
		maps.Copy(o, body)
		return o
	}
}

// newTopic returns a topic whose objects differ in a label: the agent redacts annotations of
// Secrets.
func newTopic(class, resource, namespace, kind string, body obj) *topic {
	_, group, _ := strings.Cut(resource, ".")
	apiVersion := "v1"
	if group != "" {
		apiVersion = group + "/v1"
	}
	return &topic{
		class: class, resource: resource, namespace: namespace, kind: kind,
		make:   plainObject(apiVersion, kind, body),
		change: func(text string) obj { return obj{"metadata": obj{"labels": obj{"step": text}}} },
		exists: map[string]bool{},
	}
}

// write creates, updates or deletes one object of n, by its number.
func (p *topic) write(ctx context.Context, api *world.API, n, objects int) error {
	name := fmt.Sprint("it-", n%objects)
	text := fmt.Sprint("step-", n)
	p.mu.Lock()
	p.wrote = append(p.wrote, time.Now())
	p.mu.Unlock()
	switch {
	case !p.exists[name]:
		if _, err := api.Create(ctx, p.collection(), p.make(name, text)); err != nil {
			return err
		}
		p.exists[name] = true
		return nil
	case n%(objects+1) == 0:
		delete(p.exists, name)
		return api.Remove(ctx, p.collection()+"/"+name+p.removal)
	}
	return p.update(ctx, api, name, text)
}

func (p *topic) update(ctx context.Context, api *world.API, name, text string) error {
	_, err := api.MergePatch(ctx, p.collection()+"/"+name, p.change(text))
	return err
}

// sight is what LISTs of topics had at one revision. If calm is true, nothing was written shortly
// before and after its time.
type sight struct {
	at   time.Time
	rev  uint64
	calm bool
	// lists has the objects of each topic that was listed. Topics that the API server did not serve
	// have none.
	lists map[*topic]map[oracle.ObjectKey]*oracle.Version
}

// look lists topics at one revision.
func look(ctx context.Context, api *world.API, rev uint64, topics []*topic) (*sight, error) {
	s := &sight{at: time.Now(), rev: rev, lists: map[*topic]map[oracle.ObjectKey]*oracle.Version{}}
	for _, p := range topics {
		exactly := fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact", rev)
		if p.isOwn {
			exactly = ""
		}
		raw, err := api.Get(ctx, p.collection()+exactly)
		if err != nil && p.isOwn {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		s.lists[p] = map[oracle.ObjectKey]*oracle.Version{}
		if err != nil {
			continue // Not served.
		}
		s.lists[p], err = readList(p.resource, raw)
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readList returns the objects of a LIST.
func readList(resource string, raw []byte) (map[oracle.ObjectKey]*oracle.Version, error) {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	out := map[oracle.ObjectKey]*oracle.Version{}
	for _, item := range list.Items {
		o, err := oracle.DecodeObject(item)
		if err != nil {
			return nil, err
		}
		o["apiVersion"], o["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
		v, err := oracle.NewVersion(resource, 0, o)
		if err != nil {
			return nil, err
		}
		out[v.Key] = v
	}
	return out, nil
}

// revisionOf returns the resourceVersion of a LIST that has everything that was written before.
func revisionOf(ctx context.Context, api *world.API, p *topic) (uint64, error) {
	raw, err := api.Get(ctx, p.collection()+"?limit=1")
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion uint64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(raw, &list)
	return list.Metadata.ResourceVersion, err
}

// inquiry is a cluster with agents whose record is asked for what LISTs had.
type inquiry struct {
	plane  *world.Plane
	bus    string // its URL, for questions
	config string // the file with the bus, if it has no URL
	topics []*topic
	first  *topic     // one that is always served
	also   []*inquiry // whose topics are listed at the same revisions

	// Each beat writes, is calm, lists, and is calm.
	beats []func(ctx context.Context, n int) error

	mu     sync.Mutex
	sights []*sight
}

// beat is one round of the writers: everything that changes objects happens at its begin. It lists
// some topics meanwhile, and all of them in the middle of the calm time that follows.
func (q *inquiry) beat(ctx context.Context, n int) error {
	var during *sight
	for k, write := range q.beats {
		if err := write(ctx, n); err != nil {
			return err
		}
		if k == n%len(q.beats) {
			rev, err := revisionOf(ctx, q.plane.API, q.first)
			if err != nil {
				return err
			}
			some := []*topic{q.topics[n%len(q.topics)], q.topics[(n*5+2)%len(q.topics)]}
			during, err = look(ctx, q.plane.API, rev, some)
			if err != nil {
				return err
			}
		}
	}
	world.Pass(ctx, calm)
	if ctx.Err() != nil {
		return nil
	}
	rev, err := revisionOf(ctx, q.plane.API, q.first)
	if err != nil {
		return err
	}
	s, err := look(ctx, q.plane.API, rev, q.topics)
	if err != nil {
		return err
	}
	s.at = s.at.Add(time.Since(s.at) / 2)
	others := make([]*sight, len(q.also))
	for k, other := range q.also {
		others[k], err = look(ctx, q.plane.API, rev, other.topics)
		if err != nil {
			return err
		}
		others[k].at = s.at
	}
	world.Pass(ctx, calm)
	if ctx.Err() != nil {
		return nil
	}
	s.calm = true
	q.add(during, s)
	for k, other := range q.also {
		others[k].calm = true
		other.add(others[k])
	}
	return nil
}

func (q *inquiry) add(sights ...*sight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sights = append(q.sights, sights...)
}

// run makes beats until ctx ends.
func (q *inquiry) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := q.beat(context.WithoutCancel(ctx), n); err != nil {
			return fmt.Errorf("beat %d: %w", n, err)
		}
	}
	return nil
}

// seen returns the sights so far.
func (q *inquiry) seen() []*sight {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.sights)
}

// covers reports whether a scope of an answer may have objects of the topic.
func (p *topic) covers(s *pastScope) bool {
	return s.Resource == p.resource && consume.ScopeCovers(s.Scope, p.namespace)
}

// newNamespaces creates the namespaces of topics.
func newNamespaces(t *testing.T, p *world.Plane, topics []*topic) {
	t.Helper()
	done := map[string]bool{}
	for _, s := range topics {
		if !done[s.namespace] {
			p.NewNamespace(t, s.namespace)
			done[s.namespace] = true
		}
	}
}
