package console

import (
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Late is what a line says of a span in which no agent observed some scopes.
type Late struct {
	Time    time.Time // the end of the span
	Scopes  string    // the resource, the scope, or how many there are
	Cluster string    // what the line says of the cluster; "": nothing
	Parts   []string  // what happened
}

// PrintLate prints the line of a late span.
func (p *Printer) PrintLate(l *Late) error {
	p.buf = p.buf[:0]
	p.putCountedReads()
	p.beginLine(l.Time, "", "LATE", terminal.Yellow)
	scopes := l.Scopes
	plain, group, _ := strings.Cut(scopes, ".")
	if builtin(group) && !strings.ContainsAny(group, "/?") && !p.opts.Wide {
		scopes = plain
	}
	p.putCell(terminal.Yellow, clean(scopes), &p.resources, 5)
	if l.Cluster != "" {
		p.putColumn(terminal.Dim, "cluster="+clean(l.Cluster), 8)
	}
	p.putParts(terminal.Yellow, l.Parts, true)
	p.endLine()
	return p.write()
}
