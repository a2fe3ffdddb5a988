package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
)

// Served has the objects that the API server sends to a watch of client-go. Comparing them with
// etcd's values, after adding the resourceVersion, shows that the tests may use etcd's values
// instead.
type Served struct {
	from uint64

	mu       sync.Mutex
	versions map[oracle.ObjectKey][]*oracle.Version
	reached  map[string]uint64 // By resource.
	errs     []error
}

// Serve watches the resources from now on until the test ends.
func Serve(t testing.TB, p *Plane, resources ...string) *Served {
	t.Helper()
	client, err := dynamic.NewForConfig(p.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	s := &Served{
		from:     p.Now(t),
		versions: make(map[oracle.ObjectKey][]*oracle.Version),
		reached:  make(map[string]uint64),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, resource := range resources {
		wg.Go(func() {
			if err := s.watch(ctx, client, resource); err != nil && ctx.Err() == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, fmt.Errorf("stock watch of %s: %w", resource, err))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		for _, err := range s.errs {
			t.Error(err)
		}
	})
	return s
}

func gvr(resource string) schema.GroupVersionResource {
	plural, group, _ := strings.Cut(resource, ".")
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// watch opens a new watch whenever the server closes one.
func (s *Served) watch(ctx context.Context, client dynamic.Interface, resource string) error {
	rev := s.from
	for ctx.Err() == nil {
		w, err := client.Resource(gvr(resource)).Watch(ctx, metav1.ListOptions{ResourceVersion: oracle.FormatRev(rev)})
		if err != nil {
			return err
		}
		for ev := range w.ResultChan() {
			o, ok := ev.Object.(*unstructured.Unstructured)
			if !ok || ev.Type == watch.Error {
				w.Stop()
				return fmt.Errorf("%s: %v", ev.Type, ev.Object)
			}
			v, err := oracle.NewVersion(resource, 0, o.Object)
			if err != nil {
				w.Stop()
				return err
			}
			v.Deleted = ev.Type == watch.Deleted
			rev = v.Rev
			s.mu.Lock()
			s.versions[v.Key] = append(s.versions[v.Key], v)
			s.reached[resource] = rev
			s.mu.Unlock()
		}
		w.Stop()
	}
	return ctx.Err()
}

// Compare waits until the watches have reached the history's last change up to the revision until,
// and returns the differences.
func (s *Served) Compare(t testing.TB, history map[oracle.ObjectKey][]*oracle.Version, until uint64) []oracle.Fault {
	t.Helper()
	last := make(map[string]uint64)
	for key, versions := range history {
		for _, v := range versions {
			if v.Rev <= until {
				last[key.Resource] = max(last[key.Resource], v.Rev)
			}
		}
	}
	wait.Eventually(t, time.Minute, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for resource, rev := range last {
			if rev > s.from && s.reached[resource] < rev {
				return fmt.Errorf("the stock watch of %s has reached %d of %d: %w", resource, s.reached[resource], rev,
					errors.Join(s.errs...))
			}
		}
		return nil
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []oracle.Fault
	for key, versions := range history {
		got := s.versions[key]
		for _, want := range versions {
			if want.Rev <= s.from || want.Rev > until {
				continue
			}
			text := ""
			switch {
			case len(got) == 0:
				text = "the stock watch has nothing"
			case got[0].Rev != want.Rev || got[0].Deleted != want.Deleted || got[0].UID != want.UID:
				text = fmt.Sprintf("etcd has uid %s (deleted: %t), the stock watch revision %d, uid %s (deleted: %t)",
					want.UID, want.Deleted, got[0].Rev, got[0].UID, got[0].Deleted)
			case !want.Deleted && got[0].Digest != want.Digest:
				text = "the API server serves something else than etcd has"
			}
			if text != "" {
				faults = append(faults, oracle.Fault{
					Kind: "served",
					Key:  key,
					Rev:  want.Rev,
					Text: text,
				})
				break
			}
			got = got[1:]
		}
	}
	return faults
}
