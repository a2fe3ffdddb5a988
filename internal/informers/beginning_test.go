package informers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"
)

func TestWhatBeginsFromWhat(t *testing.T) {
	position := func(rv uint64) informer.Origin { return informer.Origin{Scope: checkpoint.Scope{ResourceVersion: rv}} }
	announced := func(rv uint64) informer.Origin {
		return informer.Origin{Scope: checkpoint.Scope{ResourceVersion: rv, Retiring: &checkpoint.Retiring{
			Announced: true,
		}}}
	}
	retiring := func(rv uint64) informer.Origin {
		return informer.Origin{Scope: checkpoint.Scope{ResourceVersion: rv, Retiring: &checkpoint.Retiring{}}}
	}
	lost := func(rv uint64) informer.Origin {
		return informer.Origin{Scope: checkpoint.Scope{ResourceVersion: rv}, Lost: &store.Loss{From: 1}}
	}
	inherited := func(o informer.Origin) beginning {
		return beginning{origin: &informer.Origin{Scope: o.Scope, Inherited: true}}
	}
	own := position(50)
	back := retiring(50)
	ended := announced(50)
	seen := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	at := func(rv uint64) creation { return creation{rv, seen.Add(time.Duration(rv) * time.Second)} }
	for name, tc := range map[string]struct {
		of   heritage
		want beginning
	}{
		"nothing is known": {heritage{}, beginning{}},
		"its own position": {
			heritage{own: &own, created: at(10), left: []informer.Origin{position(20)}, unbegun: []creation{
				at(60),
			}}, beginning{origin: &own},
		},
		"its own, although it was being retired: nothing was sent yet": {heritage{own: &back}, beginning{
			origin: &back,
		}},
		"its own, behind left events: the objects that exist": {heritage{own: &ended}, beginning{}},
		"its own, behind left events, created before them": {heritage{
			own:     &ended,
			created: at(10),
		}, beginning{}},
		"its own, behind left events, beside another scope": {heritage{own: &ended, left: []informer.Origin{
			position(20),
		}}, inherited(position(20))},
		"the lowest of other scopes": {heritage{left: []informer.Origin{
			position(30), position(20), position(40),
		}}, inherited(position(20))},
		"another scope that is being retired": {heritage{left: []informer.Origin{
			retiring(30),
		}}, inherited(retiring(30))},
		"not another scope behind left events": {heritage{left: []informer.Origin{
			announced(10), position(20),
		}}, inherited(position(20))},
		"not another scope behind unknown history": {heritage{left: []informer.Origin{
			lost(10),
		}}, beginning{}},
		"another scope before a creation": {heritage{
			created: at(10),
			left:    []informer.Origin{position(20)},
		}, inherited(position(20))},
		"its creation": {heritage{created: at(10)}, beginning{
			created: at(10),
		}},
		"the later creation of an informer that did not begin": {heritage{created: at(10), unbegun: []creation{
			at(5), at(12),
		}}, beginning{created: at(12)}},
		"not an earlier one": {heritage{created: at(10), unbegun: []creation{
			at(5),
		}}, beginning{created: at(10)}},
		"a creation behind left events": {heritage{own: &ended, unbegun: []creation{
			at(60),
		}}, beginning{created: at(60)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.of.choose(), cmp.AllowUnexported(beginning{}, creation{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
