package apiview

import (
	"weak"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Objects returns weak pointers to the objects of the moment of a view, for tests of what stays in
// memory.
func (v *View) Objects() []weak.Pointer[object.Object] {
	var out []weak.Pointer[object.Object]
	for _, r := range v.resources {
		for _, o := range r.first.objects {
			out = append(out, weak.Make(o))
		}
	}
	return out
}
