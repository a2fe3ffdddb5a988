package answer

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// ObjectName returns the name of an object with its namespace: shop/web.
func ObjectName(v *timeline.Version) string {
	if v.Namespace == "" {
		return v.Name
	}
	return v.Namespace + "/" + v.Name
}

// KindName returns the name in the form of kubectl get -o name.
func KindName(v *timeline.Version) string {
	_, group, _ := strings.Cut(v.Resource, ".")
	return kinds.ObjectName(v.Kind, group, v.Name)
}
