package buses

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Receive is an HTTP server on a free port of 127.0.0.1 that accepts CloudEvents until ctx ends. It
// reads them and answers 204. ready gets its URL. GET returns the number of events since the last
// GET.
func Receive(ctx context.Context, ready func(url string) error) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var count atomic.Int64
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				fmt.Fprint(w, count.Swap(0))
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client has gone
			}
			n := 1
			if r.Header.Get("Content-Type") == batched {
				n = bytes.Count(body, []byte(`"specversion":`))
			}
			count.Add(int64(n))
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-gctx.Done()
		return server.Close()
	})
	g.Go(func() error { return ready("http://" + l.Addr().String()) })
	return g.Wait()
}

func countHTTP(ctx context.Context, s *Server) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
