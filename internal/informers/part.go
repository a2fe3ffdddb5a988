package informers

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// foreign reports whether a scope of the last run belongs to another part of the cluster: to another node, or to all nodes. Other agents
// observe its objects now, so this one must not say that they left. If the resource has no part, nobody else observes it.
func (s *Set) foreign(c *checkpoint.Scope) bool {
	p := s.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || p.FieldSelector != "" && !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}

// explained adds what to do if the API server does not know the field that the part is selected by.
func (i *informer) explained(err error) error {
	if !i.spec.Shared || !apierrors.IsBadRequest(err) {
		return err
	}
	return fmt.Errorf("%w: the API server does not find it by %s: make that a selectable field of its definition, or watch it in mode cluster or companion: %w",
		apiserver.ErrUnsupported, i.selection.FieldSelector, err)
}
