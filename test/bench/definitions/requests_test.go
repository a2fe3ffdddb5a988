package definitions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/bench/definitions"
)

// log writes audit events; times are milliseconds.
type log struct {
	strings.Builder
	start time.Time
}

func (l *log) event(id, stage, verb, uri, resource string, code, received, at int) {
	stamp := func(ms int) string { return l.start.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano) }
	fmt.Fprintf(l,
		`{"auditID":%q,"stage":%q,"verb":%q,"requestURI":%q,"user":{"username":"system:serviceaccount:bench:me"},`+
			`"objectRef":{"resource":%q,"apiGroup":"g00.bench.kubecdc.dev"},"responseStatus":{"code":%d},`+
			`"requestReceivedTimestamp":%q,"stageTimestamp":%q}`+"\n", id, stage, verb, uri, resource, code,
		stamp(received), stamp(at))
}

func TestRequests(t *testing.T) {
	const list, watch, other = "/apis/g/v1/a?limit=500", "/apis/g/v1/a?watch=true",
		"/apis/g/v1/b?watch=true&resourceVersion=1"
	l := &log{start: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	l.event("too-early", "RequestReceived", "list", list, "a", 0, -10, -10)
	l.event("1", "RequestReceived", "list", list, "a", 0, 0, 0)
	l.event("1", "ResponseComplete", "list", list, "a", 200, 0, 30)
	// Refused, repeated at once, and repeated after Retry-After.
	for i, at := range []int{40, 50, 1100} {
		id, code := fmt.Sprint("w", i), 429
		l.event(id, "RequestReceived", "watch", watch, "a", 0, at, at)
		if i == 2 {
			code = 200
			l.event(id, "ResponseStarted", "watch", watch, "a", code, at, at+5)
			continue
		}
		l.event(id, "ResponseComplete", "watch", watch, "a", code, at, at+1)
	}
	// Two at the same time. One has ended since.
	l.event("x", "RequestReceived", "watch", other, "b", 0, 1200, 1200)
	l.event("y", "RequestReceived", "watch", other, "b", 0, 1201, 1201)
	l.event("x", "ResponseStarted", "watch", other, "b", 200, 1200, 1210)
	l.event("y", "ResponseStarted", "watch", other, "b", 200, 1201, 1220)
	l.event("y", "ResponseComplete", "watch", other, "b", 200, 1201, 1300)
	l.WriteString(`{"auditID":"z","stage":"Requ`) // still being written
	got, err := definitions.Read(strings.NewReader(l.String()), definitions.User("me"), l.start)
	if err != nil {
		t.Fatal(err)
	}
	want := definitions.Requests{
		Lists: 1, Watches: 5, Refused: 2, Early: 1, AtOnce: 2, Busiest: 3, Open: 2, Resources: 2,
		Watched: l.start.Add(1210 * time.Millisecond),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := definitions.Read(strings.NewReader(l.String()), "somebody else", l.start); err != nil ||
		got.Lists != 0 {
		t.Errorf("of somebody else: %+v, %v", got, err)
	}
}
