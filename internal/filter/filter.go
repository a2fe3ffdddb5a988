package filter

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Options define which deltas are sent. The zero value withholds nothing.
type Options struct {
	// Operations has the ops of "created", "updated" and "deleted" that are sent; empty: all. Read,
	// Entered and Left are always sent.
	Operations []string
	// The CEL expression Where withholds the deltas for which it is false. "": no expression.
	Where string
	// OnError is the action for a delta for which Where cannot be evaluated: "send" or "drop"; "":
	// send.
	OnError string
	// Noise has names of ready-made filters, see NoiseNames.
	Noise []string
	// Removes reports whether redaction removes values of the resource's objects, instead of
	// hashing them. A change of only such a value is invisible, and must not count as noise. nil:
	// true for Secrets only.
	Removes func(r *object.Resource) bool
	// Rule names the rule in metrics and in the log: "watch[0]".
	Rule    string
	Log     *slog.Logger // nil: no logging
	Metrics *Metrics     // nil: no metrics
}

// The reasons to withhold a delta; the reason of a noise filter is "noise:" and its name.
const (
	ReasonOperations = "operations"
	ReasonWhere      = "where" // it is false
	ReasonError      = "error" // it cannot be evaluated, and OnError is drop
	reasonNoise      = "noise:"
)

// warnEvery is the interval between log lines about a rule's errors.
const warnEvery = time.Minute

// Filter is the filter of one rule. It is immutable and safe for concurrent use.
type Filter struct {
	withheld []object.Op // by operations
	noise    []*noise
	where    *expression // nil: none
	drop     bool        // drop deltas for which the evaluation fails
	removes  func(r *object.Resource) bool

	rule   string
	log    *slog.Logger
	errors prometheus.Counter
	warned atomic.Int64 // the last warning, in nanoseconds since 1970

	pool sync.Pool // of *evaluation
}

// New compiles the filter of a rule. It returns all errors at once; the errors of an expression are
// *ExpressionError.
func New(o Options) (*Filter, error) {
	f := &Filter{rule: o.Rule, log: o.Log, removes: o.Removes}
	var errs []error
	if len(o.Operations) > 0 {
		names := map[string]bool{}
		for _, op := range object.ChoosableOps() {
			names[op.Word()] = true
			if !slices.Contains(o.Operations, op.Word()) {
				f.withheld = append(f.withheld, op)
			}
		}
		for _, name := range o.Operations {
			if !names[name] {
				errs = append(errs, fmt.Errorf("operation %q: want created, updated or deleted", name))
			}
		}
	}
	for _, name := range o.Noise {
		n, err := newNoise(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.noise = append(f.noise, n)
	}
	switch o.OnError {
	case "", "send":
	case "drop":
		f.drop = true
	default:
		errs = append(errs, fmt.Errorf("onError %q: want send or drop", o.OnError))
	}
	if o.Where != "" {
		var err error
		f.where, err = compile(o.Where)
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if f.removes == nil {
		f.removes = func(r *object.Resource) bool { return r.Group == "" && r.Name == "secrets" }
	}
	if f.where != nil {
		f.errors = o.Metrics.of(o.Rule)
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.pool.New = func() any { return &evaluation{} }
	return f, nil
}

// For returns the filter for one resource; nil if it withholds none of its deltas. (A nil
// *Resourced in an interface is not nil: check it before the conversion.)
func (f *Filter) For(r *object.Resource) *Resourced {
	if f == nil {
		return nil
	}
	x := &Resourced{f: f, resource: r.String()}
	removes := f.removes(r)
	for _, n := range f.noise {
		if mask := n.maskOf(r, removes); mask != nil {
			x.noise = append(x.noise, mask)
		}
		if mask := n.maskOf(r, true); mask != nil {
			x.hiding = append(x.hiding, mask)
		}
	}
	if len(f.withheld) == 0 && len(x.noise) == 0 && f.where == nil {
		return nil
	}
	return x
}

// Resourced is a Filter for one resource. It is safe for concurrent use.
type Resourced struct {
	f        *Filter
	resource string
	noise    []*masked
	hiding   []*masked // for updates of objects that hide copies of Secrets
}

// Withholds returns the reason to withhold d, "" if d is sent. Stream events are always sent.
func (r *Resourced) Withholds(d *object.Delta) (reason string) {
	if d.Stream != nil {
		return ""
	}
	if slices.Contains(r.f.withheld, d.Op) {
		return ReasonOperations
	}
	var noise []*masked
	if d.Op == object.Updated && d.Before != nil && d.After != nil {
		noise = r.noise
		if d.Before.Hides() || d.After.Hides() {
			noise = r.hiding
		}
	}
	if len(noise) == 0 && r.f.where == nil {
		return ""
	}
	e := r.f.pool.Get().(*evaluation)
	defer r.f.pool.Put(e)
	e.begin(d, r.f.where)
	defer e.end()
	for _, n := range noise {
		if n.isNoise(e) {
			return n.reason
		}
	}
	if r.f.where == nil {
		return ""
	}
	sent, err := r.f.where.holds(e)
	switch {
	case err != nil:
		return r.noteFailure(d, err)
	case !sent:
		return ReasonWhere
	}
	return ""
}

// noteFailure counts a failed evaluation, and logs the first in each window.
func (r *Resourced) noteFailure(d *object.Delta, err error) string {
	f := r.f
	f.errors.Inc()
	reason, what := "", "send"
	if f.drop {
		reason, what = ReasonError, "drop"
	}
	now, last := time.Now().UnixNano(), f.warned.Load()
	if (last == 0 || now-last >= int64(warnEvery)) && f.warned.CompareAndSwap(last, now) {
		f.log.Warn(
			"cannot evaluate where for a change; further failures of this rule are counted, and logged once a minute",
			"rule", f.rule, "resource", r.resource, "namespace", d.Ref.Namespace(), "name", d.Ref.Name(), "op",
			string(d.Op),
			"error_kind", kindOf(err), "on_error", what)
	}
	return reason
}

// ExpressionError is an error at a position of an expression.
type ExpressionError struct {
	Line, Column int // from 1, in characters
	Message      string
}

func (e *ExpressionError) Error() string {
	if e.Line == 1 {
		return fmt.Sprintf("column %d: %s", e.Column, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// NoiseNames returns the names of the ready-made filters, sorted.
func NoiseNames() []string {
	var names []string
	for i := range noises() {
		names = append(names, noises()[i].name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
