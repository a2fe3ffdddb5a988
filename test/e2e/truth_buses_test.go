package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/world"
)

// busTruth is a short TestTruth over any bus, with faults on the way to it.
type busTruth struct {
	To        world.Destination
	Namespace string // A namespace of the test's own.
	There     bool   // The namespace exists and has objects.
	Revisions int
	Extra     string // More of the agent's configuration.
	// Trouble runs while the writers write, until its context ends. It may be nil.
	Trouble func(context.Context) error
	// Enough reports whether there was enough trouble. Until then the writers continue, even after
	// the last revision.
	Enough func() bool
	// Idle is how long no record may come before the stream is judged as it is.
	Idle time.Duration
	// Reader reads the stream; nil means the default reader.
	Reader *oracle.Reader
	// Letters permits dead letters.
	Letters bool
	Binary  string // The agent's binary; "" means that of this tree.

	stream *world.Stream
	agent  *world.Agent
}

// busResources are the resources that the writers change.
var busResources = []string{"configmaps", "secrets", oracle.Widgets}

// run writes, compares the stream with etcd's history and returns the verdict.
func (b *busTruth) run(t *testing.T, p *world.Plane) oracle.Verdict {
	t.Helper()
	b.begin(t, p)
	b.write(t, p)
	return b.judge(t, p)
}

// begin creates some objects and then starts the agent.
func (b *busTruth) begin(t *testing.T, p *world.Plane) {
	t.Helper()
	if !b.There {
		p.NewNamespace(t, b.Namespace)
	}
	p.MakeMany(t, b.Namespace, "before", 100)
	if b.Idle == 0 {
		b.Idle = 20 * time.Second
	}
	if b.Reader == nil {
		b.Reader = p.Reader()
	}
	b.stream = b.To.Read(t, b.Reader)
	b.agent = world.StartAgent(t, p, world.AgentConfig{
		Bus: b.To, Extra: b.Extra, Binary: b.Binary,
		Watch: fmt.Sprintf("  - resources: [%s]\n    namespaces: [%s]", strings.Join(busResources, ", "), b.Namespace),
	})
	b.stream.Started(t, busResources...)
}

// write runs writers until there are enough revisions, with the trouble at the same time.
func (b *busTruth) write(t *testing.T, p *world.Plane) {
	t.Helper()
	count := p.History.CountIn(b.Namespace, busResources...)
	var troubled atomic.Bool // The trouble has ended.
	ws := &world.Writers{API: p.API, Done: func() bool {
		return p.History.CountIn(b.Namespace, busResources...)-count >= b.Revisions &&
			(b.Enough == nil || b.Enough() || troubled.Load())
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	if b.Trouble != nil {
		wg.Go(func() {
			defer troubled.Store(true)
			if err := b.Trouble(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var steps []func(context.Context) error
	for i := range 2 {
		steps = append(steps, ws.Writer(fmt.Sprint("cm", i), b.Namespace, 15).ConfigMaps)
	}
	steps = append(steps,
		ws.Writer("secret", b.Namespace, 15).Secrets,
		ws.Writer("widget", b.Namespace, 15).Widgets,
		ws.Writer("left", b.Namespace, 3).Shared,
		ws.Writer("right", b.Namespace, 3).Shared,
	)
	ws.Run(t, steps...)
	cancel()
	wg.Wait()
}

func (b *busTruth) judge(t *testing.T, p *world.Plane) oracle.Verdict {
	t.Helper()
	v := world.ViewOf(b.stream.Started(t, busResources...))
	v.MayBury = b.Letters
	got := world.CheckIdle(t, p, b.stream, v, b.Idle, busResources...)
	if len(b.stream.DeadObjects()) == 0 {
		got.NoGaps(t)
	}
	t.Logf("%d records expected, %d on the bus (%s), %d duplicates; %s",
		got.Expected, got.Records, world.MiB(b.stream.Size()), got.Duplicates, countOps(b.stream.All()))
	return got
}

// revisions returns how many revisions a test writes; n is for make test-long.
func revisions(n int) int { return size(n/4, n/4, n) }
