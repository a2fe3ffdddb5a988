package record

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// UnknownResourceError reports that a word names no resource of the record.
type UnknownResourceError struct {
	Word  string
	Known []string // the resources of the record; empty if it has no events of kubecdc
}

func (e *UnknownResourceError) Error() string {
	if len(e.Known) == 0 {
		return "the record has no events of kubecdc"
	}
	return fmt.Sprintf("%s is not in the record, which has %s", e.Word, strings.Join(e.Known, ", "))
}

// Resolve finds the resources that the words of a selection name.
func (r *Record) Resolve(ctx context.Context, s *Selection) error {
	var crds []crd
	s.Resources = nil
	for k := range s.words {
		w := &s.words[k]
		found := builtin(w)
		if found != nil {
			s.add(w, found)
			continue
		}
		if crds == nil {
			var err error
			crds, err = r.readCRDs(ctx, s)
			if err != nil {
				return err
			}
		}
		found = custom(w, crds)
		if found == nil {
			known, err := r.Resources(ctx)
			if err != nil {
				return err
			}
			found = guess(w, known)
			if found == nil {
				return &UnknownResourceError{w.Text, names(known)}
			}
		}
		s.add(w, found)
	}
	return nil
}

// add adds the resources that a word names.
func (s *Selection) add(w *kinds.Word, found []Resource) {
	for _, f := range found {
		f.Names, f.Word = w.Names, w.Text
		s.Resources = append(s.Resources, f)
	}
}

func names(all []Resource) []string {
	var out []string
	for _, r := range all {
		out = append(out, r.String())
	}
	return out
}

// builtin returns the resources of Kubernetes itself that a word names.
func builtin(w *kinds.Word) []Resource {
	var out []Resource
	for _, k := range kinds.Named(w.Name) {
		if w.Group == "" || w.Group == k.Group {
			out = append(out, Resource{Group: k.Group, Plural: k.Plural, clusterScoped: !k.Namespaced})
		}
	}
	return out
}

// custom returns the resources that a word names according to the CRDs, each once.
func custom(w *kinds.Word, crds []crd) []Resource {
	var out []Resource
	for i := range crds {
		spec := &crds[i].Spec
		known := slices.ContainsFunc(out, func(r Resource) bool {
			return r.Group == spec.Group && r.Plural == spec.Names.Plural
		})
		if !known && crds[i].is(w) {
			isCluster := spec.Scope == "Cluster"
			out = append(out, Resource{
				Group:         spec.Group,
				Plural:        spec.Names.Plural,
				custom:        true,
				clusterScoped: isCluster,
			})
		}
	}
	return out
}

// guess returns the resources of a record that a word may name without their CRD: by plural or
// singular.
func guess(w *kinds.Word, known []Resource) []Resource {
	var out []Resource
	for _, r := range known {
		singular := []string{
			r.Plural, strings.TrimSuffix(r.Plural, "s"), strings.TrimSuffix(r.Plural, "es"),
			strings.TrimSuffix(r.Plural, "ies") + "y",
		}
		if slices.Contains(singular, w.Name) && (w.Group == "" || w.Group == r.Group) {
			out = append(out, r)
		}
	}
	return out
}

// crd has the names of a CustomResourceDefinition.
type crd struct {
	Spec struct {
		Group string
		Scope string // Namespaced, Cluster
		Names struct {
			Plural, Singular, Kind string
			ShortNames             []string
		}
	}
}

func (c *crd) is(w *kinds.Word) bool {
	n := &c.Spec.Names
	return (w.Group == "" || w.Group == c.Spec.Group) &&
		(slices.Contains([]string{n.Plural, n.Singular, strings.ToLower(n.Kind)}, w.Name) ||
			slices.Contains(n.ShortNames, w.Name))
}

// readCRDs returns the last version of each CRD that the record ever had of the clusters of a
// selection, sorted by name.
func (r *Record) readCRDs(ctx context.Context, s *Selection) ([]crd, error) {
	definitions := &Selection{Cluster: s.Cluster, ClusterUID: s.ClusterUID, Resources: []Resource{{
		Group:  "apiextensions.k8s.io",
		Plural: "customresourcedefinitions",
	}}}
	type key struct {
		cluster consume.ClusterKey
		name    string
	}
	last := map[key]crd{}
	q := consume.Query{Objects: definitions.objects(), Events: consume.ObjectEvents, Start: consume.Beginning()}
	if r.Reads != nil {
		if some, _ := r.Reads(q.Objects, q.Events, s.Cluster); !some {
			return []crd{}, nil
		}
	}
	_, err := r.read(ctx, q, nil, definitions.taken(), func(e *consume.Event) (bool, error) {
		var c crd
		if e.Data != nil && json.Unmarshal(e.Data.After, &c) == nil && c.Spec.Names.Plural != "" {
			last[key{e.ClusterKey(), e.Name}] = c
		}
		return false, nil
	})
	out := []crd{}
	byName := func(a, b key) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.cluster.Source, b.cluster.Source),
			strings.Compare(a.cluster.UID, b.cluster.UID))
	}
	for _, key := range slices.SortedFunc(maps.Keys(last), byName) {
		out = append(out, last[key])
	}
	return out, err
}

// Resources returns the resources that have stream events or progress in the record, sorted.
func (r *Record) Resources(ctx context.Context) ([]Resource, error) {
	seen := map[string]Resource{}
	// each resource and each writer have a subject
	q := consume.Query{
		Events:     consume.StreamEvents,
		Start:      consume.Beginning(),
		LastOfEach: true,
		OneCopy:    true,
	}
	_, err := r.read(ctx, q, nil, (&Selection{}).taken(), func(e *consume.Event) (bool, error) {
		if e.Resource != "" {
			seen[e.GroupResource()] = Resource{Group: e.Group(), Plural: e.Resource}
		}
		if e.Progress != nil {
			for i := range e.Progress.Scopes {
				resource := e.Progress.Scopes[i].Resource
				plural, group, _ := strings.Cut(resource, ".")
				seen[resource] = Resource{Group: group, Plural: plural}
			}
		}
		return false, nil
	})
	var out []Resource
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[key])
	}
	return out, err
}
