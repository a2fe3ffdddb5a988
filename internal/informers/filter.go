package informers

import (
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// filter has the informer withhold what the filters of a scope do.
func (i *informer) filter(scope *selection.Scope) {
	if f := scope.Filters(); f != nil {
		i.store.SetFilter(f, f.Where)
	} else {
		i.store.SetFilter(nil, "")
	}
}
