package publish

import (
	"net"
	"time"
)

// GuardConn returns c guarded by f, like the connections of publishers. carries reports whether
// events have been handed over.
func GuardConn(f Fence, c net.Conn, carries bool) net.Conn { return NewFencing(f).Guard(c, carries) }

// Remote is a loopback address that tests treat as another machine's.
const Remote = "127.0.0.66"

// TakeForRemote makes Remote count as another machine's address. It is called before any test.
func TakeForRemote() {
	isLocal = func(ip net.IP) bool { return ip.IsLoopback() && ip.String() != Remote }
}

// LogOf is one log of a bus, for tests of its identity checks.
type LogOf struct {
	*Logs
	name string
}

// NewLog returns a log with no recorded identity.
func NewLog(name string) *LogOf { return &LogOf{NewLogs(nil), name} }

// Looked records a look that found this identity.
func (l *LogOf) Looked(id string) (again bool) { return l.NoteFound(l.Look(l.name), "", id, nil) }

// NoteRepeatedPosition notes an acknowledgement at a position that an earlier record had.
func (l *LogOf) NoteRepeatedPosition() {
	l.Logs.NoteRepeatedPosition(l.name, 0, l.Tail(l.name, 0).Mark())
}

// StageOf returns a step in which that many attempts have failed.
func StageOf(failures int) Stage {
	var c Capture
	for range failures {
		c.note("timeout")
	}
	c.noteStage(StagePublish, time.Time{}, time.Time{}, 0, nil)
	return c.Stages[0]
}
