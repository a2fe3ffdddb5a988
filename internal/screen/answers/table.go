package answers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// printTable prints a line for each object. Objects of one resource of Kubernetes have the columns
// that kubectl shows. Ages are relative to now, the moment.
func (q *Question) printTable(objects []*timeline.Version, now time.Time) error {
	if len(objects) == 0 {
		return nil
	}
	several := slices.ContainsFunc(objects, func(v *timeline.Version) bool { return v.Resource != objects[0].Resource })
	wide := q.Format.IsWide()
	titles, cells := columnsOf(objects, wide)
	namespaced := q.Wanted.Namespace == "" || strings.ContainsAny(q.Wanted.Namespace, "*?[")
	w := tabwriter.NewWriter(q.Stdout, 0, 0, 3, ' ', 0)
	row := func(namespace, name string, of []string, changed, by, rv, uid string) {
		columns := slices.Concat([]string{name}, of, []string{changed, by})
		if namespaced {
			columns = slices.Insert(columns, 0, namespace)
		}
		if wide {
			columns = append(columns, rv, uid)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(columns, "\t"), "\t"))
	}
	row("NAMESPACE", "NAME", titles, "LAST CHANGE", "BY", "RESOURCEVERSION", "UID")
	for _, v := range objects {
		name := v.Name
		if several {
			name = answer.KindName(v)
		}
		changed := ago(now, v.Time)
		if v.Op == consume.Read { // read by a snapshot, so the change was earlier
			changed = ">" + changed
		}
		of, err := cells(apiview.ForColumns(v), now)
		if err != nil {
			return fmt.Errorf("%s %s: %w", v.Resource, answer.ObjectName(v), err)
		}
		for i := range of {
			of[i] = console.Printable(of[i])
		}
		row(console.Printable(v.Namespace), console.Printable(name), of, changed, managers(v),
			console.Printable(v.ResourceVersion), console.Printable(v.UID))
	}
	return w.Flush()
}

// columnsOf returns the columns between the name and the last change: those of kubectl if the
// objects are of one resource of Kubernetes, else the age.
func columnsOf(
	objects []*timeline.Version, wide bool,
) (titles []string, cells func(object []byte, now time.Time) ([]string, error)) {
	first := objects[0]
	if !slices.ContainsFunc(objects, func(v *timeline.Version) bool {
		return v.Resource != first.Resource || v.APIVersion != first.APIVersion
	}) {
		plural, _, _ := strings.Cut(first.Resource, ".")
		titles, cells = apiview.Columns(first.APIVersion, plural, wide)
		if titles != nil {
			return titles, cells
		}
	}
	return []string{"AGE"}, func(object []byte, now time.Time) ([]string, error) {
		return []string{ago(now, created(object))}, nil
	}
}

// ago formats the time between at and now, as kubectl prints it.
func ago(now, at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(now.Sub(at), 0))
}

// created returns the creation time in the object.
func created(object []byte) time.Time {
	var o struct {
		Metadata struct{ CreationTimestamp time.Time }
	}
	_ = json.Unmarshal(object, &o) // zero if the object has none
	return o.Metadata.CreationTimestamp
}

// managers returns the field managers that made a version.
func managers(v *timeline.Version) string {
	var out []string
	for _, c := range v.ChangedBy {
		if !slices.Contains(out, c.Manager) {
			out = append(out, c.Manager)
		}
	}
	return cmp.Or(console.Printable(strings.Join(out, ",")), "<unknown>")
}
