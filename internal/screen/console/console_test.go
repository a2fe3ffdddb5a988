package console_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

var update = flag.Bool("update", false, "write the golden files")

// readEvents reads events of each type. Some have contents that are harmful to a terminal.
func readEvents(t testing.TB) []*consume.Event {
	t.Helper()
	f, err := os.Open("testdata/events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := fromfile.NewLines("", f, consume.Query{})
	var out []*consume.Event
	for {
		e, err := lines.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
}

func show(t testing.TB, out *terminal.Output, o console.Options, events ...*consume.Event) string {
	t.Helper()
	var b bytes.Buffer
	out.Writer = &b
	o.Location = time.UTC
	p := console.New(out, o)
	for _, e := range events {
		if err := p.Print(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// The golden files show every type of event in every view, for terminals of two widths and for a
// pipe, plain and in colour.
func TestGolden(t *testing.T) {
	events := readEvents(t)
	views := map[string]console.Options{
		"lines": {}, "lines-reads": {Reads: true}, "lines-wide": {Wide: true},
		"lines-late": {Late: true}, "diff": {View: console.Diff}, "diff-wide": {View: console.Diff, Wide: true},
		"json": {View: console.JSON}, "yaml": {View: console.YAML},
	}
	for name, o := range views {
		for _, columns := range []int{0, 80, 200} {
			if columns > 0 && (o.Wide || o.View == console.JSON || o.View == console.YAML) {
				continue // they ignore the width: see TestWidthIsHeeded
			}
			file := fmt.Sprintf("%s-%d", name, columns)
			if columns == 0 {
				file = name + "-pipe"
			}
			t.Run(file, func(t *testing.T) {
				plain := show(t, &terminal.Output{Width: columns}, o, events...)
				colour := show(t, &terminal.Output{Width: columns, Color: true}, o, events...)
				if got := sgr.ReplaceAllString(colour, ""); got != plain {
					t.Errorf("colour changes more than colours (-plain +colour):\n%s", cmp.Diff(plain, got))
				}
				if o.View == console.JSON {
					raw, err := os.ReadFile("testdata/events.jsonl")
					if err != nil {
						t.Fatal(err)
					}
					if plain != string(raw) {
						t.Errorf("json is not the records as they are:\n%s", cmp.Diff(string(raw), plain))
					}
					return
				}
				compare(t, file+".txt", plain)
				if columns == 80 {
					compare(t, file+"-colour.txt", colour)
				}
			})
		}
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// harmless fails if a terminal would receive control characters other than colours, or a line that
// is too wide.
func harmless(t interface{ Fatalf(string, ...any) }, out string, columns int) {
	for line := range strings.Lines(sgr.ReplaceAllString(out, "")) {
		line = strings.TrimSuffix(line, "\n")
		if !utf8.ValidString(line) {
			t.Fatalf("not UTF-8: %q", line)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) {
				t.Fatalf("%U reaches the terminal in %q", r, line)
			}
		}
		if n := displaywidth.String(line); columns > 0 && n > columns {
			t.Fatalf("a line of %d columns on a terminal of %d:\n%s", n, columns, line)
		}
	}
}

func TestNothingHarmfulReachesATerminal(t *testing.T) {
	events := readEvents(t)
	for _, columns := range []int{1, 7, 20, 40, 80, 81, 100, 200} {
		for _, view := range []console.View{console.Lines, console.Diff} {
			for _, reads := range []bool{false, true} {
				out := show(t, &terminal.Output{Width: columns, Color: true, Interactive: true},
					console.Options{View: view, Reads: reads}, events...)
				harmless(t, out, columns)
			}
		}
	}
	for _, o := range []console.Options{{Wide: true}, {View: console.Diff, Wide: true}, {View: console.JSON}, {
		View: console.YAML,
	}} {
		out := show(t, &terminal.Output{Width: 80, Color: true, Interactive: true}, o, events...)
		if o.View == console.YAML {
			out = strings.ReplaceAll(out, "\t", " ") // a text of several lines may contain tabs
		}
		harmless(t, out, 0)
	}
}

// A pipe gets records with raw control characters, which JSON allows, unchanged. A terminal gets
// them escaped.
func TestJSONAtATerminal(t *testing.T) {
	record := "{\"specversion\":\"1.0\",\"id\":\"x\",\"source\":\"/s\",\"type\":\"dev.kubecdc.note\",\"data\":\"a\u009b31mb\x7fc\u0085\u202e\U000e0001\"}"
	e, err := consume.Parse([]byte(record))
	if err != nil {
		t.Fatal(err)
	}
	if got := show(t, &terminal.Output{}, console.Options{View: console.JSON}, e); got != record+"\n" {
		t.Errorf("pipe: got %q", got)
	}
	got := show(t, &terminal.Output{Interactive: true}, console.Options{View: console.JSON}, e)
	want := strings.NewReplacer("\u009b", `\u009b`, "\x7f", `\u007f`, "\u0085", `\u0085`, "\u202e", `\u202e`,
		"\U000e0001", `\udb40\udc01`).Replace(record) + "\n"
	if got != want {
		t.Errorf("terminal: got %q, want %q", got, want)
	}
}

// A producer may write a record on several lines.
func TestJSONIsALineEach(t *testing.T) {
	record := "{\n \"specversion\": \"1.0\",\n \"id\": \"x y\\\" \",\r\n\t\"source\": \"/s\", \"type\": \"dev.kubecdc.note\"\n}"
	e, err := consume.Parse([]byte(record))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","id":"x y\" ","source":"/s","type":"dev.kubecdc.note"}` + "\n"
	if got := show(t, &terminal.Output{}, console.Options{View: console.JSON}, e); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Reads are counted until another event is to be shown. In a pipe, each read is a line.
func TestReadsAreCounted(t *testing.T) {
	events := make([]*consume.Event, 0, 1300)
	for k := range 1300 {
		e := &consume.Event{
			Type:       "dev.kubecdc.object.read",
			Op:         consume.Read,
			APIVersion: "v1",
			Resource:   "pods",
			Namespace:  "shop",
			Name:       "web",
			Time:       time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC),
			Data:       &consume.Data{Op: consume.Read},
		}
		if k%13 == 5 {
			e.APIVersion, e.Resource = "apps/v1", "deployments"
		}
		events = append(events, e)
	}
	gone := *events[0]
	gone.Op, gone.Data = consume.Deleted, &consume.Data{Op: consume.Deleted}
	got := show(t, &terminal.Output{Width: 80}, console.Options{}, append(events, &gone, events[0])...)
	want := "2026-11-20 UTC\n" +
		"15:00:00 read     1,200 pods, 100 deployments\n" +
		"15:00:00 deleted  pods        shop/web\n" +
		"15:00:00 read     1 pods\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := show(t, &terminal.Output{}, console.Options{}, events...); strings.Count(got, "\n") != len(events) {
		t.Errorf("%d lines in a pipe for %d reads", strings.Count(got, "\n"), len(events))
	}
}

func TestNothingIsCutInAPipe(t *testing.T) {
	name := strings.Repeat("n", 400)
	e := &consume.Event{
		Op: consume.Created, Resource: "pods", Name: name, Data: &consume.Data{
			Op:        consume.Created,
			ChangedBy: []consume.Change{{Manager: name}},
		},
	}
	if got := show(t, &terminal.Output{}, console.Options{}, e); strings.Count(got, name) != 2 {
		t.Errorf("got %s", got)
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                        "plain",
		"a\x1b[31m":                    `a\u001b[31m`,
		"a\tb\r\n":                     `a\tb\r\n`,
		"\u009b\u200b\u202e\u2028\x7f": `\u009b\u200b\u202e\u2028\u007f`,
		"\xff\xc3":                     `\xff\xc3`,
		"\ufffd é 日本語 🚀":               "\ufffd é 日本語 🚀",
		"\U000e0001":                   `\U000e0001`,
	} {
		if got := console.Clean(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"hello", 5, "hello"},
		{"hello", 4, "hel…"},
		{"hello", 1, "…"},
		{"hello", 0, "hello"},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日…"},
		{"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := console.Cut(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d: got %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestCountsHaveCommas(t *testing.T) {
	for n, want := range map[int]string{
		0:       "0",
		999:     "999",
		1000:    "1,000",
		1234567: "1,234,567",
		100045:  "100,045",
		-1234:   "-1,234",
	} {
		if got := string(console.AppendCount(nil, n)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A line reports how much of a text has changed. If room is short, the change takes precedence over
// its author.
func TestBriefly(t *testing.T) {
	event := func(op, before, after string) *consume.Event {
		raw := fmt.Sprintf(
			`{"specversion":"1.0","id":"i","source":"s","type":"dev.kubecdc.object.%s","time":"2026-11-20T15:00:00Z",`+
				`"apiversion":"v1","resource":"configmaps","namespace":"shop","name":"c","uid":"u","op":%q,"data":{"op":%q,"before":%s,"after":%s,`+
				`"changedBy":[{"manager":"kubectl-edit","operation":"Update"}]}}`, op, op[:1], op[:1], before, after)
		e, err := consume.Parse([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	path := func(v string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"` + v + `"}]}}}}`
	}
	for _, tc := range []struct {
		width         int
		before, after string
		want          string
	}{
		{
			0, `{"a":"1\n2\n3\n4\n5\n6\n7\n"}`, `{"a":"1\n2\nX\n4\n5\n6\n7\n"}`,
			"a 1 of 7 lines changed  by kubectl-edit",
		},
		{0, `{"a":"1\n2"}`, `{"a":"1\n2\n"}`, "a 1 of 2 lines changed  by kubectl-edit"},
		{0, `{"a":"1\n2\n3\n"}`, `{"a":"1\n2\n3\n4\n"}`, "a +1 line  by kubectl-edit"},
		{0, `{"a":"1\n2\n3\n"}`, `{"a":"9"}`, "a +1 -3 lines  by kubectl-edit"},
		{0, `{"a":"1\n2"}`, `{"a":null}`, "a 1\\n2→null  by kubectl-edit"},
		{80, path("web:1.0"), path("web:1.1"), "…[web].image web:1.0→web:1.1"},
		{122, path("web:1.0"), path("web:1.1"), "…spec.containers[web].image web:1.0→web:1.1  by kubectl-edit"},
		{80, `{"spec":{"replicas":1,"x":1}}`, `{"spec":{"replicas":3,"x":2}}`, "spec.replicas 1→3, spec.x 1→2"},
	} {
		got := strings.TrimSpace(
			show(t, &terminal.Output{Width: tc.width}, console.Options{}, event("updated", tc.before, tc.after)))
		if !strings.HasSuffix(got, " "+tc.want) {
			t.Errorf("%d columns: got %s\nwant …%s", tc.width, got, tc.want)
		}
	}
	got := show(t, &terminal.Output{}, console.Options{View: console.Diff},
		event("created", "null",
			`{"metadata":{"annotations":{},"labels":{"a":"b"},"finalizers":[ ]},"spec":{},"data":{"k":"v"}}`))
	if want := "  + metadata.labels: {a: b}\n  + data: {k: v}\n"; !strings.HasSuffix(got, "kubectl-edit\n"+want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
