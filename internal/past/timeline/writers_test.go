package timeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// A progress is about the scopes that its entries name, or else about those of the resource that
// the writer had started before.
func TestScopesOfAProgress(t *testing.T) {
	t.Parallel()
	const whole = `
		0 begin @10 initial
		0 started S1 @10 initial
		0.1 completed S1 @10
		1 progress @20 scope=pods`
	onlyPods := timeline.Options{Asked: func(resource, _ string) bool { return resource == "pods" }}
	for name, c := range map[string]struct {
		record  string
		options timeline.Options
		want    string
	}{
		"a part that an entry names": {whole + `
			1 started S2 @20 scope=pods/shop
			1.1 completed S2 @20 scope=pods/shop
			2 progress @30 scope=pods/shop`, timeline.Options{}, "pods pods/shop"},
		"a part that no entry names": {whole + `
			1 started S2 @20 scope=pods/shop
			1.1 completed S2 @20 scope=pods/shop
			2 progress @30 scope=pods`, timeline.Options{}, "pods"},
		"the start was not read": {"1 progress @20\n2 progress @30", timeline.Options{Joined: true}, "pods"},
		"the start of the only one was read": {`
			0 begin @10 initial scope=pods/shop
			1 progress @20`, timeline.Options{Joined: true}, "pods/shop"},
		"a resource that is not asked for": {whole + "\n1 progress @20 scope=nodes resource=nodes", onlyPods, "pods"},
		"a known scope that is not asked for": {whole + `
			0 begin @10 scope=nodes resource=nodes
			1 progress @20 scope=nodes resource=nodes`, onlyPods, "nodes pods"},
	} {
		f := timeline.NewFold(timeline.Moment{}, c.options)
		for _, e := range record(c.record) {
			f.Add(e)
		}
		var got []string
		for _, s := range f.Scopes() {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}
