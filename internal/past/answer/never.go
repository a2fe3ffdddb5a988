package answer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// seenObjects are the names of a question, as they are written, that belong to an object that was
// read. "" is any object.
type seenObjects map[string]bool

// noteVersions notes the objects of versions.
func (s seenObjects) noteVersions(wanted *record.Selection, versions []*timeline.Version) {
	for _, v := range versions {
		s[""] = true
		for i := range wanted.Resources {
			r := &wanted.Resources[i]
			for _, name := range r.Names {
				if r.String() == v.Resource && !s[name] && record.Matches(name, v.Name) {
					s[name] = true
				}
			}
		}
	}
}

// neverExisted returns remarks about names and namespaces of the question that the record never
// had: they are probably misspelt.
func (q *Question) neverExisted(ctx context.Context, seen seenObjects) ([]audit.Remark, error) {
	if q.Record.Lacks(q.Wanted) != "" {
		return nil, nil // others may have it
	}
	var out []audit.Remark
	for _, name := range q.names() {
		if seen[name] {
			continue
		}
		named := q.Wanted.Of(name)
		has, err := q.has(ctx, named)
		if err != nil {
			return nil, err
		}
		if !has {
			what := fmt.Sprintf("no object %q is in the record at any moment: check the spelling", name)
			out = append(out, audit.Remark{
				Kind: audit.NeverExisted,
				What: what + q.suggestSimilar(ctx, name, named.WithoutNames(), namesOf),
			})
		}
	}
	if seen[""] || len(out) > 0 {
		return out, nil
	}
	has, err := q.has(ctx, q.Wanted)
	if err != nil || has {
		return nil, err
	}
	if q.Wanted.Namespace == "" {
		return append(out,
			audit.Remark{Kind: audit.NeverExisted, What: "no such object is in the record at any moment"}), nil
	}
	all := q.Wanted.Everything()
	has, err = q.has(ctx, all)
	if err != nil {
		return nil, err
	}
	if has {
		what := fmt.Sprintf(
			"no such object of namespace %q is in the record at any moment; it has others of this namespace",
			q.Wanted.Namespace)
		return append(out, audit.Remark{Kind: audit.NeverExisted, What: what}), nil
	}
	what := fmt.Sprintf("no object of namespace %q is in the record at any moment: check the spelling",
		q.Wanted.Namespace)
	all.Namespace = ""
	what += q.suggestSimilar(ctx, q.Wanted.Namespace, all, namespacesOf)
	return append(out, audit.Remark{Kind: audit.NeverExisted, What: what}), nil
}

// names returns the names that the question asks for, each once.
func (q *Question) names() []string {
	var out []string
	for _, r := range q.Wanted.Resources {
		for _, name := range r.Names {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func (q *Question) has(ctx context.Context, s *record.Selection) (has bool, err error) {
	err = q.During(ctx, func(ctx context.Context) error {
		has, err = q.Record.Has(ctx, s)
		return err
	})
	return has, err
}

func namesOf(ctx context.Context, r *record.Record, s *record.Selection) []string {
	return r.ObjectNames(ctx, s)
}

func namespacesOf(ctx context.Context, r *record.Record, s *record.Selection) []string {
	return r.Namespaces(ctx, s)
}

// suggestSimilar returns the end of the message that the record has no object of a name: the
// similar names of a selection. It does not read a topic again for that.
func (q *Question) suggestSimilar(
	ctx context.Context, name string, s *record.Selection, list func(
		context.Context, *record.Record, *record.Selection,
	) []string,
) string {
	if q.Record.HasSeveralLogs() {
		return ""
	}
	var known, near []string
	_ = q.During(ctx, func(ctx context.Context) error {
		known = list(ctx, q.Record, s)
		return nil
	})
	for range maxNear {
		best := wording.Nearest(name, known)
		if best == "" {
			break
		}
		near = append(near, best)
		known = slices.DeleteFunc(known, func(other string) bool { return other == best })
	}
	if len(near) == 0 {
		return ""
	}
	return "; similar: " + strings.Join(near, ", ")
}
