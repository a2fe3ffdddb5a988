package informers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/object"
)

// script is a sequence of steps that a run of TestCrashes plays. It begins with the start of an
// agent.
type script struct {
	name      string
	takes     choice // the selection at the start
	mode      informer.SnapshotMode
	every     time.Duration
	undefined bool               // widgets are selected, and not defined at the start
	gaps      []object.GapReason // that may be on record
	steps     []step
}

// step is a step of a script. It returns early if the agent is killed.
type step func(c *crash)

// starts starts an agent, unless the one after a kill runs.
func starts(c *crash) {
	if c.life == nil {
		c.start()
	}
}

// kills kills the agent.
func kills(c *crash) { c.dies() }

// stops ends the agent in order.
func stops(c *crash) { c.endsInOrder() }

// puts creates or changes objects: "a" is in namespace shop and has the label in=1, "other/b" is in
// namespace other, and "-c" has the label in=0.
func puts(names ...string) step {
	return func(c *crash) {
		for _, name := range names {
			c.puts(name, "")
		}
	}
}

// hides is puts with values that the selection "not hidden" withholds.
func hides(names ...string) step {
	return func(c *crash) {
		for _, name := range names {
			c.puts(name, "hidden")
		}
	}
}

func (c *crash) puts(name, value string) {
	bare, out := strings.CutPrefix(name, "-")
	in := map[string]string{"in": "1"}
	if out {
		in["in"] = "0"
	}
	namespace, short := split(bare)
	c.values++
	c.added(c.putIn(namespace, short, fmt.Sprint(value, c.values), in))
}

// split splits "other/b" into namespace and name. The namespace is shop by default.
func split(name string) (namespace, short string) {
	if namespace, short, ok := strings.Cut(name, "/"); ok {
		return namespace, short
	}
	return "shop", name
}

func deletes(names ...string) step {
	return func(c *crash) {
		for _, name := range names {
			c.added(c.deleteIn(split(name)))
		}
	}
}

// deletesUnchanged deletes objects. Watches show the deletions with the resourceVersions of the
// last versions, as some API servers do.
func deletesUnchanged(names ...string) step {
	return func(c *crash) {
		for _, name := range names {
			namespace, short := split(name)
			c.added(c.deleteShown(namespace, short, func(last *version) uint64 { return last.rv }))
		}
	}
}

// passes lets time pass.
func passes(d time.Duration) step { return func(c *crash) { c.pass(d) } }

// goesLive waits until everything is live and on the bus.
func goesLive(c *crash) { c.awaits() }

// saved waits until everything is live, on the bus, and saved.
func saved(c *crash) {
	c.awaits()
	c.pass(6 * time.Second)
}

// marks marks the present resourceVersion.
func marks(name string) step { return func(c *crash) { c.marked[name] = c.now1() } }

func holds(how string) step {
	return func(c *crash) {
		c.note("the bus: %s", how)
		c.bus.holds(how)
	}
}

// fails makes requests for objects fail until recovers.
func fails(kind, requests string) step {
	return func(c *crash) {
		c.note("%s fail: %s", requests, kind)
		c.heal()
		c.faultMu.Lock()
		c.sick = &sickness{kind: kind, requests: requests, resource: "s", over: make(chan struct{})}
		c.faultMu.Unlock()
		c.CloseClientConnections()
	}
}

func recovers(c *crash) { c.heal() }

// cuts breaks all connections.
func cuts(c *crash) { c.CloseClientConnections() }

// expires refuses watches from before now. Lists have the past.
func expires(c *crash) { c.machine.expires() }

// compacts compacts etcd.
func compacts(c *crash) {
	c.note("compact at %d", c.now1())
	c.compact()
}

// requests requests a snapshot of a namespace; "": of all.
func requests(namespace string) step {
	return func(c *crash) {
		set, ctx := c.agent.set, c.agent.running
		c.under.Go(func() {
			if _, err := set.Snapshot(ctx, "", namespace); err != nil {
				c.note("snapshot: %v", err)
			}
		})
	}
}

// selects changes the selection while the agent runs, or before the next start.
func selects(to choice) step {
	return func(c *crash) {
		c.note("selected: %+v", to)
		c.taken = to
		c.chosen()
		if c.life == nil {
			return
		}
		ctx, cancel := context.WithTimeout(c.agent.running, time.Minute)
		defer cancel()
		if err := c.life.set.Reload(ctx, to.spec()); err != nil && !c.agent.isKilled() {
			c.fail("reload: %v", err)
		}
	}
}

// replacesLog replaces the log of the bus.
func replacesLog(c *crash) {
	if c.life != nil {
		c.rebases()
	} else {
		c.replaces()
	}
}

// defines creates the definition of widgets, or deletes it with all widgets.
func defines(c *crash) { c.machine.defines() }

// restores restores etcd to a marked resourceVersion. A restore while an agent starts is like one
// while none runs, so the agent must be live first.
func restores(to string) step {
	return func(c *crash) {
		if c.life != nil {
			c.awaits()
		}
		c.found = c.highestHistory()
		c.restoreTo(c.marked[to])
	}
}

// restoresUnseen is restores, but no connection breaks: the open watches show the new history.
func restoresUnseen(to string) step {
	return func(c *crash) {
		c.do(func() { c.seamless = true })
		restores(to)(c)
	}
}

// bookmarks sends a bookmark.
func bookmarks(c *crash) { c.bookmark() }

// bookmarksLow sends a bookmark with a marked resourceVersion.
func bookmarksLow(at string) step { return func(c *crash) { c.bookmarkShown(c.marked[at]) } }

// touchesAll changes all objects.
func touchesAll(c *crash) { c.touches() }

// scripts returns the scripts of TestCrashes.
func scripts() []*script {
	return slices.Concat(steadyScripts(), relistScripts(), snapshotScripts(), reloadScripts(), busScripts(),
		restoreScripts(), lowScripts())
}

// plain returns a script about all ConfigMaps, with the gaps that it may cause.
func plain(name string, gaps []object.GapReason, steps ...step) *script {
	return &script{name: name, takes: choice{"all", "none"}, mode: informer.SnapshotInitial, gaps: gaps, steps: steps}
}

// selecting returns a script about a selection, with the gaps that it may cause.
func selecting(name string, takes choice, gaps []object.GapReason, steps ...step) *script {
	s := plain(name, gaps, steps...)
	s.takes = takes
	return s
}

// gaps returns reasons of gaps.
func gaps(reasons ...object.GapReason) []object.GapReason { return reasons }

func steadyScripts() []*script {
	// If widgets are not in the checkpoint any more, and defined again at a start, the bus still
	// has events of them.
	definition := selecting("definition", choice{"all", "all"}, gaps(object.Expired, object.CheckpointLost),
		puts("a"), saved, defines, puts("other/v", "other/w"), goesLive, puts("other/w"), deletes("other/v"), saved,
		defines, passes(20*time.Second), puts("a"), defines, puts("other/x"), goesLive)
	definition.undefined = true
	return []*script{
		plain("first snapshot", nil,
			puts("a", "b", "other/c", "d", "e"), passes(2*time.Millisecond), puts("b", "f"), deletes("d"), goesLive),
		plain("steady changes", nil,
			puts("a", "b", "c"), saved, puts("a", "b"), deletes("c"), puts("c", "d", "a"), goesLive,
			puts("a"), deletes("a"), puts("a"), deletes("b"), saved, puts("d", "c"), deletes("d"), goesLive),
		plain("watch is cut", nil,
			puts("a", "b"), saved, puts("a"), cuts, puts("b", "c"), passes(time.Millisecond), cuts, deletes("a"),
			goesLive,
			cuts, puts("d"), goesLive),
		plain("API server fails", nil,
			puts("a", "b"), saved, fails("503", "list, watch"), puts("a", "c"), deletes("b"), passes(20*time.Second),
			recovers, goesLive,
			puts("a"), goesLive),
		plain("two kills", nil,
			puts("a", "b", "c"), saved, holds("late"), puts("a", "d", "b"), passes(20*time.Millisecond),
			kills, deletes("d"), starts, passes(30*time.Millisecond), puts("a", "e"), kills, starts, goesLive),
		plain("ends in order", nil,
			puts("a", "b", "c"), saved, puts("a", "b"), stops, puts("a"), deletes("c"), starts, goesLive,
			puts("b"), stops, starts, goesLive),
		definition,
	}
}

func relistScripts() []*script {
	return []*script{
		plain("relist with history", gaps(object.Expired),
			puts("a", "b", "c"), saved, cuts, puts("a", "a", "d"), deletes("b"), expires, puts("c"), goesLive,
			puts("a"), goesLive),
		plain("relist without history", gaps(object.Expired, object.Compacted),
			puts("a", "b", "c"), saved, cuts, puts("a", "a", "d"), deletes("b"), compacts, puts("c"), goesLive,
			puts("a"), goesLive),
		plain("two relists", gaps(object.Expired, object.Compacted),
			puts("a", "b", "c"), saved, holds("late"), cuts, puts("a", "d"), deletes("b"), compacts,
			passes(30*time.Millisecond),
			cuts, puts("c", "d"), deletes("a"), compacts, goesLive),
		plain("bus is slow in a relist", gaps(object.Expired, object.Compacted),
			puts("a", "b", "c", "d"), saved, holds("objects"), cuts, puts("a", "e"), deletes("b"), compacts,
			passes(6*time.Second),
			puts("a", "c"), passes(6*time.Second), holds("free"), goesLive),
		plain("compaction while down", gaps(object.Expired, object.Compacted),
			puts("a", "b", "c"), saved, puts("a", "d"), goesLive, kills, puts("b"), deletes("d"), compacts, puts("c"),
			starts, goesLive,
			puts("b"), goesLive),
		plain("expired while down", gaps(object.Expired),
			puts("a", "b", "c"), saved, puts("a", "d"), goesLive, kills, puts("b"), deletes("d"), expires, puts("c"),
			starts, goesLive,
			puts("b"), goesLive),
		selecting("several scopes", choice{"shop, other", "none"}, gaps(object.Expired, object.Compacted),
			puts("a", "b", "other/c", "other/d"), saved, puts("a", "other/c"), cuts, deletes("b"), puts("other/e"),
			goesLive,
			compacts, puts("a", "other/c"), goesLive, kills, puts("a"), deletes("other/d"), starts, goesLive),
	}
}

func snapshotScripts() []*script {
	every := plain("periodic snapshot", nil,
		puts("a", "b", "c"), saved, passes(40*time.Second), puts("a", "d"), deletes("b"), passes(90*time.Second),
		goesLive)
	every.every = 30 * time.Second
	always := plain("snapshot.mode always", nil,
		puts("a", "b", "c"), saved, puts("a"), stops, puts("b", "d"), deletes("c"), starts, passes(time.Millisecond),
		puts("a"), saved)
	always.mode = informer.SnapshotAlways
	never := plain("snapshot.mode never", gaps(object.Expired),
		puts("a", "b", "c"), saved, touchesAll, puts("d"), goesLive, cuts, puts("a", "a"), deletes("b"), expires,
		puts("e"), saved,
		puts("a"), goesLive)
	never.mode = informer.SnapshotNever
	return []*script{
		plain("snapshot on demand", nil,
			puts("a", "b", "other/c", "d"), saved, requests(""), passes(time.Millisecond), puts("a", "e"), deletes("b"),
			goesLive, saved),
		plain("snapshot of a namespace", nil,
			puts("a", "b", "other/c", "other/d"), saved, requests("other"), passes(time.Millisecond),
			puts("a", "other/e"),
			deletes("other/d"), goesLive, saved),
		plain("snapshot is given up", nil,
			puts("a", "b", "c"), saved, holds("full"), requests(""), passes(6*time.Second), holds("free"),
			puts("d", "b"),
			passes(100*time.Millisecond), deletes("a"), saved),
		plain("snapshot of a namespace is given up", nil,
			puts("a", "b", "other/c"), saved, holds("full"), requests("other"), passes(6*time.Second), holds("free"),
			puts("other/d", "b"), passes(100*time.Millisecond), deletes("other/c"), saved),
		plain("snapshot whose start is not acknowledged", nil,
			puts("a", "b", "c"), saved, holds("nothing"), requests(""), passes(7*time.Second), puts("d", "b"),
			holds("free"),
			passes(100*time.Millisecond), deletes("a"), saved),
		plain("snapshot is given up for another log", gaps(object.CheckpointLost),
			puts("a", "b", "c"), saved, holds("full"), requests(""), passes(time.Second), replacesLog,
			passes(6*time.Second), holds("free"),
			puts("d", "b"), passes(100*time.Millisecond), deletes("a"), saved),
		every, always, never,
	}
}

func reloadScripts() []*script {
	all := choice{"all", "none"}
	return []*script{
		selecting("reload of namespaces", choice{"shop", "none"}, gaps(object.SelectionChanged),
			puts("a", "b", "other/c"), saved, puts("a", "other/c"), selects(choice{"shop, other", "none"}),
			puts("b", "other/d"), saved,
			selects(all), puts("a"), goesLive),
		selecting("reload of a selector", choice{"in", "none"}, gaps(object.SelectionChanged),
			puts("a", "-b", "c"), saved, puts("a", "b", "-c"), goesLive, selects(all), puts("a", "-b"), saved,
			selects(choice{"in", "none"}), puts("c"), goesLive),
		selecting("reload without a resource", choice{"all", "all"},
			gaps(object.SelectionChanged, object.CheckpointLost),
			puts("a", "other/w"), saved, selects(all), puts("a", "other/w"), passes(2*time.Second), bookmarks,
			passes(3*time.Second),
			selects(choice{"all", "all"}), puts("other/w", "other/x"), goesLive, saved),
		plain("reload with redaction", gaps(object.ContentChanged),
			puts("a", "b", "c"), saved, puts("a"), selects(choice{"redacted", "none"}), puts("b", "d"), saved,
			selects(all), puts("a"), goesLive),
		plain("reload of where", nil,
			puts("a", "b"), hides("h"), saved, puts("a"), selects(choice{"not hidden", "none"}), puts("b"),
			hides("h", "i"), saved,
			selects(all), puts("a"), goesLive),
		plain("other selection at the start", gaps(object.SelectionChanged, object.ContentChanged),
			puts("a", "-b", "c"), saved, puts("a"), goesLive, kills, selects(choice{"in, redacted", "none"}),
			puts("b", "-c"), starts, goesLive,
			stops, selects(all), starts, puts("d"), goesLive),
	}
}

func busScripts() []*script {
	return []*script{
		plain("log is replaced", gaps(object.CheckpointLost),
			puts("a", "b", "c"), saved, puts("a"), passes(time.Millisecond), replacesLog, puts("b", "d"), deletes("c"),
			goesLive, saved,
			puts("a"), goesLive),
		plain("log is replaced while down", gaps(object.CheckpointLost),
			puts("a", "b", "c"), saved, puts("a", "d"), goesLive, kills, replacesLog, puts("b"), starts, goesLive,
			puts("a"), goesLive),
		plain("bus stalls", nil,
			puts("a", "b", "c"), saved, holds("nothing"), puts("a", "b", "d"), deletes("c"), passes(7*time.Second),
			holds("free"),
			puts("a"), goesLive, holds("full"), puts("a", "b"), passes(7*time.Second), holds("free"), goesLive),
		plain("one key stalls", nil,
			puts("o1", "a", "b"), saved, holds("o1"), puts("o1", "a"), deletes("b"), puts("o1", "c"),
			passes(12*time.Second),
			puts("a"), passes(6*time.Second), holds("free"), goesLive),
	}
}

func restoreScripts() []*script {
	return []*script{
		plain("etcd is restored to before the save", gaps(object.Rewound),
			puts("a"), marks("copy"), puts("b", "c"), saved, puts("a", "d"), goesLive,
			restores("copy"), cuts, puts("e"), goesLive, passes(time.Minute), puts("a"), goesLive),
		plain("etcd is restored to the save", gaps(object.Rewound),
			puts("a", "b"), saved, marks("copy"), puts("c", "a", "b"), goesLive,
			restores("copy"), cuts, puts("d", "a"), goesLive, passes(time.Minute), puts("a"), goesLive),
		plain("etcd is restored to after the save", gaps(object.Rewound),
			puts("a", "b"), saved, puts("c", "a"), marks("copy"), puts("b", "e", "c", "f"), goesLive,
			restores("copy"), puts("d", "a"), goesLive, passes(time.Minute), puts("a", "g", "h", "i"), goesLive, saved),
		plain("etcd is restored while down to before the save", gaps(object.Rewound),
			puts("a"), marks("copy"), puts("b", "c"), saved, puts("a"), goesLive,
			kills, restores("copy"), puts("d", "e", "f"), starts, goesLive, puts("a"), goesLive),
		plain("etcd is restored while down to after the save", gaps(object.Rewound),
			puts("a", "b"), saved, puts("c"), marks("copy"), puts("a", "d", "c"), goesLive,
			kills, restores("copy"), puts("e", "b", "f", "g"), starts, goesLive, puts("a", "h"), goesLive),
		// The newest record of an object may be the read of an old version.
		plain("etcd is restored while down after a snapshot", gaps(object.Rewound),
			puts("a", "b", "e", "f", "g", "h", "i", "j"), saved, marks("copy"), requests(""), passes(time.Millisecond),
			puts("c"), goesLive,
			kills, restores("copy"), puts("d", "k"), starts, goesLive, puts("a", "l"), goesLive),
		plain("etcd is restored twice", gaps(object.Rewound),
			puts("a", "b"), saved, puts("c"), marks("copy"), puts("a", "b"), goesLive,
			restores("copy"), puts("d"), goesLive, saved,
			puts("e", "f"), goesLive, restores("copy"), puts("g"), goesLive,
			saved),
	}
}

// lowScripts returns scripts in which a watch shows resourceVersions below its position.
func lowScripts() []*script {
	return []*script{
		plain("etcd is restored under an open watch", gaps(object.Rewound),
			puts("a", "b"), saved, puts("c"), marks("copy"), puts("a", "b", "c"), goesLive,
			restoresUnseen("copy"), puts("d", "b", "e"), passes(time.Second), puts("f", "a"), goesLive),
		plain("deletion with the last resourceVersion", nil,
			puts("a", "b"), saved, puts("x"), deletes("x"), puts("x", "b"), goesLive,
			deletesUnchanged("a"), passes(time.Second), cuts, goesLive, puts("b"), goesLive, deletes("x"), goesLive),
		plain("low bookmark", nil,
			puts("a", "b"), marks("low"), saved, puts("x"), deletes("x"), puts("x", "b"), goesLive,
			bookmarksLow("low"), passes(time.Second), cuts, goesLive, puts("b"), goesLive, deletes("x"), goesLive),
	}
}
