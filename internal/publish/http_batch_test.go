package publish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// A call whose ctx ends while its event is on its way with others returns at once, and the request goes on for them.
func TestHTTPBatchGoesOnWithoutThoseWhoLeft(t *testing.T) {
	release, arrived := make(chan struct{}, 10), make(chan string, 10)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		arrived <- string(b)
		select {
		case <-release:
		case <-r.Context().Done():
			t.Errorf("the request with %s was given up", b)
		}
	})
	r := runHTTP(t, publish.HTTPConfig{URL: url, Batch: 10, InFlight: 1})
	results := map[string]chan error{}
	put := func(ctx context.Context, name string) {
		done := make(chan error, 1)
		results[name] = done
		go func() { done <- r.Publish(ctx, event(name, 1, `"`+name+`"`)) }()
	}
	put(t.Context(), "first")
	<-arrived
	inFlight, leave := context.WithCancel(t.Context())
	waiting, give := context.WithCancel(t.Context())
	for i, name := range []string{"stays", "leaves", "gives up"} {
		put([]context.Context{t.Context(), inFlight, waiting}[i], name)
		wait(t, "it waits", func() bool { return r.Waiting() == i+1 })
	}
	give() // before it is sent
	if err := <-results["gives up"]; !errors.Is(err, context.Canceled) {
		t.Errorf("gives up: %v", err)
	}
	release <- struct{}{}
	if got := <-arrived; got != `["stays","leaves"]` {
		t.Errorf("got %s", got)
	}
	leave()
	if err := <-results["leaves"]; !errors.Is(err, context.Canceled) {
		t.Errorf("leaves: %v", err)
	}
	release <- struct{}{}
	for _, name := range []string{"first", "stays"} {
		if err := <-results[name]; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever calls end at random, each gets its own event's result, and no event is written over on its way.
func TestHTTPBatchResultsAreEachCallsOwn(t *testing.T) {
	var torn atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var events []string
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return // given up
		}
		if err := json.Unmarshal(b, &events); err != nil {
			torn.Add(1)
		}
		bad := false
		for _, e := range events {
			if strings.Trim(e, e[:1]) != "" {
				torn.Add(1)
			}
			bad = bad || e[0] == 'x'
		}
		if bad {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	r := runHTTP(t, publish.HTTPConfig{URL: url, Batch: 8, InFlight: 2})
	var wg sync.WaitGroup
	for k := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(k), 1))
			ev := event(fmt.Sprintf("web-%d", k), 1, "")
			for range 50 {
				char, ctx, cancel := byte('a'), t.Context(), context.CancelFunc(func() {})
				switch rnd.IntN(20) {
				case 0:
					char = 'x'
				case 1, 2, 3, 4:
					ctx, cancel = context.WithCancel(ctx)
					go cancel() // at any moment of the call
				default:
					char += byte(rnd.IntN(20))
				}
				ev.Body = append(append(append(ev.Body[:0], '"'), bytes.Repeat([]byte{char}, 2000)...), '"')
				err := r.Publish(ctx, ev)
				cancel()
				if ctx != t.Context() && errors.Is(err, context.Canceled) {
					continue
				}
				if refused := errors.Is(err, publish.ErrRefused); refused != (char == 'x') || err != nil && !refused {
					t.Errorf("%c: %v", char, err)
				}
			}
		})
	}
	wg.Wait()
	if n := torn.Load(); n > 0 {
		t.Errorf("%d events were written over on their way", n)
	}
}
