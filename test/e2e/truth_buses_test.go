package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// busTruth is a short TestTruth over any bus, with trouble on the way to it.
type busTruth struct {
	To        destination
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
	Reader *reader
	// Letters: there may be dead letters.
	Letters bool
	Binary  string // Of the agent; "": that of this tree.

	stream *stream
	agent  *agent
}

// busResources are what the writers write.
var busResources = []string{"configmaps", "secrets", widgets}

// run writes, holds what has arrived against etcd's history and returns the verdict.
func (b *busTruth) run(t *testing.T, p *plane) verdict {
	t.Helper()
	b.begin(t, p)
	b.write(t, p)
	return b.judge(t, p)
}

// begin starts the agent, behind objects that are there before it.
func (b *busTruth) begin(t *testing.T, p *plane) {
	t.Helper()
	if !b.There {
		p.newNamespace(t, b.Namespace)
	}
	p.makeMany(t, b.Namespace, "before", 100)
	if b.Idle == 0 {
		b.Idle = 20 * time.Second
	}
	if b.Reader == nil {
		b.Reader = p.reader()
	}
	b.stream = b.To.read(t, b.Reader)
	b.agent = startAgent(t, p, agentConfig{
		Bus: b.To, Extra: b.Extra, Binary: b.Binary,
		Watch: fmt.Sprintf("  - resources: [%s]\n    namespaces: [%s]", strings.Join(busResources, ", "), b.Namespace),
	})
	b.stream.started(t, busResources...)
}

// write has writers at work until there are enough revisions, and the trouble for as long.
func (b *busTruth) write(t *testing.T, p *plane) {
	t.Helper()
	count := p.history.countIn(b.Namespace, busResources...)
	var troubled atomic.Bool // The trouble is over.
	ws := &writers{api: p.api, done: func() bool {
		return p.history.countIn(b.Namespace, busResources...)-count >= b.Revisions && (b.Enough == nil || b.Enough() || troubled.Load())
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
		steps = append(steps, ws.writer(fmt.Sprint("cm", i), b.Namespace, 15).configMaps)
	}
	steps = append(steps,
		ws.writer("secret", b.Namespace, 15).secrets,
		ws.writer("widget", b.Namespace, 15).widgets,
		ws.writer("left", b.Namespace, 3).shared,
		ws.writer("right", b.Namespace, 3).shared,
	)
	ws.run(t, steps...)
	cancel()
	wg.Wait()
}

func (b *busTruth) judge(t *testing.T, p *plane) verdict {
	t.Helper()
	v := viewOf(b.stream.started(t, busResources...))
	v.MayBury = b.Letters
	got := checkIdle(t, p, b.stream, v, b.Idle, busResources...)
	if len(b.stream.buried()) == 0 {
		got.noGaps(t)
	}
	t.Logf("%d records expected, %d on the bus (%s), %d duplicates; %s",
		got.Expected, got.Records, mib(b.stream.size()), got.Duplicates, countOps(b.stream.all()))
	return got
}

// revisions is how many a test writes, of those of make test-long.
func revisions(n int) int { return size(n/4, n/4, n) }
