package record_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// An agent says that Pods are in another etcd than ConfigMaps and Secrets, long before the moment,
// and does not repeat it. An answer about Pods alone knows it, however the record is read.
func TestPodsInAnEtcdOfTheirOwn(t *testing.T) {
	for names, want := range map[string]certainty.Level{"1 1 2": certainty.Unknown, "1 1 1": certainty.Exact} {
		for _, seek := range []bool{true, false} {
			var r podRecord
			r.stream(0, "scope.started", "pods/started/1", 100)
			r.stream(0, "snapshot.started", "pods/s1/started", 100)
			r.object(1, "object.read", "r", "web", 90)
			r.stream(2, "snapshot.completed", "pods/s1/completed", 100)
			etcd := strings.Fields(names)
			var others podRecord
			others.progress(3, 3, 1, 110)
			r.WriteString(
				strings.Replace(others.String(), `"scopes":[{"resource":"pods",`,
					`"scopes":[{"resource":"configmaps","etcd":"`+etcd[0]+
						`"},{"resource":"secrets","etcd":"`+etcd[1]+`"},{"resource":"pods","etcd":"`+etcd[2]+`",`, 1))
			for minute := range 30 {
				at := float64(60*minute + 60)
				r.progress(at, at, minute+2, 120+minute)
				if minute == 5 { // a state is read from here
					for _, typ := range []string{"started", "completed"} {
						r.add(at+1, "snapshot."+typ, "pods/s2/"+typ, 125, `"scope":"pods",`,
							`{"snapshot":"s2","resourceVersion":"125","objects":0,"writer":"w","run":"0-1"}`)
					}
				}
			}
			read := &record.Record{Source: seeking(&fromfile.File{Path: r.file(t)}, seek)}
			s := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}}
			states, _, err := read.States(t.Context(), s, timeline.AtVersion(130, 0))
			if err != nil {
				t.Fatal(err)
			}
			scopes := states[0].Scopes()
			if got := certainty.Worst(scopes); got != want {
				t.Errorf("etcds %s, seek=%t: %v: %+v", names, seek, got, scopes)
			}
		}
	}
}
