package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/atomicfile"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	vetoed := errors.New("vetoed")
	replace := func(content string, commit func() error) error {
		t.Helper()
		temp, err := os.CreateTemp(dir, "temp-*")
		if err != nil {
			t.Fatal(err)
		}
		return atomicfile.Replace(path, temp, []byte(content), commit)
	}
	expect := func(content string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("got %q, %v, want %q", got, err, content)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if diff := cmp.Diff([]string{"f"}, names); diff != "" {
			t.Error(diff)
		}
	}
	if err := replace("old", nil); err != nil {
		t.Fatal(err)
	}
	expect("old")
	if err := replace("new", func() error {
		if got, _ := os.ReadFile(path); string(got) != "old" {
			t.Errorf("before the commit, the file holds %q", got)
		}
		return vetoed
	}); !errors.Is(err, vetoed) {
		t.Errorf("got %v", err)
	}
	expect("old")
	if err := replace("new", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	expect("new")
}

func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	temp, err := os.Create(filepath.Join(dir, "temp"))
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(path, temp, []byte("new"), nil); err == nil {
		t.Error("a directory was replaced")
	}
	if _, err := os.Stat(temp.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
}
