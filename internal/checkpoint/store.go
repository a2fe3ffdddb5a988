package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// Store is where a checkpoint is kept: OpenFile, NewConfigMap. It is for one caller at a time. Its errors name the place;
// those that are not one of this package's kinds may pass.
type Store interface {
	// Lock keeps other agents off until unlock, where the place can be locked: ErrLocked if it is. Reading takes no lock.
	Lock(ctx context.Context) (unlock func() error, err error)
	// Load returns what was saved last, nil: nothing.
	Load(ctx context.Context) ([]byte, error)
	// Save writes data in the place of what Load has returned, or Save has written: ErrConflict if something else is there
	// now. After any other error it is unknown which of both is there.
	Save(ctx context.Context, data []byte) error
	// Delete removes it; that it is not there is no error.
	Delete(ctx context.Context) error
	// String says where it is: "file /var/lib/kubecdc/checkpoint.json".
	String() string
}

// Read returns the checkpoint that s keeps, nil: there is none. It takes no lock: an agent may run.
func Read(ctx context.Context, s Store) (*Document, error) {
	data, err := s.Load(ctx)
	if err != nil || data == nil {
		return nil, err
	}
	d, err := Decode(data)
	return d, at(s, err)
}

// Reset takes all scopes of a resource out of the checkpoint, so that the next run begins anew with them, and returns their
// names. The resource is written as kubectl does ("pods", "deployments.apps"), or is the name of a scope; "" removes
// everything, what is damaged too, and returns the names that could be read. ErrLocked: an agent runs; where a place cannot
// be locked, a running agent ends with ErrConflict when it saves next. ErrNoScope: the checkpoint has nothing of the resource, or
// there is none.
func Reset(ctx context.Context, s Store, resource string) (removed []string, err error) {
	unlock, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	d, err := Read(ctx, s)
	if resource == "" {
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
			return nil, err
		}
		if d == nil && err == nil {
			return nil, none(s)
		}
		if d != nil {
			removed = slices.Sorted(maps.Keys(d.Scopes))
		}
		return removed, s.Delete(ctx)
	}
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, none(s)
	}
	if removed = d.scopesOf(resource); len(removed) == 0 {
		return nil, noScope(s, resource, d.Scopes)
	}
	for _, scope := range removed {
		delete(d.Scopes, scope)
	}
	if err := replace(ctx, s, d); err != nil {
		return nil, err
	}
	return removed, nil
}

// Forget takes a scope that is no longer selected out of the checkpoint, although the bus does not have all of it. ErrNoScope: there
// is no such scope, or it is selected. ErrLocked and a running agent: as for Reset.
func Forget(ctx context.Context, s Store, scope string) (err error) {
	unlock, err := s.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	d, err := Read(ctx, s)
	switch {
	case err != nil:
		return err
	case d == nil:
		return none(s)
	}
	was, ok := d.Scopes[scope]
	if !ok || was.Retiring == nil {
		return notRetiring(s, scope, ok, d.Scopes)
	}
	delete(d.Scopes, scope)
	return replace(ctx, s, d)
}

// replace saves a document that was changed by a command.
func replace(ctx context.Context, s Store, d *Document) error {
	d.Writer, d.Save, d.Saved = rand.Text(), 1, time.Now().UTC().Truncate(time.Second)
	data, err := d.Encode()
	if err != nil {
		return err
	}
	return s.Save(ctx, data)
}

func notRetiring(s Store, scope string, known bool, scopes map[string]Scope) error {
	e := &Error{Kind: ErrNoScope, Where: s.String(), What: "it has no scope " + scope, Remedy: "no scope is retiring"}
	if known {
		e.What = scope + " is not retiring"
	}
	var retiring []string
	for name, c := range scopes {
		if c.Retiring != nil {
			retiring = append(retiring, name)
		}
	}
	if slices.Sort(retiring); len(retiring) > 0 {
		e.Remedy = "these scopes are retiring: " + strings.Join(retiring, ", ")
	}
	if known {
		e.Remedy += "; to start over with a scope that is selected, use 'kubecdc checkpoint reset'"
	}
	return e
}

// scopesOf are the names of the scopes of a resource, sorted.
func (d *Document) scopesOf(resource string) (out []string) {
	for name, s := range d.Scopes {
		if name == resource || s.resource() == resource {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// resource is how kubectl writes it.
func (s *Scope) resource() string {
	if s.Group == "" {
		return s.Resource
	}
	return s.Resource + "." + s.Group
}

func none(s Store) error {
	return &Error{
		Kind: ErrNoScope, Where: s.String(), What: "there is none, and nothing is forgotten",
		Remedy: "if the agent has been running, it keeps its checkpoint elsewhere: give this command the agent's --config, --bus and --data-dir",
	}
}

func noScope(s Store, resource string, scopes map[string]Scope) error {
	e := &Error{Kind: ErrNoScope, Where: s.String(), What: "nothing in it is of " + resource, Remedy: "it holds nothing at all"}
	var have []string
	for _, scope := range scopes {
		have = append(have, scope.resource())
	}
	if slices.Sort(have); len(have) > 0 {
		e.Remedy = "it holds " + strings.Join(slices.Compact(have), ", ")
	}
	return e
}

// at says where what is wrong is.
func at(s Store, err error) error {
	if e := new(Error); errors.As(err, &e) && e.Where == "" {
		e.Where = s.String()
	}
	return err
}
