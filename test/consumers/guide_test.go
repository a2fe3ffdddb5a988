package consumers_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

const guide = root + "/docs/guides/consume.md"

func readGuide(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGuideBlocks holds each code block of the guide against the file it is taken from: it is a run of its lines, less
// their common indentation. A block of a programming language that names no file is an error.
func TestGuideBlocks(t *testing.T) {
	text := readGuide(t)
	blocks := regexp.MustCompile("(?m)^(?:<!-- (.*) -->\n)?```([a-z]+)\n((?s:.*?))^```$").FindAllStringSubmatch(text, -1)
	languages := map[string]int{}
	for _, block := range blocks {
		file, language, code := block[1], block[2], block[3]
		languages[language]++
		switch language {
		case "sh", "text":
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if file == "" || err != nil {
			t.Errorf("block of %s without its file (%v):\n%s", language, err, code)
			continue
		}
		if !holds(string(source), code) {
			t.Errorf("not in %s as it is:\n%s", file, code)
		}
	}
	for _, language := range []string{"go", "python", "js", "sh"} {
		if languages[language] == 0 {
			t.Errorf("no block of %s: the test shows nothing", language)
		}
	}
}

// holds tells whether code is a run of whole lines of source, all indented by the same.
func holds(source, code string) bool {
	want := strings.Split(strings.TrimSuffix(code, "\n"), "\n")
	lines := strings.Split(source, "\n")
	for at := 0; at+len(want) <= len(lines); at++ {
		indent, ok := strings.CutSuffix(lines[at], want[0])
		if !ok || strings.TrimSpace(indent) != "" {
			continue
		}
		for i, line := range want {
			if line != "" {
				line = indent + line
			}
			ok = ok && lines[at+i] == line
		}
		if ok {
			return true
		}
	}
	return false
}

// TestGuideCommands types each command of the guide's blocks of sh, and README's of nats, against a stream that holds what
// they ask for. Those that go on for ever are left when they have shown it.
func TestGuideCommands(t *testing.T) {
	t.Parallel()
	dir := natsCLI.dir(t)
	b := startBus(t)
	b.createStream(t)
	c, s := oneScope(t)
	created, _, _ := c.life(s, "web")
	b.put(t, created)

	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?m)^nats .*$").FindAllString(string(readme), -1)
	if len(commands) == 0 {
		t.Error("README has no command of nats: the test shows nothing of it")
	}
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(readGuide(t), -1) {
		for line := range strings.Lines(block[1]) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	if len(commands) < 5 {
		t.Errorf("%d commands found", len(commands))
	}
	for _, line := range commands {
		t.Run(line, func(t *testing.T) { b.typed(t, dir, line, created) })
	}
}

// typed runs a command line until it has shown the Deployment web, however it does that.
func (b *bus) typed(t testing.TB, dir, line string, r record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NATS_URL="+b.URL, "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	out := &watched{want: []byte("uid-0001"), seen: func() {}}
	switch {
	case strings.Contains(line, "consumer add"):
		out.want = []byte("audit")
	case strings.Contains(line, "subjects "):
		out.want = []byte("shop.web")
	}
	endless := strings.Contains(line, " sub ") && !strings.Contains(line, "--terminate-at-end")
	if endless {
		out.seen = cancel
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if endless && !strings.Contains(line, "--stream") { // sees only what comes
		b.whileRunning(ctx, t, r)
	}
	if err := cmd.Wait(); err != nil && !endless || !bytes.Contains(out.text.Bytes(), out.want) {
		t.Errorf("%v, want %q in:\n%s", err, out.want, &out.text)
	}
}

// whileRunning publishes to those who listen until ctx ends.
func (b *bus) whileRunning(ctx context.Context, t testing.TB, r record) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := b.js.Conn().PublishMsg(&nats.Msg{Subject: r.Subject, Header: r.Header, Data: r.Body}); err != nil {
			t.Error(err)
			return
		}
	}
}

// watched is the output of a command; seen is called once it holds what is wanted. A command writes from one goroutine.
type watched struct {
	text bytes.Buffer
	want []byte
	seen func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if bytes.Contains(w.text.Bytes(), w.want) {
		w.seen()
	}
	return n, err
}
