package agent

import (
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// NewLogger returns a logger that writes to out. people reports whether its format is for people.
// level may change during use.
func NewLogger(c config.Log, level slog.Leveler, out *terminal.Output) (log *slog.Logger, people bool) {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readableDurations}
	switch {
	case c.Format == config.LogText:
		return slog.New(slog.NewTextHandler(out, o)), false
	case c.Format == config.LogAuto && out.Interactive:
		return slog.New(terminal.NewHandler(out, level)), true
	}
	return slog.New(slog.NewJSONHandler(out, o)), false
}

// readableDurations replaces durations with text such as "20s", and omits empty advice.
func readableDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "advice" && a.Value.String() == "" {
		return slog.Attr{}
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}
