package http_test

import (
	"bytes"
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

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Each event has its own result, whatever the others in its batch are, and none is written over on
// its way.
func TestBatchResultsAreEachEventsOwn(t *testing.T) {
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
	r := run(t, publishhttp.Config{URL: url, Batch: 8, InFlight: 2})
	var wg sync.WaitGroup
	for k := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(k), 1))
			ev := event(fmt.Sprintf("web-%d", k), 1, "")
			for range 50 {
				char := byte('a' + rnd.IntN(20))
				if rnd.IntN(20) == 0 {
					char = 'x'
				}
				ev.Body = append(append(append(ev.Body[:0], '"'), bytes.Repeat([]byte{char}, 2000)...), '"')
				err := <-r.once(ev, false)
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
