package apiview_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// client-go's discovery finds the captured resources, with the names that the CRDs of the moment
// say, in both of its forms.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	config := serve(t, &apiview.Server{Root: cluster().view()})
	want := []string{
		"apiextensions.k8s.io/v1 customresourcedefinitions customresourcedefinition CustomResourceDefinition false [crd crds] [api-extensions]",
		"apps/v1 deployments deployment Deployment true [deploy] [all]",
		"authentication.k8s.io/v1 selfsubjectreviews selfsubjectreview SelfSubjectReview false [] []",
		"authentication.k8s.io/v1 tokenreviews tokenreview TokenReview false [] []",
		"authorization.k8s.io/v1 selfsubjectaccessreviews selfsubjectaccessreview SelfSubjectAccessReview false [] []",
		"authorization.k8s.io/v1 selfsubjectrulesreviews selfsubjectrulesreview SelfSubjectRulesReview false [] []",
		"demo.example.com/v1 gadgets gadget Gadget false [] []",
		"demo.example.com/v1 widgets widget Widget true [wd] [demo]",
		"rbac.authorization.k8s.io/v1 roles role Role true [] []",
		"v1 configmaps configmap ConfigMap true [cm] []",
		"v1 namespaces namespace Namespace false [ns] []",
		"v1 pods pod Pod true [po] [all]",
		"v1 secrets secret Secret true [] []",
	}
	for _, plain := range []bool{false, true} {
		d, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		d.UseLegacyDiscovery = plain
		lists, err := d.ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lists {
			for _, r := range l.APIResources {
				got = append(got,
					fmt.Sprint(l.GroupVersion, " ", r.Name, " ", r.SingularName, " ", r.Kind, " ", r.Namespaced, " ",
						r.ShortNames, " ", r.Categories))
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("plain: %v: -want +got\n%s", plain, diff)
		}
		groups, err := restmapper.GetAPIGroupResources(d)
		if err != nil {
			t.Fatal(err)
		}
		gvk, err := restmapper.NewDiscoveryRESTMapper(groups).KindFor(schema.GroupVersionResource{Resource: "widget"})
		if err != nil || gvk.Kind != "Widget" {
			t.Errorf("plain: %v: widget is %v, %v", plain, gvk, err)
		}
		if version, err := d.ServerVersion(); err != nil || version.Major != "1" {
			t.Errorf("version %v, %v", version, err)
		}
	}
}

// The address list of /api is one, also if it is empty: some clients iterate over it.
func TestVersionsOfTheCoreGroup(t *testing.T) {
	t.Parallel()
	w := ask(t.Context(), &apiview.Server{Root: cluster().view(), Token: token}, "GET", "/api", "", "")
	if !strings.Contains(w.Body.String(), `"serverAddressByClientCIDRs":[]`) {
		t.Error(w.Body)
	}
}

func names(t *testing.T, w *httptest.ResponseRecorder) []string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	out := []string{}
	for _, o := range list.Items {
		out = append(out, o.Namespace+"/"+o.Name)
	}
	return out
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	pods := []string{"shop-b/db-0", "shop/web-0", "shop/web-1"} // the order of etcd's keys
	for _, c := range []struct {
		path, query string
		want        []string
	}{
		{"/api/v1/pods", "", pods},
		{"/api/v1/namespaces/shop/pods", "", pods[1:]},
		{"/api/v1/namespaces/none/pods", "", []string{}},
		{"/api/v1/pods", "labelSelector=app=web", pods[1:]},
		{"/api/v1/pods", "labelSelector=app in (web,db),!tier", []string{pods[0], pods[2]}},
		{"/api/v1/pods", "fieldSelector=spec.nodeName=n1", pods[:2]},
		{"/api/v1/pods", "fieldSelector=spec.host=n2", pods[2:]},
		{"/api/v1/pods", "fieldSelector=status.phase!=Running", []string{pods[0], pods[2]}},
		{"/api/v1/pods", "fieldSelector=metadata.name=web-0,metadata.namespace=shop", pods[1:2]},
		{"/api/v1/pods", "fieldSelector=status.podIP=,spec.hostNetwork=false", pods},
		{"/api/v1/pods", "fieldSelector=status.podIPs=10.0.0.1", pods[1:2]},
		{"/api/v1/secrets", "fieldSelector=type=Opaque", []string{"shop/hashed", "shop/removed"}},
		{"/apis/demo.example.com/v1/widgets", "fieldSelector=spec.color=red", []string{"shop/gear"}},
		{"/api/v1/configmaps", "", []string{}},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if key, value, ok := strings.Cut(c.query, "="); ok {
			query = url.Values{key: {value}}
		}
		w := ask(t.Context(), s, "GET", c.path+"?"+query.Encode(), "", "")
		if w.Code != 200 {
			t.Errorf("%s %s: %d %s", c.path, c.query, w.Code, w.Body)
			continue
		}
		if diff := cmp.Diff(c.want, names(t, w)); diff != "" {
			t.Errorf("%s %s: -want +got\n%s", c.path, c.query, diff)
		}
	}
}

// Errors are those of kube-apiserver.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	foreign := base64.RawURLEncoding.EncodeToString(
		[]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"pods/shop/web-0\u0000"}`))
	other := base64.RawURLEncoding.EncodeToString(
		[]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"secrets/shop/web-0\u0000"}`))
	table := "application/json;as=Table;g=meta.k8s.io;v=v1"
	for _, c := range []struct {
		method, path, accept string
		code                 int32
		reason               metav1.StatusReason
		message              string
	}{
		{"GET", "/api/v1/namespaces/shop/pods/none", "", 404, "NotFound", `pods "none" not found`},
		{
			"GET", "/apis/apps/v1/namespaces/shop/deployments/none", table, 404, "NotFound",
			`deployments.apps "none" not found`,
		},
		{"GET", "/api/v1/nodes", "", 404, "NotFound", "the server could not find the requested resource"},
		{"GET", "/apis/none.io/v1", "", 404, "NotFound", "the server could not find the requested resource"},
		{"GET", "/apis/apps/v2", "", 404, "NotFound", "the server could not find the requested resource"},
		{
			"GET", "/apis/apps/v1beta1/deployments", "", 404, "NotFound",
			"the server could not find the requested resource",
		},
		{"GET", "/api/v1/pods/web-0", "", 404, "NotFound", "the server could not find the requested resource"},
		{"GET", "/api/v1/namespaces/shop/pods/web-0/log", "", 404, "NotFound", "the record has no log of pods"},
		{"GET", "/nothing", "", 404, "NotFound", "the server could not find the requested resource"},
		{
			"POST", "/api/v1/namespaces/shop/pods", "", 405, "MethodNotAllowed",
			"the past cannot be changed: this API shows the record at now and is read-only",
		},
		{
			"DELETE", "/api/v1/namespaces/shop/pods/web-0", "", 405, "MethodNotAllowed",
			"the past cannot be changed: this API shows the record at now and is read-only",
		},
		{
			"GET", "/api/v1/pods", "application/vnd.kubernetes.protobuf", 406, "NotAcceptable",
			"only the following media types are accepted: application/json, application/yaml",
		},
		{
			"GET", "/api/v1/pods", "application/json;as=Foo;g=meta.k8s.io;v=v1", 406, "NotAcceptable",
			"only the following media types are accepted: application/json, application/yaml",
		},
		{
			"GET", "/apis", "text/html", 406, "NotAcceptable",
			"only the following media types are accepted: application/json",
		},
		{
			"GET", "/api/v1/pods?fieldSelector=spec.foo%3D1", "", 400, "BadRequest",
			"field label not supported: spec.foo",
		},
		{
			"GET", "/apis/apps/v1/deployments?fieldSelector=spec.foo%3D1", "", 400, "BadRequest",
			`"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
		{
			"GET", "/api/v1/pods?labelSelector=a%20b%20c", "", 400, "BadRequest",
			"unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
		},
		{"GET", "/api/v1/pods?limit=x", "", 400, "BadRequest", `strconv.ParseInt: parsing "x": invalid syntax`},
		{
			"GET", "/api/v1/pods?limit=1&continue=abc", "", 400, "BadRequest",
			"invalid continue token: continue key is not valid: invalid character 'i' looking for beginning of value",
		},
		{
			"GET", "/api/v1/pods?continue=" + other, "", 400, "BadRequest",
			"invalid continue token: continue key is not valid: of another API",
		},
		{
			"GET", "/api/v1/pods?continue=" + foreign, "", 410, "Expired",
			"The provided continue parameter is of another moment: start a new list without it.",
		},
		{
			"GET", "/api/v1/pods?resourceVersion=abc", "", 400, "BadRequest",
			`invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`,
		},
		{
			"GET", "/api/v1/pods?resourceVersion=9999", "", 504, "Timeout",
			"Timeout: Too large resource version: 9999, current: 109",
		},
		{
			"GET", "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", "", 410, "Expired",
			"the view of this moment has resourceVersion 109 of pods and no other: ask for the moment rv:7",
		},
		{
			"GET", "/api/v1/pods?resourceVersionMatch=Exact", "", 422, "Invalid",
			`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`,
		},
		{"GET", "/api/v1/pods?includeObject=x", table, 400, "BadRequest", `unrecognized includeObject value: "x"`},
		{
			"GET", "/api/v1/pods?watch=1&sendInitialEvents=true", "", 422, "Invalid",
			`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan`,
		},
		{
			"GET", "/at/2026-11-20T14:05:00Z/api/v1/pods", "", 404, "NotFound",
			"the server could not find the requested resource",
		},
	} {
		w := ask(t.Context(), s, c.method, c.path, c.accept, "")
		var got metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s %s: %v: %s", c.method, c.path, err, w.Body)
			continue
		}
		if w.Code != int(c.code) || got.Code != c.code || got.Reason != c.reason || got.Message != c.message ||
			got.Kind != "Status" {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

// Without the token every request is 401, also one for a moment.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{
		Root:  cluster().view(),
		Token: token,
		Open: func(context.Context, timeline.Moment) (*apiview.View, error) {
			return nil, errors.New("opened without the token")
		},
	}
	for _, path := range []string{
		"/", "/healthz", "/version", "/api", "/apis", "/api/v1/pods", "/nothing", "/at/rv:7/api/v1/pods",
		"/at/nonsense",
	} {
		for _, header := range []string{
			"", "Bearer", "Bearer ", "Bearer the-token2", "Bearer the-toke", "Basic dGhlLXRva2VuOg==", "the-token",
		} {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1"+path, nil)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "Unauthorized") ||
				strings.Contains(w.Body.String(), "opened") {
				t.Errorf("%s with %q: %d %s", path, header, w.Code, w.Body)
			}
		}
	}
}

// A list page by page is the list, in the order of etcd.
func TestPages(t *testing.T) {
	t.Parallel()
	r := &record{}
	var objects, want []string
	for i := range 53 {
		objects = append(objects,
			objectJSON("ConfigMap", []string{"a", "a-b", "b"}[i%3], fmt.Sprintf("cm-%02d", i), `"data":{"k":"v"}`))
		want = append(want, fmt.Sprintf("%s/cm-%02d", []string{"a", "a-b", "b"}[i%3], i))
	}
	slices.Sort(want)
	r.resource("v1", "configmaps", objects...)
	client, err := dynamic.NewForConfig(serve(t, &apiview.Server{Root: r.view()}))
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	for _, limit := range []int64{0, 1, 7, 53, 100} {
		var got []string
		var next string
		for {
			list, err := maps.List(t.Context(), metav1.ListOptions{Limit: limit, Continue: next})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				got = append(got, o.GetNamespace()+"/"+o.GetName())
			}
			next = list.GetContinue()
			if next == "" {
				break
			}
			if left := list.GetRemainingItemCount(); left == nil || int(*left) != len(want)-len(got) {
				t.Fatalf("limit %d after %d: %v remain", limit, len(got), left)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d: -want +got\n%s", limit, diff)
		}
	}
	_, err = maps.List(t.Context(), metav1.ListOptions{
		Limit:    5,
		Continue: "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJjb25maWdtYXBzL2EifQ",
	})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a token of another moment: %v", err)
	}
}

// Moments are read once, as long as they are among the last ones.
func TestMoments(t *testing.T) {
	t.Parallel()
	r := cluster()
	var opened []string
	s := &apiview.Server{
		Root:       r.view(),
		Token:      token,
		MaxMoments: 2,
		Open: func(_ context.Context, at timeline.Moment) (*apiview.View, error) {
			opened = append(opened, at.String())
			if at.Time().Year() == 2001 {
				return nil, apierrors.NewResourceExpired("the moment is before the record")
			}
			return apiview.NewView(r.state(at), apiview.Options{Now: start}), nil
		},
	}
	for _, c := range []struct {
		path string
		code int
		want int
	}{
		{"/at/rv:107/api/v1/pods", 200, 2},
		{"/at/rv:109/api/v1/pods", 200, 3},
		{"/at/rv:107/api/v1/pods", 200, 2},
		{"/at/2026-11-20T14:30:00Z/api/v1/pods", 200, 3},
		{"/at/rv:107/api/v1/pods", 200, 2},
		{"/at/rv:109/api/v1/pods", 200, 3},
		{"/at/rv:109/h1/api/v1/pods", 200, 3},
		{"/at/2001-01-01T00:00:00Z/api/v1/pods", 410, 0},
		{"/at/rv:109/api/v1/pods", 200, 3},
		{"/at/14:05/api/v1/pods", 400, 0},
		{"/at/2999-01-01T00:00:00Z/api/v1/pods", 400, 0},
		{"/at//api/v1/pods", 400, 0},
	} {
		w := ask(t.Context(), s, "GET", c.path, "", "")
		if w.Code != c.code || c.code == 200 && len(names(t, w)) != c.want {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
	want := []string{"rv:107", "rv:109", "2026-11-20T14:30:00Z", "rv:109", "rv:109/h1", "2001-01-01T00:00:00Z"}
	if diff := cmp.Diff(want, opened); diff != "" {
		t.Errorf("opened: -want +got\n%s", diff)
	}
}

// While a moment is read, others are served. One that cannot be read takes no place in memory, and
// its error is the answer.
func TestMomentsAreServedWhileOneIsRead(t *testing.T) {
	t.Parallel()
	r := cluster()
	begun, release := make(chan struct{}), make(chan struct{})
	opened := map[string]int{}
	s := &apiview.Server{
		Token:      token,
		MaxMoments: 1,
		Open: func(_ context.Context, at timeline.Moment) (*apiview.View, error) {
			opened[at.String()]++
			switch at.String() {
			case "rv:105":
				return nil, errors.New("the bus is away")
			case "rv:109":
				close(begun)
				<-release
			}
			return apiview.NewView(r.state(at), apiview.Options{Now: start}), nil
		},
	}
	ask(t.Context(), s, "GET", "/at/rv:107/api/v1/pods", "", "")
	w := ask(t.Context(), s, "GET", "/at/rv:105/api/v1/pods", "", "")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), `"reason":"ServiceUnavailable"`) ||
		!strings.Contains(w.Body.String(), "the bus is away") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	var reading sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			if w := ask(t.Context(), s, "GET", "/at/rv:109/api/v1/pods", "", ""); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	<-begun
	done := make(chan int, 1)
	go func() { done <- ask(t.Context(), s, "GET", "/at/rv:107/api/v1/pods", "", "").Code }()
	select {
	case code := <-done:
		if code != 200 {
			t.Errorf("answer %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("a moment in memory waits for another one that is read")
	}
	close(release)
	reading.Wait()
	if diff := cmp.Diff(map[string]int{"rv:105": 1, "rv:107": 1, "rv:109": 1}, opened); diff != "" {
		t.Errorf("opened: -want +got\n%s", diff)
	}
}

// A list that fails after a part of it has been sent ends the connection, so that no client takes
// the part for the whole.
func TestListThatFailsIsNoShorterList(t *testing.T) {
	t.Parallel()
	r := &record{}
	var objects []string
	for i := range 3000 {
		objects = append(objects, objectJSON("ConfigMap", "shop", fmt.Sprintf("cm-%04d", i), ""))
	}
	r.resource("v1", "configmaps", objects...)
	r.events[len(r.events)-2].Data.After = json.RawMessage(`{"metadata":`)
	config := serve(t, &apiview.Server{Root: r.view()})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	response, err := (&http.Client{Transport: config.Transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != 200 || err == nil {
		t.Errorf("%s, no error after %d bytes: …%s", response.Status, len(body), body[max(len(body)-200, 0):])
	}
}

// A list at a resourceVersion has it.
func TestListHasTheVersionOfTheMoment(t *testing.T) {
	t.Parallel()
	r := cluster()
	v := apiview.NewView(r.state(timeline.AtVersion(109, 0)), apiview.Options{
		Now: start, Warn: func(s *certainty.Scope) []string { return []string{s.Name + ` is "uncertain"`} },
	})
	w := ask(t.Context(), &apiview.Server{Root: v, Token: token}, "GET", "/api/v1/pods", "", "")
	if !strings.Contains(w.Body.String(), `"metadata":{"resourceVersion":"109"}`) {
		t.Error(w.Body)
	}
	if got := w.Header().Get("Warning"); got != `299 - "pods is \"uncertain\""` {
		t.Errorf("warning: %s", got)
	}
}

// Redacted values of Secrets are base64, so that typed clients can read them.
func TestRedactedSecretCanBeDecoded(t *testing.T) {
	t.Parallel()
	w := ask(t.Context(), &apiview.Server{Root: cluster().view(), Token: token}, "GET",
		"/api/v1/namespaces/shop/secrets/hashed", "", "")
	var secret struct{ Data map[string][]byte }
	if err := json.Unmarshal(w.Body.Bytes(), &secret); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"password": []byte("hmac-sha256:0a1b2c3d:abc"), "user": []byte("a")},
		secret.Data); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A server without a token answers nobody.
func TestNoToken(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/version", nil)
	r.Header.Set("Authorization", "Bearer ")
	w := httptest.NewRecorder()
	(&apiview.Server{Root: cluster().view()}).ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReviews(t *testing.T) {
	t.Parallel()
	s := &apiview.Server{Root: cluster().view(), Token: token}
	for verb, want := range map[string]string{
		"list":   `"status":{"allowed":true}`,
		"delete": `"status":{"allowed":false,"reason":"the past is read-only"}`,
	} {
		w := ask(t.Context(), s, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "",
			`{"spec":{"resourceAttributes":{"verb":"`+verb+`","resource":"pods"}}}`)
		if w.Code != http.StatusCreated || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", verb, w.Code, w.Body)
		}
	}
	for subresource, want := range map[string]string{
		"status": `"allowed":true`,
		"log":    `"allowed":false,"reason":"the record has no log of pods"`,
	} {
		w := ask(t.Context(), s, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "",
			`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods","subresource":"`+subresource+`"}}}`)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", subresource, w.Body)
		}
	}
	w := ask(t.Context(), s, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "",
		`{"spec":{"namespace":"shop"}}`)
	if w.Code != http.StatusCreated ||
		!strings.Contains(w.Body.String(),
			`"resourceRules":[{"verbs":["get","list","watch"],"apiGroups":["*"],"resources":["*"]}]`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = ask(t.Context(), s, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "", "no review")
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = ask(t.Context(), s, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "", `{}`)
	if w.Code != http.StatusCreated || !strings.Contains(w.Body.String(), `"userInfo":{"username":"kubecdc"}`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for of, want := range map[string]string{
		token:   `"authenticated":true,"user":{"username":"kubecdc"}`,
		"other": `"error":"the past knows`,
	} {
		w = ask(t.Context(), s, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "",
			`{"spec":{"token":"`+of+`"}}`)
		if w.Code != http.StatusCreated || !strings.Contains(w.Body.String(), want) {
			t.Errorf("token %s: %d %s", of, w.Code, w.Body)
		}
	}
}
