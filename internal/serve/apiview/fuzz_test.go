package apiview_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// requests makes requests from the words of real ones, in any order.
type requests struct {
	*rand.Rand
	tokens []string // continue tokens for lists, as the server made them
}

func (r requests) one(words ...string) string { return words[r.IntN(len(words))] }

func (r requests) path() string {
	var out []string
	for range 1 + r.IntN(7) {
		out = append(out,
			r.one("api", "apis", "v1", "apps", "pods", "namespaces", "shop", "web-0", "deployments", "status", "log",
				"widgets",
				"demo.example.com", "customresourcedefinitions", "at", "rv:107", "h1", "2026-11-20T14:30:00Z", "", ".",
				"%00", "é", "watch", "version",
				"authorization.k8s.io", "selfsubjectaccessreviews", strings.Repeat("x", 300)))
	}
	return "/" + strings.Join(out, "/")
}

func (r requests) known() string {
	return r.one("/api/v1/pods", "/api/v1/namespaces/shop/pods", "/api/v1/secrets", "/apis/apps/v1/deployments",
		"/apis/demo.example.com/v1/widgets",
		"/at/rv:107/api/v1/pods", "/api", "/apis", "/apis/apps", "/api/v1/namespaces/shop/pods/web-0",
		"/apis/demo.example.com/v1/gadgets",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
}

func (r requests) query() string {
	q := url.Values{}
	for range r.IntN(5) {
		key := r.one("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch",
			"watch", "allowWatchBookmarks",
			"sendInitialEvents", "timeoutSeconds", "includeObject", "pretty")
		if key == "continue" && r.IntN(2) == 0 {
			q.Add(key, r.token())
			continue
		}
		q.Add(key,
			r.one("", "0", "1", "-1", "true", "false", "a=b", "app=web", "app in (web", "app in (web,db)", "!app",
				"spec.nodeName=n1", "metadata.name!=x",
				"spec.containers=1", "status.podIPs=", "spec.color=red", "Exact", "NotOlderThan", "Object", "None",
				"Table",
				"9223372036854775807", "18446744073709551616", "abc",
				"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTA5LCJzdGFydCI6InBvZHMvc2hvcC93ZWItMFx1MDAwMCJ9", "eyJ2IjoxfQ",
				"e30",
				"=", ",", "=,!=", "\x00", "\xff"))
	}
	return q.Encode()
}

// token returns a token of the server, or one that differs from it.
func (r requests) token() string {
	token := r.one(r.tokens...)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	at := r.IntN(len(raw))
	switch r.IntN(6) {
	case 0:
		raw[at] ^= 1 << r.IntN(8)
	case 1:
		raw = raw[:at]
	case 2:
		raw = slices.Insert(raw, at, raw[r.IntN(len(raw)):]...)
	case 3:
		raw = regexp.MustCompile(`"rv":[0-9]+`).
			ReplaceAll(raw,
				[]byte(
					`"rv":`+
						r.one("0", "1", "-1", "105", "109", "150", "18446744073709551615", "18446744073709551616",
							"1.5", "null")))
	case 4:
		raw = regexp.MustCompile(`"start":"[a-z.]+/`).
			ReplaceAll(raw, []byte(`"start":"`+r.one("", "/", "pods/", "pods/shop/web-1/", "podsx/", "secrets/\u0000")))
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (r requests) accept() string {
	var out []string
	for range r.IntN(3) {
		out = append(out,
			r.one("*/*", "application/json", "application/json;as=Table;g=meta.k8s.io;v=v1",
				"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
				"application/vnd.kubernetes.protobuf", "application/json;q=0", "application/json;q=x",
				"text/html;level=1",
				";;;", "application/json;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
				"application/json;as=", "application/yaml", "application/*;q=0.5"))
	}
	return strings.Join(out, ",")
}

// No request causes a panic or a 5xx code, except 504 for a resourceVersion in the future. The
// server's memory does not grow.
func TestRequestsOfAllKinds(t *testing.T) {
	t.Parallel()
	r := cluster()
	s := &apiview.Server{
		Root:       r.view(),
		Token:      token,
		MaxMoments: 3,
		Open: func(_ context.Context, at timeline.Moment) (*apiview.View, error) {
			return apiview.NewView(r.state(at), apiview.Options{Now: start}), nil
		},
	}
	codes := askAnything(t, s, requestsSeed(t), 10_000)
	for _, code := range []int{200, 201, 400, 404, 405, 406, 410, 422} {
		if codes[code] == 0 {
			t.Errorf("no answer %d: the requests show little: %v", code, codes)
		}
	}
}

// A server answers requests of all kinds before, during and after a replay.
func TestRequestsDuringAReplay(t *testing.T) {
	t.Parallel()
	seed := requestsSeed(t)
	synctest.Test(t, func(t *testing.T) {
		r := cluster()
		from := r.next
		for i := range 40 {
			text := objectJSON("Pod", "shop", fmt.Sprint("web-", i%5), fmt.Sprintf(`"spec":{"nodeName":"n%d"}`, i))
			r.object([]consume.Op{consume.Created, consume.Updated, consume.Deleted}[i/5%3], "v1", "pods", text)
			r.object(consume.Updated, "demo.example.com/v1", "widgets",
				objectJSON("Widget", "shop", "gear", `"spec":{"color":"red"}`))
		}
		r.resource("example.com/v1", "things", objectJSON("Thing", "shop", "new", ""))
		v := following(t, r, from)
		s := &apiview.Server{Root: v, Token: token}
		askAnything(t, s, seed, 2_000)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		played := make(chan int)
		go func() {
			n, _ := v.Play(ctx, 1, func() {})
			played <- n
		}()
		// the changes are one second apart
		<-time.After(2*time.Second + time.Duration(from+40)*time.Second + time.Millisecond)
		askAnything(t, s, seed, 2_000)
		cancel()
		if n := <-played; n != 40 {
			t.Errorf("%d changes have been shown", n)
		}
	})
	v := rollout(t)
	s := &apiview.Server{Root: v, Token: token}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ask(ended, s, "GET", "/api/v1/configmaps?watch=1", "", "")
	if _, err := v.Play(t.Context(), 0, func() {}); err != nil {
		t.Fatal(err)
	}
	askAnything(t, s, seed, 2_000)
}

// requestsSeed returns the seed for the requests. REQUESTS_SEED=n repeats the requests of the run
// that printed n.
func requestsSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("REQUESTS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("REQUESTS_SEED=%q: %v", text, err)
		}
	}
	t.Logf("REQUESTS_SEED=%d", seed)
	return seed
}

// pageTokens returns the tokens of the first pages of the lists of a server.
func pageTokens(t *testing.T, s *apiview.Server) []string {
	t.Helper()
	var out []string
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/pods", "/api/v1/namespaces", "/api/v1/secrets", "/api/v1/configmaps",
		"/apis/demo.example.com/v1/widgets",
	} {
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(ask(t.Context(), s, "GET", path+"?limit=1", "", "").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		if list.Continue != "" {
			out = append(out, list.Continue)
		}
	}
	if len(out) == 0 {
		t.Fatal("no list has a second page")
	}
	return out
}

// askAnything makes n requests of all kinds, and returns the number of answers by code.
func askAnything(t *testing.T, s *apiview.Server, seed uint64, n int) map[int]int {
	t.Helper()
	rng := requests{rand.New(rand.NewPCG(seed, 1)), pageTokens(t, s)}
	codes := map[int]int{}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // so that a watch ends after the events it already has
	var before runtime.MemStats
	continued, skipped := 0, 0
	for i := 0; i < n; {
		if i == n/5 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		path := rng.known()
		if rng.IntN(2) == 0 {
			path = rng.path()
		}
		if query := rng.query(); query != "" {
			path += "?" + query
		}
		accept := rng.accept()
		method := rng.one("GET", "GET", "GET", "GET", "POST", "HEAD", "PATCH", "OPTIONS")
		body := rng.one("", "{}", "[]", `{"spec":{"resourceAttributes":null}}`)
		if rng.IntN(20) == 0 { // the next page of a list
			method, accept = "GET", "application/json"
			path = "/api/v1/" + rng.one("pods", "namespaces", "secrets", "configmaps") + "?limit=" + rng.one("", "1") +
				"&continue=" + rng.token()
		}
		if _, err := url.Parse("http://127.0.0.1" + path); err != nil {
			skipped++
			if skipped > n {
				t.Fatalf("%d of the URLs do not parse, such as %s: %v", skipped, path, err)
			}
			continue
		}
		i++
		w := ask(ended, s, method, path, accept, body)
		codes[w.Code]++
		if w.Code >= 500 && w.Code != 504 {
			t.Fatalf("%s %s, Accept %q: %d %s", method, path, accept, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && strings.Contains(path, "continue=ey") {
			continued++
		}
	}
	t.Logf("%d requests, and %d URLs that do not parse: %v", n, skipped, codes)
	if continued == 0 {
		t.Error("no list was continued")
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	return codes
}

func FuzzRequest(f *testing.F) {
	f.Add("GET", "/api/v1/pods", "labelSelector=app%3Dweb&limit=1", "application/json;as=Table;g=meta.k8s.io;v=v1")
	f.Add("GET", "/apis/demo.example.com/v1/namespaces/shop/widgets/gear", "", "*/*")
	s := &apiview.Server{Root: cluster().view(), Token: token}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, method, path, query, accept string) {
		r := httptest.NewRequestWithContext(ended, "GET", "http://127.0.0.1/", nil)
		r.Method = method
		r.URL.Path = path
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != 504 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
