package filter

import (
	"errors"

	"github.com/kubecdc/kubecdc/internal/object"
)

// bookkeeping returns the fields that change with each write.
func bookkeeping() []string {
	return []string{"metadata.resourceVersion", "metadata.generation", "metadata.managedFields"}
}

// question is a question about the JSON before and after, each nil if it does not exist. It is safe
// for concurrent use.
type question interface {
	ask(before, after []byte) (bool, error)
}

// changedOnly asks whether two objects differ only in the paths and bookkeeping.
type changedOnly struct{ but *comparison }

func newChangedOnly(paths []string) (question, error) {
	for i, path := range paths {
		if err := object.CheckPath(path); err != nil {
			return nil, &pathError{i, err}
		}
	}
	first := len(bookkeeping())
	but, err := newComparison(append(bookkeeping(), paths...))
	var wrong *pathError
	if errors.As(err, &wrong) {
		return nil, &pathError{wrong.index - first, wrong.err}
	}
	if err != nil {
		return nil, err
	}
	return &changedOnly{but}, nil
}

func (c *changedOnly) ask(before, after []byte) (bool, error) {
	if before == nil || after == nil {
		return false, nil
	}
	return c.but.isSame(before, after)
}

// changed asks whether two objects differ at a path, including the case that one of them has no
// such value, or does not exist.
type changed struct{ path *object.Path }

func newChanged(path string) (question, error) {
	if err := object.CheckPath(path); err != nil {
		return nil, &pathError{0, err}
	}
	p, err := object.NewPath(path)
	if err != nil {
		return nil, &pathError{0, err}
	}
	return &changed{p}, nil
}

func (c *changed) ask(before, after []byte) (bool, error) {
	if before == nil {
		before = []byte("{}")
	}
	if after == nil {
		after = []byte("{}")
	}
	same, err := object.SameAt(before, after, c.path)
	return !same, damaged(err)
}

// damaged returns an error about the JSON of an object without its content.
func damaged(err error) error {
	if err != nil {
		return errJSON
	}
	return nil
}
