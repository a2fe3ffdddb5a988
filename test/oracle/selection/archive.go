package selection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// Archived returns the resources that the agents of these tests observe, by their prefix in etcd.
func Archived() map[string]string {
	all := map[string]string{
		"/registry/leases/":              "leases.coordination.k8s.io",
		"/registry/endpointslices/":      "endpointslices.discovery.k8s.io",
		"/registry/statefulsets/":        "statefulsets.apps",
		"/registry/daemonsets/":          "daemonsets.apps",
		"/registry/controllerrevisions/": "controllerrevisions.apps",
	}
	maps.Copy(all, oracle.Prefixes)
	return all
}

// Version is one version of an object as etcd has it, or its deletion, for which Object is nil.
type Version struct {
	Key    oracle.ObjectKey
	Rev    uint64
	UID    string
	Labels map[string]string
	Object Tree // With its resourceVersion; nothing is stripped.

	version *oracle.Version // For changedBy.
}

// archive has the versions of all objects of some resources: those that existed at a revision, and
// all later ones.
type archive map[oracle.ObjectKey][]*Version

// ReadArchive reads an archive from etcd: the objects at revision from, and all changes up to
// until. etcd must have reached until.
func ReadArchive(t testing.TB, h *oracle.History, from, until uint64, resources ...string) archive {
	t.Helper()
	a := make(archive)
	wanted := Archived()
	maps.DeleteFunc(wanted, func(_, resource string) bool { return !slices.Contains(resources, resource) })
	for prefix, resource := range wanted {
		base, err := h.Client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(from)))
		if err != nil {
			t.Fatalf("etcd %s at %d: %v", prefix, from, err)
		}
		for _, kv := range base.Kvs {
			if err := a.add(prefix, resource, string(kv.Key), uint64(kv.ModRevision), kv.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.follow(t.Context(), h.Client, wanted, from, until); err != nil {
		t.Fatalf("etcd from %d until %d: %v", from, until, err)
	}
	return a
}

// follow watches all keys, because each revision has a key. So it always reads one at until or
// later, and then ends.
func (a archive) follow(
	ctx context.Context, client *clientv3.Client, wanted map[string]string, from, until uint64,
) error {
	if from >= until {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(),
		clientv3.WithRev(int64(from)+1), clientv3.WithFragment()) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			key, rev := string(ev.Kv.Key), uint64(ev.Kv.ModRevision)
			if rev > until {
				return nil
			}
			for prefix, resource := range wanted {
				if !strings.HasPrefix(key, prefix) {
					continue
				}
				value := ev.Kv.Value
				if oracle.IsDelete(ev) {
					value = nil
				}
				if err := a.add(prefix, resource, key, rev, value); err != nil {
					return err
				}
			}
			if rev == until {
				return nil
			}
		}
	}
	return fmt.Errorf("the watch has ended: %w", context.Cause(ctx))
}

func (a archive) add(prefix, resource, key string, rev uint64, value []byte) error {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	v := &Version{Key: oracle.ObjectKey{Resource: resource, Namespace: namespace, Name: name}, Rev: rev}
	if value == nil {
		list := a[v.Key]
		if len(list) == 0 {
			return fmt.Errorf("%s at %d: deletion of what there was not", v.Key, rev)
		}
		v.UID = list[len(list)-1].UID
		a[v.Key] = append(list, v)
		return nil
	}
	if err := v.decode(value); err != nil {
		return fmt.Errorf("%s at %d: %w", v.Key, rev, err)
	}
	a[v.Key] = append(a[v.Key], v)
	return nil
}

// decode sets the version's object from JSON.
func (v *Version) decode(raw []byte) error {
	var err error
	v.version, err = oracle.ReadVersion(v.Key.Resource, v.Rev, raw)
	if err != nil {
		return err
	}
	v.Object, err = oracle.DecodeObject(raw)
	if err != nil {
		return err
	}
	v.UID, v.Labels = v.version.UID, v.version.Labels
	v.Object["metadata"].(Tree)["resourceVersion"] = oracle.FormatRev(v.Rev)
	return nil
}

// last returns the version of an object at a revision, or nil if the object did not exist.
func (a archive) last(key oracle.ObjectKey, rev uint64) *Version {
	var last *Version
	for _, v := range a[key] {
		if v.Rev > rev {
			break
		}
		last = v
		if v.Object == nil {
			last = nil
		}
	}
	return last
}
