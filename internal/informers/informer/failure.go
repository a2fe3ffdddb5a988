package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/broadcast"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/retry"
)

const (
	// warnEvery is the interval of warnings of one informer's persistent error.
	warnEvery = time.Minute
	// warnHopelessEvery is the same for an error that needs an operator: sixty forbidden resources
	// must not be logged each minute.
	warnHopelessEvery = time.Hour
)

// noteFailed reports a request that failed and is retried after delay: in metrics always, in the
// log once a window.
func (i *Informer) noteFailed(ctx context.Context, doing string, err error, delay time.Duration) {
	if ctx.Err() != nil {
		return
	}
	i.noteError(doing, err)
	err = i.withFix(err)
	r, now := apiserver.Reason(err), time.Now()
	verb := "list" // the required permission
	if doing == "watch" {
		verb = doing
	}
	warn := i.state.noteFailure(err, r, now, func() {
		if r == apiserver.ReasonForbidden && !i.state.phase.IsLeaving() {
			// the new configuration may have removed the permission from the role
			i.deps.Denials.add(verb, i.name, err)
		}
	})
	if apiserver.IsShared(r) {
		warn = i.deps.Outage.Begin(r, now)
	}
	i.store.Notify()
	i.deps.NoteCaptured() // the first snapshot may no longer wait for it
	attrs := []any{"scope", i.name, "doing", doing, "err", err, "retry_in", delay}
	if apiserver.IsShared(r) {
		attrs = append(attrs, "api_server", i.deps.Client.Host)
	}
	level := slog.LevelDebug
	if warn && r != apiserver.ReasonForbidden { // Denials logs these
		level = slog.LevelWarn
	}
	switch r {
	case "network":
		i.log.Log(ctx, level, "cannot reach the API server, retrying", attrs...)
	case "unauthorized":
		i.log.Log(ctx, level,
			"the API server rejects the credentials, retrying: renew those of the kubeconfig or service account",
			attrs...)
	case "forbidden":
		i.log.Log(ctx, level, "not permitted to read a resource, retrying", attrs...)
	case "not_found":
		i.log.Log(ctx, level, "a resource is no longer served, checking again", attrs...)
	case apiserver.ReasonUnsupported:
		i.log.Log(ctx, level, "cannot capture a resource, checking again", attrs...)
	default:
		i.log.Log(ctx, level, "cannot read from the API server, retrying", attrs...)
	}
}

// withFix adds to the error of a resource that cannot be captured how to exclude it.
func (i *Informer) withFix(err error) error {
	if !errors.Is(err, apiserver.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("%w: add %s to except of the rule that names it with a wildcard, or remove it from resources",
		err, i.resource)
}

// noteRecovered records that a failed request succeeds again.
func (i *Informer) noteRecovered() {
	s := &i.state
	s.mu.Lock()
	failed := s.err != nil
	s.err, s.fails = nil, 0
	s.mu.Unlock()
	if failed {
		i.store.Notify()
		i.deps.Outage.End(time.Now())
	}
}

// Outage is the time in which no informer of a manager can reach the API server.
type Outage struct {
	log *slog.Logger

	mu       sync.Mutex
	since    time.Time // zero: it is reachable, or the outage was not logged
	warned   time.Time
	reason   string
	answered time.Time     // time of its last answer after a failure
	answers  chan struct{} // closed at its next answer; nil if nothing waits for that
}

// NewOutage returns an Outage that has not begun.
func NewOutage(log *slog.Logger) *Outage { return &Outage{log: log} }

// Begin records a failed request. It reports whether to log it.
func (o *Outage) Begin(reason string, now time.Time) (warn bool) {
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

// End records that the API server has answered.
func (o *Outage) End(now time.Time) {
	o.mu.Lock()
	since := o.since
	o.since, o.answered = time.Time{}, now
	if o.answers != nil {
		close(o.answers)
		o.answers = nil
	}
	o.mu.Unlock()
	if !since.IsZero() {
		o.log.Info("the API server responds again", "after", now.Sub(since))
	}
}

// await returns a channel that is closed once the API server has answered later than after. It may
// be closed already.
func (o *Outage) await(after time.Time) <-chan struct{} {
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

// gatherDenials is the time between the first denial and its log line: a role that permits only
// pods causes one line, not sixty.
const gatherDenials = time.Second

// Denials has the forbidden scopes that are not logged yet.
type Denials struct {
	log   *slog.Logger
	added chan struct{} // capacity 1: there is something to log

	mu     sync.Mutex
	scopes map[string][]string // by verb
	errs   map[string]error    // by verb: the first error
}

// NewDenials returns Denials of no scope.
func NewDenials(log *slog.Logger) *Denials {
	return &Denials{
		log:    log,
		added:  make(chan struct{}, 1),
		scopes: map[string][]string{},
		errs:   map[string]error{},
	}
}

func (d *Denials) add(verb, scope string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.errs[verb] == nil {
		d.errs[verb] = err
	}
	d.scopes[verb] = append(d.scopes[verb], scope)
	broadcast.Wake(d.added)
}

// Run logs added denials until ctx ends.
func (d *Denials) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.added:
		}
		_ = pause.For(ctx, gatherDenials)
		d.Flush()
	}
}

// Flush logs the added denials.
func (d *Denials) Flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for verb, scopes := range d.scopes {
		slices.Sort(scopes)
		d.log.Warn(
			"not permitted to read resources, retrying: 'kubecdc rbac', with the same --config, prints the role that is needed",
			"verb", verb, "count", len(scopes), "scopes", Few(scopes), "err", d.errs[verb])
	}
	clear(d.scopes)
	clear(d.errs)
}

// Few returns the names of the first scopes, and the number of the others. Status has all of them.
func Few(scopes []string) string {
	const named = 10
	if more := len(scopes) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(scopes[:named], ", "), more)
	}
	return strings.Join(scopes, ", ")
}

func (i *Informer) noteError(doing string, err error) {
	i.metrics.errors.WithLabelValues(doing + "_" + apiserver.Reason(err)).Inc()
}

// Kick makes the Informer retry at once.
func (i *Informer) Kick() { broadcast.Wake(i.kicked) }

// wakeWithin is the time over which scopes spread their retries when the API server responds again
// after an outage.
const wakeWithin = time.Second

// pause waits for d after err. It returns early if kicked, or if err affected all scopes and the
// API server has answered one of them. It returns false if ctx ended first.
func (i *Informer) pause(ctx context.Context, err error, d time.Duration) bool {
	var answers <-chan struct{}
	if apiserver.IsShared(apiserver.Reason(err)) {
		answers = i.deps.Outage.await(i.retried)
	}
	defer func() { i.retried = time.Now() }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-i.kicked:
	case <-answers:
		return pause.For(ctx, min(d, retry.First+rand.N(wakeWithin))) == nil
	case <-ctx.Done():
		return false
	}
	return true
}

// IsFailing reports whether requests fail for a reason that a new definition may remove.
func (i *Informer) IsFailing() bool {
	err := i.state.lastError()
	return err != nil && !apierrors.IsForbidden(err) && !apierrors.IsTooManyRequests(err)
}

// FailsBecause reports whether the last request has failed for a reason, of the classes of package
// apiserver.
func (i *Informer) FailsBecause(reason string) bool {
	err := i.state.lastError()
	return err != nil && apiserver.Reason(err) == reason
}
