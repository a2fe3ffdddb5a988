package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/discovery"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Discover returns each resource that can be listed and watched once, with its preferred version
// first, and the others with their verbs. A group that is not answered is unknown.
func TestDiscover(t *testing.T) {
	s := newServer()
	ok := func(path, body string) { s.answers[path] = answer{http.StatusOK, body} }
	ok("/api", `{"kind":"APIVersions","versions":["v1"]}`)
	ok("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[`+
		`{"name":"apps","versions":[{"groupVersion":"apps/v1beta1","version":"v1beta1"},{"groupVersion":"apps/v1","version":"v1"}],`+
		`"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},`+
		`{"name":"shop.test","versions":[{"groupVersion":"shop.test/v1","version":"v1"}],"preferredVersion":{"groupVersion":"shop.test/v1","version":"v1"}}]}`)
	ok("/api/v1", `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+
		`{"name":"pods","namespaced":true,"kind":"Pod","verbs":["list","watch"]},{"name":"pods/log","namespaced":true,"kind":"Pod","verbs":["get"]},`+
		`{"name":"bindings","namespaced":true,"kind":"Binding","verbs":["create"]},{"name":"nodes","kind":"Node","verbs":["get","list","watch"]}]}`)
	for _, v := range []string{"v1", "v1beta1"} {
		ok("/apis/apps/"+v, `{"kind":"APIResourceList","groupVersion":"apps/`+v+`","resources":[`+
			`{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["list","watch"]}]}`)
	}
	s.fail("/apis/shop.test/v1", http.StatusServiceUnavailable, "ServiceUnavailable")
	got, err := discovery.Discover(t.Context(), s.client(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &discovery.Served{
		Resources: []selection.APIResource{
			{Name: "pods", Versions: []object.Resource{{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}}},
			{Name: "nodes", Versions: []object.Resource{{Version: "v1", Name: "nodes", Kind: "Node"}}},
			{Group: "apps", Name: "deployments", Versions: []object.Resource{
				{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true},
				{Group: "apps", Version: "v1beta1", Name: "deployments", Kind: "Deployment", Namespaced: true},
			}},
		},
		Unwatchable: []selection.Unwatchable{{
			Resource: object.Resource{Version: "v1", Name: "bindings", Kind: "Binding", Namespaced: true},
			Verbs:    []string{"create"},
		}},
		Unknown: []string{"shop.test/v1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}

// taggedServer serves two documents with entity tags.
type taggedServer struct {
	*server
	groups string // the tag of the second one
	same   int    // answers without a document
}

func (s *taggedServer) RoundTrip(r *http.Request) (*http.Response, error) {
	tag, group := "\"core\"", ""
	if r.URL.Path == "/apis" {
		tag, group = "\""+s.groups+"\"", s.groups
	}
	if r.Header.Get("If-None-Match") == tag {
		s.same++
		return response(http.StatusNotModified, http.NoBody), nil
	}
	s.counts[r.URL.Path]++
	answer := response(http.StatusOK,
		io.NopCloser(
			strings.NewReader(fmt.Sprintf(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",`+
				`"items":[{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[{"resource":"things","scope":"Cluster",`+
				`"responseKind":{"group":%[1]q,"version":"v1","kind":"Thing"},"verbs":["list","watch"]}]}]}]}`,
				group))))
	answer.Header = http.Header{"Content-Type": {
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	}, "Etag": {tag}}
	return answer, nil
}

// While the documents of the API server are the same, they are not read again.
func TestFinderReadsWhatHasChanged(t *testing.T) {
	s := &taggedServer{server: newServer(), groups: "a.test"}
	c, err := apiserver.New(&rest.Config{Host: "http://api", Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	f := discovery.NewFinder(c)
	for n, step := range []struct {
		group string
		read  int // documents, so far
	}{{"a.test", 2}, {"a.test", 2}, {"a.test", 2}, {"b.test", 4}, {"b.test", 4}, {"a.test", 6}} {
		s.groups = step.group
		got, err := f.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != 2 || got.Resources[1].Group != step.group {
			t.Errorf("step %d: %+v, want a resource of %s", n, got, step.group)
		}
		// A changed document is asked for twice.
		if read := s.counts["/api"] + s.counts["/apis"]; read < step.read || read > step.read+n {
			t.Errorf("step %d: %d documents were read, want %d", n, read, step.read)
		}
	}
	if s.same < 6 {
		t.Errorf("%d documents were the same", s.same)
	}
}

// A group that is not answered on a live connection is unknown after a while. If the caller does
// not wait so long, nothing is known: the partial answer has no groups, and would mean that nothing
// else is served.
func TestDiscoverAGroupThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		ok := func(path, body string) { s.answers[path] = answer{http.StatusOK, body} }
		ok("/api", `{"kind":"APIVersions","versions":["v1"]}`)
		ok("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"shop.test",`+
			`"versions":[{"groupVersion":"shop.test/v1","version":"v1"}],"preferredVersion":{"groupVersion":"shop.test/v1","version":"v1"}}]}`)
		ok("/api/v1",
			`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node","verbs":["list","watch"]}]}`)
		s.answers["/apis/shop.test/v1"] = answer{}
		began := time.Now()
		got, err := discovery.Discover(t.Context(), s.client(t))
		took := time.Since(began)
		if err != nil || len(got.Resources) != 1 || !slices.Equal(got.Unknown, []string{"shop.test/v1"}) ||
			took > time.Minute {
			t.Errorf("served %+v, %v after %v; want nodes within a minute", got, err, took)
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if got, err := discovery.Discover(short, s.client(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("served %+v, %v; want the end of the context", got, err)
		}
	})
}

// A resource may be read if it may be listed and watched. After a failed question, the answers to
// others are kept.
func TestReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.reviews = func(body string) (int, bool) {
			if strings.Contains(body, `"broken"`) {
				return http.StatusInternalServerError, false
			}
			return http.StatusCreated, strings.Contains(body, `"open"`) ||
				strings.Contains(body, `"listOnly"`) && strings.Contains(body, `"list"`) ||
				strings.Contains(body, `"watchOnly"`) && strings.Contains(body, `"watch"`)
		}
		var all []*discovery.Access
		for _, namespace := range []string{"open", "listOnly", "watchOnly", "shut"} {
			all = append(all, &discovery.Access{Resource: *widgets(), Namespace: namespace})
		}
		if err := discovery.Review(t.Context(), s.client(t), all); err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, false, false} {
			if !all[i].Answered || all[i].Allowed != want {
				t.Errorf("%s: %+v, want %t", all[i].Namespace, all[i], want)
			}
		}
		broken := &discovery.Access{Resource: *widgets(), Namespace: "broken"}
		if err := discovery.Review(t.Context(), s.client(t), append(all, broken)); err == nil || broken.Answered {
			t.Errorf("error %v, answered %t; want an error, false", err, broken.Answered)
		}
	})
}
