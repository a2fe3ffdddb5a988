package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
)

// An answer names each scope once, but each log of a topic has its own view of a scope. Retention
// may have removed from one log what another one still has. The worst view decides, because the
// objects of the scope are spread over all logs.

// Scopes says for each scope how certain the versions are that Add returned. They are sorted by
// cluster, resource and name.
//
// A scope that had not begun at the moment is left out if another one had its objects. If the
// record has objects of a resource and no stream events, the resource has an entry without a name.
// A scope is Unknown if a log of its topic does not have it: retention has removed what that log
// had.
func (f *Fold) Scopes() []certainty.Scope {
	all := map[scopeKey]certainty.Scope{}
	for _, l := range f.logs {
		for _, key := range l.judgedScopes() {
			s := f.judgeOwn(l, key)
			if other, ok := all[key]; ok { // of another log
				s.Skipped += other.Skipped
				if other.Certainty > s.Certainty {
					other.Skipped = s.Skipped
					s = other
				}
			}
			all[key] = s
		}
	}
	f.judgeAbsent(all)
	f.judgePlaces(all)
	f.judgeDeadLetters(all)
	scopes := dropReplacements(f.moment, slices.SortedFunc(maps.Values(all), func(a, b certainty.Scope) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.ClusterUID, b.ClusterUID),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	}))
	for i := range scopes {
		s := &scopes[i]
		for _, o := range f.left {
			if o.place.isIn(s) {
				s.Left++
			}
		}
		for _, at := range f.redacted {
			if at.isIn(s) {
				s.Redacted++
			}
		}
	}
	return scopes
}

// judgeOwn returns the certainty of a scope by one log, and how many versions filters withheld.
func (f *Fold) judgeOwn(l *logFold, key scopeKey) certainty.Scope {
	s := l.scopes[key].judge(key.cluster, f.moment, f.opts)
	s.Name = key.name
	for at, skipped := range l.places {
		if at.isIn(&s) {
			s.Skipped += *skipped
		}
	}
	return s
}

// judgePlaces adds an entry without a name for each resource that has objects, and no scope.
func (f *Fold) judgePlaces(all map[scopeKey]certainty.Scope) {
	for _, l := range f.logs {
		for at := range l.places {
			key := scopeKey{at.cluster, at.resource}
			if _, ok := all[key]; ok || isInAny(at, all) {
				continue
			}
			s := certainty.Scope{Source: at.cluster.Source, ClusterUID: at.cluster.UID, Resource: at.resource}
			s.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
			all[key] = s
		}
	}
}

// isInAny reports whether objects of a place belong to a scope that has a name.
func isInAny(at place, all map[scopeKey]certainty.Scope) bool {
	for _, s := range all {
		if s.Name != "" && at.isIn(&s) {
			return true
		}
	}
	return false
}

// judgeAbsent makes scopes Unknown that a log of their topic does not have.
//
// If a log has only a snapshot of a scope, it does not show that an agent observes the scope, but
// another log does. With Options.Joined, a log may have a scope under the name of its resource.
func (f *Fold) judgeAbsent(all map[scopeKey]certainty.Scope) {
	if f.opts.Joined || len(f.logs) < 2 {
		return
	}
	wanted := map[string]map[scopeKey]bool{} // by topic
	for log, l := range f.logs {
		if wanted[log.Name] == nil {
			wanted[log.Name] = map[scopeKey]bool{}
		}
		for _, key := range l.judgedScopes() {
			if !l.scopes[key].hasEndedBy(f.moment) {
				wanted[log.Name][key] = true
			}
		}
	}
	for log, l := range f.logs {
		for key := range wanted[log.Name] {
			if own := l.scopes[key]; own != nil && l.isJudged(key, own) {
				continue // it is judged already
			}
			if s := f.judgeAbsentIn(l, key, all[key]); s.Certainty > all[key].Certainty {
				all[key] = s
			}
		}
	}
}

// judgeAbsentIn returns the certainty of a scope by a log that has at most a snapshot of the
// scope. known is the scope's certainty by the other logs.
func (f *Fold) judgeAbsentIn(l *logFold, key scopeKey, known certainty.Scope) certainty.Scope {
	s := certainty.Scope{Source: known.Source, ClusterUID: known.ClusterUID, Resource: known.Resource}
	if own := l.scopes[key]; own != nil {
		s = own.judge(key.cluster, f.moment, f.opts)
	} else {
		s.Lower(certainty.Cause{Kind: certainty.NoSnapshot})
	}
	s.Name, s.Skipped = known.Name, known.Skipped
	return s
}
