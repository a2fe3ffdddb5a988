package terminal_test

import (
	"bytes"
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestDetectWhatIsNoTerminal(t *testing.T) {
	for _, test := range []struct {
		name  string
		env   []string
		color bool
		width int
	}{
		{name: "a pipe is plain and as wide as its lines"},
		{name: "colour may be forced", env: []string{"CLICOLOR_FORCE", "1"}, color: true},
		{name: "or not", env: []string{"CLICOLOR_FORCE", "0"}},
		{name: "NO_COLOR wins", env: []string{"CLICOLOR_FORCE", "1", "NO_COLOR", "1"}},
		{name: "COLUMNS says how wide what reads the pipe is", env: []string{"COLUMNS", "100"}, width: 100},
		{name: "COLUMNS is no number", env: []string{"COLUMNS", "wide"}},
		{name: "COLUMNS is no width", env: []string{"COLUMNS", "-1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := terminal.Detect(&bytes.Buffer{}, env(test.env...))
			if o.Interactive || o.Color != test.color || o.Width != test.width {
				t.Errorf("interactive %t, colour %t, width %d; want false, %t, %d", o.Interactive, o.Color, o.Width,
					test.color, test.width)
			}
		})
	}
}

func TestPaint(t *testing.T) {
	colored, plain := &terminal.Output{Color: true}, &terminal.Output{}
	for _, test := range []struct {
		out         *terminal.Output
		style       terminal.Style
		text, wants string
	}{
		{colored, terminal.Red, "x", "\x1b[31mx\x1b[0m"},
		{colored, terminal.Plain, "x", "x"},
		{colored, terminal.Red, "", ""},
		{plain, terminal.Red, "x", "x"},
	} {
		if got := test.out.Paint(test.style, test.text); got != test.wants {
			t.Errorf("Paint(%q, %q) = %q, want %q", test.style, test.text, got, test.wants)
		}
	}
}

// A terminal gets escapes instead of the characters that it interprets. A pipe gets the bytes.
func TestWriteEscapes(t *testing.T) {
	const text = "a\tb\n\x1b[31mred\x1b[0m \x1b[1;31mx\x1b[0m"
	for _, c := range []struct{ text, want string }{
		{text, text},
		{"日本語 🚀 e\u0301", "日本語 🚀 e\u0301"},
		{"\x1b[2J", `\u001b[2J`},
		{"\x1b[8mhidden", `\u001b[8mhidden`},
		{"\x1b[31;8m", `\u001b[31;8m`},
		{"\x1b]0;title\x07", `\u001b]0;title\u0007`},
		{"\x1b[m\x1b[", `\u001b[m\u001b[`},
		{"\u009b2J\u202e\u2066\u00a0\x7f", `\u009b2J\u202e\u2066\u00a0\u007f`},
		{"\U000e0001", `\udb40\udc01`},
		{"a\rb\x00\b", `a\rb\u0000\u0008`},
		{"\x9b2J\xff\ufffd", "\\ufffd2J\\ufffd\ufffd"},
	} {
		var shown, b bytes.Buffer
		o := &terminal.Output{Writer: &shown, Interactive: true, Color: true}
		if n, err := o.Write([]byte(c.text)); n != len(c.text) || err != nil || shown.String() != c.want {
			t.Errorf("%q: got %q, %d, %v; want %q", c.text, &shown, n, err, c.want)
		}
		o = &terminal.Output{Writer: &b, Color: true}
		if _, err := o.Write([]byte(c.text)); err != nil || b.String() != c.text {
			t.Errorf("pipe: %q: got %q, %v", c.text, &b, err)
		}
	}
	var b bytes.Buffer
	o := &terminal.Output{Writer: &b, Interactive: true} // NO_COLOR: every sequence is from elsewhere
	if _, err := o.Write([]byte("\x1b[31m")); err != nil || b.String() != `\u001b[31m` {
		t.Errorf("without colour: got %q, %v", &b, err)
	}
}
