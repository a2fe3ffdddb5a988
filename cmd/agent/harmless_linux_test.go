package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kubecdc/kubecdc/internal/screen/terminal/ptytest"
)

// hostile is text in a JSON string. It sets a window title, erases the screen, hides text, contains
// a one-character CSI, reverses the text direction, and returns to the beginning of the line.
const hostile = `a\u001b]0;title\u0007b\u001b[2Jc\u001b[8md` + "\u009b2Je\u202ef\u2066g" + `\rh\bi`

// hostileRecord returns the path of a record with hostile values, names, uids, managers, clusters
// and reasons.
func hostileRecord(t *testing.T) string {
	t.Helper()
	_, lines := recorded(t)
	text := strings.NewReplacer(
		`"fast"`, `"`+hostile+`"`, `"slow"`, `"`+hostile+`\nsecond line"`, // values of a ConfigMap
		`"image":"`, `"image":"`+hostile,
		`"name":"settings"`, `"name":"`+hostile+`"`,
		`"namespace":"shop"`, `"namespace":"`+hostile+`"`,
		`"uid":"`, `"uid":"`+hostile,
		`"kind":"Widget"`, `"kind":"`+hostile+`"`,
		`"manager":"`, `"manager":"`+hostile,
		`"cluster":"`, `"cluster":"`+hostile,
		`"reason":"`, `"reason":"`+hostile,
	).Replace(strings.Join(lines, "\n")) + "\n{\"specversion\":\"1.0\", \x1b[2J \u202e}\n"
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// drawn matches the control sequences of package terminal: colours, and those that redraw a
// counter.
var drawn = regexp.MustCompile("\r\n|\r?\x1b\\[(\\?25[lh]|[JK]|[0-9]+A|(0|1|2|3[1-6]|1;31)m)\r?")

// Neither answers nor errors write control characters of the record to a terminal, in any format. A
// pipe gets them.
func TestNothingHarmfulReachesATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	record := []string{"--bus", "file:" + hostileRecord(t)}
	formats := []string{"table", "wide", "name", "json", "yaml", "diff", "jsonpath={..*}"}
	for _, c := range []struct {
		args    []string
		without string // formats that the command does not have
	}{
		{args: []string{"get", "all", "--at", "rv:145", "--no-pager"}, without: "diff"},
		{args: []string{"get", "cm", "--no-pager"}, without: "diff"},
		{args: []string{
			"get", "cm,deploy", "--at", "rv:145", "--for-apply", "--no-pager",
		}, without: "table wide name json diff jsonpath={..*}"},
		{args: []string{"get", "cm", "--pager", "head -c 1000000"}, without: "diff"},
		{args: []string{"get", "nothing", "--no-pager"}, without: "diff"},
		{args: []string{"history", "all", "--no-pager"}},
		{args: []string{"diff", "rv:105", "rv:215", "--no-pager"}},
		{args: []string{"blame", "deploy/web", "--at", "rv:145", "--no-pager"}, without: "diff"},
		{args: []string{"tail", "--no-follow"}, without: "diff"},
		{args: []string{"tail", "--no-follow", "--diff"}, without: "name json yaml diff jsonpath={..*}"},
		{args: []string{
			"replay", "--from", "rv:145", "--to", "rv:215", "--target", "stdout:",
		}, without: "wide name json yaml diff jsonpath={..*}"},
	} {
		for _, format := range formats {
			if strings.Contains(c.without, format) {
				continue
			}
			args := append(append([]string{}, c.args...), record...)
			if c.args[0] != "replay" {
				args = append(args, "-o", format)
			}
			t.Run(strings.Join(c.args, " ")+" -o "+format, func(t *testing.T) {
				seen := everythingAt(t, args...)
				if len(seen) < 10 {
					t.Fatalf("shown: %q", seen)
				}
				for line := range strings.Lines(drawn.ReplaceAllString(seen, "\n")) {
					for _, r := range strings.TrimSuffix(line, "\n") {
						if !unicode.IsPrint(r) && r != '\t' || !utf8.ValidString(line) {
							t.Errorf("%U reaches the terminal in %q", r, line)
							return
						}
					}
				}
			})
		}
	}
	want := "a\x1b]0;title\ab\x1b[2Jc\x1b[8md\u009b2Je\u202ef\u2066g\rh\bi"
	get := append([]string{"get", "cm", "--at", "rv:145"}, record...)
	if piped := answerOf(t, append(get, "-o", "jsonpath={..mode}")...); piped.Out != want {
		t.Errorf("in a pipe: got %q, want %q; standard error: %s", piped.Out, want, piped.Err)
	}
	var object struct{ Data struct{ Mode string } }
	if piped := answerOf(t, append(get, "-o", "yaml")...); yaml.Unmarshal([]byte(piped.Out), &object) != nil ||
		object.Data.Mode != want {
		t.Errorf("YAML in a pipe: got %q, want %q; standard error: %s", object.Data.Mode, want, piped.Err)
	}
}

// everythingAt runs a command with a terminal as standard output and standard error, and returns
// all that it writes.
func everythingAt(t *testing.T, args ...string) string {
	t.Helper()
	program, person := ptytest.Open(t, 0, 0)
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&seen, person) // ends with an error when the program's end is closed
	}()
	run(t.Context(), args, program, program)
	program.Close()
	<-done
	return seen.String()
}
