package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

func load(t *testing.T, s checkpoint.Store) string {
	t.Helper()
	data, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if data == nil {
		return "nothing"
	}
	return string(data)
}

func save(t *testing.T, s checkpoint.Store, data string) {
	t.Helper()
	if err := s.Save(t.Context(), []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func lock(t *testing.T, s checkpoint.Store) (unlock func()) {
	t.Helper()
	f, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "deep", "checkpoint.json")
	s := checkpoint.OpenFile(path)
	if got := load(t, s); got != "nothing" {
		t.Errorf("before the first save: %q", got)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("reading made the directory")
	}
	defer lock(t, s)()
	for _, data := range []string{"first", "second, longer", ""} {
		save(t, s, data)
		if got := load(t, s); got != data {
			t.Errorf("loaded %q, saved %q", got, data)
		}
	}
	if runtime.GOOS != "windows" {
		for _, want := range []struct {
			path string
			mode os.FileMode
		}{{path, 0o600}, {filepath.Dir(path), os.ModeDir | 0o700}, {
			filepath.Dir(filepath.Dir(path)), os.ModeDir | 0o700,
		}} {
			if info, err := os.Stat(want.path); err != nil || info.Mode() != want.mode {
				t.Errorf("%s: mode %v, %v, want %v", want.path, info.Mode(), err, want.mode)
			}
		}
	}
	for range 2 {
		if err := s.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := load(t, s); got != "nothing" {
			t.Errorf("after Delete: %q", got)
		}
	}
}

// An agent that is killed while it saves leaves at most the temporary file, whole, in part or
// empty: the old checkpoint counts, and the next save goes through.
func TestFileKilledBetweenWriteAndRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := checkpoint.OpenFile(path)
	defer lock(t, s)()
	old := encode(t, document())
	save(t, s, string(old))
	next := document()
	next.Save++
	for _, left := range [][]byte{{}, encode(t, next)[:200], encode(t, next)} {
		if err := os.WriteFile(path+".new", left, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := checkpoint.Read(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(document(), d); diff != "" {
			t.Errorf("%d bytes left (-want +got):\n%s", len(left), diff)
		}
	}
	save(t, s, "after it")
	if got := load(t, s); got != "after it" {
		t.Errorf("loaded %q", got)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || !slices.Equal(left, []string{path, path + ".lock"}) {
		t.Errorf("files left: %q, %v", left, err)
	}
}

// A save that fails leaves the old checkpoint.
func TestFileSaveFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := checkpoint.OpenFile(path)
	defer lock(t, s)()
	save(t, s, "old")
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	err := s.Save(t.Context(), []byte("new"))
	if e := new(checkpoint.Error); err == nil || errors.As(err, &e) {
		t.Errorf("save: %v, want an error that may pass", err)
	}
	if got := load(t, s); got != "old" {
		t.Errorf("loaded %q", got)
	}
	if err := os.Remove(path + ".new"); err != nil {
		t.Fatal(err)
	}
	save(t, s, "new")
}

func TestFileCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, lockErr := checkpoint.OpenFile(filepath.Join(blocked, "checkpoint.json")).Lock(t.Context())
	_, loadErr := checkpoint.OpenFile(dir).Load(t.Context())
	for _, err := range []error{lockErr, loadErr} {
		if !errors.Is(err, checkpoint.ErrRefused) ||
			!strings.Contains(err.Error(), "repair the file, or name another one in the configuration") {
			t.Errorf("%v, want ErrRefused with what to do", err)
		}
	}
}

// An error names the place once, and a checkpoint that is still there does not count as removed.
func TestFileThatIsADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if err := os.MkdirAll(filepath.Join(path, "something"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := checkpoint.OpenFile(path)
	if _, err := f.Load(t.Context()); !errors.Is(err, checkpoint.ErrRefused) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("loaded: %v", err)
	}
	if err := f.Delete(t.Context()); err == nil {
		t.Error("it counts as removed, and is still there")
	}
}

func TestFileOfAnotherAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	s := checkpoint.OpenFile(path)
	unlock := lock(t, s)
	save(t, s, string(encode(t, document())))
	unlock()

	pid, kill := otherAgent(t, path)
	_, lockErr := s.Lock(t.Context())
	_, resetErr := checkpoint.Reset(t.Context(), s, "")
	want := fmt.Sprintf(
		"checkpoint file %s: in use by another kubecdc (pid %d): stop that one, or name another file in the configuration",
		path, pid)
	if runtime.GOOS == "windows" {
		want = strings.Replace(want, fmt.Sprintf(" (pid %d)", pid), "", 1)
	}
	for _, err := range []error{lockErr, resetErr} {
		if !errors.Is(err, checkpoint.ErrLocked) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if d, err := checkpoint.Read(t.Context(), s); err != nil || d == nil {
		t.Errorf("reading takes no lock: %v, %v", d, err)
	}
	kill()
	lock(t, s)() // a lock ends with its process
}

// A scope that is no longer selected can be given up, and no other.
func TestForgetRetiring(t *testing.T) {
	t.Parallel()
	s := checkpoint.OpenFile(filepath.Join(t.TempDir(), "checkpoint.json"))
	if err := checkpoint.Forget(t.Context(), s, "pods", nil); !errors.Is(err, checkpoint.ErrNoScope) {
		t.Errorf("without a checkpoint: %v, want ErrNoScope", err)
	}
	d := document()
	pods := d.Scopes["pods"]
	pods.Retiring = &checkpoint.Retiring{Since: d.Saved, Announced: true}
	d.Scopes["pods"] = pods
	unlock := lock(t, s)
	save(t, s, string(encode(t, d)))
	if err := checkpoint.Forget(t.Context(), s, "pods", nil); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("while an agent runs: %v, want ErrLocked", err)
	}
	unlock()
	for _, scope := range []string{"widgets.example.com", "secrets"} {
		err := checkpoint.Forget(t.Context(), s, scope, nil)
		if !errors.Is(err, checkpoint.ErrNoScope) || !strings.Contains(err.Error(), "these scopes are retiring: pods") {
			t.Errorf("%s: %v, want ErrNoScope that names pods", scope, err)
		}
	}
	away := errors.New("the bus is away")
	err := checkpoint.Forget(t.Context(), s, "pods", func(*checkpoint.Document, *checkpoint.Scope) error {
		return away
	})
	if before, _ := checkpoint.Read(t.Context(), s); !errors.Is(err, away) || before.Writer != d.Writer {
		t.Errorf("the end is not on the bus: %v, saved by %s", err, before.Writer)
	}
	if err := checkpoint.Forget(t.Context(), s, "pods", func(_ *checkpoint.Document, c *checkpoint.Scope) error {
		if c.ResourceVersion != pods.ResourceVersion {
			t.Errorf("the end is at %d, want %d", c.ResourceVersion, pods.ResourceVersion)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	now, err := checkpoint.Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	delete(d.Scopes, "pods")
	if diff := cmp.Diff(d.Scopes, now.Scopes); diff != "" || now.Writer == d.Writer {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
}

// A checkpoint may have no scope of the kind that a command asks for. Its error then says so,
// instead of an empty list.
func TestErrorsSayThatThereIsNoSuchScope(t *testing.T) {
	d := document()
	s := &memory{data: encode(t, d)}
	err := checkpoint.Forget(t.Context(), s, "pods", nil)
	if !errors.Is(err, checkpoint.ErrNoScope) || !strings.Contains(err.Error(), ": no scope is retiring;") {
		t.Errorf("forget: %v, want ErrNoScope that says that no scope is retiring", err)
	}
	d.Scopes = map[string]checkpoint.Scope{}
	s = &memory{data: encode(t, d)}
	_, err = checkpoint.Reset(t.Context(), s, "pods")
	if !errors.Is(err, checkpoint.ErrNoScope) || !strings.HasSuffix(err.Error(), ": it has no scopes at all") {
		t.Errorf("reset: %v, want ErrNoScope that says that there are no scopes at all", err)
	}
}

func TestReset(t *testing.T) {
	stored := func(t *testing.T, data []byte) checkpoint.Store {
		s := checkpoint.OpenFile(filepath.Join(t.TempDir(), "checkpoint.json"))
		defer lock(t, s)()
		save(t, s, string(data))
		return s
	}
	for _, c := range []struct {
		resource string
		removed  []string
		left     int // scopes, -1: no checkpoint
	}{
		{"pods", []string{"pods"}, 2},
		{"deployments.apps", []string{"deployments.apps/shop*?labels=tier!=web,a<b"}, 2},
		{"deployments.apps/shop*?labels=tier!=web,a<b", []string{"deployments.apps/shop*?labels=tier!=web,a<b"}, 2},
		{"", []string{"deployments.apps/shop*?labels=tier!=web,a<b", "pods", "widgets.example.com"}, -1},
	} {
		t.Run(c.resource, func(t *testing.T) {
			s := stored(t, encode(t, document()))
			removed, err := checkpoint.Reset(t.Context(), s, c.resource)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.removed, removed); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			d, err := checkpoint.Read(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case d == nil && c.left >= 0, d != nil && len(d.Scopes) != c.left:
				t.Errorf("left: %v, want %d scopes", d, c.left)
			case d != nil && d.Writer == document().Writer:
				t.Error("an agent that runs would take it for its own")
			}
		})
	}

	t.Run("nothing of it", func(t *testing.T) {
		_, err := checkpoint.Reset(t.Context(), stored(t, encode(t, document())), "deployments")
		if !errors.Is(err, checkpoint.ErrNoScope) ||
			!strings.HasSuffix(err.Error(),
				": has no scope of deployments: it has deployments.apps, pods, widgets.example.com") {
			t.Error(err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		broken := encode(t, document())[10:]
		if _, err := checkpoint.Reset(t.Context(), stored(t, broken), "pods"); !errors.Is(err, checkpoint.ErrDamaged) {
			t.Errorf("of one resource: %v, want ErrDamaged", err)
		}
		s := stored(t, broken)
		if removed, err := checkpoint.Reset(t.Context(), s, ""); removed != nil || err != nil {
			t.Errorf("of all: %q, %v", removed, err)
		}
		if got := load(t, s); got != "nothing" {
			t.Errorf("left: %q", got)
		}
	})
	t.Run("none there", func(t *testing.T) {
		s := checkpoint.OpenFile(filepath.Join(t.TempDir(), "checkpoint.json"))
		for _, resource := range []string{"", "pods"} {
			removed, err := checkpoint.Reset(t.Context(), s, resource)
			if removed != nil || !errors.Is(err, checkpoint.ErrNoScope) ||
				!strings.Contains(err.Error(), "does not exist; nothing was removed: ") {
				t.Errorf("of %q: %q, %v, want ErrNoScope", resource, removed, err)
			}
		}
	})
}

func TestErrorsNameThePlaceAndWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0}, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := checkpoint.Read(t.Context(), checkpoint.OpenFile(path))
	want := "checkpoint file " + path +
		": it is damaged: its content does not match its sha256 (it was cut short, or edited): " +
		"restore it from a copy, or start over with 'kubecdc checkpoint reset', given the agent's flags"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
