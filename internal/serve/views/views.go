// Package views reads the moments that package apiview serves from a record. It asks package
// past/answer, and turns the errors into those of the Kubernetes API.
package views

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// Reader reads views. It is safe for concurrent use if its fields are.
type Reader struct {
	Question *answer.Question
	Say      func(*answer.Assessment) // takes the certainty of each view
}

// ReadView returns the View of a moment and, unless to is nil, the versions up to it.
func (r *Reader) ReadView(ctx context.Context, at timeline.Moment, to *timeline.Moment) (*apiview.View, error) {
	q := r.Question
	var view *apiview.View
	err := q.During(ctx, func(ctx context.Context) error {
		clusters := answer.Clusters{}
		s, log, scopes, reading, err := r.read(ctx, at, to, clusters)
		if err != nil {
			return err
		}
		sure := answer.Assess(at, s.Scopes(), reading)
		if err := q.CheckKnown(ctx, &sure, s.Len()); err != nil {
			return err
		}
		clusters.Add(s.Objects())
		clusters.AddScopes(s.Scopes()) // their resourceVersions are those of the lists
		if err := clusters.One("objects", "cluster"); err != nil {
			return err
		}
		r.Say(&sure)
		again := time.Time{} // a replay is not read again
		if to == nil {
			again = answer.ReadAgain(at, sure.Scopes, reading.Began)
		}
		version := s.APIServerVersion()
		if version == "" {
			version, err = q.Record.APIServerVersion(ctx, q.Wanted, at)
			if err != nil {
				return err
			}
		}
		view = apiview.NewView(s, apiview.Options{
			Now:     sure.Time(),
			Again:   again,
			Version: version,
			Warn: func(s *certainty.Scope) []string {
				lowered := *s
				answer.Lower(&lowered, at, reading)
				out := warnings(at, &lowered)
				if sure.Only != "" {
					out = append(out, fmt.Sprintf("%s at %s: unknown: %s", s.Name, at, sure.Only))
				}
				return out
			},
		})
		if to == nil {
			return q.CheckExact(&sure)
		}
		end := answer.Assess(*to, scopes, reading)
		r.Say(&end)
		return errors.Join(view.Follow(log), q.CheckExact(&sure), q.CheckExact(&end))
	})
	return view, err
}

// ReadViewForClient returns the View of a moment that a client of the API asks for. Its errors have
// a Status of the Kubernetes API, except those after which the client may try again.
func (r *Reader) ReadViewForClient(ctx context.Context, at timeline.Moment) (*apiview.View, error) {
	v, err := r.ReadView(ctx, at, nil)
	return v, statusOf(err)
}

// statusOf returns the error for a client that asks for a moment which cannot be read. Without a
// Status of its own, an error is 503: the client tries again.
func statusOf(err error) error {
	if unknown := (*record.UnknownResourceError)(nil); errors.As(err, &answer.NotInRecordError{}) ||
		errors.As(err, &unknown) {
		return apierrors.NewResourceExpired(err.Error())
	}
	if errors.Is(err, answer.ErrNotExact) {
		out := apierrors.NewConflict(schema.GroupResource{}, "", err)
		out.ErrStatus.Message = "the answer for this moment is not exact, and --exact is set"
		return out
	}
	if errors.As(err, &answer.UsageError{}) {
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

// read returns the state of a moment and, unless to is nil, the versions up to it with the
// certainty of the end. It adds the clusters of these versions.
func (r *Reader) read(
	ctx context.Context, at timeline.Moment, to *timeline.Moment, clusters answer.Clusters,
) (*timeline.State, *apiview.Log, []certainty.Scope, *record.Reading, error) {
	if to == nil {
		states, reading, err := r.Question.Record.States(ctx, r.Question.Wanted, at)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		return states[0], nil, nil, reading, nil
	}
	var log apiview.Log
	s, scopes, reading, err := r.Question.Record.Span(ctx, r.Question.Wanted, at, *to, func(v *timeline.Version) {
		clusters[v.ClusterKey()] = v.Cluster
		log.Add(v)
	})
	clusters.AddScopes(scopes)
	return s, &log, scopes, reading, err
}

// warnings returns the warnings for a client that lists a scope without certainty.
func warnings(at timeline.Moment, s *certainty.Scope) []string {
	var out []string
	for i := range s.Causes {
		out = append(out, fmt.Sprintf("%s at %s: %s", s.Name, at, s.Causes[i].Words()))
	}
	if s.Left > 0 {
		out = append(out, fmt.Sprintf("%s at %s: left the selection and may still exist: %d", s.Name, at, s.Left))
	}
	return out
}
