package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// inbox keeps what a receiver took, read by CloudEvents' own SDK.
type inbox struct {
	mu       sync.Mutex
	events   []ce.Event
	requests int
	largest  int // batch
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events, err := readEvents(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.keep(events)
}

func (b *inbox) keep(events []ce.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, events...)
	b.requests++
	b.largest = max(b.largest, len(events))
}

func (b *inbox) ids() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.events {
		ids = append(ids, b.events[i].ID())
	}
	return ids
}

func readEvents(r *http.Request) ([]ce.Event, error) {
	if cehttp.IsHTTPBatch(r.Header) {
		events, err := cehttp.NewEventsFromHTTPRequest(r)
		if err == nil && len(events) == 0 {
			err = errors.New("an empty batch")
		}
		return events, err
	}
	e, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		return nil, err
	}
	return []ce.Event{*e}, nil
}

// encoded makes a real event of version rv of a pod.
func encoded(tb testing.TB, mode encode.Mode, name string, rv int) *encode.Event {
	tb.Helper()
	e := encode.New(encode.Options{Cluster: "prod eu \"1\" 100% ü", ClusterUID: "11e0", Mode: mode})
	ev := new(encode.Event)
	ref := object.NewRef(pods, "shop", name, "uid-"+name)
	d := &object.Delta{
		Op: object.Created, Ref: ref, ResourceVersion: uint64(rv), Observed: time.Now().UnixNano(),
		After: object.New(ref, uint64(rv), 0, object.NewCodec(nil),
			[]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"note":"grüße"}}`, name))),
	}
	if err := e.Encode(ev, d); err != nil {
		tb.Fatal(err)
	}
	return ev
}

func TestContentModes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		mode  encode.Mode
		batch int
		want  string
	}{
		{"structured", encode.Structured, 0, "application/cloudevents+json"},
		{"binary", encode.Binary, 0, "application/json"},
		{"batched", encode.Structured, 10, "application/cloudevents-batch+json"},
		{"binary events never go in a batch", encode.Binary, 10, "application/json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			box, contentType := new(inbox), atomic.Value{}
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				contentType.Store(r.Header.Get("Content-Type"))
				if _, ok := r.Header["Ce-Datacontenttype"]; ok {
					t.Error("datacontenttype is a header of its own")
				}
				box.ServeHTTP(w, r)
			})
			r := run(t, publishhttp.Config{URL: url, Batch: tc.batch})
			ev := encoded(t, tc.mode, "web-1", 7)
			if err := r.Publish(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			if got := contentType.Load(); got != tc.want {
				t.Errorf("content type %v, want %s", got, tc.want)
			}
			if len(box.events) != 1 {
				t.Fatalf("%d events", len(box.events))
			}
			got := box.events[0]
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			cluster, _ := got.Extensions()["cluster"].(string)
			want := "prod eu \"1\" 100% ü"
			if tc.mode == encode.Binary { // the SDK leaves values as they stand in the headers
				want = "prod%20eu%20%221%22%20100%25%20%C3%BC"
			}
			if d := cmp.Diff([]string{string(ev.ID), want, "application/json"}, []string{
				got.ID(), cluster, got.DataContentType(),
			}); d != "" {
				t.Error(d)
			}
			var data struct {
				After struct {
					Metadata struct{ Note string }
				}
			}
			if err := json.Unmarshal(got.Data(), &data); err != nil || data.After.Metadata.Note != "grüße" {
				t.Errorf("data %s, error %v", got.Data(), err)
			}
		})
	}
}

// While a request is on its way, what comes fills the next ones.
func TestBatchIsWhatWaits(t *testing.T) {
	box, release := new(inbox), make(chan struct{})
	first := make(chan struct{}, 100)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		first <- struct{}{}
		<-release
		box.ServeHTTP(w, r)
	})
	r := run(t, publishhttp.Config{URL: url, Batch: 8, InFlight: 1})
	var wg sync.WaitGroup
	put := func(i int) {
		ev := encoded(t, encode.Structured, fmt.Sprintf("web-%d", i), i)
		wg.Go(func() {
			if err := r.Publish(t.Context(), ev); err != nil {
				t.Error(err)
			}
		})
	}
	put(1)
	<-first
	for i := 2; i <= 21; i++ {
		put(i)
	}
	wait(t, "20 wait", func() bool { return r.bus.Waiting() == 20 })
	close(release)
	wg.Wait()
	if len(box.events) != 21 || box.requests != 4 || box.largest != 8 {
		t.Errorf("%d events in %d requests, the largest of %d; want 21 in 4, of 1, 8, 8 and 4", len(box.events),
			box.requests, box.largest)
	}
}

// A batch is bounded in bytes too, and one event that is larger than that goes without others.
func TestBatchBytes(t *testing.T) {
	release, first := make(chan struct{}), make(chan struct{}, 100)
	var mu sync.Mutex
	var sizes []int64
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		first <- struct{}{}
		<-release
		n, _ := io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, n)
	})
	r := run(t, publishhttp.Config{URL: url, Batch: 100, InFlight: 1})
	var wg sync.WaitGroup
	for i, size := range []int{10, 1100 << 10, 600 << 10, 600 << 10} {
		wg.Go(func() {
			if err := r.Publish(t.Context(),
				event(fmt.Sprintf("web-%d", i), 1, `"`+strings.Repeat("x", size-2)+`"`)); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-first
			continue
		}
		wait(t, "it waits", func() bool { return r.bus.Waiting() == i })
	}
	close(release)
	wg.Wait()
	if d := cmp.Diff([]int64{12, 1100<<10 + 2, 600<<10 + 2, 600<<10 + 2}, sizes); d != "" {
		t.Error(d)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		header [2]string
		reason string // of the retry; "": none
		is     error
		log    string
	}{
		{status: 200},
		{status: 202},
		{status: 204},
		{status: 307, header: [2]string{
			"Location", "https://elsewhere.example/in?key=s3cret",
		}, reason: "redirect", log: "status 307, to https://elsewhere.example\""},
		{status: 401, reason: "unauthorized", log: "tokenFile"},
		{status: 403, reason: "unauthorized", log: "tokenFile"},
		{status: 404, reason: "not_found", log: "check url"},
		{status: 407, reason: "proxy_refused", log: "HTTPS_PROXY"},
		{status: 408, reason: "unavailable"},
		{status: 425, reason: "unavailable"},
		{status: 429, reason: "throttled"},
		{status: 500, reason: "server_error"},
		{status: 503, reason: "unavailable", header: [2]string{"Retry-After", "0"}},
		{status: 504, reason: "server_error"},
		{status: 400, is: publish.ErrRefused},
		{status: 413, is: publish.ErrTooLarge},
		{status: 422, is: publish.ErrRefused},
	} {
		for _, batch := range []int{1, 10} {
			t.Run(fmt.Sprintf("%d-batch-%d", tc.status, batch), func(t *testing.T) {
				var requests atomic.Int64
				url := serve(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Query().Get("key") != "s3cret" {
						t.Errorf("the query is lost: %s", r.URL)
					}
					if requests.Add(1) > 1 && tc.reason != "" {
						w.WriteHeader(http.StatusNoContent)
						return
					}
					if tc.header[0] != "" {
						w.Header().Set(tc.header[0], tc.header[1])
					}
					w.WriteHeader(tc.status)
					if tc.status != 204 {
						_, _ = io.WriteString(w, "because\x00\n of  it")
					}
				})
				r := run(t, publishhttp.Config{URL: url + "/in?key=s3cret", Batch: batch})
				err := r.Publish(t.Context(), event("web-1", 1, `{}`))
				if tc.is == nil && err != nil {
					t.Fatal(err)
				}
				if tc.is != nil {
					if !errors.Is(err, tc.is) || !errors.Is(err, publish.ErrRefused) ||
						errors.Is(err, publish.ErrTooLarge) != (tc.status == http.StatusRequestEntityTooLarge) {
						t.Errorf("got %v, want %v", err, tc.is)
					}
					if want := fmt.Sprintf("status %d: because of it", tc.status); !strings.HasSuffix(err.Error(),
						want) {
						t.Errorf("got %v, want %s", err, want)
					}
				}
				if got := r.metric(t, "kubecdc_publish_retries_total", tc.reason); tc.reason != "" && got != 1 {
					t.Errorf("%v retries for %s", got, tc.reason)
				}
				if tc.log != "" && !strings.Contains(r.log.String(), tc.log) {
					t.Errorf("no %q in the log", tc.log)
				}
				if strings.Contains(r.log.String(), "s3cret") || err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("a secret in the log or in %v", err)
				}
				if err := r.bus.Ready(); err != nil {
					t.Error(err)
				}
				if got := r.metric(t, "kubecdc_publish_connected", ""); got != 1 {
					t.Errorf("connected is %v", got)
				}
			})
		}
	}
}

// A batch that is refused is sent one by one, and only the event that it is about is refused.
func TestRefusedBatchGoesOneByOne(t *testing.T) {
	for _, status := range []int{400, 413, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			box := new(inbox)
			release := make(chan struct{})
			first := make(chan struct{}, 1000)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				first <- struct{}{}
				<-release
				events, err := readEvents(r)
				if err != nil {
					// the test ends while a request is under way; anything else fails it, because
					// the event is refused
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				if slices.ContainsFunc(events, func(e ce.Event) bool { return e.Extensions()["name"] == "bad" }) {
					w.WriteHeader(status)
					return
				}
				box.keep(events)
			})
			r := run(t, publishhttp.Config{URL: url, Batch: 10, InFlight: 1})
			ctx, cancel := context.WithCancel(t.Context())
			var good, bad sync.WaitGroup
			var refused error
			for i, name := range []string{"web-0", "web-1", "bad", "web-2", "web-3"} {
				wg := &good
				if name == "bad" {
					wg = &bad
				}
				ev := encoded(t, encode.Structured, name, i+1)
				wg.Go(func() {
					if err := r.Publish(ctx, ev); name == "bad" {
						refused = err
					} else if err != nil {
						t.Error(err)
					}
				})
				if i == 0 {
					<-first
				}
			}
			wait(t, "4 wait", func() bool { return r.bus.Waiting() == 4 })
			close(release)
			good.Wait()
			if status == 500 {
				cancel() // it would be tried for ever
			}
			bad.Wait()
			cancel()
			want := map[int]error{400: publish.ErrRefused, 413: publish.ErrTooLarge, 500: context.Canceled}[status]
			if !errors.Is(refused, want) {
				t.Errorf("got %v, want %v", refused, want)
			}
			if len(box.events) != 4 {
				t.Errorf("the receiver has %v", box.ids())
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		cfg  publishhttp.Config
		want string
	}{
		{publishhttp.Config{
			URL: "nats://x",
		}, "bus.http.url: Forbidden: must be a URL such as https://host/path: has another scheme than http, https"},
		{publishhttp.Config{
			URL: "https:///in",
		}, "bus.http.url: Forbidden: must be a URL such as https://host/path: has no host"},
		{
			publishhttp.Config{
				URL: "https://user:s3cret@x",
			},
			"bus.http.url: Forbidden: must be a URL such as https://host/path: has a user or a password in it; remove them: secrets come only from files, which other keys name",
		},
		{publishhttp.Config{
			URL: "https://x/#s3cret",
		}, "bus.http.url: Forbidden: must be a URL such as https://host/path: has a # in it"},
		{publishhttp.Config{
			URL: "https://x/\ns3cret",
		}, "bus.http.url: Forbidden: must be a URL such as https://host/path: cannot be read"},
		{publishhttp.Config{
			URL: "http://x",
			TLS: &publish.TLS{},
		}, "bus.http.tls: Forbidden: has no effect if the url begins with http://; write https:// there, or remove it"},
		{publishhttp.Config{
			URL:   "http://x",
			Batch: -1,
		}, `bus.http.batch: Invalid value: -1: must be between 1 and 1000`},
		{
			publishhttp.Config{
				URL:           "http://x",
				DeadLetterURL: "x",
			},
			"dead letter url: Forbidden: must be a URL such as https://host/path: has no scheme, write https:// before it",
		},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: filepath.Join(dir, "none"),
		}, "headersFile: stat " + dir + "/none: no such file or directory"},
		{publishhttp.Config{URL: "http://x", TokenFile: file("empty", "\n")}, "tokenFile " + dir + "/empty: is empty"},
		{publishhttp.Config{
			URL:       "http://x",
			TokenFile: file("two", "s3cret s3cret"),
		}, "tokenFile " + dir + "/two: must hold one token without spaces, on one line"},
		{publishhttp.Config{
			URL:         "http://x",
			TokenFile:   file("token", "s3cret"),
			HeadersFile: file("basic", "authorization: Basic s3cret"),
		}, "headersFile " + dir + "/basic and tokenFile " + dir + "/token both set Authorization: keep one"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h1", "# a comment\n\nX-Key: s3cret\ns3cret\n"),
		}, `headersFile ` + dir + `/h1: line 4: must be "Name: value"`},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h2", "content-TYPE: text/plain"),
		}, "headersFile " + dir + "/h2: line 1: Content-Type: is set by the agent, and cannot be configured"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h3", "ce-id: 1"),
		}, "headersFile " + dir + "/h3: line 1: Ce-Id: headers ce-… are reserved for the event's attributes"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h4", "Host: other"),
		}, "headersFile " + dir + "/h4: line 1: Host: is set by the agent, and cannot be configured"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h5", "X-Key:"),
		}, "headersFile " + dir + "/h5: line 1: no value after the colon"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h6", "X Key: 1"),
		}, "headersFile " + dir + "/h6: line 1: the name before the colon must consist of letters, digits and dashes"},
		{publishhttp.Config{
			URL:         "http://x",
			HeadersFile: file("h7", "X-Key: a\x01b"),
		}, "headersFile " + dir + "/h7: line 1: the value must not contain control characters"},
		{publishhttp.Config{URL: "https://x", TLS: &publish.TLS{
			CAFile: filepath.Join(dir, "none"),
		}}, "tls: read caFile: stat " + dir + "/none: no such file or directory"},
		{publishhttp.Config{URL: "https://x", TLS: &publish.TLS{
			CAFile: file("ca", "no PEM"),
		}}, "tls: caFile " + dir + `/ca: contains no certificate: it must have PEM blocks "CERTIFICATE"`},
		{publishhttp.Config{URL: "https://x", TLS: &publish.TLS{
			CertFile: "/x",
		}}, "bus.http.tls: Required value: has certFile, which needs keyFile too"},
		{
			publishhttp.Config{
				URL: "https://x", TLS: &publish.TLS{
					CertFile: file("c", "x"),
					KeyFile:  file("k", "x"),
				},
			},
			"tls: certFile " + dir + "/c and keyFile " + dir +
				"/k: tls: failed to find any PEM data in certificate input",
		},
	} {
		tc.cfg.Timeout.Duration, tc.cfg.Insecure = time.Second, true
		if tc.cfg.Batch == 0 {
			tc.cfg.Batch = 1
		}
		var err error
		if invalid := tc.cfg.Validate(field.NewPath("bus", "http"), new(driver.Facts)); len(invalid) > 0 {
			err = invalid.ToAggregate()
		} else {
			_, err = publishhttp.New(tc.cfg, discard, nil)
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("a secret in %v", err)
		}
	}
}

// Credentials go to no other origin than that of the bus.
func TestDeadLetters(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]string{}
	receiver := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path] = r.Header.Get("Authorization")
	}
	bus, other := serve(t, receiver), serve(t, receiver)
	for _, dead := range []string{bus + "/dead", other + "/other"} {
		r := run(t, publishhttp.Config{URL: bus + "/in", TokenFile: token, DeadLetterURL: dead})
		for _, p := range []bustest.Publisher{r, r.dead} {
			if err := p.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
				t.Fatal(err)
			}
		}
		r.stop()
		if err := r.dead.Publish(t.Context(), event("web-1", 1, `{}`)); !errors.Is(err, publish.ErrClosed) {
			t.Errorf("after Run: %v", err)
		}
	}
	if d := cmp.Diff(map[string]string{"/in": "Bearer s3cret", "/dead": "Bearer s3cret", "/other": ""}, seen); d != "" {
		t.Error(d)
	}
	if err := run(t, publishhttp.Config{URL: bus}).dead.Publish(t.Context(), event("web-1", 1, `{}`)); !errors.Is(err,
		publish.ErrRefused) {
		t.Errorf("dead letters without a URL: %v", err)
	}
}
