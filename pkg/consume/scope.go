package consume

import (
	"path"
	"strings"
)

// contains tells whether objects of the scope's resource in the namespace ("": cluster-scoped) belong to the scope, as far
// as its name tells: "pods", "pods/shop", "pods/team-?,!team-x?labelSelector=app=web". Selectors only the API server can
// apply.
func contains(scope, namespace string) bool {
	if eq := strings.IndexByte(scope, '='); eq >= 0 { // there is none in patterns of namespaces
		scope = scope[:max(strings.LastIndexByte(scope[:eq], '?'), 0)]
	}
	_, patterns, ok := strings.Cut(scope, "/")
	if !ok {
		return true
	}
	included := false
	for p := range strings.SplitSeq(patterns, ",") {
		glob, excludes := strings.CutPrefix(p, "!")
		if ok, err := path.Match(glob, namespace); err != nil || !ok {
			continue
		}
		if excludes {
			return false
		}
		included = true
	}
	return included
}
