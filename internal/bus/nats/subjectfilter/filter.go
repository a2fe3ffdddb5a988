package subjectfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// mostSubjects limits the filter of a consumer, because the server compares each subject with it.
const mostSubjects = 256

// Filter is the set of subjects that a reader requests.
type Filter struct {
	template []string   // tokens
	object   []string   // wildcard of all subjects that the template makes; tokens
	wanted   [][]string // wildcards of the wanted records; tokens; none overlap
	found    []string   // the subjects that exist, and wildcards for the rest; nil: not known
	checked  *checked   // nil: nothing was
	alone    bool       // the stream has no records under other subjects than those of forms
}

// Choose returns the function Choose of a fromnats.JetStream whose subjects template makes; "" is
// the default template. The function requests all records if a query cannot be filtered, and passes
// the reason to whyNot unless that is nil. It clears LastOfEach if a subject may have records of
// several objects.
func Choose(
	template string, whyNot func(error),
) (func(context.Context, jetstream.Stream, *consume.Query) []string, error) {
	if _, err := New(template, &consume.Query{}); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var done *checked // by earlier calls
	return func(ctx context.Context, stream jetstream.Stream, q *consume.Query) []string {
		f, err := New(template, q)
		if err == nil && f != nil {
			mu.Lock()
			f.checked = done
			mu.Unlock()
			err = f.Check(ctx, stream, q)
			mu.Lock()
			done = f.checked
			mu.Unlock()
		}
		// the template does not change them
		isSeparate := q.Events != consume.AllEvents && q.Events != consume.ObjectEvents
		q.LastOfEach = q.LastOfEach && err == nil && f != nil && (isSeparate || f.separates())
		switch {
		case err != nil && whyNot != nil:
			whyNot(err)
		case err == nil && f != nil:
			return f.Subjects()
		}
		return nil
	}, nil
}

// New returns the filter for the objects and kinds of events of a query. template is
// bus.nats.subject; "" is the default. The filter is nil if it would omit nothing.
func New(template string, q *consume.Query) (*Filter, error) {
	f, err := parse(template)
	if err != nil {
		return nil, err
	}
	f.wanted = f.choose(q, "")
	if f.wanted == nil {
		return nil, nil
	}
	return f, nil
}

// parse returns the filter of a template, without what is wanted.
func parse(template string) (*Filter, error) {
	if template == "" {
		template = subject.Default
	}
	if _, err := subject.New(template, "c"); err != nil {
		return nil, err
	}
	f := &Filter{template: strings.Split(template, ".")}
	f.object = render(f.template, nil)
	return f, nil
}

// separates reports whether each subject has the records of one object alone.
func (f *Filter) separates() bool {
	for _, field := range []string{"cluster", "group", "resource", "namespace", "name"} {
		if !slices.Contains(f.template, "{"+field+"}") {
			return false
		}
	}
	return f.alone
}

// choose returns the wildcards for a query, nil for all subjects. cluster is the only one of the
// stream, "" if there may be others.
func (f *Filter) choose(q *consume.Query, cluster string) [][]string {
	var wanted [][]string
	if q.Events != consume.ProgressEvents {
		wanted = f.wildcards(q.Objects, q.Events, cluster)
	}
	if q.Events != consume.ObjectEvents {
		wanted = append(wanted, progresses(cluster))
	}
	if len(wanted) > mostSubjects {
		return nil
	}
	wanted = disjoint(wanted)
	object := f.objects(cluster)
	if slices.ContainsFunc(wanted, func(w []string) bool { return slices.Equal(w, object) }) {
		return nil
	}
	return wanted
}

// wildcards returns the wildcards of the subjects of events of objects. They may overlap.
func (f *Filter) wildcards(objects []consume.Objects, events consume.Events, cluster string) [][]string {
	if len(objects) == 0 {
		objects = []consume.Objects{{}}
	}
	var wanted [][]string
	for _, o := range objects {
		groups := o.Groups
		if groups == nil {
			groups = []string{""}
		}
		for _, group := range groups {
			known := fieldsOf(o, group)
			if cluster != "" {
				known["cluster"] = cluster
			}
			if events == consume.AllEvents || events == consume.ObjectEvents {
				wanted = append(wanted, render(f.template, known))
			}
			if events == consume.AllEvents || events == consume.StreamEvents {
				wanted = append(wanted, render(strings.Split(subject.Stream, "."), known))
			}
			if events != consume.ObjectEvents {
				wanted = append(wanted, render(strings.Split(subject.Scope, "."), known))
			}
		}
	}
	return wanted
}

// objects returns the wildcard of all subjects that the template makes for a cluster; "" for any.
func (f *Filter) objects(cluster string) []string { return render(f.template, ofCluster(cluster)) }

func ofCluster(cluster string) map[string]string {
	if cluster == "" {
		return nil
	}
	return map[string]string{"cluster": cluster}
}

// fieldsOf returns the placeholders with known values.
func fieldsOf(o consume.Objects, group string) map[string]string {
	known := map[string]string{}
	if o.Groups != nil {
		known["group"] = group
	}
	for field, value := range map[string]string{
		"resource":  o.Resource,
		"namespace": o.Namespace,
		"name":      o.Name,
		"scope":     o.Scope,
	} {
		if value != "" {
			known[field] = value
		}
	}
	if o.Namespace == consume.NoNamespace {
		known["namespace"] = ""
	}
	return known
}

// render replaces each token that has placeholders with its text, or with "*" if one of their
// values is unknown.
func render(template []string, known map[string]string) []string {
	out := make([]string, len(template))
	for i, token := range template {
		out[i] = renderToken(token, known)
	}
	return out
}

func renderToken(token string, known map[string]string) string {
	var b strings.Builder
	for {
		literal, rest, placeholder := strings.Cut(token, "{")
		b.WriteString(literal)
		if !placeholder {
			return b.String()
		}
		field, rest, _ := strings.Cut(rest, "}")
		value, ok := known[field]
		if !ok {
			return "*"
		}
		b.WriteString(subject.Token(field, value))
		token = rest
	}
}

// Subjects returns the subjects and wildcards for a consumer. None overlap, as the server requires.
func (f *Filter) Subjects() []string {
	if f.found != nil {
		return f.found
	}
	var out []string
	for _, w := range f.wanted {
		out = append(out, strings.Join(w, "."))
	}
	if f.alone {
		return out
	}
	return append(out, f.foreign()...)
}

// foreign returns the wildcards of all subjects whose number of tokens differs from those of
// objects, stream events, scopes and progress. Dead letters have them, and records of agents with
// another template.
func (f *Filter) foreign() []string {
	known := []int{len(f.object), len(streams("")), len(scopes("")), len(progresses(""))}
	var out []string
	stars := ""
	for n := 1; n <= slices.Max(known); n++ {
		stars = strings.TrimPrefix(stars+".*", ".")
		if !slices.Contains(known, n) {
			out = append(out, stars)
		}
	}
	return append(out, stars+".>")
}

// streams returns the wildcard of the subjects of all events about snapshots of a cluster; "" for
// any.
func streams(cluster string) []string {
	return render(strings.Split(subject.Stream, "."), ofCluster(cluster))
}

// scopes returns the wildcard of the subjects of all events about scopes of a cluster; "" for any.
func scopes(cluster string) []string {
	return render(strings.Split(subject.Scope, "."), ofCluster(cluster))
}

// forms returns the wildcards of all subjects of a cluster that the agent uses; "" for any.
func (f *Filter) forms(cluster string) [][]string {
	return [][]string{f.objects(cluster), streams(cluster), scopes(cluster), progresses(cluster)}
}

// progresses returns the wildcard of the subjects of the progress of all agents of a cluster; ""
// for any.
func progresses(cluster string) []string {
	return render(strings.Split(subject.Progress, "."), ofCluster(cluster))
}

// disjoint merges wildcards until none overlap.
func disjoint(list [][]string) [][]string {
	for i := 0; i < len(list); i++ {
		for j := i + 1; j < len(list); j++ {
			if overlap(list[i], list[j]) {
				list[i] = union(list[i], list[j])
				list = slices.Delete(list, j, j+1)
				i = -1 // the wider wildcard may overlap with others
				break
			}
		}
	}
	return list
}

// overlap reports whether a subject can match both.
func overlap(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && a[i] != "*" && b[i] != "*" {
			return false
		}
	}
	return true
}

// union returns the narrowest wildcard that matches every subject that a or b matches. Both must
// have the same number of tokens.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for i := range out {
		if out[i] != b[i] {
			out[i] = "*"
		}
	}
	return out
}

// makes returns an error unless the template makes the subject for the event's object.
func (f *Filter) makes(subject string, e *consume.Event) error {
	want := render(f.template, map[string]string{
		"group":     e.Group(),
		"resource":  e.Resource,
		"namespace": e.Namespace,
		"name":      e.Name,
	})
	if got := strings.Split(subject, "."); len(got) != len(want) || !overlap(got, want) {
		return fmt.Errorf("subject %s of %s is not made by the template %s", subject, e.ID,
			strings.Join(f.template, "."))
	}
	return nil
}
