package informers

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/object"
)

// foreign tells of a scope that the last run observed that it is of another part of the cluster: of another node, or of all
// nodes. What is in it others observe now, and this agent must not say that it has left.
func (s *Set) foreign(c *checkpoint.Scope) bool {
	p := s.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}

// explained says what to do where the API server cannot find what belongs to the part.
func (i *informer) explained(err error) error {
	if !i.shared || !apierrors.IsBadRequest(err) {
		return err
	}
	return fmt.Errorf("%w: the API server does not find it by %s: make that a selectable field of its definition, or watch it in mode cluster or companion: %w",
		apiserver.ErrUnsupported, i.selection.FieldSelector, err)
}
