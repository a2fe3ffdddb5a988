package consumers_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/test/kafka"
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

// TestGuideBlocks compares each code block of the guide with its source file: it must be a run of
// its lines, less their common indentation. A block of a programming language that names no file is
// an error.
func TestGuideBlocks(t *testing.T) {
	text := readGuide(t)
	blocks := regexp.MustCompile("(?m)^(?:<!-- (.*) -->\n)?```([a-z]+)\n((?s:.*?))^```$").
		FindAllStringSubmatch(text, -1)
	languages := map[string]int{}
	for _, block := range blocks {
		file := block[1]
		language := block[2]
		code := block[3]
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

// holds reports whether code is a run of whole lines of source, all indented by the same.
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

// pages are the pages whose commands TestGuideCommands runs: all of them, or those that match.
var pages = []struct {
	file string
	only *regexp.Regexp // nil: all
}{
	{"docs/guides/consume.md", nil},
	{"examples/README.md", nil},
	{"README.md", regexp.MustCompile(`^nats `)},
	{"docs/guides/relay.md", regexp.MustCompile(`^nats `)},
}

// notRun matches the commands that TestGuideCommands skips: kits install the packages, and kcat is
// not there.
var notRun = regexp.MustCompile(
	`^(python3 -m venv \.venv && \.venv/bin/pip install -r requirements\.txt|npm ci|kcat .*)$`)

// shows are the outputs of commands that work. The first match counts; an endless command is
// interrupted after it.
var shows = []struct {
	command *regexp.Regexp
	want    string
	endless bool
}{
	{regexp.MustCompile(`consumer add`), "audit", false},
	{regexp.MustCompile(`subjects `), "shop.web", false},
	{regexp.MustCompile(`kv del`), "", false},
	{regexp.MustCompile(` sub .*--terminate-at-end`), "uid-0001", false},
	{regexp.MustCompile(` sub `), "uid-0001", true},
	{regexp.MustCompile(`nats .*(get|next) `), "uid-0001", false},
	{regexp.MustCompile(`follow.* --?once`), "uid-0001", false},
	{regexp.MustCompile(`follow`), "deployments.apps shop/web", true},
	{regexp.MustCompile(`service`), "uid-0001", true},
	{regexp.MustCompile(`brokers`), "pods/7c0e8a42-51f0-4f7e-9d6f-6d0b6b3f2a01", true},
	{regexp.MustCompile(`listen`), "listening on http", true},
}

// TestGuideCommands runs each command of the pages against a stream, or a topic, that has the
// requested objects.
func TestGuideCommands(t *testing.T) {
	t.Parallel()
	dir := natsCLI.Dir(t)
	b := startBus(t)
	b.createStream(t)
	c, s := oneScope(t)
	created, _, _ := c.life(s, "web")
	b.put(t, created)
	cursors, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "kubecdc-relay"})
	if err == nil {
		_, err = cursors.PutString(t.Context(), "slack-payments", "{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	tree := exampleTree(t)
	names := strings.NewReplacer("nats://127.0.0.1:4222", b.URL, "127.0.0.1:8080", "127.0.0.1:0")

	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page.file))
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			at := tree
			for line := range strings.Lines(block[1]) {
				line = strings.TrimSpace(line)
				if to, ok := strings.CutPrefix(line, "cd "); ok {
					at = filepath.Join(at, to)
					continue
				}
				if line == "" || notRun.MatchString(line) || page.only != nil && !page.only.MatchString(line) {
					continue
				}
				ran++
				t.Run(page.file+"/"+line, func(t *testing.T) {
					command := names.Replace(line)
					if strings.Contains(line, " TOPIC") {
						const topic = "kubecdc.guide"
						cluster := kafka.Start(t, kafka.Options{})
						if err := cluster.CreateTopic(t.Context(), topic, 1, nil); err != nil {
							t.Fatal(err)
						}
						publishKafka(t, cluster.Brokers(), topic, encode.Structured)
						command = strings.NewReplacer("127.0.0.1:9092", strings.Join(cluster.Brokers(), ","), "TOPIC",
							topic).Replace(command)
					}
					b.typed(t, at, dir, command, created)
				})
			}
		}
		if ran == 0 {
			t.Errorf("%s has no command: the test shows nothing of it", page.file)
		}
	}
	if _, err := cursors.Get(t.Context(), "slack-payments"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the cursor is there after its deletion: %v", err)
	}
}

// exampleTree returns a copy of the repository's examples whose packages are installed.
func exampleTree(t testing.TB) string {
	t.Helper()
	tree := t.TempDir()
	if err := errors.Join(os.CopyFS(filepath.Join(tree, "examples"), os.DirFS(examples)),
		os.Symlink(filepath.Join(python.Dir(t), "venv"), filepath.Join(tree, "examples", "python", ".venv")),
		os.Symlink(filepath.Join(javascript.Dir(t), "node_modules"),
			filepath.Join(tree, "examples", "javascript", "node_modules"))); err != nil {
		t.Fatal(err)
	}
	return tree
}

var (
	goRun    = regexp.MustCompile(`^go run \./examples/go/(\w+)`)
	onceFlag = regexp.MustCompile(` (--?)once\b`) // the server that these lines do not name
)

// typed runs a command line and requires the output that shows has for it. An endless command is
// interrupted after that output. tools is the directory of the command nats.
func (b *bus) typed(t testing.TB, dir, tools, line string, r record) {
	t.Helper()
	if m := goRun.FindStringSubmatch(line); m != nil { // go run does not pass an interrupt to the program
		line = strings.Replace(line, m[0], goProgram(t, m[1]), 1)
	}
	line = onceFlag.ReplaceAllString(line, "$0 ${1}server "+b.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	cmd.Dir, cmd.WaitDelay = dir, 20*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "NATS_URL="+b.URL, "HOME="+t.TempDir(),
		"XDG_CONFIG_HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	out, endless := &watched{seen: func() {}}, false
	for _, s := range shows {
		if s.command.MatchString(line) {
			out.want, endless = []byte(s.want), s.endless
			break
		}
	}
	if out.want == nil {
		t.Fatal("this test does not know what the command prints")
	}
	if endless {
		out.seen = cancel
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(line, "nats sub ") && !strings.Contains(line, "--stream") { // gets only new messages
		b.whileRunning(ctx, t, r)
	}
	if err := cmd.Wait(); err != nil && !endless || !bytes.Contains(out.text.Bytes(), out.want) {
		t.Errorf("%v, want %q in:\n%s", err, out.want, &out.text)
	}
}

// whileRunning publishes to the subscribers until ctx ends.
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

// watched is the output of a command. seen is called once it contains want. A command writes from
// one goroutine.
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
