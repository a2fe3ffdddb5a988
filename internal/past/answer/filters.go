package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Filters select versions of a history. A version has to match all that are set. Gaps are always
// shown.
type Filters struct {
	Field    Path         // the value at this path changed; nothing else is shown
	By       []string     // one of its managers matches one of these patterns; "!" before one excludes
	Ops      []consume.Op // its operation is one of these
	Changed  []Path       // a value at one of these paths, or in it, changed
	NoStatus bool         // something beside the status changed
}

// areSet reports whether a filter is set.
func (f *Filters) areSet() bool {
	return f.Field != nil || f.By != nil || f.Ops != nil || f.Changed != nil || f.NoStatus
}

// Hidden counts the versions of a span that filters hide, by the first that does.
type Hidden struct {
	Op      int `json:"op,omitempty"`
	By      int `json:"by,omitempty"`
	Changed int `json:"changed,omitempty"`
	Status  int `json:"status,omitempty"` // by NoStatus
	Field   int `json:"field,omitempty"`
	// WithoutManager counts those of By that have no manager at all, such as deletions.
	WithoutManager int `json:"withoutManager,omitempty"`
}

// Total returns how many versions are hidden.
func (h *Hidden) Total() int { return h.Op + h.By + h.Changed + h.Status + h.Field }

// hides reports whether a filter, except Field, hides a version, and counts it. before is the
// object before it, nil if that is not known.
func (r *SpanReader) hides(v *timeline.Version, before json.RawMessage) bool {
	switch {
	case r.Ops != nil && !r.takesOp(v, before):
		r.Hidden.Op++
	case r.By != nil && !r.takesManagers(v):
		r.Hidden.By++
		if len(v.ChangedBy) == 0 {
			r.Hidden.WithoutManager++
		}
	case r.Changed != nil && !r.takesChange(before, v.After):
		r.Hidden.Changed++
	case r.NoStatus && isOnlyStatus(before, v.After):
		r.Hidden.Status++
	default:
		return false
	}
	return true
}

// takesOp reports whether the operation of a version is selected. A change that a snapshot shows is
// a read and an update.
func (r *SpanReader) takesOp(v *timeline.Version, before json.RawMessage) bool {
	return slices.Contains(r.Ops, v.Op) || isInferredUpdate(v, before) && slices.Contains(r.Ops, consume.Updated)
}

// isInferredUpdate reports whether a snapshot shows that an object has changed.
func isInferredUpdate(v *timeline.Version, before json.RawMessage) bool {
	return v.Op == consume.Read && before != nil
}

// takesManagers reports whether one of the managers of a version is selected. If all patterns
// exclude, so is a version without any manager.
func (r *SpanReader) takesManagers(v *timeline.Version) bool {
	var wanted, excluded []string
	for _, pattern := range r.By {
		if except, ok := strings.CutPrefix(pattern, "!"); ok {
			excluded = append(excluded, except)
		} else {
			wanted = append(wanted, pattern)
		}
	}
	if len(wanted) == 0 && len(v.ChangedBy) == 0 {
		return true
	}
	return slices.ContainsFunc(v.ChangedBy, func(c consume.Change) bool {
		return (len(wanted) == 0 || matchesAny(wanted, c.Manager)) && !matchesAny(excluded, c.Manager)
	})
}

// matchesAny reports whether a name matches one of some patterns.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

func (r *SpanReader) takesChange(before, after json.RawMessage) bool {
	return slices.ContainsFunc(r.Changed, func(p Path) bool { return p.compare(before, after).isChange })
}

// isOnlyStatus reports whether the status of an object differs, and nothing else but what each
// update changes. A version without a visible difference is not one: a value that the record does
// not have may have changed.
func isOnlyStatus(before, after json.RawMessage) bool {
	var was, is map[string]json.RawMessage
	if before == nil || after == nil || json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil {
		return false
	}
	if bytes.Equal(was["status"], is["status"]) {
		return false
	}
	for _, m := range []map[string]json.RawMessage{was, is} {
		delete(m, "status")
		m["metadata"] = withoutNoise(m["metadata"])
	}
	if len(was) != len(is) {
		return false
	}
	for key, value := range was {
		other, ok := is[key]
		if !ok || !bytes.Equal(value, other) {
			return false
		}
	}
	return true
}

// withoutNoise returns metadata without what each update changes.
func withoutNoise(metadata json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(metadata, &m) != nil {
		return metadata
	}
	for _, key := range []string{"generation", "managedFields", "resourceVersion"} {
		delete(m, key)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return metadata // impossible: it came from JSON
	}
	return raw
}

// HiddenByFilters returns what filters hide, nil without filters.
func (r *SpanReader) HiddenByFilters() *Hidden {
	if !r.areSet() {
		return nil
	}
	return &r.Hidden
}

// HiddenWords says how many versions filters hide, "" if they hide none.
func (r *SpanReader) HiddenWords() string {
	n := r.Hidden.Total()
	if n == 0 {
		return ""
	}
	var by []string
	for _, f := range []struct {
		flag string
		n    int
	}{
		{"--op", r.Hidden.Op}, {"--by", r.Hidden.By}, {"--changed", r.Hidden.Changed}, {
			"--no-status", r.Hidden.Status,
		}, {"--field", r.Hidden.Field},
	} {
		if f.n > 0 {
			by = append(by, fmt.Sprintf("%s: %d", f.flag, f.n))
		}
	}
	text := fmt.Sprintf("hidden: %d of %d versions (%s)", n, n+r.Shown, strings.Join(by, ", "))
	if none := r.Hidden.WithoutManager; none > 0 {
		text += fmt.Sprintf("; of those of --by, without any manager (such as deletions): %d", none)
	}
	return text
}

const (
	maxExamples = 8  // objects that are kept for the error about a path
	maxKeys     = 20 // that it names
)

// sought are the paths that the flags of a history name. A path that no version has is probably
// misspelt.
type sought struct {
	paths    []soughtPath
	examples map[string]json.RawMessage // the last object known of each resource
	isPart   bool                       // of one of the versions, the object is not known
	redacted bool                       // one of the versions has redacted values
}

type soughtPath struct {
	flag    string
	path    Path
	isThere bool
}

func newSought(f *Filters) sought {
	s := sought{examples: map[string]json.RawMessage{}}
	if f.Field != nil {
		s.paths = append(s.paths, soughtPath{flag: "--field", path: f.Field})
	}
	for _, p := range f.Changed {
		s.paths = append(s.paths, soughtPath{flag: "--changed", path: p})
	}
	return s
}

// lookForPaths looks for the paths in a version and in the object before it.
func (s *sought) lookForPaths(v *timeline.Version, before json.RawMessage) {
	s.isPart = s.isPart || v.After == nil && !v.Gone()
	s.redacted = s.redacted || len(s.paths) > 0 && v.Redacted()
	for i := range s.paths {
		p := &s.paths[i]
		for _, object := range []json.RawMessage{v.After, before} {
			if p.isThere || object == nil {
				continue
			}
			p.isThere = len(p.path.find(object).values) > 0
			if _, has := s.examples[v.Resource]; !p.isThere && (has || len(s.examples) < maxExamples) {
				s.examples[v.Resource] = object
			}
		}
	}
}

// checkFound returns the error that no version has the value of a path.
func (s *sought) checkFound() error {
	var objects []json.RawMessage
	for _, resource := range slices.Sorted(maps.Keys(s.examples)) {
		objects = append(objects, s.examples[resource])
	}
	for i := range s.paths {
		p := &s.paths[i]
		if p.isThere || s.isPart || len(objects) == 0 {
			continue
		}
		text := fmt.Sprintf("%s %s: no version that was read has a value there", p.flag, p.path)
		if s.redacted {
			text += ", and some have redacted values"
		}
		if near := p.path.near(objects); len(near) > 0 {
			return fmt.Errorf("%s; similar: %s", text, strings.Join(near, ", "))
		}
		parent, keys := p.path.within(objects)
		if len(keys) > maxKeys {
			keys = append(keys[:maxKeys:maxKeys], "…")
		}
		if parent == "" {
			return fmt.Errorf("%s; at the top are: %s", text, strings.Join(keys, ", "))
		}
		return fmt.Errorf("%s; %s has: %s", text, parent, strings.Join(keys, ", "))
	}
	return nil
}
