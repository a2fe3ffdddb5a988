package record

import (
	"context"
	"slices"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// readEtcds finds the resources of a selection whose resourceVersions belong to another etcd than
// the moments. It returns none if no moment is a resourceVersion, or if all resources are in the
// common etcd. From a source that can omit events it reads the stream events of these resources,
// and of some in the common etcd. Other sources send them with the answer, see takenWithEtcds.
func (r *Record) readEtcds(ctx context.Context, s *Selection, moments ...timeline.Moment) (*timeline.Etcds, error) {
	h := &timeline.Etcds{}
	for i := range s.Resources {
		if s.Resources[i].custom {
			h.NoteCustom(s.Resources[i].String())
		}
	}
	if !r.Seeks() || !asksEtcds(s, moments) {
		return h, nil
	}
	all := s.all()
	services := &Selection{Cluster: s.Cluster, ClusterUID: s.ClusterUID, Resources: []Resource{
		{Group: "apiregistration.k8s.io", Plural: "apiservices"}, {
			Group:  "apiextensions.k8s.io",
			Plural: "customresourcedefinitions",
		},
	}}
	for _, q := range []struct {
		of     *Selection
		events consume.Events
	}{{all, consume.StreamEvents}, {services, consume.ObjectEvents}} {
		query := consume.Query{Objects: q.of.objects(), Events: q.events, Start: consume.Beginning()}
		if _, err := r.read(ctx, query, nil, q.of.taken(), func(e *consume.Event) (bool, error) {
			h.Note(e)
			return false, nil
		}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// takenWithEtcds returns what a selection takes. Its function also notes the events that etcds
// needs, as far as they are read.
func (r *Record) takenWithEtcds(h *timeline.Etcds, s *Selection) taken {
	return taken{unreadable: s.MayTake, event: func(e *consume.Event) bool {
		if s.takesCluster(e) {
			h.Note(e)
		}
		return s.Takes(e)
	}}
}

func asksEtcds(s *Selection, moments []timeline.Moment) bool {
	versions := slices.ContainsFunc(moments, func(m timeline.Moment) bool {
		_, _, ok := m.ResourceVersion()
		return ok
	})
	elsewhere := slices.ContainsFunc(s.Resources, func(r Resource) bool {
		return !r.custom && !timeline.InCommonEtcd(r.String())
	})
	return versions && (s.Resources == nil || elsewhere)
}

// all returns the selection of all objects of the resources of s, and of some resources in the
// common etcd.
func (s *Selection) all() *Selection {
	out := &Selection{Cluster: s.Cluster, ClusterUID: s.ClusterUID}
	if s.Resources == nil {
		return out
	}
	for _, r := range s.Resources {
		out.Resources = append(out.Resources, Resource{Group: r.Group, Plural: r.Plural})
	}
	for _, plural := range []string{"namespaces", "configmaps", "pods", "services"} {
		out.Resources = append(out.Resources, Resource{Plural: plural})
	}
	out.Resources = append(out.Resources, Resource{Group: "apps", Plural: "deployments"})
	return out
}
