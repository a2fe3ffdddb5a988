package apiserver_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
)

// roundTripper is a function as a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOffsetToTheAPIServer has an API server whose clock differs, and answers that take some time.
func TestOffsetToTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead, takes time.Duration
		date         string // "" is that of the server's clock
		beyond       bool
		logs         int
	}{
		"equal":                       {},
		"ahead":                       {ahead: 5 * time.Second, beyond: true, logs: 1},
		"behind":                      {ahead: -5 * time.Second, beyond: true, logs: 1},
		"within the resolution":       {ahead: 2500 * time.Millisecond},
		"a slow answer proves little": {ahead: 5 * time.Second, takes: 10 * time.Second},
		"a slow answer that does":     {ahead: 30 * time.Second, takes: 10 * time.Second, beyond: true, logs: 1},
		"no date":                     {ahead: 30 * time.Second, date: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				o := apiserver.NewOffset(func() time.Time { return time.Now().Add(tc.ahead) },
					slog.New(slog.NewTextHandler(&log, nil)))
				rt := o.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					<-time.After(tc.takes)
					date := tc.date
					if date == "" {
						date = time.Now().UTC().Format(http.TimeFormat)
					}
					return &http.Response{Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
				}))
				for range 3 {
					res, err := rt.RoundTrip(new(http.Request))
					if err != nil {
						t.Fatal(err)
					}
					_ = res.Body.Close()
				}
				_, beyond, _ := o.Look()
				if beyond != tc.beyond {
					t.Errorf("beyond 2 s: %v, want %v", beyond, tc.beyond)
				}
				if n := strings.Count(log.String(), "clocks of the agent"); n != tc.logs {
					t.Errorf("%d lines in the log, want %d:\n%s", n, tc.logs, &log)
				}
			})
		})
	}
}
