package e2e_test

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
)

// prefixes is where etcd has the resources that the tests look at.
var prefixes = map[string]string{
	"/registry/configmaps/":                   "configmaps",
	"/registry/secrets/":                      "secrets",
	"/registry/serviceaccounts/":              "serviceaccounts",
	"/registry/pods/":                         "pods",
	"/registry/minions/":                      "nodes",
	"/registry/events/":                       "events",
	"/registry/deployments/":                  "deployments.apps",
	"/registry/replicasets/":                  "replicasets.apps",
	"/registry/" + widgetsGroup + "/widgets/": widgets,
}

// history is what etcd says: every version of every object from the first revision on. It has to be opened before the
// first compaction, and it follows etcd as it goes on.
type history struct {
	client *clientv3.Client

	mu       sync.Mutex
	versions map[string]map[objectKey][]*version // By resource.
	counts   map[string]map[string]int           // Of versions and deletions, by resource and namespace.
	reached  uint64                              // The last revision seen.
	err      error
}

func openHistory(endpoint string) (*history, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return &history{client: client, versions: make(map[string]map[objectKey][]*version), counts: make(map[string]map[string]int)}, nil
}

// run follows etcd until ctx ends.
func (h *history) run(ctx context.Context) {
	err := h.follow(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
}

func (h *history) follow(ctx context.Context) error {
	// Of all keys: the revisions of the others tell how far the watch has come.
	for resp := range h.client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithFragment()) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("etcd watch: %w", err)
		}
		for _, ev := range resp.Events {
			if err := h.add(ev); err != nil {
				return err
			}
		}
	}
	return errors.New("etcd watch ended")
}

func (h *history) add(ev *clientv3.Event) error {
	key, rev := string(ev.Kv.Key), uint64(ev.Kv.ModRevision)
	resource, object := resourceOf(key)
	var v *version
	if resource != "" && !isDelete(ev) {
		var err error
		if v, err = readVersion(resource, rev, ev.Kv.Value); err != nil {
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
		v = &version{Key: object, Rev: rev, Deleted: true, UID: list[len(list)-1].UID}
	}
	if v.Key != object {
		return fmt.Errorf("etcd %s at %d has the object %s", key, rev, v.Key)
	}
	if h.versions[resource] == nil {
		h.versions[resource] = make(map[objectKey][]*version)
		h.counts[resource] = make(map[string]int)
	}
	h.versions[resource][object] = append(h.versions[resource][object], v)
	h.counts[resource][object.Namespace]++
	return nil
}

func isDelete(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypeDelete }

// resourceOf is the resource and the object of a key of etcd, "" where the tests do not look at it.
func resourceOf(key string) (string, objectKey) {
	group, rest, _ := strings.Cut(strings.TrimPrefix(key, "/registry/"), "/")
	if strings.HasSuffix(group, "."+churnGroup) {
		plural, rest, _ := strings.Cut(rest, "/")
		namespace, name, _ := strings.Cut(rest, "/")
		resource := plural + "." + group
		return resource, objectKey{Resource: resource, Namespace: namespace, Name: name}
	}
	for prefix, resource := range prefixes {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			namespace, name, namespaced := strings.Cut(rest, "/")
			if !namespaced {
				namespace, name = "", rest
			}
			return resource, objectKey{Resource: resource, Namespace: namespace, Name: name}
		}
	}
	return "", objectKey{}
}

// etcdKey is the opposite of resourceOf.
func etcdKey(key objectKey) string {
	if plural, group := key.split(); strings.HasSuffix(group, "."+churnGroup) {
		return "/registry/" + group + "/" + plural + "/" + key.Namespace + "/" + key.Name
	}
	for prefix, resource := range prefixes {
		if resource == key.Resource {
			return prefix + strings.TrimPrefix(key.Namespace+"/"+key.Name, "/")
		}
	}
	return ""
}

// revision is etcd's revision now.
func (h *history) revision(ctx context.Context) (uint64, error) {
	resp, err := h.client.Get(ctx, "/none", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("etcd revision: %w", err)
	}
	return uint64(resp.Header.Revision), nil
}

// catchUp waits until the history has all that etcd has now, and returns the revision.
func (h *history) catchUp(ctx context.Context) (uint64, error) {
	rev, err := h.revision(ctx)
	if err != nil {
		return 0, err
	}
	return rev, await(ctx, time.Minute, func() error {
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

// of is the history of some resources so far.
func (h *history) of(resources ...string) map[objectKey][]*version {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[objectKey][]*version)
	for _, resource := range resources {
		maps.Copy(all, h.versions[resource])
	}
	return all
}

// ofObject is how many versions and deletions of one object there are so far: cheap enough to be looked at again and again.
func (h *history) ofObject(key objectKey) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.versions[key.Resource][key])
}

// count is how many versions and deletions of some resources there are so far.
func (h *history) count(resources ...string) int {
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

// countIn is count for one namespace, where other tests write to others.
func (h *history) countIn(namespace string, resources ...string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, resource := range resources {
		n += h.counts[resource][namespace]
	}
	return n
}

// changesIn counts the versions and deletions of all objects of some namespaces.
func (h *history) changesIn(namespaces ...string) func() uint64 {
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

// object is an object as of a revision, less what is stripped: to show what a record should have been.
func (h *history) object(ctx context.Context, key objectKey, rev uint64) (map[string]any, error) {
	resp, err := h.client.Get(ctx, etcdKey(key), clientv3.WithRev(int64(rev)))
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) == 0 {
		return nil, fmt.Errorf("etcd has no %s at %d", key, rev)
	}
	obj, err := decodeObject(resp.Kvs[0].Value)
	if err != nil {
		return nil, err
	}
	if meta, ok := obj["metadata"].(map[string]any); ok {
		meta["resourceVersion"] = formatRev(uint64(resp.Kvs[0].ModRevision))
	}
	strip(obj)
	return obj, nil
}
