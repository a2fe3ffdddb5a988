package writers

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Asked says which scopes are to end.
type Asked struct {
	Names       []string // of writers and of scopes
	Checkpoints []string // patterns with * ? [a-z] of Writer.Checkpoint
	Cluster     string   // "": any
	ClusterUID  string   // or its beginning; "": any
}

// Validate returns an error for a pattern that cannot be used.
func (a *Asked) Validate() error {
	for _, pattern := range a.Checkpoints {
		if _, err := path.Match(pathless(pattern), ""); err != nil {
			return fmt.Errorf("--checkpoint %q: want a text, * ? [a-z] allowed", pattern)
		}
	}
	return nil
}

// Chosen are scopes of one writer that are to end.
type Chosen struct {
	Writer *Writer
	Scopes []*Scope
}

// Choice is the answer to Asked.
type Choice struct {
	Ends []Chosen // without writers that have nothing to end
	// Refused are writers that are named, and may work: then nothing may end.
	Refused []*Writer
	// Left are writers that may work and observe a scope that is named, or have a place that is
	// named. They keep their scopes.
	Left []*Writer
}

// UnknownError is about names that the record does not have.
type UnknownError struct {
	Names   []string
	Writers []*Writer // those of the record
}

// Error implements error.
func (e *UnknownError) Error() string {
	text := "the record has no writer and no scope " + strings.Join(e.Names, ", ")
	if len(e.Writers) == 0 {
		return text + ": it has no writers at all"
	}
	var known []string
	for _, w := range e.Writers {
		known = append(known, w.String())
	}
	return text + "; its writers:\n  " + strings.Join(known, "\n  ")
}

// String describes a writer in a line.
func (w *Writer) String() string {
	text := w.Name
	if w.Checkpoint != "" {
		text += " (" + w.Checkpoint + ")"
	}
	if w.Node != "" {
		text += " on node " + w.Node
	}
	return fmt.Sprintf("%s of cluster %s, last event at %s", text, w.Cluster, w.LastEvent.UTC().Format(time.RFC3339))
}

// Choose returns the scopes that are to end. Scopes that the last run of a writer observes count
// only if that run is not alive at now. It fails with an UnknownError, and if the scopes are of
// several clusters.
func (a *Asked) Choose(all []*Writer, now time.Time) (*Choice, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(w *Writer) bool { return !a.isOfCluster(w) })
	choice := &Choice{}
	found := map[string]bool{}
	for _, w := range all {
		whole := a.namesWriter(w)
		if whole {
			found[w.Name] = true
		}
		ends, observes := Chosen{Writer: w}, false
		for name := range w.scopes {
			found[name] = true // also if it has ended
		}
		for _, s := range w.Scopes() {
			switch {
			case !whole && !slices.Contains(a.Names, s.Name):
			case w.IsAlive(now) && w.Observes(s):
				observes = true
			default:
				ends.Scopes = append(ends.Scopes, s)
			}
		}
		switch {
		case !w.IsAlive(now):
		case slices.Contains(a.Names, w.Name):
			choice.Refused = append(choice.Refused, w)
		case observes || whole:
			choice.Left = append(choice.Left, w)
		}
		if len(ends.Scopes) > 0 {
			choice.Ends = append(choice.Ends, ends)
		}
	}
	unknown := slices.DeleteFunc(slices.Clone(a.Names), func(name string) bool { return found[name] })
	if len(unknown) > 0 {
		return nil, &UnknownError{unknown, all}
	}
	return choice, choice.checkClusters()
}

func (a *Asked) isOfCluster(w *Writer) bool {
	return (a.Cluster == "" || w.Cluster == a.Cluster) && strings.HasPrefix(w.ClusterUID, a.ClusterUID)
}

func (a *Asked) namesWriter(w *Writer) bool {
	return slices.Contains(a.Names, w.Name) || slices.ContainsFunc(a.Checkpoints, func(pattern string) bool {
		matches, err := path.Match(pathless(pattern), pathless(w.Checkpoint))
		return err == nil && matches
	})
}

// pathless makes * match slashes too, which path.Match treats as separators.
func pathless(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

// checkClusters returns an error if the ends are of several clusters: one name may mean the agents
// of two.
func (c *Choice) checkClusters() error {
	for _, e := range c.Ends[min(1, len(c.Ends)):] {
		if first := c.Ends[0].Writer; e.Writer.Cluster != first.Cluster || e.Writer.ClusterUID != first.ClusterUID {
			return fmt.Errorf("the scopes are of several clusters, such as %s (uid %s) and %s (uid %s): "+
				"choose one with --cluster or --cluster-uid",
				first.Cluster, first.ClusterUID, e.Writer.Cluster, e.Writer.ClusterUID)
		}
	}
	return nil
}
