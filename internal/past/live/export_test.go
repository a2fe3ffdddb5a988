package live

import "github.com/kubecdc/kubecdc/internal/past/timeline"

// Selects is selects.
func Selects(scope string, v *timeline.Version) bool { return selects(scope, v) }
