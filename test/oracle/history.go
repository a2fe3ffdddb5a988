package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubecdc/kubecdc/test/wait"
)

// Prefixes has the resources that the tests observe, by their prefix in etcd.
var Prefixes = map[string]string{
	"/registry/configmaps/":                   "configmaps",
	"/registry/secrets/":                      "secrets",
	"/registry/serviceaccounts/":              "serviceaccounts",
	"/registry/pods/":                         "pods",
	"/registry/minions/":                      "nodes",
	"/registry/events/":                       "events",
	"/registry/deployments/":                  "deployments.apps",
	"/registry/replicasets/":                  "replicasets.apps",
	"/registry/" + WidgetsGroup + "/widgets/": Widgets,
}

// History is etcd's history: every version of every object since the first revision. It must be
// opened before the first compaction. Run keeps it up to date.
type History struct {
	Client *clientv3.Client

	mu       sync.Mutex
	versions map[string]map[ObjectKey][]*Version // By resource.
	counts   map[string]map[string]int           // The number of versions and deletions, by resource and namespace.
	reached  uint64                              // The last revision read.
	err      error
}

// OpenHistory connects to etcd. The history is empty until Run reads it.
func OpenHistory(endpoint string) (*History, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return &History{
		Client:   client,
		versions: make(map[string]map[ObjectKey][]*Version),
		counts:   make(map[string]map[string]int),
	}, nil
}

// Run follows etcd until ctx ends.
func (h *History) Run(ctx context.Context) {
	err := h.follow(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
}

// Close ends the connection to etcd, after Run has returned.
func (h *History) Close() { _ = h.Client.Close() }

func (h *History) follow(ctx context.Context) error {
	// The watch is for all keys: the revisions of other keys show how far it has progressed.
	for resp := range h.Client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(1),
		clientv3.WithFragment()) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("etcd watch: %w", err)
		}
		seen := time.Now()
		for _, ev := range resp.Events {
			if err := h.add(ev, seen); err != nil {
				return err
			}
		}
	}
	return errors.New("etcd watch ended")
}

func (h *History) add(ev *clientv3.Event, seen time.Time) error {
	key, rev := string(ev.Kv.Key), uint64(ev.Kv.ModRevision)
	resource, object := resourceOf(key)
	var v *Version
	if resource != "" && !IsDelete(ev) {
		var err error
		v, err = ReadVersion(resource, rev, ev.Kv.Value)
		if err != nil {
			return fmt.Errorf("etcd %s at %d: %w (does the API server store JSON?)", key, rev, err)
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.reached = max(h.reached, rev)
	if resource == "" {
		return nil
	}
	if v == nil {
		list := h.versions[resource][object]
		if len(list) == 0 || list[len(list)-1].Deleted {
			return fmt.Errorf("etcd %s at %d: deletion of what there was not", key, rev)
		}
		v = &Version{
			Key:     object,
			Rev:     rev,
			Deleted: true,
			UID:     list[len(list)-1].UID,
		}
	}
	v.Seen = seen
	if v.Key != object {
		return fmt.Errorf("etcd %s at %d has the object %s", key, rev, v.Key)
	}
	if h.versions[resource] == nil {
		h.versions[resource] = make(map[ObjectKey][]*Version)
		h.counts[resource] = make(map[string]int)
	}
	h.versions[resource][object] = append(h.versions[resource][object], v)
	h.counts[resource][object.Namespace]++
	return nil
}

// IsDelete reports whether the event of etcd is a deletion.
func IsDelete(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypeDelete }

// resourceOf returns the resource and the object of an etcd key, or "" if the tests do not observe
// the resource.
func resourceOf(key string) (string, ObjectKey) {
	group, rest, _ := strings.Cut(strings.TrimPrefix(key, "/registry/"), "/")
	if strings.HasSuffix(group, "."+ChurnGroup) {
		plural, rest, _ := strings.Cut(rest, "/")
		namespace, name, _ := strings.Cut(rest, "/")
		resource := plural + "." + group
		return resource, ObjectKey{Resource: resource, Namespace: namespace, Name: name}
	}
	for prefix, resource := range Prefixes {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			namespace, name, namespaced := strings.Cut(rest, "/")
			if !namespaced {
				namespace, name = "", rest
			}
			return resource, ObjectKey{Resource: resource, Namespace: namespace, Name: name}
		}
	}
	return "", ObjectKey{}
}

// etcdKey is the inverse of resourceOf.
func etcdKey(key ObjectKey) string {
	if plural, group := key.Split(); strings.HasSuffix(group, "."+ChurnGroup) {
		return "/registry/" + group + "/" + plural + "/" + key.Namespace + "/" + key.Name
	}
	for prefix, resource := range Prefixes {
		if resource == key.Resource {
			return prefix + strings.TrimPrefix(key.Namespace+"/"+key.Name, "/")
		}
	}
	return ""
}

// Revision returns etcd's current revision.
func (h *History) Revision(ctx context.Context) (uint64, error) {
	resp, err := h.Client.Get(ctx, "/none", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("etcd revision: %w", err)
	}
	return uint64(resp.Header.Revision), nil
}

// CatchUp waits until the history has reached etcd's current revision, and returns that revision.
func (h *History) CatchUp(ctx context.Context) (uint64, error) {
	rev, err := h.Revision(ctx)
	if err != nil {
		return 0, err
	}
	return rev, wait.For(ctx, time.Minute, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err != nil {
			return h.err
		}
		if h.reached < rev {
			return fmt.Errorf("the history has reached revision %d of %d", h.reached, rev)
		}
		return nil
	})
}

// Of returns the history of the resources so far.
func (h *History) Of(resources ...string) map[ObjectKey][]*Version {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[ObjectKey][]*Version)
	for _, resource := range resources {
		maps.Copy(all, h.versions[resource])
	}
	return all
}

// OfObject returns the number of versions and deletions of one object so far. It is cheap enough
// for polling.
func (h *History) OfObject(key ObjectKey) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.versions[key.Resource][key])
}

// Count returns the number of versions and deletions of the resources so far.
func (h *History) Count(resources ...string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, resource := range resources {
		for _, count := range h.counts[resource] {
			n += count
		}
	}
	return n
}

// CountIn is Count for one namespace, for tests that share a control plane.
func (h *History) CountIn(namespace string, resources ...string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, resource := range resources {
		n += h.counts[resource][namespace]
	}
	return n
}

// ChangesIn returns a function that counts the versions and deletions of all objects in the
// namespaces.
func (h *History) ChangesIn(namespaces ...string) func() uint64 {
	return func() uint64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		n := 0
		for _, counts := range h.counts {
			for _, namespace := range namespaces {
				n += counts[namespace]
			}
		}
		return uint64(n)
	}
}

// Object returns an object at a revision, without the stripped fields, to show the expected content
// of a record.
func (h *History) Object(ctx context.Context, key ObjectKey, rev uint64) (map[string]any, error) {
	resp, err := h.Client.Get(ctx, etcdKey(key), clientv3.WithRev(int64(rev)))
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) == 0 {
		return nil, fmt.Errorf("etcd has no %s at %d", key, rev)
	}
	obj, err := DecodeObject(resp.Kvs[0].Value)
	if err != nil {
		return nil, err
	}
	if meta, ok := obj["metadata"].(map[string]any); ok {
		meta["resourceVersion"] = FormatRev(uint64(resp.Kvs[0].ModRevision))
	}
	strip(obj)
	return obj, nil
}

// The custom resource that each control plane of test/world has.
const (
	WidgetsGroup = "e2e.kubecdc.dev"
	Widgets      = "widgets." + WidgetsGroup
)

// ChurnGroup is the suffix of the API groups whose resources tests create and delete. Each test has
// a group of its own, so that tests can share a control plane. digestOf ignores the version in the
// apiVersion of their objects.
const ChurnGroup = "churn.e2e.kubecdc.dev"

// LatestOf returns the last revision of the ConfigMaps in a namespace.
func (h *History) LatestOf(namespace string) uint64 {
	var last uint64
	for key, list := range h.Of("configmaps") {
		if key.Namespace == namespace {
			last = max(last, list[len(list)-1].Rev)
		}
	}
	return last
}
