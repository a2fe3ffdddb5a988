package localbus

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logger passes on what the server says. It makes no difference between news and chatter: both are for debugging.
type logger struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal string
	lost  string
}

// writeFailed is in the format of what the server says once, when it could not write to a stream or consumer. It tries no
// second write then, also when there is room again, and has no other way of telling.
const writeFailed = "critical write error"

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
	text := fmt.Sprintf(format, v...)
	if strings.Contains(format, writeFailed) {
		l.note(&l.lost, text)
	}
	l.log.Error(says, "says", text)
}

// Fatalf implements server.Logger. The server goes on after it, half-way started; whoever started it has to look.
func (l *logger) Fatalf(format string, v ...any) {
	l.note(&l.fatal, fmt.Sprintf(format, v...))
}

// note keeps the first text.
func (l *logger) note(in *string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *in == "" {
		*in = text
	}
}

// Debugf implements server.Logger. The server is not asked to debug.
func (*logger) Debugf(string, ...any) {}

// Tracef implements server.Logger. The server is not asked to trace.
func (*logger) Tracef(string, ...any) {}

// firstFatal is what ended the start; "": nothing did.
func (l *logger) firstFatal() string { return l.noted(&l.fatal) }

// firstLost is the first write that failed; "": none did.
func (l *logger) firstLost() string { return l.noted(&l.lost) }

func (l *logger) noted(in *string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *in
}
