package informers_test

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bufferingProxy holds back what an API server sends on watches, as a proxy that buffers responses
// does. It passes the head of a response on at once.
type bufferingProxy struct {
	server *apiServer
	bytes  int           // that it holds at most; 0: any number
	lasts  time.Duration // that it holds a byte at most; 0: until the response ends
	dead   bool          // it does not pass on what it holds at the end of a response
	drops  bool          // it drops that, and ends its own response
	ends   time.Duration // after which it ends each response; 0: only with the API server's

	mu      sync.Mutex
	holding bool
}

// behind puts a proxy in front of the watches of an API server. The API server ends them at their
// timeout.
func (p *bufferingProxy) behind(s *apiServer) {
	p.server = s
	s.do(func() {
		s.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
			if err != nil {
				fail(w, http.StatusBadRequest, "")
				return true
			}
			lasts := time.Duration(seconds) * time.Second
			if p.ends > 0 {
				lasts = min(lasts, p.ends)
			}
			ctx, cancel := context.WithTimeout(r.Context(), lasts)
			defer cancel()
			body := &heldBody{ResponseWriter: w, of: p}
			s.watch(body, r.WithContext(ctx))
			body.end(r.Context())
			return true
		}
	})
}

// hold begins or ends the buffering. The next frame passes on those that are held.
func (p *bufferingProxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = on
}

func (p *bufferingProxy) holds(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holding && n > 0 && (p.bytes == 0 || n < p.bytes)
}

// heldBody is the body of a watch that passes a bufferingProxy.
type heldBody struct {
	http.ResponseWriter
	of *bufferingProxy

	mu    sync.Mutex
	bytes bytes.Buffer
	timer *time.Timer // runs while something is held; nil: no limit of time
	ended bool
}

// Write implements io.Writer.
func (b *heldBody) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

// Flush implements http.Flusher.
func (b *heldBody) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.of.holds(b.bytes.Len()) {
		b.passLocked()
	} else if b.of.lasts > 0 && b.timer == nil {
		b.timer = time.AfterFunc(b.of.lasts, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.ended {
				b.passLocked()
			}
		})
	}
}

func (b *heldBody) passLocked() {
	_, _ = b.bytes.WriteTo(b.ResponseWriter)
	b.ResponseWriter.(http.Flusher).Flush()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// end passes on what is held at the end of the response.
func (b *heldBody) end(client context.Context) {
	if b.of.dead && b.of.holds(1) {
		<-client.Done()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of.drops && b.of.holds(b.bytes.Len()) {
		b.bytes.Reset()
	}
	if client.Err() == nil {
		b.passLocked()
	}
	b.ended = true
	if b.timer != nil {
		b.timer.Stop()
	}
}
