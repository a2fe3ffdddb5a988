package live_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// ownState returns the state at 14:02 of a record with an empty snapshot of the scopes of two
// resources.
func ownState(t *testing.T, scopes ...string) *timeline.State {
	t.Helper()
	s := timeline.NewState(timeline.At(time.Date(2026, 11, 20, 14, 2, 0, 0, time.UTC)), timeline.Options{})
	for _, scope := range scopes {
		resource, apiVersion := "configmaps", "v1"
		if strings.HasPrefix(scope, "leases") {
			resource, apiVersion = "leases", "coordination.k8s.io/v1"
		}
		for i, e := range []string{
			`"type":"dev.kubecdc.snapshot.started","time":"2026-11-20T14:00:00Z","data":{"snapshot":"s","resourceVersion":"50"}}`,
			`"type":"dev.kubecdc.snapshot.completed","time":"2026-11-20T14:00:02Z","data":{"snapshot":"s","resourceVersion":"50"}}`,
		} {
			parsed, err := consume.Parse(
				fmt.Appendf(nil,
					`{"specversion":"1.0","source":"/kubernetes/prod","id":"%s/%d","cluster":"prod","apiversion":%q,"resource":%q,"scope":%q,%s`,
					scope, i, apiVersion, resource, scope, e))
			if err != nil {
				t.Fatal(err)
			}
			s.Add(parsed)
		}
		at := time.Date(2026, 11, 20, 14, 3, 0, 0, time.UTC)
		s.Add(&consume.Event{
			ID:      "progress/w/0-1/" + scope,
			Source:  "/kubernetes/prod",
			Cluster: "prod",
			Type:    consume.TypeProgress,
			Time:    at,
			Progress: &consume.Progress{Writer: "w", Run: "0-1", Number: 1, Scopes: []consume.ScopeProgress{
				{Resource: groupResource(resource, apiVersion), Scope: scope, ResourceVersion: "60", To: at},
			}},
		})
	}
	return s
}

// checkpointOf returns the data of a ConfigMap with the checkpoint of an agent, which ignores some
// objects in each of its scopes.
func checkpointOf(t *testing.T, cluster string, ignored map[string][]string) string {
	t.Helper()
	d := checkpoint.Document{FormatVersion: checkpoint.FormatVersion, Identity: checkpoint.Identity{
		Cluster: cluster,
	}, Scopes: map[string]checkpoint.Scope{}}
	for scope, names := range ignored {
		d.Scopes[scope] = checkpoint.Scope{Ignored: names}
	}
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(map[string]string{"checkpoint.json": string(text)})
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}

// ownCluster is an API server with ConfigMaps, by name, and Leases, all in namespace kubecdc.
// forbidden: ConfigMaps may not be listed.
func ownCluster(t *testing.T, forbidden bool, configMaps map[string]string, leases ...string) *live.Cluster {
	t.Helper()
	object := func(name, rest string) string {
		return fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":"kubecdc","uid":"u-%s","resourceVersion":"70","creationTimestamp":"2026-11-20T13:00:00Z"},%s}`,
			name, name, rest)
	}
	list := func(kind string, items []string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"resourceVersion":"90"},"items":[%s]}`, kind,
			strings.Join(items, ","))
	}
	var maps, all []string
	for name, data := range configMaps {
		maps = append(maps, object(name, `"data":`+data))
	}
	for _, name := range leases {
		all = append(all, object(name, `"spec":{"holderIdentity":"a"}`))
	}
	answers := map[string]string{
		"/api":                                  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                                 `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"coordination.k8s.io","versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}]}]}`,
		"/api/v1":                               `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`,
		"/apis/coordination.k8s.io/v1":          `{"kind":"APIResourceList","groupVersion":"coordination.k8s.io/v1","resources":[{"name":"leases","kind":"Lease","namespaced":true}]}`,
		"/api/v1/configmaps":                    list("ConfigMapList", maps),
		"/api/v1/namespaces/kubecdc/configmaps": list("ConfigMapList", maps),
		"/apis/coordination.k8s.io/v1/leases":   list("LeaseList", all),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		switch {
		case forbidden && strings.HasSuffix(r.URL.Path, "/configmaps"):
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	client, err := apiserver.New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &live.Cluster{Client: client}
}

// An agent never captures the ConfigMap of its checkpoint and the Lease of its election: they are
// no difference between its record and the cluster. Its checkpoint names them. Objects that another
// agent ignores were captured.
func TestOwnObjectsOfTheAgentAreNotCompared(t *testing.T) {
	const leases = "leases.coordination.k8s.io"
	both := map[string][]string{"configmaps": {"kubecdc/state"}, leases: {"kubecdc/lease"}}
	for name, tc := range map[string]struct {
		scopes    []string
		cluster   string // of the checkpoint; "": prod
		ignored   map[string][]string
		forbidden bool
		own       func(resource, namespace, name string) bool
		listed    []string
		left      []string
	}{
		"its checkpoint": {
			scopes: []string{"configmaps"}, ignored: both, listed: []string{"configmaps other"}, left: []string{
				"configmaps kubecdc/state",
			},
		},
		"its Lease": {
			scopes: []string{leases}, ignored: both, listed: []string{leases + " others"}, left: []string{
				leases + " kubecdc/lease",
			},
		},
		"an agent that captures neither": {
			scopes: []string{"configmaps", leases}, ignored: map[string][]string{"pods": nil},
			listed: []string{"configmaps other", "configmaps state", leases + " lease", leases + " others"},
		},
		"an agent of another part of the cluster": {
			scopes: []string{"configmaps/kubecdc"}, ignored: map[string][]string{"configmaps/shop": {"kubecdc/state"}},
			listed: []string{"configmaps other", "configmaps state"},
		},
		"one of several scopes that select it": {
			scopes: []string{"configmaps/kubecdc", "configmaps"}, ignored: map[string][]string{"configmaps/kubecdc": {
				"kubecdc/state",
			}},
			listed: []string{"configmaps other", "configmaps state"},
		},
		"an agent with another name for the cluster": {
			scopes: []string{"configmaps"}, cluster: "test", ignored: both, listed: []string{
				"configmaps other", "configmaps state",
			},
		},
		"a copy of a checkpoint": {
			scopes: []string{"configmaps"}, ignored: map[string][]string{"configmaps": {
				"kubecdc/original",
			}}, listed: []string{"configmaps other", "configmaps state"},
		},
		"checkpoints may not be read": {
			scopes: []string{leases}, ignored: both, forbidden: true, listed: []string{
				leases + " lease", leases + " others",
			},
		},
		"the configuration names it": {
			scopes: []string{leases}, ignored: both, forbidden: true, listed: []string{
				leases + " others",
			}, left: []string{leases + " kubecdc/lease"},
			own: func(resource, namespace, name string) bool {
				return resource == leases && namespace == "kubecdc" && name == "lease"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			state, cluster := ownState(t, tc.scopes...), tc.cluster
			if cluster == "" {
				cluster = "prod"
			}
			configMaps := map[string]string{
				"state": checkpointOf(t, cluster, tc.ignored),
				"other": `{"checkpoint.json":"{}"}`,
			}
			answer, err := ownCluster(t, tc.forbidden, configMaps, "lease", "others").
				Compare(t.Context(), &live.Question{
					State: state, Time: state.Moment().Time(), Takes: func(_, _, _ string) bool {
						return true
					}, Own: tc.own,
				})
			if err != nil {
				t.Fatal(err)
			}
			var listed []string
			for _, d := range answer.Differences {
				listed = append(listed, d.After.Resource+" "+d.After.Name)
			}
			if diff := cmp.Diff(tc.listed, sorted(listed)); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.left, answer.Own); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}
