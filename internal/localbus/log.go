package localbus

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger passes on what the server says. It makes no difference between news and chatter: both are for debugging.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal string
}

// says is the constant part of every line.
const says = "embedded JetStream"

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug(says, "says", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) { l.log.Warn(says, "says", fmt.Sprintf(format, v...)) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) {
	l.log.Error(says, "says", fmt.Sprintf(format, v...))
}

// Fatalf implements server.Logger. The server goes on after it, half-way started; whoever started it has to look.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == "" {
		l.fatal = fmt.Sprintf(format, v...)
	}
}

// Debugf implements server.Logger. The server is not asked to debug.
func (*logger) Debugf(string, ...any) {}

// Tracef implements server.Logger. The server is not asked to trace.
func (*logger) Tracef(string, ...any) {}

// firstFatal is what ended the start; "": nothing did.
func (l *logger) firstFatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
