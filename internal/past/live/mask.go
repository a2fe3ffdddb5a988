package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// mask removes values that the record does not have from the objects of a resource.
type mask struct {
	resource string // "deployments.apps"
	secrets  bool
	known    bool     // see Question
	paths    []string // sorted
	same     *object.Mask
	cutter   *object.Cutter // of the paths, without those of the values of Secrets: hideValues keeps their names
	// copies is cutter, and removes copies of Secrets. It is for live objects, unless the recorded
	// version has such copies.
	copies *object.Cutter
	hides  bool // it has removed any

	unproven map[string]bool // paths of live values that prove has removed
}

func newMask(resource string, paths []string, known bool) (*mask, error) {
	m := &mask{
		resource: resource,
		secrets:  resource == "secrets",
		known:    known,
		unproven: map[string]bool{},
	}
	if m.secrets {
		paths = append(slices.Clone(paths), object.Copies()...)
	}
	return m, m.add(paths)
}

func (m *mask) add(paths []string) (err error) {
	m.paths = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(m.paths), paths...))))
	m.same, err = object.NewMask(m.paths...)
	if err != nil {
		return err
	}
	cut := slices.Clone(m.paths)
	if !m.known { // a copy may have a value that is hidden in the object
		cut = append(cut, object.Copies()...)
	}
	m.cutter, err = object.NewCutter(slices.DeleteFunc(cut, func(path string) bool {
		name, _, _ := strings.Cut(strings.ReplaceAll(path, "[", "."), ".")
		return m.secrets && (name == "data" || name == "stringData")
	}))
	if err != nil {
		return err
	}
	plural, group, _ := strings.Cut(m.resource, ".")
	m.copies, err = m.cutter.RedactCopies(group, plural)
	return err
}

// learn compares the recorded and the live JSON of one version of an object. It adds the paths
// whose values only the live one has, and those that are redacted in the record. It reports whether
// both are the same apart from these.
func (m *mask) learn(recorded, live []byte) (same bool, err error) {
	same, err = object.SameBut(recorded, live, m.same)
	if same || err != nil {
		return same, err
	}
	r, err := decode(recorded)
	if err != nil {
		return false, err
	}
	l, err := decode(live)
	if err != nil {
		return false, err
	}
	found := map[string]bool{}
	missing(r, l, "", found)
	redactions(r, "", found)
	if err := m.add(slices.Collect(maps.Keys(found))); err != nil {
		return false, err
	}
	return object.SameBut(recorded, live, m.same)
}

// noteRedacted adds the paths that are redacted in a recorded object.
func (m *mask) noteRedacted(recorded []byte) error {
	r, err := decode(recorded)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	redactions(r, "", found)
	return m.add(slices.Collect(maps.Keys(found)))
}

// missing adds to found each path at which the live value has a member that the recorded one lacks.
func missing(recorded, live any, path string, found map[string]bool) {
	switch l := live.(type) {
	case map[string]any:
		r, ok := recorded.(map[string]any)
		for name, value := range l {
			if was, has := r[name]; has {
				missing(was, value, memberPath(path, name), found)
			} else if ok {
				found[memberPath(path, name)] = true
			}
		}
	case []any:
		r, _ := recorded.([]any)
		for n := range min(len(r), len(l)) {
			missing(r[n], l[n], path+"[*]", found)
		}
	}
}

// redactions adds to found each path of a recorded value that is redacted.
func redactions(recorded any, path string, found map[string]bool) {
	switch r := recorded.(type) {
	case map[string]any:
		for name, value := range r {
			at := memberPath(path, name)
			if isRedacted(value) {
				found[redactedPath(r, path, at)] = true
			}
			redactions(value, at, found)
		}
	case []any:
		for _, value := range r {
			if isRedacted(value) {
				found[path+"[*]"] = true
			}
			redactions(value, path+"[*]", found)
		}
	}
}

// redactedPath returns the path of a redacted member, or of all members if all are redacted: a
// member that the record does not have yet would be redacted, too.
func redactedPath(members map[string]any, path, at string) string {
	for _, value := range members {
		if !isRedacted(value) {
			return at
		}
	}
	return path + "[*]"
}

func isRedacted(value any) bool {
	text, ok := value.(string)
	return ok && strings.HasPrefix(text, object.RedactedPrefix)
}

// memberPath returns the path of a member in the syntax of object.NewCutter.
func memberPath(path, name string) string {
	if name == "" ||
		strings.ContainsFunc(name,
			func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`.[]*"'`, c) }) {
		quoted, _ := json.Marshal(name) //nolint:errchkjson // a string
		return path + "[" + string(quoted) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// apply removes values that the record does not have from both versions of an object, and hides the
// values of a Secret.
func (m *mask) apply(d *timeline.Difference) error {
	before, err := m.cut(d.Before, m.cutter)
	if err != nil {
		return err
	}
	kept, err := m.hasCopies(d.Before)
	if err != nil {
		return err
	}
	cutter := m.cutter
	if !kept { // else the agent does not remove them
		cutter = m.copies
		found, err := m.hasCopies(d.After)
		if err != nil {
			return err
		}
		m.hides = m.hides || found
	}
	after, err := m.cut(d.After, cutter)
	if err != nil {
		return err
	}
	if before == nil && after == nil {
		return nil
	}
	if m.secrets {
		hideValues(before, after)
	}
	if after != nil && !m.known {
		m.prove([]any{before, m.shown(after)}, after, "")
	}
	d.Before, err = with(d.Before, before)
	if err == nil {
		d.After, err = with(d.After, after)
	}
	return err
}

// shown returns the part of a live object that no configuration hides: its identity. The values of
// a Secret are hidden already.
func (m *mask) shown(live map[string]any) map[string]any {
	metadata, _ := live["metadata"].(map[string]any)
	identity := map[string]any{}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion"} {
		if value, ok := metadata[name]; ok {
			identity[name] = value
		}
	}
	out := map[string]any{"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": identity}
	if m.secrets {
		out["data"], out["stringData"] = live["data"], live["stringData"]
	}
	return out
}

// prove removes the values from a live value that none of the recorded ones has at the same path: a
// rule that the record does not show may hide them. It returns the rest, and false if that is
// nothing.
func (m *mask) prove(recorded []any, live any, path string) (any, bool) {
	switch l := live.(type) {
	case map[string]any:
		was := only[map[string]any](recorded)
		if len(was) == 0 && len(l) > 0 {
			break
		}
		for name, value := range l {
			if kept, ok := m.prove(members(was, name), value, memberPath(path, name)); ok {
				l[name] = kept
			} else {
				delete(l, name)
			}
		}
		return l, len(was) > 0
	case []any:
		if was := only[[]any](recorded); len(was) > 0 {
			kept, elements := l[:0], slices.Concat(was...)
			for _, element := range l {
				if v, ok := m.prove(elements, element, path+"[*]"); ok {
					kept = append(kept, v)
				}
			}
			return kept, true
		}
	default:
		if len(only[map[string]any](recorded))+len(only[[]any](recorded)) < len(recorded) {
			return live, true
		}
	}
	m.unproven[path] = true
	return nil, false
}

// members returns the values that objects have under a name.
func members(objects []map[string]any, name string) []any {
	var out []any
	for _, o := range objects {
		if value, has := o[name]; has {
			out = append(out, value)
		}
	}
	return out
}

// only returns the values of a type.
func only[T any](values []any) []T {
	var out []T
	for _, value := range values {
		if v, ok := value.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// cut returns the object of a version, cut by c; nil if there is none.
func (m *mask) cut(v *timeline.Version, c *object.Cutter) (map[string]any, error) {
	raw, err := scan(v, c)
	if raw == nil || err != nil {
		return nil, err
	}
	return decode(raw)
}

// hasCopies reports whether a version has copies of Secrets that an agent removes by default.
func (m *mask) hasCopies(v *timeline.Version) (bool, error) {
	whole, err := scan(v, m.cutter)
	if err != nil {
		return false, err
	}
	without, err := scan(v, m.copies)
	return !bytes.Equal(whole, without), err
}

// scan returns the JSON of a version, cut by c; nil if there is none.
func scan(v *timeline.Version, c *object.Cutter) ([]byte, error) {
	if v == nil || v.After == nil {
		return nil, nil
	}
	raw, _, err := object.NewScanner(c).Scan(nil, v.After, v.Kind, v.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", v.Namespace, v.Name, err)
	}
	return raw, nil
}

// with returns a version with another object.
func with(v *timeline.Version, o map[string]any) (*timeline.Version, error) {
	if v == nil || o == nil {
		return v, nil
	}
	c := *v
	var err error
	c.After, err = json.Marshal(o)
	return &c, err
}

// hidden replaces a value that is not shown.
const hidden = "***"

// hideValues hides the values of both versions of a Secret. It keeps their names if the record has
// names.
func hideValues(before, after map[string]any) {
	for _, field := range []string{"data", "stringData"} {
		was, had := before[field].(map[string]any)
		is, has := after[field].(map[string]any)
		if before != nil && !had && has { // the record has no values
			delete(after, field)
			continue
		}
		for name := range was {
			if value, both := is[name]; both && !isRedacted(was[name]) && value != was[name] {
				was[name], is[name] = hidden+" (before)", hidden+" (after)"
				continue
			}
			was[name] = hidden
			if _, both := is[name]; both {
				is[name] = hidden
			}
		}
		for name := range is {
			if _, both := was[name]; !both {
				is[name] = hidden
			}
		}
		for _, o := range []map[string]any{before, after} { // deletes a field of any other type
			if _, ok := o[field].(map[string]any); !ok {
				delete(o, field)
			}
		}
	}
}
