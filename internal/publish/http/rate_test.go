package http_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	publishhttp "github.com/kubecdc/kubecdc/internal/publish/http"
	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

// While isolated events are retried, one that is cut and one that is denied, others keep nine tenths of their rate.
func TestRateBesideAnIsolatedEvent(t *testing.T) {
	var cut, denied atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch body := string(b); {
		case strings.Contains(body, "hemlock"):
			cut.Add(1)
			cutOff(w)
		case strings.Contains(body, "stranger"):
			denied.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
	})
	r := run(t, publishhttp.Config{URL: url})
	l := publishtest.StartLoad(t, r.bus, 64, time.Millisecond)
	l.Put(t, "hemlock")
	l.Put(t, "stranger")
	wait(t, "two isolated events", func() bool { return len(l.Isolated()) == 2 })
	l.RateBeside(t, func() int { return int(cut.Load() + denied.Load()) })
	l.Stop()
}
