//go:build unix

package localbus_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/localbus"
)

// A directory that another user can replace or write to is refused, and nothing is written there.
func TestDirectoriesOfOtherUsersAreRefused(t *testing.T) {
	const other = 65534
	for name, test := range map[string]struct {
		prepare func(parent, data string) error // data is the data directory, in parent
		root    bool                            // the test must be able to give files to another user
		want    string
	}{
		"everybody may write": {
			prepare: func(_, data string) error {
				made := os.Mkdir(data, 0o700)
				return errors.Join(made, os.Chmod(data, 0o777)) //nolint:gosec // the test is about this
			},
			want: "every user may write to DIR/data",
		},
		"everybody may write above": {
			prepare: func(parent, _ string) error {
				return os.Chmod(parent, 0o777) //nolint:gosec // the test is about this
			},
			want: "every user may write to DIR,",
		},
		"another user made it first": {
			prepare: func(_, data string) error {
				return errors.Join(os.Mkdir(data, 0o700), os.Chown(data, other, other))
			},
			root: true,
			want: "DIR/data belongs to user 65534",
		},
		"another user made a link first": {
			prepare: func(parent, data string) error {
				mine := filepath.Join(parent, "mine")
				return errors.Join(os.Mkdir(mine, 0o700), os.Symlink(mine, data), os.Lchown(data, other, other))
			},
			root: true,
			want: "DIR/data belongs to user 65534",
		},
		"a link to a directory of another user": {
			prepare: func(parent, data string) error {
				theirs := filepath.Join(parent, "theirs")
				return errors.Join(os.Mkdir(theirs, 0o700), os.Chown(theirs, other, other), os.Symlink(theirs, data))
			},
			root: true,
			want: "DIR/theirs belongs to user 65534",
		},
		"another user owns the one above": {
			prepare: func(parent, _ string) error { return os.Chown(parent, other, other) },
			root:    true,
			want:    "DIR belongs to user 65534",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && os.Getuid() != 0 {
				t.Skip("needs root, to give files to another user")
			}
			parent := filepath.Join(t.TempDir(), "parent")
			data := filepath.Join(parent, "data")
			if err := errors.Join(os.Mkdir(parent, 0o700), test.prepare(parent, data)); err != nil {
				t.Fatal(err)
			}
			b, err := localbus.Start(t.Context(), options(data))
			if err == nil {
				_ = b.Close()
				t.Fatal("started")
			}
			if got := strings.ReplaceAll(err.Error(), parent, "DIR"); !strings.Contains(got, test.want) {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
			if found, _ := filepath.Glob(filepath.Join(parent, "*", "*")); len(found) > 0 {
				t.Errorf("it has written %v", found)
			}
		})
	}
}

// A reader does not follow a bus.json that another user can write, however valid it is.
func TestABusOfAnotherUserIsNotFound(t *testing.T) {
	root := t.TempDir()
	b := start(t, options(filepath.Join(root, "a")))
	if err := os.Chmod(b.Dir(), 0o777); err != nil { //nolint:gosec // the test is about other users
		t.Fatal(err)
	}
	if up, err := localbus.Running(root); len(up) > 0 || err != nil {
		t.Errorf("found %d buses, %v", len(up), err)
	}
	if err := os.Chmod(b.Dir(), 0o755); err != nil { //nolint:gosec // other users may list it
		t.Fatal(err)
	}
	if up, err := localbus.Running(root); len(up) != 1 || err != nil {
		t.Errorf("found %d buses, %v", len(up), err)
	}
}

// Only its user can read the files of a bus, whatever a killed process left behind.
func TestFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	leftover := filepath.Join(dir, "bus.json.new")
	written := os.WriteFile(leftover, nil, 0o600)
	opened := os.Chmod(leftover, 0o666) //nolint:gosec // the test is about this
	if err := errors.Join(written, opened); err != nil {
		t.Fatal(err)
	}
	b := start(t, options(dir))
	js, _ := stream(t, b.URL(), dir)
	publish(t, js, 1)
	for _, name := range []string{"bus.json", "cluster.json", "lock", "jetstream"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}
