package nats_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// The remedies for a full stream. The documentation advises the first two. With the third, a
// version that loses records shows that the test detects a loss.
const (
	shorterAge   = "max_age"
	anotherName  = "stream"
	moreMaxBytes = "max_bytes"
)

// fullStreamSizes are the sizes of a run of TestFullStream.
type fullStreamSizes struct {
	length   time.Duration
	maxBytes int64
	age      time.Duration // the shorter max_age
	pause    time.Duration // between two events of a writer
	full     time.Duration // how long the stream stays full
}

// TestFullStream fills a stream of three replicas again and again, and makes room as the
// documentation advises, while its leader steps down every few seconds. Each acknowledged record
// must be in the stream, read back by its sequence, or be older than max_age and before all others.
//
// FULL_STREAM is the length of the long form, FULL_STREAM_SEED its seed, and FULL_STREAM_REMEDIES
// what to do about the full stream.
func TestFullStream(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster that is filled several times")
	}
	sizes := fullStreamSizes{
		length:   10 * time.Second,
		maxBytes: 1536 << 10,
		age:      3 * time.Second,
		pause:    200 * time.Millisecond,
		full:     500 * time.Millisecond,
	}
	if text := os.Getenv("FULL_STREAM"); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("FULL_STREAM: %v", err)
		}
		sizes = fullStreamSizes{
			length:   length,
			maxBytes: 4 << 20,
			age:      10 * time.Second,
			pause:    400 * time.Millisecond,
			full:     2 * time.Second,
		}
	} else {
		t.Parallel()
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FULL_STREAM_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("FULL_STREAM_SEED: %v", err)
		}
	}
	remedies := []string{shorterAge, anotherName}
	if text := os.Getenv("FULL_STREAM_REMEDIES"); text != "" {
		remedies = strings.Split(text, ",")
	}
	t.Logf("FULL_STREAM_SEED=%d", seed)
	newFullStream(t, sizes, seed).run(remedies)
}

// fullStream is a cluster with a stream that is filled, and writers that do not stop.
type fullStream struct {
	t       *testing.T
	sizes   fullStreamSizes
	dice    *rand.Rand // of the test's goroutine
	servers int
	urls    string
	js      jetstream.JetStream
	judge   *recordJudge

	bus     atomic.Pointer[bustest.NATS]
	name    atomic.Pointer[string] // of the stream
	rush    atomic.Bool            // writers do not pause: the stream is being edited
	streams int
	old     []string // former streams, which are kept

	replaced atomic.Int64 // how often a bus detected that a stream has lost records
}

func newFullStream(t *testing.T, sizes fullStreamSizes, seed uint64) *fullStream {
	t.Helper()
	servers := startCluster(t)
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.ClientURL()
	}
	f := &fullStream{
		t:       t,
		sizes:   sizes,
		dice:    rand.New(rand.NewPCG(seed, 0)),
		servers: len(servers),
		urls:    strings.Join(urls, ","),
	}
	f.js = bustest.Admin(t, f.urls)
	f.judge = newRecordJudge(t, f.js)
	return f
}

func (f *fullStream) run(remedies []string) {
	defer f.logSigns()
	ctx, stop := context.WithCancel(f.t.Context())
	f.start()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for k := range 64 {
		wg.Go(func() { f.write(ctx, k) })
	}
	steps := rand.New(rand.NewPCG(f.dice.Uint64(), 0))
	wg.Go(func() { f.stepDown(ctx, steps) })
	end := time.Now().Add(f.sizes.length)
	rounds := map[string]int{}
	for i := 0; i < len(remedies) || time.Now().Before(end); i++ {
		remedy := remedies[i%len(remedies)]
		f.fill()
		f.look(f.sizes.full)
		f.judge.readAll(*f.name.Load())
		switch remedy {
		case shorterAge:
			f.shorten()
		case anotherName:
			f.move()
		case moreMaxBytes:
			f.raise()
		default:
			f.t.Fatalf("FULL_STREAM_REMEDIES: unknown %q", remedy)
		}
		rounds[remedy]++
		if f.t.Failed() {
			break
		}
	}
	stop()
	wg.Wait()
	f.bus.Load().Stop()
	f.readFromEachReplica()
	f.t.Logf("rounds: %v; %s", rounds, f.judge)
}

// logSigns logs the signs of losses that the bus has detected. It must have warned of a version
// that loses records.
func (f *fullStream) logSigns() {
	r := f.bus.Load()
	if r == nil {
		return
	}
	warnings := bustest.Lines(r.Log.String(), "may lose acknowledged records")
	f.t.Logf("DETECTED: %d warnings of the version, %d replaced logs, %v false duplicates", warnings, f.replaced.Load(),
		r.Metric(f.t, "kubecdc_publish_retries_total", publish.ReasonFalseDuplicate))
	version := f.js.Conn().ConnectedServerVersion()
	if loses := natsversion.LosesWhenFull(version); loses != (warnings > 0) {
		f.t.Errorf("nats-server %s may lose records: %t; the bus has logged %d warnings", version, loses, warnings)
	}
}

// start runs a bus on a new stream.
func (f *fullStream) start() {
	f.streams++
	name := fmt.Sprint(natsconfig.DefaultStream, "-", f.streams)
	cfg := bustest.NATSConfig(f.urls)
	cfg.Stream.Name, cfg.Stream.Replicas = name, f.servers
	cfg.Stream.MaxBytes = yamldoc.Bytes(f.sizes.maxBytes)
	cfg.Stream.MaxAge.Duration, cfg.Stream.DuplicateWindow.Duration = time.Hour, f.sizes.age
	f.name.Store(&name)
	f.bus.Store(bustest.RunNATS(f.t, cfg, func(b *natsbus.Bus) {
		b.Logs().OnReplaced(func(string, string) { f.replaced.Add(1) })
	}))
}

// write publishes one event after the other, each until it is acknowledged.
func (f *fullStream) write(ctx context.Context, key int) {
	dice := rand.New(rand.NewPCG(uint64(key), 1))
	pad := strings.Repeat("x", 1<<10)
	for version := 1; ctx.Err() == nil; version++ {
		begun := time.Now()
		ev := bustest.Event(fmt.Sprint("web-", key), version,
			fmt.Sprintf(`{"key":%d,"version":%d,"pad":%q}`, key, version, pad))
		for ctx.Err() == nil {
			r := f.bus.Load()
			stream := *f.name.Load()
			done := make(chan error, 1)
			r.Bus.Publish(publish.NewEvent(ev, func(err error) { done <- err }, nil))
			err := <-done
			if err == nil {
				f.judge.acked(stream, publishedID(ev), begun)
				break
			}
			again := new(publish.RetryError)
			if !errors.As(err, &again) && !errors.Is(err, publish.ErrClosed) {
				f.t.Errorf("publish: %v", err)
				return
			}
			f.pause(ctx, dice, 100*time.Millisecond)
		}
		f.pause(ctx, dice, f.sizes.pause)
	}
}

// pause waits for half to one and a half of a time. While the stream is edited, or records expire,
// it is short: the replicas may do so at different moments, and what is written in between then
// shows a difference.
func (f *fullStream) pause(ctx context.Context, dice *rand.Rand, about time.Duration) {
	if f.rush.Load() {
		about = 20 * time.Millisecond
	}
	_ = pause.For(ctx, about/2+time.Duration(dice.Int64N(int64(about))))
}

// stepDown makes the leader of the stream, and at times that of JetStream, step down.
func (f *fullStream) stepDown(ctx context.Context, dice *rand.Rand) {
	for pause.For(ctx, time.Duration(1000+dice.IntN(4000))*time.Millisecond) == nil {
		f.stepDownNow(ctx)
		if dice.IntN(5) == 0 {
			_, _ = f.js.Conn().RequestWithContext(ctx, "$JS.API.META.LEADER.STEPDOWN", nil)
		}
	}
}

func (f *fullStream) stepDownNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// there may be no leader
	_, _ = f.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+*f.name.Load(), nil)
}

// fill waits until the bus has no room.
func (f *fullStream) fill() {
	r := f.bus.Load()
	full := func() float64 { return r.Metric(f.t, "kubecdc_publish_retries_total", publish.ReasonStreamFull) }
	before := full()
	for limit := time.Now().Add(5 * time.Minute); full() < before+20; f.look(f.sizes.age / 4) {
		if time.Now().After(limit) || f.t.Failed() {
			f.t.Fatal("the stream does not become full")
		}
	}
}

// look reads new records for a time.
func (f *fullStream) look(length time.Duration) {
	for end := time.Now().Add(length); ; {
		f.judge.readNew(*f.name.Load())
		left := time.Until(end)
		if left <= 0 || f.t.Failed() {
			return
		}
		_ = pause.For(f.t.Context(), min(left, f.sizes.age/4))
	}
}

// flow waits until events are acknowledged again.
func (f *fullStream) flow() {
	before := f.judge.count()
	for limit := time.Now().Add(2 * time.Minute); f.judge.count() < before+200; f.look(f.sizes.age / 4) {
		if time.Now().After(limit) || f.t.Failed() {
			f.t.Fatal("nothing is acknowledged although there is room")
		}
	}
}

// edit changes the stream. Its leader steps down before, after, or not at all.
func (f *fullStream) edit(change func(*jetstream.StreamConfig)) {
	defer f.hurry()()
	when := f.dice.IntN(4)
	if when == 0 {
		f.stepDownNow(f.t.Context())
	}
	f.judge.retry("edit the stream", func(ctx context.Context) error {
		s, err := f.js.Stream(ctx, *f.name.Load())
		if err != nil {
			return err
		}
		cfg := s.CachedInfo().Config
		change(&cfg)
		_, err = f.js.UpdateStream(ctx, cfg)
		return err
	})
	if when == 1 {
		f.stepDownNow(f.t.Context())
	}
}

// hurry makes the writers send without pauses, until shortly after the call of end.
func (f *fullStream) hurry() (end func()) {
	f.rush.Store(true)
	return func() {
		_ = pause.For(f.t.Context(), 100*time.Millisecond)
		f.rush.Store(false)
	}
}

// steps makes leaders step down while the stream has room for few records at a time.
func (f *fullStream) steps(n int, between func()) {
	defer f.hurry()()
	for range n {
		if between != nil {
			between()
		}
		_ = pause.For(f.t.Context(), time.Duration(f.dice.IntN(200))*time.Millisecond)
		f.stepDownNow(f.t.Context())
		f.look(300 * time.Millisecond)
	}
}

// shorten sets a max_age that the oldest records reach one by one, then a shorter one, and the
// former one after some time.
func (f *fullStream) shorten() {
	oldest := time.Since(f.judge.info(*f.name.Load()).State.FirstTime) + 500*time.Millisecond
	f.judge.allow(oldest)
	f.edit(func(c *jetstream.StreamConfig) { c.MaxAge = oldest })
	f.steps(6, nil)
	f.judge.readAll(*f.name.Load())
	f.judge.allow(f.sizes.age)
	f.edit(func(c *jetstream.StreamConfig) { c.MaxAge = f.sizes.age })
	f.flow()
	f.look(f.sizes.age / 2)
	f.judge.readAll(*f.name.Load())
	f.edit(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	f.judge.readAll(*f.name.Load())
	f.judge.allow(time.Hour)
}

// move makes room with another stream, which takes the subjects of the full one.
func (f *fullStream) move() {
	full := *f.name.Load()
	f.bus.Load().Stop()
	f.judge.readNew(full)
	f.edit(func(c *jetstream.StreamConfig) { c.Subjects = []string{"full." + c.Name} })
	f.start()
	f.flow()
	f.judge.readAll(full)
	f.old = append(f.old, full)
	if len(f.old) > 2 {
		oldest := f.old[0]
		f.old = f.old[1:]
		f.judge.readAll(oldest)
		f.judge.forget(oldest)
		f.judge.retry("delete a former stream", func(ctx context.Context) error {
			return f.js.DeleteStream(ctx, oldest)
		})
	}
}

// raise raises max_bytes, at first for few records.
func (f *fullStream) raise() {
	f.steps(6, func() { f.edit(func(c *jetstream.StreamConfig) { c.MaxBytes += 8 << 10 }) })
	f.judge.readAll(*f.name.Load())
	f.edit(func(c *jetstream.StreamConfig) { c.MaxBytes += f.sizes.maxBytes / 4 })
	f.flow()
	f.judge.readAll(*f.name.Load())
}

// readFromEachReplica reads all streams while each server leads them.
func (f *fullStream) readFromEachReplica() {
	for _, name := range append(slices.Clone(f.old), *f.name.Load()) {
		read := map[string]bool{}
		for limit := time.Now().Add(2 * time.Minute); len(read) < f.servers; {
			if time.Now().After(limit) {
				f.t.Fatalf("%s: only %v led it", name, read)
			}
			if leader := f.judge.leader(name); !read[leader] {
				f.judge.readAll(name)
				read[leader] = true
			}
			f.judge.retry("step down", func(ctx context.Context) error {
				_, err := f.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+name, nil)
				return err
			})
		}
	}
}
