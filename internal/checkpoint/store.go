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

// Store holds the bytes of a checkpoint: see OpenFile and NewConfigMap. It is for one caller at a
// time. Its errors name the place; an error that has none of this package's kinds is transient.
type Store interface {
	// Lock keeps other agents away until unlock, if the store supports locks. It fails with
	// ErrLocked. Reading needs no lock.
	Lock(ctx context.Context) (unlock func() error, err error)
	// Load returns the last saved bytes, nil if there are none.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces the bytes of the last Load or Save. It fails with ErrConflict if the store now
	// has others. After any other error the store may have either.
	Save(ctx context.Context, data []byte) error
	// Delete removes the checkpoint, if there is one.
	Delete(ctx context.Context) error
	// String returns the place: "checkpoint file /var/lib/kubecdc/checkpoint.json".
	String() string
}

// Read returns the checkpoint in s, nil if there is none. It takes no lock: an agent may be
// running.
func Read(ctx context.Context, s Store) (*Document, error) {
	data, err := s.Load(ctx)
	if err != nil || data == nil {
		return nil, err
	}
	d, err := Decode(data)
	return d, at(s, err)
}

// Reset removes all scopes of a resource from the checkpoint, so that the next run starts over with
// them, and returns their names. The resource is written as in kubectl ("pods",
// "deployments.apps"), or is the name of a scope. "" removes the whole checkpoint, even a damaged
// one, and returns the names that could be read. Reset fails with ErrLocked if an agent is running
// (if the store has no lock, that agent exits with ErrConflict at its next save), and with
// ErrNoScope if the checkpoint has no such scope, or does not exist.
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
	removed = d.scopesOf(resource)
	if len(removed) == 0 {
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

// Forget removes a retiring scope from the checkpoint although the bus does not have all its
// records. It fails with ErrNoScope if there is no such scope or it is still selected, and like
// Reset if an agent is running. It calls end first, unless nil, and removes nothing if that fails.
func Forget(ctx context.Context, s Store, scope string, end func(*Document, *Scope) error) (err error) {
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
	if end != nil {
		if err := end(d, &was); err != nil {
			return err
		}
	}
	delete(d.Scopes, scope)
	return replace(ctx, s, d)
}

// replace saves a document that a command has changed.
func replace(ctx context.Context, s Store, d *Document) error {
	d.Writer = rand.Text()
	d.Save = 1
	d.Saved = time.Now().UTC().Truncate(time.Second)
	data, err := d.Encode()
	if err != nil {
		return err
	}
	return s.Save(ctx, data)
}

func notRetiring(s Store, scope string, known bool, scopes map[string]Scope) error {
	e := &Error{
		Kind:   ErrNoScope,
		Where:  s.String(),
		What:   "it has no scope " + scope,
		Remedy: "no scope is retiring",
	}
	if known {
		e.What = scope + " is not retiring"
	}
	var retiring []string
	for name, c := range scopes {
		if c.Retiring != nil {
			retiring = append(retiring, name)
		}
	}
	slices.Sort(retiring)
	if len(retiring) > 0 {
		e.Remedy = "these scopes are retiring: " + strings.Join(retiring, ", ")
	}
	if known {
		e.Remedy += "; to start over with a scope that is selected, use 'kubecdc checkpoint reset'"
	}
	return e
}

// scopesOf returns the sorted names of the scopes of a resource.
func (d *Document) scopesOf(resource string) (out []string) {
	for name, s := range d.Scopes {
		if name == resource || s.resource() == resource {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// resource returns the resource as kubectl writes it.
func (s *Scope) resource() string {
	if s.Group == "" {
		return s.Resource
	}
	return s.Resource + "." + s.Group
}

func none(s Store) error {
	return &Error{
		Kind:   ErrNoScope,
		Where:  s.String(),
		What:   "does not exist; nothing was removed",
		Remedy: "if the agent has been running, its checkpoint is elsewhere: pass this command the agent's --config, --bus and --data-dir",
	}
}

func noScope(s Store, resource string, scopes map[string]Scope) error {
	e := &Error{
		Kind:   ErrNoScope,
		Where:  s.String(),
		What:   "has no scope of " + resource,
		Remedy: "it has no scopes at all",
	}
	var have []string
	for _, scope := range scopes {
		have = append(have, scope.resource())
	}
	slices.Sort(have)
	if len(have) > 0 {
		e.Remedy = "it has " + strings.Join(slices.Compact(have), ", ")
	}
	return e
}

// at adds the place to an *Error that has none.
func at(s Store, err error) error {
	if e := new(Error); errors.As(err, &e) && e.Where == "" {
		e.Where = s.String()
	}
	return err
}
