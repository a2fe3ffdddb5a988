package informer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/retry"
)

// gone is the end of a watch whose history has expired.
func gone() error { return apierrors.NewResourceExpired("too old") }

func status(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code}}
}

// Each end of a watch is an interruption of the observation. Its reason says what readers may have
// missed.
func TestEndOfAWatchInterrupts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want object.InterruptionReason
	}{
		{nil, object.InterruptedClosed},
		{errGeneration, object.InterruptedClosed},
		{errBlocked, object.InterruptedBlocked},
		{apiserver.ErrSilent, object.InterruptedSilent},
		{errHeldBack, object.InterruptedSilent},
		{errDoubt, object.InterruptedListed},
		{gone(), object.InterruptedListed},
		{errors.New("connection reset"), object.InterruptedCut},
		{status(http.StatusInternalServerError), object.InterruptedCut},
	} {
		for _, err := range []error{c.err, fmt.Errorf("watch: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			if got := interruptedBy(err); got != c.want {
				t.Errorf("%v: %s, want %s", err, got, c.want)
			}
		}
	}
}

// After every end that may hide another history, the next object waits for a probe. A watch that
// was whole and has shown frames hides none, and neither does one that the agent ended because it
// was blocked.
func TestEndOfAWatchRaisesDoubt(t *testing.T) {
	for _, c := range []struct {
		got  watched
		err  error
		want doubtPhase
	}{
		{watched{opened: true, frames: 3, endedInTime: true}, nil, certain},
		{watched{opened: true, frames: 0, endedInTime: true}, nil, doubtful},
		{watched{opened: true, frames: 3}, nil, doubtful},
		{watched{opened: true, frames: 3}, errors.New("connection reset"), doubtful},
		{watched{}, errors.New("connection refused"), doubtful},
		{watched{opened: true, frames: 3}, errBlocked, certain},
		{watched{opened: true}, errBlocked, certain},
	} {
		i := &Informer{}
		f := &follower{informer: i, reopen: retry.New(), doubt: doubt{informer: i}}
		f.noteWatch(&c.got, c.err)
		if f.doubt.phase != c.want {
			t.Errorf("%+v, %v: %s, want %s", c.got, c.err, f.doubt.phase, c.want)
		}
	}
}

// A watch that was of use ends the growing delays. One that lasted long without a frame was of use
// too, but if it has expired, the next one is likely to expire as well.
func TestUsefulWatchForgetsFailures(t *testing.T) {
	cut := errors.New("connection reset")
	for _, c := range []struct {
		got watched
		err error

		reopens, found, sound bool
	}{
		{watched{}, cut, false, false, false},
		{watched{frames: 1}, cut, false, false, true},
		{watched{frames: 1, objects: 1}, cut, true, true, true},
		{watched{lasted: apiserver.ShortWatch}, cut, false, false, false},
		{watched{lasted: apiserver.ShortWatch + 1}, cut, true, true, false},
		{watched{lasted: apiserver.ShortWatch + 1}, gone(), true, false, false},
		{watched{lasted: apiserver.SoundAfter - 1}, cut, true, true, false},
		{watched{lasted: apiserver.SoundAfter}, cut, true, true, true},
	} {
		i := &Informer{metrics: NewVectors(prometheus.NewRegistry()).of("pods")}
		i.broken = true
		delays := retry.New()
		f := &follower{informer: i, reopen: delays, expired: 2, doubt: doubt{informer: i}}
		f.noteWatch(&c.got, c.err)
		if (f.reopen != delays) != c.reopens || (f.expired == 0) != c.found || i.broken == c.sound {
			t.Errorf("%+v, %v: delays anew %t, %d expired, broken %t", c.got, c.err, f.reopen != delays, f.expired,
				i.broken)
		}
	}
}

// A watch that expires is tried again some times, because another API server may go back further.
// Then a list is needed: at once if the definition has changed, because then no API server has
// more.
func TestExpiredWatchIsTriedAgain(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			i := &Informer{}
			if changed {
				i.generation.number.Add(1)
			}
			worn := retry.New()
			f := &follower{informer: i, again: worn}
			tries, began := 0, time.Now()
			for f.awaitExpiredRetry(t.Context()) {
				tries++
				if f.again == worn {
					t.Errorf("try %d: the pause is as long as after earlier expiries", tries)
				}
			}
			want := freshTries
			if changed {
				want = 0
			}
			if tries != want || (time.Since(began) > 0) != (want > 0) {
				t.Errorf("definition changed %t: %d tries in %v, want %d with pauses", changed, tries,
					time.Since(began), want)
			}
		})
	}
}

// A list without a resourceVersion that is older than the position proves another history, unless
// the API server may have no etcd.
func TestOlderListIsAnotherHistory(t *testing.T) {
	aggregated := false
	i := &Informer{deps: &Deps{AnotherHas: func(*object.Resource) (bool, bool) { return aggregated, true }}}
	for _, c := range []struct {
		now        uint64
		aggregated bool
		want       verdict
	}{
		{99, false, another},
		{100, false, same},
		{101, false, same},
		{99, true, uncertain},
		{100, true, same},
		{101, true, same},
	} {
		aggregated = c.aggregated
		if got := i.judgeLatest(c.now, 100); got != c.want {
			t.Errorf("at %d, aggregated %t: %d, want %d", c.now, c.aggregated, got, c.want)
		}
	}
}

// Only a permanent refusal of a list at a resourceVersion makes the agent give up the checkpoint: a
// server that fails at present may answer later.
func TestUnsupportedExact(t *testing.T) {
	unsupported := []int32{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity}
	for code := int32(400); code < 600; code++ {
		if got, want := apiserver.ExactLists.IsMissing(status(code)), slices.Contains(unsupported, code); got != want {
			t.Errorf("%d: %t", code, got)
		}
	}
	if apiserver.ExactLists.IsMissing(errors.New("connection reset")) || apiserver.ExactLists.IsMissing(nil) {
		t.Error("an error without a status is a refusal")
	}
}

// An event on the bus is of the followed history if the version there has the managers that changed
// it. Managers that are not known refute nothing.
func TestChangedByOfTheOtherHistory(t *testing.T) {
	scan := func(managed string) *object.Scanned {
		raw := `{"metadata":{"name":"a","managedFields":[` + managed + `]}}`
		_, m, err := object.NewScanner(nil).Scan(nil, []byte(raw), "ConfigMap", "v1")
		if err != nil {
			t.Fatal(err)
		}
		return m.CopyManagers()
	}
	const (
		edit  = `{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}`
		later = `{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:01Z"}`
		helm  = `{"manager":"helm","operation":"Apply","time":"2026-11-20T15:00:00Z"}`
	)
	for name, c := range map[string]struct {
		managers *object.Scanned
		by       string
		want     bool
	}{
		"the same":                {scan(edit), `[` + edit + `]`, true},
		"among others":            {scan(helm + "," + edit), `[` + edit + `]`, true},
		"at another time":         {scan(later), `[` + edit + `]`, false},
		"by another manager":      {scan(helm), `[` + edit + `]`, false},
		"one of two":              {scan(edit), `[` + edit + `,` + helm + `]`, false},
		"managers are not known":  {nil, `[` + edit + `]`, true},
		"changedBy is not known":  {scan(helm), "", true},
		"changedBy is not a list": {scan(helm), `{}`, true},
	} {
		var by []byte
		if c.by != "" {
			by = []byte(c.by)
		}
		if got := wasChangedBy(c.managers, by); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Each state of the store's gate shows in the phase of a scope that observes, and in no phase of
// one that leaves.
func TestPhaseFollowsTheGate(t *testing.T) {
	for p := range PhaseRemoved + 1 {
		for n := range 8 {
			loading := n&1 > 0
			closed := n&2 > 0
			unread := n&4 > 0
			s := &state{scope: "pods", log: slog.New(slog.DiscardHandler), changed: func() {}, phase: p}
			s.unread = unread
			s.followGate(loading, closed)
			want := PhaseLive
			switch {
			case p == PhaseDraining, p == PhaseRetiring, p == PhaseDrained, p == PhaseRemoved:
				want = p
			case loading && (p == PhaseWaiting || p == PhaseListing): // the first list waits for its turn
				want = p
			case loading:
				want = PhaseRelisting
			case closed:
				want = PhaseAnnouncing
			case unread:
				want = PhaseBlocked
			}
			if s.phase != want {
				t.Errorf("%s, loading %t, closed %t, unread %t: %s, want %s", p, loading, closed, unread, s.phase, want)
			}
		}
	}
}

// A watch that holds back changes is followed by brief ones, until one shows frames before its end,
// or none at all: the path then has nothing to hold back.
func TestWatchesAreBriefUntilThePathPasses(t *testing.T) {
	open := watched{opened: true}
	type end struct {
		got   watched
		err   error
		held  bool // the watch has held back changes
		brief bool // the next one is brief
	}
	shown, late := open, open
	shown.frames = 5
	shown.objects = 2
	shown.passed = true
	late.frames, late.objects = 5, 2 // all came with the end
	for name, ends := range map[string][]end{
		"passes again": {{open, errHeldBack, true, true}, {shown, nil, false, false}, {
			late, nil, false, false,
		}},
		"holds back for long": {{open, errHeldBack, true, true}, {late, nil, true, true}, {late, nil, true, true}, {
			shown, nil, false, false,
		}},
		"nothing to show": {{open, errHeldBack, true, true}, {open, nil, false, false}},
		"silent": {{open, apiserver.ErrSilent, false, true}, {late, nil, true, true}, {
			open, nil, false, false,
		}},
		"cut while it is": {{open, errHeldBack, true, true}, {late, errors.New("reset"), false, true}, {
			open, errors.New("reset"), false, true,
		}},
		"never opened":         {{open, errHeldBack, true, true}, {watched{}, errors.New("refused"), false, true}},
		"ordinary watches end": {{late, nil, false, false}, {open, nil, false, false}, {shown, nil, false, false}},
	} {
		var b buffering
		row := 0
		for n, e := range ends {
			if e.got.passed {
				row = 0
			}
			if e.held {
				row++
			}
			held := b.noteEnd(&e.got, e.err)
			if (held != nil) != e.held || held != nil && !errors.Is(held, errHeldBack) || b.brief != e.brief ||
				b.row != row {
				t.Errorf("%s: end %d: held back %v, brief %t, in a row %d; want %t, %t, %d", name, n, held, b.brief,
					b.row, e.held, e.brief, row)
			}
		}
	}
}

// An outage is logged once a minute for each reason, and its end wakes who waits for an answer
// later than the own failure.
func TestOutageEndsWithALaterAnswer(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }
	o := NewOutage(slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		reason string
		second int
		want   bool
	}{{"network", 0, true}, {"network", 59, false}, {"unauthorized", 59, true}, {"unauthorized", 118, false}, {
		"unauthorized", 119, true,
	}} {
		if got := o.Begin(c.reason, at(c.second)); got != c.want {
			t.Errorf("%s at %d: logged %t", c.reason, c.second, got)
		}
	}
	answered := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	before := o.await(at(120))
	if answered(before) {
		t.Error("an answer before there was any")
	}
	o.End(at(130))
	if !answered(before) {
		t.Error("the answer wakes nobody")
	}
	if !answered(o.await(at(129))) || answered(o.await(at(130))) || answered(o.await(at(131))) {
		t.Error("an answer counts for failures before it, and for no others")
	}
}
