package apiview_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// openings are moments that a Server opens. Each one waits until it is released.
type openings struct {
	record *record
	again  time.Duration // Options.Again, after the begin of an opening; 0: none

	mu    sync.Mutex
	log   []string                     // the moments, in the order in which they were opened
	held  map[string]chan func() error // by moment
	ended []error                      // the causes of contexts that have ended during an opening
}

func newOpenings(r *record) *openings {
	return &openings{record: r, held: map[string]chan func() error{}}
}

func (o *openings) of(at string) chan func() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held[at] == nil {
		o.held[at] = make(chan func() error)
	}
	return o.held[at]
}

// open is the Open of a Server.
func (o *openings) open(ctx context.Context, at timeline.Moment) (*apiview.View, error) {
	result := o.of(at.String())
	o.mu.Lock()
	o.log = append(o.log, at.String())
	o.mu.Unlock()
	began := time.Now()
	select {
	case f := <-result:
		if err := f(); err != nil {
			return nil, err
		}
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = append(o.ended, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	options := apiview.Options{Now: start}
	if o.again > 0 {
		options.Again = began.Add(o.again)
	}
	return apiview.NewView(o.record.state(at), options), nil
}

// release ends the opening of a moment, with the result of f.
func (o *openings) release(at string, f func() error) { o.of(at) <- f }

// opened returns the moments that were opened so far, in their order.
func (o *openings) opened() []string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.log)
}

// request is a request that is under way.
type request struct {
	cancel context.CancelFunc
	done   chan *httptest.ResponseRecorder
}

// begin makes a request.
func begin(t *testing.T, s *apiview.Server, path string) *request {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q := &request{cancel, make(chan *httptest.ResponseRecorder, 1)}
	go func() { q.done <- ask(ctx, s, "GET", path, "", "") }()
	return q
}

// code returns the code of the answer; 0: there is none yet.
func (r *request) code() int {
	synctest.Wait()
	select {
	case w := <-r.done:
		r.done <- w
		return w.Code
	default:
		return 0
	}
}

func fine() error { return nil }

func podsAt(at string) string { return "/at/" + at + "/api/v1/pods" }

// Several moments are opened at once, each of them once, but no more than the limit and one.
func TestMomentsAreOpenedAtOnce(t *testing.T) {
	t.Parallel()
	for opening, atOnce := range map[int]int{0: 3, 1: 1, 2: 2, 9: 3} {
		t.Run(fmt.Sprint("MaxOpening ", opening), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOpenings(cluster())
				s := &apiview.Server{Token: token, MaxMoments: 2, MaxOpening: opening, Open: o.open}
				var requests []*request
				for _, at := range []string{"rv:105", "rv:106", "rv:107", "rv:108", "rv:109"} {
					for range 3 {
						requests = append(requests, begin(t, s, podsAt(at)))
						synctest.Wait()
					}
				}
				<-time.After(time.Minute) // a moment that is being opened is waited for as long as it takes
				seen := 0
				for seen < 5 {
					log := o.opened()
					if n := len(log) - seen; n != min(atOnce, 5-seen) {
						t.Fatalf("%v were opened, %d of them are read: want %d", log, n, atOnce)
					}
					o.release(log[seen], fine)
					seen++
				}
				for i, q := range requests {
					if got := q.code(); got != http.StatusOK {
						t.Errorf("request %d: %d", i, got)
					}
				}
				log := o.opened()
				slices.Sort(log)
				if diff := cmp.Diff([]string{"rv:105", "rv:106", "rv:107", "rv:108", "rv:109"}, log); diff != "" {
					t.Errorf("opened: -want +got\n%s", diff)
				}
			})
		})
	}
}

// An opening continues without the client that has begun it, as long as another one waits. It ends
// with the last one, and a later request does not wait for its end.
func TestOpeningEndsWithItsLastClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpenings(cluster())
		s := &apiview.Server{Token: token, MaxMoments: 1, Open: o.open}
		first := begin(t, s, podsAt("rv:107"))
		second := begin(t, s, podsAt("rv:107"))
		third := begin(t, s, podsAt("rv:107"))
		synctest.Wait()
		first.cancel()
		second.cancel()
		if got := o.opened(); len(got) != 1 || len(o.ended) != 0 {
			t.Fatalf("opened %v, ended %v", got, o.ended)
		}
		o.release("rv:107", fine)
		if got := third.code(); got != http.StatusOK {
			t.Errorf("the client that stayed: %d", got)
		}

		left := begin(t, s, podsAt("rv:105"))
		synctest.Wait()
		left.cancel()
		if left.code() == 0 {
			t.Error("the request does not end with its client")
		}
		if len(o.ended) != 1 || !strings.Contains(o.ended[0].Error(), "no client waits") {
			t.Errorf("the opening has ended with %v", o.ended)
		}
		again := begin(t, s, podsAt("rv:105"))
		synctest.Wait()
		o.release("rv:105", fine)
		if got := again.code(); got != http.StatusOK {
			t.Errorf("the next request: %d", got)
		}
		if diff := cmp.Diff([]string{"rv:107", "rv:105", "rv:105"}, o.opened()); diff != "" {
			t.Errorf("opened: -want +got\n%s", diff)
		}
	})
}

// An error of an opening is that of each request that waits. It keeps no place, and the next
// request opens the moment again. So does a panic.
func TestErrorOfAnOpening(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("the bus is away") },
		"panic": func() error { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOpenings(cluster())
				s := &apiview.Server{Token: token, MaxMoments: 1, Open: o.open}
				for round := range 3 { // more than there are places
					aborted := make(chan any, 1)
					go func() {
						defer func() { aborted <- recover() }()
						got := ask(t.Context(), s, "GET", podsAt("rv:107"), "", "").Code
						if got != http.StatusServiceUnavailable {
							t.Errorf("round %d: the first request: %d", round, got)
						}
					}()
					synctest.Wait()
					waiting := []*request{begin(t, s, podsAt("rv:107")), begin(t, s, podsAt("rv:107"))}
					synctest.Wait()
					o.release("rv:107", fail)
					for _, q := range waiting {
						if got := q.code(); got != http.StatusServiceUnavailable {
							t.Errorf("round %d: a request that waits: %d", round, got)
						}
					}
					if got := len(o.opened()); got != round+1 {
						t.Errorf("round %d: opened %d times", round, got)
					}
					if got := <-aborted; (got != nil) != (name == "panic") {
						t.Errorf("round %d: recovered %v", round, got)
					}
				}
				last := begin(t, s, podsAt("rv:107"))
				synctest.Wait()
				o.release("rv:107", fine)
				if got := last.code(); got != http.StatusOK {
					t.Errorf("after the errors: %d", got)
				}
			})
		})
	}
}

// A moment that was not final is read again at a request after the time at which it can be final.
// Until then, and for those who use it, the view stays. So is the moment of the root.
func TestMomentThatWasNotFinalIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := large()
		o := newOpenings(r)
		o.again = time.Minute
		root := apiview.NewView(r.state(timeline.At(start)), apiview.Options{
			Now:   start,
			Again: time.Now().Add(time.Minute),
		})
		s := &apiview.Server{Token: token, Root: root, MaxMoments: 2, Open: o.open}
		connect := piped(t, s)
		list := func(path string) (int, string) {
			w := ask(t.Context(), s, "GET", path, "", "")
			var l metav1.List
			_ = json.Unmarshal(w.Body.Bytes(), &l)
			return w.Code, l.Continue
		}
		const maps = "/at/rv:302/api/v1/configmaps"
		first := begin(t, s, maps)
		synctest.Wait()
		o.release("rv:302", fine)
		if got := first.code(); got != http.StatusOK {
			t.Fatalf("code %d", got)
		}
		_, page := list(maps + "?limit=2")
		<-time.After(59 * time.Second)
		if code, _ := list(maps + "?limit=2&continue=" + page); code != http.StatusOK || len(o.opened()) != 1 {
			t.Errorf("within the minute: %d, opened %v", code, o.opened())
		}
		if code, _ := list("/api/v1/configmaps"); code != http.StatusOK || len(o.opened()) != 1 {
			t.Errorf("the root within the minute: %d, opened %v", code, o.opened())
		}
		slow := connect("GET", maps, "") // it reads its list later
		synctest.Wait()
		<-time.After(2 * time.Second)

		// The record has got more objects meanwhile.
		r.object("r", "v1", "configmaps", objectJSON("ConfigMap", "shop", "cm-999", ""))
		again := begin(t, s, maps+"?limit=2&continue="+page)
		synctest.Wait()
		o.release("rv:302", fine)
		if got := again.code(); got != http.StatusGone {
			t.Errorf("a page of the earlier reading: %d", got)
		}
		_, body, err := answered(slow)
		if err != nil || !strings.Contains(string(body), "cm-199") || !strings.HasSuffix(string(body), "]}\n") {
			t.Errorf("the list that was under way: %v, %d bytes", err, len(body))
		}
		atRoot := begin(t, s, "/api/v1/configmaps")
		synctest.Wait()
		o.release(timeline.At(start).String(), fine)
		if got := atRoot.code(); got != http.StatusOK {
			t.Errorf("the root: %d", got)
		}
		for range 3 {
			list(maps)
			list("/api/v1/configmaps")
		}
		if diff := cmp.Diff([]string{"rv:302", "rv:302", timeline.At(start).String()}, o.opened()); diff != "" {
			t.Errorf("opened: -want +got\n%s", diff)
		}
	})
}

// A server reads and holds no more moments than there are places, whatever its clients do. It reads
// no moment twice at once for clients that wait. All requests are answered.
func TestMomentsModel(t *testing.T) {
	t.Parallel()
	seed := requestsSeed(t)
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not for secrets
		var mu sync.Mutex
		reading := map[string][]context.Context{}
		all, most := 0, 0
		number := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
		var m memory
		views := m.open(cluster())
		s := &apiview.Server{
			Token:      token,
			MaxMoments: limit,
			Open: func(ctx context.Context, at timeline.Moment) (*apiview.View, error) {
				mu.Lock()
				if slices.ContainsFunc(reading[at.String()],
					func(other context.Context) bool { return other.Err() == nil }) {
					t.Errorf("seed %d: %s is read twice at once", seed, at)
				}
				reading[at.String()] = append(reading[at.String()], ctx)
				all++
				most = max(most, all)
				mu.Unlock()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					reading[at.String()] = slices.DeleteFunc(reading[at.String()], func(other context.Context) bool {
						return other == ctx
					})
					all--
				}()
				select {
				case <-time.After(time.Duration(number(3000)) * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				if number(5) == 0 {
					return nil, errors.New("the bus is away")
				}
				return views(ctx, at)
			},
		}
		var clients sync.WaitGroup
		codes := map[int]int{}
		for range 30 {
			clients.Go(func() {
				for range 20 {
					<-time.After(time.Duration(number(2000)) * time.Millisecond)
					ctx, cancel := context.WithCancel(t.Context())
					if number(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(1+number(2000))*time.Millisecond)
					}
					code := ask(ctx, s, "GET", podsAt(fmt.Sprint("rv:", 102+number(8))), "", "").Code
					cancel()
					mu.Lock()
					codes[code]++
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		if most != limit+1 {
			t.Errorf("seed %d: up to %d moments were read at once: want %d", seed, most, limit+1)
		}
		if codes[200] < 100 || codes[503] == 0 || codes[200]+codes[503]+codes[429] != 600 {
			t.Errorf("seed %d: answers %v", seed, codes)
		}
		if _, kept := m.moments(); kept > limit {
			t.Errorf("seed %d: %d moments are in memory", seed, kept)
		}
	})
}
