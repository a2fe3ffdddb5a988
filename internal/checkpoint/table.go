package checkpoint

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Write prints the checkpoint of a place for people. d is nil without a checkpoint.
func (d *Document) Write(w io.Writer, place string, now time.Time) {
	if d == nil {
		fmt.Fprintf(w, "%s: no checkpoint yet. The next start begins from scratch.\n", place)
		return
	}
	about := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(about, "kept in\t%s\n", place)
	cluster := d.ClusterUID
	if d.Cluster != d.ClusterUID {
		cluster = fmt.Sprintf("%s (uid %s)", d.Cluster, d.ClusterUID)
	}
	fmt.Fprintf(about, "cluster\t%s\n", cluster)
	fmt.Fprintf(about, "bus\t%s\n", d.Bus)
	fmt.Fprintf(about, "saved\t%s (%s ago)\n", d.Saved.Local().Format(time.DateTime), age(now.Sub(d.Saved)))
	_ = about.Flush() // an error of standard output cannot be reported
	if len(d.Scopes) == 0 {
		fmt.Fprintln(w, "\nIt holds no scope yet.")
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SCOPE\tRESOURCEVERSION\tHISTORY\tSNAPSHOT\tLAST SEEN")
	for _, name := range slices.Sorted(maps.Keys(d.Scopes)) {
		s := d.Scopes[name]
		seen := "-"
		if !s.LastSeen.IsZero() {
			seen = age(now.Sub(s.LastSeen)) + " ago"
		}
		state := unfinished(s.Snapshot)
		if s.Retiring != nil {
			state = "retiring for " + age(now.Sub(s.Retiring.Since))
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", name, s.ResourceVersion, s.History, state, seen)
	}
	_ = table.Flush()
}

// unfinished describes an incomplete snapshot.
func unfinished(s *Snapshot) string {
	switch {
	case s == nil:
		return "-"
	case s.Cursor == "":
		return fmt.Sprintf("%s: none of %d objects yet", s.ID, s.Objects)
	}
	return fmt.Sprintf("%s: up to %s, of %d objects", s.ID, s.Cursor, s.Objects)
}

// age formats a duration in its largest useful unit, as kubectl formats ages.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
