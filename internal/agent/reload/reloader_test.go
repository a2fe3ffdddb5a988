package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/filter"
)

// reloading is a reloader of a file in a volume with the layout of a kubelet: a symlink to a
// symlink to a directory.
type reloading struct {
	*Reloader

	dir   string
	taken []*Loaded     // selections that the informers were given
	err   error         // their error for the next selection
	holds chan struct{} // the informers wait until it is closed; nil: they do not wait
	drain time.Time     // since when the scope pods waits for the bus; zero: it does not
	log   bytes.Buffer
	reg   *prometheus.Registry
	hups  chan os.Signal
	turn  int
}

const reloadBase = "apiVersion: kubecdc.dev/v1\nbus: {stdout: {}}\nserver: {address: \"127.0.0.1:0\"}\n"

const hashKey = "an-example-key-of-32-characters!"

// newReloading starts a reloader. It must be called in a synctest bubble.
func newReloading(t *testing.T, content string) *reloading {
	t.Helper()
	r := &reloading{dir: t.TempDir(), hups: make(chan os.Signal, 1)}
	file := filepath.Join(r.dir, "kubecdc.yaml")
	if err := os.Symlink(filepath.Join("..data", "kubecdc.yaml"), file); err != nil {
		t.Fatal(err)
	}
	r.swap(t, content)
	parse := func(data []byte) (*config.Config, error) { return config.Parse(data, file, checkWhere) }
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, err := Load(data, parse, ReadKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	apply := func(ctx context.Context, next *Loaded) (Scopes, error) {
		if r.holds != nil {
			select {
			case <-r.holds:
			case <-ctx.Done():
				return Scopes{}, context.Cause(ctx)
			}
		}
		if r.err != nil {
			return Scopes{}, r.err
		}
		r.taken = append(r.taken, next)
		return Scopes{Begun: 1, Ended: 2, Kept: 3}, nil
	}
	r.reg = prometheus.NewPedanticRegistry()
	r.Reloader = New(Options{
		File: file, First: first, Parse: parse, Apply: apply, Standby: func() bool { return false }, HUP: r.hups,
		Unapplied: func() (string, time.Time) {
			if r.drain.IsZero() {
				return "", time.Time{}
			}
			return "pods", r.drain
		},
		Log: log, Level: new(slog.LevelVar), Registerer: r.reg,
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if strings.Contains(r.log.String(), hashKey) {
			t.Errorf("the key is in the log:\n%s", &r.log)
		}
	})
	r.pass()
	return r
}

// checkWhere checks expressions as the agent does.
func checkWhere(c *config.Config) []*yamldoc.Error {
	var errs []*yamldoc.Error
	for i := range c.Watch {
		if _, err := filter.New(filter.Options{Where: c.Watch[i].Where}); err != nil {
			errs = append(errs, &yamldoc.Error{Path: fmt.Sprintf("watch[%d].where", i), Message: err.Error()})
		}
	}
	return errs
}

// swap replaces the content atomically, as a kubelet does.
func (r *reloading) swap(t *testing.T, content string) {
	t.Helper()
	r.turn++
	version := filepath.Join(r.dir, "..v"+strings.Repeat("i", r.turn))
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(version, "kubecdc.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(r.dir, "..next")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(r.dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// pass waits long enough for the reloader to notice a change.
func (r *reloading) pass() {
	r.look() // its lock orders the test's actions before the reloader's next ones: the timers of a bubble do not
	<-time.After(3 * interval)
	synctest.Wait()
}

// counts returns the results so far: applied, refused, unchanged, failed.
func (r *reloading) counts() [4]float64 {
	var out [4]float64
	for i, of := range []result{resultApplied, resultRefused, resultUnchanged, resultFailed} {
		out[i] = testutil.ToFloat64(r.metrics.reloads.WithLabelValues(string(of)))
	}
	return out
}

// expect checks the counts, and whether the file is reported as in force.
func (r *reloading) expect(t *testing.T, counts [4]float64, inForce bool, problems ...string) {
	t.Helper()
	if diff := cmp.Diff(counts, r.counts()); diff != "" {
		t.Errorf("applied, refused, unchanged, failed (-want +got):\n%s\n%s", diff, &r.log)
	}
	want := 0.0
	if inForce {
		want = 1
	}
	if got := testutil.ToFloat64(r.metrics.successful); got != want {
		t.Errorf("last_reload_successful is %v, want %v", got, want)
	}
	s := r.Status()
	if (r.Check() == nil) != inForce || (s.Refused == nil) != inForce || len(s.Problems) != len(problems) {
		t.Errorf("status: %+v, check: %v", s, r.Check())
	}
	for i, p := range problems {
		if i < len(s.Problems) && !strings.Contains(s.Problems[i], p) {
			t.Errorf("problem %d is %q, want %q", i, s.Problems[i], p)
		}
		if !strings.Contains(r.log.String(), p) {
			t.Errorf("the log does not say %q:\n%s", p, &r.log)
		}
	}
}

func TestReloadTakesWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.pass()
		r.expect(t, [4]float64{}, true)
		hash := r.Status().SHA256
		r.swap(t, reloadBase+"watch: [{resources: [pods]}, {resources: [secrets]}]\nlog: {level: debug}\n")
		r.pass()
		r.expect(t, [4]float64{1}, true)
		if len(r.taken) != 1 || len(r.taken[0].Watch) != 2 {
			t.Fatalf("taken: %+v", r.taken)
		}
		for _, want := range []string{
			`"msg":"the changed configuration is in force"`, `"changed":["watch","log.level"]`, `"rules":2`,
			`"scopes_begun":1`, `"scopes_ended":2`, `"scopes_kept":3`,
		} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("%s is not in:\n%s", want, &r.log)
			}
		}
		if r.o.Level.Level() != slog.LevelDebug {
			t.Errorf("log level %v", r.o.Level.Level())
		}
		if s := r.Status(); s.SHA256 == hash || testutil.ToFloat64(r.metrics.info.WithLabelValues(s.SHA256)) != 1 ||
			testutil.CollectAndCount(r.metrics.info) != 1 {
			t.Errorf("the hash that is shown is %s, before %s", s.SHA256, hash)
		}

		// Write another text with the same meaning, followed by the same text again.
		r.swap(t,
			reloadBase+
				"# a comment\nwatch:\n  - {resources: [pods]}\n  - {resources: [secrets]}\nlog: {level: debug}\n")
		r.pass()
		r.expect(t, [4]float64{1, 0, 1}, true)
		r.swap(t,
			reloadBase+
				"# a comment\nwatch:\n  - {resources: [pods]}\n  - {resources: [secrets]}\nlog: {level: debug}\n")
		r.pass()
		r.expect(t, [4]float64{1, 0, 1}, true)
		// The result is reported on request.
		r.hups <- syscall.SIGHUP
		r.pass()
		r.expect(t, [4]float64{1, 0, 2}, true)
		if len(r.taken) != 1 {
			t.Errorf("the informers were given %d selections", len(r.taken))
		}
	})
}

func TestReloadWaitsUntilAFileIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		whole := reloadBase + "watch: [{resources: [pods]}]\n"
		// Successive looks find longer parts of the file, no file, and the whole file. A part that
		// happens to be valid is not applied.
		for i := range 10 {
			r.swap(t, whole[:len(whole)*i/10])
			<-time.After(interval)
			synctest.Wait()
		}
		if err := os.Remove(filepath.Join(r.dir, "..data")); err != nil {
			t.Fatal(err)
		}
		<-time.After(interval)
		synctest.Wait()
		r.expect(t, [4]float64{}, true)
		r.swap(t, whole)
		<-time.After(interval)
		synctest.Wait()
		r.expect(t, [4]float64{}, true)
		<-time.After(interval)
		synctest.Wait()
		r.expect(t, [4]float64{1}, true)

		// A file that stays missing is an error.
		if err := os.Remove(filepath.Join(r.dir, "..data")); err != nil {
			t.Fatal(err)
		}
		r.pass()
		r.expect(t, [4]float64{1, 0, 0, 1}, false, "no such file")
		r.swap(t, whole)
		r.pass()
		r.expect(t, [4]float64{1, 0, 1, 1}, true)
	})
}

func TestReloadRefusesWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.swap(t, reloadBase+"wacht: []\nnoise: [status-onyl]\nwatch:\n  - resources: [Deployment]\n")
		r.pass()
		at := func(place string) string { return filepath.Join(r.dir, "kubecdc.yaml") + place }
		r.expect(t, [4]float64{0, 1}, false, at(":4:1: wacht: "), at(":5:9: noise[0]: "),
			at(":7:17: watch[0].resources[0]: "))
		said := r.log.Len()
		r.pass() // it is neither logged nor counted again
		r.expect(t, [4]float64{0, 1}, false, "", "", "")
		if r.log.Len() != said {
			t.Errorf("it is said again:\n%s", r.log.String()[said:])
		}
		if err := r.Check(); !strings.Contains(err.Error(), "is rejected, the previous one stays in force: ") ||
			!strings.Contains(err.Error(), "(and 2 more)") {
			t.Error(err)
		}
		r.swap(t, reloadBase) // reverted
		r.pass()
		r.expect(t, [4]float64{0, 1, 1}, true)

		// An expression is checked as at startup.
		r.swap(t, reloadBase+"watch: [{resources: [pods], where: 'op == 1'}]\n")
		r.pass()
		r.expect(t, [4]float64{0, 2, 1}, false, "watch[0].where: ")
		r.swap(t, reloadBase+"watch: [{resources: [pods], where: 'op == \"u\"'}]\n")
		r.pass()
		r.expect(t, [4]float64{1, 2, 1}, true)
	})
}

func TestReloadRefusesWhatNeedsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.swap(t,
			strings.Replace(reloadBase, ":0", ":1", 1)+
				"watch: [{resources: [pods]}]\nqueue: {events: 5000}\nlog: {format: text}\n")
		r.pass()
		r.expect(t, [4]float64{0, 1}, false,
			"queue.events, server.address, log.format: cannot be changed while the agent runs: restart the agent")
		r.swap(t, strings.Replace(reloadBase, "stdout: {}", "nats: {url: 'nats://u:hunter2@n:4222'}", 1))
		r.pass()
		r.expect(t, [4]float64{0, 2}, false, "bus.") // the default of deadLetter depends on the bus
		if strings.Contains(r.log.String(), "hunter2") {
			t.Errorf("a password is in the log:\n%s", &r.log)
		}
		if len(r.taken) > 0 {
			t.Error("the informers were given a selection")
		}
	})
}

// The author of a new key must decide whether a change needs a restart.
func TestEveryKeyIsFixedOrNot(t *testing.T) {
	a := config.Default()
	free := map[string]bool{}
	for _, k := range changedKeys(a, &config.Config{}) {
		if len(fixed([]string{k})) == 0 {
			free[strings.SplitN(k, ".", 2)[0]] = true
		}
	}
	for _, k := range []string{"noise", "redaction.keyFile", "redaction.mode", "watch", "strip", "log.level"} {
		if len(fixed([]string{k})) > 0 {
			t.Errorf("%s needs a restart", k)
		}
	}
	for _, k := range []string{"bus.nats.url", "cluster", "log.format", "watchful", "queue.events", "snapshot.every"} {
		if len(fixed([]string{k})) == 0 {
			t.Errorf("%s needs no restart", k)
		}
	}
	if want := []string{"log", "redaction", "strip", "watch"}; !slices.Equal(want, sortedKeys(free)) {
		t.Errorf("free: %v, want %v", sortedKeys(free), want)
	}
	if keys := changedKeys(a, config.Default()); keys != nil {
		t.Errorf("two defaults differ in %v", keys)
	}
}

func sortedKeys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// A configuration that the informers refuse is retried on request.
func TestReloadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.err = errors.New("no informer takes it")
		r.swap(t, reloadBase+"watch: [{resources: [pods]}]\n")
		r.pass()
		r.expect(t, [4]float64{0, 0, 0, 1}, false, "no informer takes it")
		r.err = nil
		r.pass()
		r.expect(t, [4]float64{0, 0, 0, 1}, false, "no informer takes it")
		r.hups <- syscall.SIGHUP
		<-time.After(3 * soon)
		synctest.Wait()
		r.expect(t, [4]float64{1, 0, 0, 1}, true)
	})
}
