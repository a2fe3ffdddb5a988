package publish

import (
	"net"
)

// GuardConn is c behind f, as publishers have their connections. carries: events have been handed over.
func GuardConn(f Fence, c net.Conn, carries bool) net.Conn { return NewFencing(f).Guard(c, carries) }

// Remote is a loopback address that tests have taken for another machine's.
const Remote = "127.0.0.66"

// TakeForRemote has Remote taken for another machine's address. It is called before any test.
func TakeForRemote() {
	isLocal = func(ip net.IP) bool { return ip.IsLoopback() && ip.String() != Remote }
}

// LogOf is one log of a bus, for tests of what looks at it show.
type LogOf struct {
	*Logs
	name string
}

// NewLog knows nothing of a log yet.
func NewLog(name string) *LogOf { return &LogOf{NewLogs(nil), name} }

// Looked is a look that found this identity.
func (l *LogOf) Looked(id string) (again bool) { return l.Found(l.Look(l.name), "", id, nil) }

// WentBack is an acknowledgement at a position that an earlier record had.
func (l *LogOf) WentBack() { l.Logs.WentBack(l.name, 0, l.Tail(l.name, 0).Mark()) }
