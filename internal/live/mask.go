package live

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// redactedPrefix starts the text with which the agent replaces a redacted value.
const redactedPrefix = "hmac-sha256:"

// mask removes values that the record does not have from the objects of a resource.
type mask struct {
	secrets bool
	paths   []string // sorted
	same    *object.Mask
	cutter  *object.Cutter // of the paths, without those of the values of Secrets: hideValues keeps their names
}

func newMask(resource string, paths []string) (*mask, error) {
	m := &mask{secrets: resource == "secrets"}
	if m.secrets {
		paths = append(slices.Clone(paths), object.Copies()...)
	}
	return m, m.add(paths)
}

func (m *mask) add(paths []string) (err error) {
	m.paths = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(m.paths), paths...))))
	if m.same, err = object.NewMask(m.paths...); err != nil {
		return err
	}
	m.cutter, err = object.NewCutter(slices.DeleteFunc(slices.Clone(m.paths), func(path string) bool {
		name, _, _ := strings.Cut(strings.ReplaceAll(path, "[", "."), ".")
		return m.secrets && (name == "data" || name == "stringData")
	}))
	return err
}

// learn compares the recorded and the live JSON of one version of an object. It adds the paths whose values only the live
// one has, and those that are redacted in the record. It reports whether both are the same apart from these.
func (m *mask) learn(recorded, live []byte) (same bool, err error) {
	if same, err = object.SameBut(recorded, live, m.same); same || err != nil {
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

// note adds the paths that are redacted in a recorded object.
func (m *mask) note(recorded []byte) error {
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

// redactedPath returns the path of a redacted member, or of all members if all are redacted: a member that the record does
// not have yet would be redacted, too.
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
	return ok && strings.HasPrefix(text, redactedPrefix)
}

// memberPath returns the path of a member in the syntax of object.NewCutter.
func memberPath(path, name string) string {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`.[]*"'`, c) }) {
		quoted, _ := json.Marshal(name) //nolint:errchkjson // a string
		return path + "[" + string(quoted) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// apply removes values that the record does not have from both versions of an object, and hides the values of a Secret.
func (m *mask) apply(d *timeline.Difference) error {
	before, err := m.cut(d.Before)
	if err != nil {
		return err
	}
	after, err := m.cut(d.After)
	if err != nil {
		return err
	}
	if before == nil && after == nil {
		return nil
	}
	if m.secrets {
		hideValues(before, after)
	}
	if d.Before, err = with(d.Before, before); err == nil {
		d.After, err = with(d.After, after)
	}
	return err
}

// cut returns the object of a version, without the paths of the mask; nil if there is none.
func (m *mask) cut(v *timeline.Version) (map[string]any, error) {
	if v == nil || v.After == nil {
		return nil, nil
	}
	raw, _, err := object.NewScanner(m.cutter).Scan(nil, v.After, v.Kind, v.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", v.Namespace, v.Name, err)
	}
	return decode(raw)
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

// hideValues hides the values of both versions of a Secret. It keeps their names if the record has names.
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
