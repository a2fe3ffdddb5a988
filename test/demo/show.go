package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// event is what the demo shows of a record.
type event struct {
	Type      string
	Op        string
	Resource  string
	Namespace string
	Name      string
	Time      time.Time
	Scope     string
	Data      struct {
		Objects   int
		Patch     []operation
		ChangedBy []struct{ Manager string }
	}
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string
	Path  string
	Value json.RawMessage
}

// show prints the stream's records until ctx ends.
func show(ctx context.Context, url string, p *printer) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := waitForStream(ctx, js)
	if err != nil {
		return err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	records, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, records.Stop)()
	for {
		m, err := records.Next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			return fmt.Errorf("record on %s: %w", m.Subject(), err)
		}
		p.print(&e)
	}
}

// waitForStream waits until the agent has made the stream.
func waitForStream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		stream, err := js.Stream(ctx, "KUBECDC")
		if err == nil {
			return stream, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// printer writes one line per record, in colour at a terminal.
type printer struct {
	w       io.Writer
	colour  bool
	printed int
}

func newPrinter(w io.Writer) *printer {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return &printer{w: w}
	}
	info, err := f.Stat()
	return &printer{w: w, colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// paint is the SGR code of each op.
func paint(op string) string {
	switch op {
	case "c", "e":
		return "32" // green
	case "d", "l":
		return "31" // red
	case "u":
		return "33" // yellow
	default:
		return "2" // dim
	}
}

func (p *printer) print(e *event) {
	p.printed++
	at, kind := e.Time.Local().Format("15:04:05.000"), e.Type[strings.LastIndexByte(e.Type, '.')+1:]
	line := fmt.Sprintf("%s  %-9s %-12s %s/%s", at, kind, e.Resource, e.Namespace, e.Name)
	switch {
	case strings.Contains(e.Type, ".snapshot."):
		line = fmt.Sprintf("%s  %-9s %-12s %d objects in scope %s", at, kind, "snapshot", e.Data.Objects, e.Scope)
	case e.Scope != "":
		line = fmt.Sprintf("%s  %-9s %-12s scope %s", at, kind, "stream", e.Scope)
	}
	if p.colour {
		line = "\x1b[" + paint(e.Op) + "m" + line + "\x1b[0m"
	}
	for _, by := range e.Data.ChangedBy {
		line += "  by " + by.Manager
	}
	shown := 0
	for _, o := range e.Data.Patch {
		if o.Path == "/metadata/resourceVersion" {
			continue
		}
		if shown++; shown > 3 {
			line += fmt.Sprintf("\n%16s…", "")
			break
		}
		line += fmt.Sprintf("\n%16s%s %s %s", "", sign(o.Op), o.Path, cut(string(o.Value), 70))
	}
	fmt.Fprintln(p.w, line)
}

func sign(op string) string {
	switch op {
	case "add":
		return "+"
	case "remove":
		return "-"
	default:
		return "~"
	}
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
