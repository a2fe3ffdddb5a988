package terminal_test

import (
	"bytes"
	"testing"

	"github.com/kubecdc/kubecdc/internal/terminal"
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
				t.Errorf("interactive %t, colour %t, width %d; want false, %t, %d", o.Interactive, o.Color, o.Width, test.color, test.width)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567", -1: "-1", -999: "-999", -1000: "-1,000"} {
		if got := terminal.Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
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
