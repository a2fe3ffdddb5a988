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

// busTruth is a short TestTruth over any bus, with trouble on the way to it.
type busTruth struct {
	To        world.Destination
	Namespace string // Of the test's own.
	There     bool   // The namespace, with something in it.
	Revisions int
	Extra     string // More of the agent's configuration.
	// Trouble is done while the writers write, until its context ends. Nil: none.
	Trouble func(context.Context) error
	// Enough: there was enough trouble. Until then the writers go on, also behind the last revision.
	Enough func() bool
	// Idle is how long nothing may come before the stream is judged as it is.
	Idle time.Duration
	// Reader reads; nil: as everything is read.
	Reader *oracle.Reader
	// Letters: there may be dead letters.
	Letters bool
	Binary  string // Of the agent; "": that of this tree.

	stream *world.Stream
	agent  *world.Agent
}

// busResources are what the writers write.
var busResources = []string{"configmaps", "secrets", oracle.Widgets}

// run writes, holds what has arrived against etcd's history and returns the verdict.
func (b *busTruth) run(t *testing.T, p *world.Plane) oracle.Verdict {
	t.Helper()
	b.begin(t, p)
	b.write(t, p)
	return b.judge(t, p)
}

// begin starts the agent, behind objects that are there before it.
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

// write has writers at work until there are enough revisions, and the trouble for as long.
func (b *busTruth) write(t *testing.T, p *world.Plane) {
	t.Helper()
	count := p.History.CountIn(b.Namespace, busResources...)
	var troubled atomic.Bool // The trouble is over.
	ws := &world.Writers{API: p.API, Done: func() bool {
		return p.History.CountIn(b.Namespace, busResources...)-count >= b.Revisions && (b.Enough == nil || b.Enough() || troubled.Load())
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
	if len(b.stream.Buried()) == 0 {
		got.NoGaps(t)
	}
	t.Logf("%d records expected, %d on the bus (%s), %d duplicates; %s",
		got.Expected, got.Records, world.MiB(b.stream.Size()), got.Duplicates, countOps(b.stream.All()))
	return got
}

// revisions is how many a test writes, of those of make test-long.
func revisions(n int) int { return size(n/4, n/4, n) }
