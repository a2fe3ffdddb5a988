package consumers_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	child "github.com/kubecdc/kubecdc/test/process"
)

// program is one of examples that follows a stream.
type program struct {
	name string
	argv func(t testing.TB) []string
}

var programs = []program{
	{"python", func(t testing.TB) []string {
		return []string{
			filepath.Join(python.Dir(t), "venv", "bin", "python"), "-B", filepath.Join(examples, "python", "follow.py"),
		}
	}},
	{"javascript", func(t testing.TB) []string {
		return []string{"node", filepath.Join(nodeModules(t, filepath.Join(examples, "javascript")), "follow.mjs")}
	}},
	{"go", func(t testing.TB) []string { return []string{goProgram(t, "follow")} }},
}

// goProgram is one of the programs in Go, which the first test that needs it builds.
func goProgram(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a program that the race detector does not look into")
	}
	build, _ := goPrograms.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		path := filepath.Join(os.TempDir(), goProgramsDir, name)
		cmd := exec.Command("go", "build", "-o", path, "./examples/go/"+name)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return path, nil
	}))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// goPrograms has a func() (path string, err error) for each name.
var goPrograms sync.Map

// goProgramsDir is the directory of the binaries, in the temporary directory. TestMain removes it.
const goProgramsDir = "programs"

// nodeModules copies the scripts of a directory to one that also has the packages, where node finds
// them.
func nodeModules(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(javascript.Dir(t), "node_modules"),
		filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join(from, "*.mjs"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s: %v", from, err)
	}
	for _, script := range scripts {
		content, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(script)), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTable feeds each program one stream of many clusters, whose histories have everything that
// may happen to a stream, and an empty stream. The program must end with the existing objects, each
// in its current version. A cluster's name has the seed of its history.
func TestTable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	var histories [][]record
	want := map[string]row{}
	add := func(records []record, exist map[string]row) {
		histories = append(histories, records)
		maps.Copy(want, exist)
	}
	for seed := range uint64(8) {
		add(history(t, seed, false))
		add(history(t, seed+100, true))
	}
	add(widened(t))
	add(selectedAgain(t))
	add(overtaken(t))
	add(twins(t))
	doubled, exist, _ := agents(t, 1)
	add(doubled, exist)
	all := merged(rand.New(rand.NewPCG(1, 0)), histories...)
	full, empty := startBus(t), startBus(t)
	full.createStream(t)
	full.fill(t, all)
	empty.createStream(t)

	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			argv := p.argv(t)
			if diff := cmp.Diff(want, once(t, argv, full)); diff != "" {
				t.Errorf("after %d records (-want +got):\n%s", len(all), diff)
			}
			if diff := cmp.Diff(map[string]row{}, once(t, argv, empty)); diff != "" {
				t.Errorf("of an empty stream (-want +got):\n%s", diff)
			}
		})
	}
}

// once runs a program that prints the existing objects.
func once(t testing.TB, argv []string, b *bus) map[string]row {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], "--server", b.URL, "--once")...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	rows := map[string]row{}
	for line := range bytes.Lines(out) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if key := r.key(); rows[key] == (row{}) {
			rows[key] = r
		} else {
			t.Errorf("twice: %s", key)
		}
	}
	return rows
}

// TestFollow lets each program follow a stream while it grows, and while its server is restarted
// and loses all consumers. Each change must be reported once.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			argv := p.argv(t)
			b := startBus(t)
			b.createStream(t)
			c, s := oneScope(t)
			p := start(t,
				append(argv, "--server", b.URL, "kubecdc.*.object.apps.>", "kubecdc.*.stream.apps.*",
					"kubecdc.*.scope.apps.*.*"))
			expect := func(want string) {
				t.Helper()
				if got := p.line(t); got != want {
					t.Fatalf("printed %q, want %q", got, want)
				}
			}

			for i, name := range []string{"web", "api", "db"} {
				if i == 1 {
					b.restart(t)
				}
				created, updated, deleted := c.life(s, name)
				b.put(t, created)
				expect("created deployments.apps shop/" + name)
				b.put(t, created, updated, created, updated)
				expect("updated deployments.apps shop/" + name)
				b.put(t, updated, deleted, updated, created)
				expect("deleted deployments.apps shop/" + name)
			}
			// A snapshot without the object whose deletion was missed.
			created, _, _ := c.life(s, "lost")
			b.put(t, created)
			expect("created deployments.apps shop/lost")
			from := len(c.records)
			clear(c.objects)
			c.snapshot(s, true)
			b.put(t, c.records[from:]...)
			expect("swept deployments.apps shop/lost")
		})
	}
}

// TestErrors requires the programs to report errors without a stack trace.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			argv := p.argv(t)
			b := startBus(t) // without a stream
			for _, c := range []struct{ url, want string }{{b.URL, "KUBECDC"}, {
				"nats://127.0.0.1:1", "nats://127.0.0.1:1",
			}} {
				out, err := exec.CommandContext(t.Context(), argv[0],
					append(argv[1:], "--server", c.url, "--once")...).CombinedOutput()
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				if err == nil || !strings.Contains(lines[len(lines)-1], c.want) || len(lines) > 5 {
					t.Errorf("%v, want few lines, the last one with %q:\n%s", err, c.want, out)
				}
			}
		})
	}
}

// process is a program that runs until it is stopped.
type process struct {
	cmd   *exec.Cmd
	lines chan string   // output; holds more lines than any test lets it print; closed at the end of its output
	ended chan struct{} // closed when it has ended
	err   error         // the result of Wait; readable after ended is closed
}

func start(t testing.TB, argv []string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 100), ended: make(chan struct{})}
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, os.Stderr
	err = child.Spawn(p.cmd, func(err error) {
		p.err = err
		close(p.ended)
	})
	w.Close() // the program has its own copy
	if err != nil {
		stdout.Close()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		defer stdout.Close()
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // Fails only if it has ended.
		<-p.ended
		<-done
	})
	return p
}

// line returns the next line that the program prints.
func (p *process) line(t testing.TB) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			t.Fatal("the program has ended")
		}
		return line
	case <-time.After(2 * time.Minute): // A Kafka group waits for a lost member, 45 seconds by default.
		t.Fatal("the program prints nothing")
	}
	return ""
}

// interrupt ends the program as Ctrl-C does.
func (p *process) interrupt(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for range p.lines { // to the end
	}
	<-p.ended
	if p.err != nil {
		t.Errorf("interrupted: %v", p.err)
	}
}
