package localbus

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// logger forwards the server's log. It logs Noticef at debug level, since the server does not
// separate important lines from others.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	fatal   string
	lost    string
	refused time.Time // when a refused client was last logged
	more    int       // refused clients since then
}

// refusedEvery limits the lines about refused clients: any user of this machine can cause them.
const refusedEvery = time.Minute

// writeFailed is part of the format of the one line that the server logs when a write to a stream
// or consumer fails. The server does not retry the write, even if there is room again, and reports
// the failure nowhere else.
const writeFailed = "critical write error"

// says is the message of every line.
const says = "embedded JetStream"

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug(says, "says", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) { l.log.Warn(says, "says", fmt.Sprintf(format, v...)) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, server.ErrAuthentication.Error()) {
		l.noteRefused()
		return
	}
	if strings.Contains(format, writeFailed) {
		l.note(&l.lost, text)
	}
	l.log.Error(says, "says", text)
}

// noteRefused logs that a client sent another token, or none. It quotes nothing that the client
// sent.
func (l *logger) noteRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.refused) < refusedEvery {
		l.more++
		return
	}
	l.log.Warn("the embedded JetStream refused a client without its token", "advice", "kubecdc's commands and "+
		"'nats --context' find it in bus.json of the data directory, if the same user runs them", "suppressed", l.more)
	l.refused, l.more = time.Now(), 0
}

// Fatalf implements server.Logger. The server continues after it, partly started; serve must check
// firstFatal.
func (l *logger) Fatalf(format string, v ...any) {
	l.note(&l.fatal, fmt.Sprintf(format, v...))
}

// note stores text, unless in has an earlier one.
func (l *logger) note(in *string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *in == "" {
		*in = text
	}
}

// Debugf implements server.Logger. serve disables debug output.
func (*logger) Debugf(string, ...any) {}

// Tracef implements server.Logger. serve disables trace output.
func (*logger) Tracef(string, ...any) {}

// firstFatal returns the error that ended the start, "" if there was none.
func (l *logger) firstFatal() string { return l.noted(&l.fatal) }

// firstLost returns the first failed write, "" if there was none.
func (l *logger) firstLost() string { return l.noted(&l.lost) }

func (l *logger) noted(in *string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *in
}
