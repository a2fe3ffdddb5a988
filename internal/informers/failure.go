package informers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// warnEvery is how often one informer's persisting error is logged.
	warnEvery = time.Minute
	// warnHopelessEvery is how often, where it will not pass by itself: sixty forbidden resources are no news each minute.
	warnHopelessEvery = time.Hour
)

// failed shows a request that failed and is retried after delay: in metrics always, in the log once a window.
func (i *informer) failed(ctx context.Context, doing string, err error, delay time.Duration) {
	if ctx.Err() != nil {
		return
	}
	i.noteError(doing, err)
	r, now := apiserver.Reason(err), time.Now()
	warn := i.state.fail(err, r, now, func() {
		if r == "forbidden" {
			i.denials.add(verb(doing), i.scope, err)
		}
	})
	if apiserver.IsShared(r) {
		warn = i.outage.begin(r, now)
	}
	i.store.Notify()
	i.progressed() // it may have become one that is not waited for
	level := slog.LevelDebug
	if warn {
		level = slog.LevelWarn
	}
	attrs := []any{"scope", i.scope, "doing", doing, "err", err, "retry_in", delay}
	switch r {
	case "network":
		i.log.Log(ctx, level, "cannot reach the API server, retrying", append(attrs, "api_server", i.client.Host)...)
	case "unauthorized":
		i.log.Log(ctx, level, "the API server does not accept the credentials, retrying: renew those of the kubeconfig or service account",
			append(attrs, "api_server", i.client.Host)...)
	case "forbidden":
		i.log.Debug("not permitted to read a resource, retrying", attrs...) // and by denials
	case "not_found":
		i.log.Log(ctx, level, "a resource is not served any more, looking for it again", attrs...)
	case "refused":
		i.log.Log(ctx, level, "a resource cannot be captured: leave it out of the configuration", attrs...)
	default:
		i.log.Log(ctx, level, "cannot read from the API server, retrying", attrs...)
	}
}

// verb is the permission that doing takes.
func verb(doing string) string {
	if doing == "watch" {
		return "watch"
	}
	return "list"
}

// recovered notes that what failed works again.
func (i *informer) recovered() {
	if i.state.recovered() {
		i.store.Notify()
		i.outage.end(time.Now())
	}
}

// outage is the time in which the API server is out of reach of a set's informers.
type outage struct {
	log *slog.Logger

	mu       sync.Mutex
	since    time.Time // zero: it is within reach, or that it is not was never said
	warned   time.Time
	reason   string
	answered time.Time     // when it was found to answer again, the last time
	answers  chan struct{} // closed when it does the next time; nil: nobody waits for that
}

// begin notes a request that failed; warn tells if it is time to log it.
func (o *outage) begin(reason string, now time.Time) (warn bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason == reason && now.Sub(o.warned) < warnEvery {
		return false
	}
	o.warned, o.reason = now, reason
	if o.since.IsZero() {
		o.since = now
	}
	return true
}

// end notes that the API server has answered.
func (o *outage) end(now time.Time) {
	o.mu.Lock()
	since := o.since
	o.since, o.answered = time.Time{}, now
	if o.answers != nil {
		close(o.answers)
		o.answers = nil
	}
	o.mu.Unlock()
	if !since.IsZero() {
		o.log.Info("the API server answers again", "after", now.Sub(since))
	}
}

// await returns a channel that is closed when the API server has answered after a time. It may be closed already.
func (o *outage) await(after time.Time) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers == nil {
		o.answers = make(chan struct{})
	}
	c := o.answers
	if o.answered.After(after) {
		close(c)
		o.answers = nil
	}
	return c
}

// gatherDenials is for how long denials are gathered before they are logged. Who may read nothing but pods learns so in
// one line, not in sixty.
const gatherDenials = time.Second

// namedDenials is how many scopes such a line names; all are in Status.
const namedDenials = 10

// denials are the scopes that must not be read, not logged yet.
type denials struct {
	log   *slog.Logger
	added chan struct{} // of one element: there is something to log

	mu     sync.Mutex
	scopes map[string][]string // by verb
	errs   map[string]error    // by verb, the first
}

func newDenials(log *slog.Logger) *denials {
	return &denials{log: log, added: make(chan struct{}, 1), scopes: map[string][]string{}, errs: map[string]error{}}
}

func (d *denials) add(verb, scope string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.errs[verb] == nil {
		d.errs[verb] = err
	}
	d.scopes[verb] = append(d.scopes[verb], scope)
	select {
	case d.added <- struct{}{}:
	default: // what is added is logged with what was added before
	}
}

// run logs what is added until ctx ends.
func (d *denials) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.added:
		}
		retry.Sleep(ctx, gatherDenials)
		d.flush()
	}
}

func (d *denials) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for verb, scopes := range d.scopes {
		slices.Sort(scopes)
		named := strings.Join(scopes[:min(len(scopes), namedDenials)], ", ")
		if more := len(scopes) - namedDenials; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		d.log.Warn("not permitted to read resources, retrying: 'kubecdc rbac', with the same --config, prints the role that is needed",
			"verb", verb, "count", len(scopes), "scopes", named, "err", d.errs[verb])
	}
	clear(d.scopes)
	clear(d.errs)
}

func (i *informer) noteError(doing string, err error) {
	i.metrics.errors.WithLabelValues(doing + "_" + apiserver.Reason(err)).Inc()
}
