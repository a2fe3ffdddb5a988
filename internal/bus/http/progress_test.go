package http_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// The progress of the agent goes to the receiver like any event, in each content mode. One that the
// receiver refuses for good is refused.
func TestProgressGoesToTheReceiver(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  encode.Mode
		batch int
	}{"structured": {encode.Structured, 0}, "binary": {encode.Binary, 0}, "batched": {encode.Structured, 10}} {
		t.Run(name, func(t *testing.T) {
			box := new(inbox)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Content-Type") != "application/cloudevents-batch+json" && r.ContentLength > 10_000 {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
					return
				}
				box.ServeHTTP(w, r)
			})
			r := run(t, publishhttp.Config{URL: url, Batch: tc.batch})
			ev := bustest.EncodeProgress(t, tc.mode, "0-1",
				bustest.Progress(7, bustest.ScopeAt(pods, "", 5)))
			id := string(ev.ID)
			if err := r.Publish(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{id}, box.ids()); diff != "" {
				t.Fatal(diff)
			}
			got := box.events[0]
			if got.Type() != "dev.kubecdc.progress" || got.Subject() != "/progress/"+bustest.Writer ||
				!strings.Contains(string(got.Data()), `"resourceVersion":"5"`) {
				t.Errorf("%s %s: %s", got.Type(), got.Subject(), got.Data())
			}
			if tc.batch > 0 {
				return
			}
			large := bustest.Progress(8)
			for range 500 {
				large.Report.Scopes = append(large.Report.Scopes, bustest.ScopeAt(pods, "pods/x", 5))
			}
			if err := r.Publish(t.Context(), bustest.EncodeProgress(t, tc.mode, "0-1", large)); !errors.Is(err,
				publish.ErrTooLarge) {
				t.Errorf("got %v, want ErrTooLarge", err)
			}
		})
	}
}
