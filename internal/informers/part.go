package informers

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// foreign reports whether a scope of the last run belongs to another part of the cluster: to another node, or to all nodes. Other agents
// observe its objects now, so this one must not send that they left. If the resource has no part, no other agent observes it.
func (s *Manager) foreign(c *checkpoint.Scope) bool {
	p := s.sel.PartOf(&object.Resource{Group: c.Group, Name: c.Resource})
	return p.None || p.FieldSelector != "" && !strings.HasSuffix(","+c.FieldSelector, ","+p.FieldSelector)
}
