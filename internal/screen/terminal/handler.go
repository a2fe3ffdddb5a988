package terminal

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// NewHandler returns a handler that writes records for people, one line each:
//
//	15:04:05 WARN cannot read from the API server, retrying scope=pods retry_in=2s err: the server is shutting down
//
// At a terminal, an attribute that does not fit on a line begins the next one, below the message,
// so that none is split.
//
// Time is local. Levels other than Info are marked. Attributes are dim and follow the message as
// key=value, quoted if they are not one plain word. An error (the attribute err) comes last,
// highlighted. Unprintable characters are escaped. A record is one Write. The handler is safe for
// concurrent use, also beside a Display on the same Output.
func NewHandler(out *Output, level slog.Leveler) slog.Handler {
	return &handler{out: out, level: level}
}

// errKey is the attribute that is written separately if it is outside of groups.
const errKey = "err"

// handler is immutable: WithAttrs and WithGroup return a copy.
type handler struct {
	out   *Output
	level slog.Leveler
	group string // "a.b." within the groups a and b
	fields
}

// fields are formatted attributes.
type fields struct{ attrs, errs []string }

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	g := *h
	g.group += name + "."
	return &g
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	g := *h
	g.fields = fields{attrs: slices.Clip(h.attrs), errs: slices.Clip(h.errs)} // appending copies them
	for _, a := range attrs {
		g.add(h.group, a)
	}
	return &g
}

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	f := fields{attrs: slices.Clip(h.attrs), errs: slices.Clip(h.errs)}
	r.Attrs(func(a slog.Attr) bool {
		f.add(h.group, a)
		return true
	})
	var b []byte
	if !r.Time.IsZero() {
		b = h.out.Append(b, Dim, r.Time.Local().Format(time.TimeOnly))
		b = append(b, ' ')
	}
	look := Bold
	switch {
	case r.Level >= slog.LevelError:
		look = Red
	case r.Level >= slog.LevelWarn:
		look = Yellow
	}
	if r.Level != slog.LevelInfo {
		mark := look
		if r.Level < slog.LevelInfo {
			mark = Dim
		}
		b = h.out.Append(b, mark, r.Level.String())
		b = append(b, ' ')
	}
	message := printable(strings.TrimRight(r.Message, "\n"))
	b = append(b, message...)
	l := layout{width: h.out.columns(), used: indent + utf8.RuneCountInString(message)}
	if r.Level != slog.LevelInfo {
		l.used += len(r.Level.String()) + 1
	}
	b = h.out.Append(b, Dim, l.join(f.attrs))
	b = h.out.Append(b, look, l.join(f.errs))
	_, err := h.out.Write(append(b, '\n'))
	return err
}

// indent is the column at which messages begin.
const indent = len(time.TimeOnly) + 1

// layout breaks lines before the last column, after which some terminals wrap by themselves.
type layout struct{ width, used int } // in columns; width 0: no limit

// join returns words for the current line, each after a space, or at the start of a new line if it
// does not fit.
func (l *layout) join(words []string) string {
	var b strings.Builder
	for _, w := range words {
		n := utf8.RuneCountInString(w)
		if l.width > 0 && l.used > indent && l.used+1+n >= l.width {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			l.used = indent + n
		} else {
			b.WriteString(" ")
			l.used += 1 + n
		}
		b.WriteString(w)
	}
	return b.String()
}

// add adds an attribute that is within group.
func (f *fields) add(group string, a slog.Attr) {
	v := a.Value.Resolve()
	switch {
	case v.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range v.Group() {
			f.add(group, member)
		}
	case a.Key == "" && v.Equal(slog.Value{}):
		// slog.Handler requires that it is ignored
	case group == "" && a.Key == errKey:
		f.errs = append(f.errs, "err: "+printable(readable(v)))
	default:
		word := append(appendWord(nil, group+a.Key), '=')
		f.attrs = append(f.attrs, string(appendWord(word, readable(v))))
	}
}

// readable formats a value for people.
func readable(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Local().Format(time.RFC3339)
	case slog.KindDuration:
		return brief(v.Duration()).String()
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return fmt.Sprint(err)
		}
		return fmt.Sprintf("%+v", v.Any())
	default:
		return v.String()
	}
}

// brief rounds d to about three digits: hours to the minute, minutes to the second.
func brief(d time.Duration) time.Duration {
	if d.Abs() >= time.Hour {
		return d.Round(time.Minute)
	}
	unit := time.Duration(1)
	for d.Abs() >= 1000*unit && unit < time.Second {
		unit *= 10
	}
	return d.Round(unit)
}
