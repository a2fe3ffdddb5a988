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

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/past/live"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScopeSelects(t *testing.T) {
	v := &timeline.Version{
		Object: consume.Object{Namespace: "shop", Name: "web"},
		After: json.RawMessage(
			`{"metadata":{"name":"web","namespace":"shop","labels":{"app":"web","path/x":"y"}},"spec":{"nodeName":"a"}}`),
	}
	for scope, want := range map[string]bool{
		"pods":                       true,
		"pods/shop":                  true,
		"pods/other,s*":              true,
		"pods/s*,!shop":              false,
		"pods/other":                 false,
		"pods?labelSelector=app=web": true,
		"pods?labelSelector=app in (api),path/x=y":                    false,
		"pods?labelSelector=path/x=y&fieldSelector=spec.nodeName=a":   true,
		"pods?fieldSelector=spec.nodeName=b":                          false,
		"pods?fieldSelector=spec.nodeName!=b":                         true,
		"pods/shop?fieldSelector=spec.nodeName=":                      false,
		"pods?fieldSelector=spec.hostname=":                           true,
		"pods?any=other?labelSelector=app=web|shop?labelSelector=app": true,
		"pods?any=other|*?fieldSelector=spec.nodeName=b":              false,
		"pods?labelSelector=app=api&any=shop|other":                   false,
		"widgets.example.com/shop?any=*?labelSelector=app=web|team-*": true,
	} {
		if got := live.Selects(scope, v); got != want {
			t.Errorf("%s: got %t", scope, got)
		}
	}
}

// objects are those of one resource, as the record or the cluster has them, by name:
// resourceVersion, and the rest of the JSON.
type objects map[string]string

func item(apiVersion, name, rest string) string {
	rv, body, _ := strings.Cut(rest, " ")
	typ := ""
	if apiVersion != "" {
		typ = fmt.Sprintf(`"apiVersion":%q,"kind":"Thing",`, apiVersion)
	}
	annotations := ""
	if strings.Contains(body, `"copied"`) { // a tool has copied the object
		annotations = fmt.Sprintf(`,"annotations":{"kapp.k14s.io/original":%q}`, body)
	}
	return fmt.Sprintf(
		`{%s"metadata":{"name":%q,"namespace":"a","uid":"u-%s","resourceVersion":%q,"creationTimestamp":"2026-11-20T14:03:00Z"%s},%s}`,
		typ, name, name, rv, annotations, body)
}

// stateOf returns the state at 14:02 of a record with a snapshot of objects.
func stateOf(t *testing.T, resource string, all objects, apiVersion string) *timeline.State {
	t.Helper()
	s := timeline.NewState(timeline.At(time.Date(2026, 11, 20, 14, 2, 0, 0, time.UTC)), timeline.Options{})
	n := 0
	add := func(text string) {
		n++
		e, err := consume.Parse(
			[]byte(strings.NewReplacer("ID", fmt.Sprint(n), "AV", apiVersion, "RES", resource).Replace(text)))
		if err != nil {
			t.Fatal(err)
		}
		s.Add(e)
	}
	const head = `{"specversion":"1.0","source":"/kubernetes/prod","id":"RES/ID","subject":"/x","cluster":"prod","clusteruid":"c1","apiversion":"AV","resource":"RES",`
	add(
		head +
			`"type":"dev.kubecdc.snapshot.started","time":"2026-11-20T14:00:00Z","scope":"RES","data":{"snapshot":"s","resourceVersion":"50","writer":"w","run":"0-1"}}`)
	for name, rest := range all {
		rv, _, _ := strings.Cut(rest, " ")
		add(
			strings.Replace(head, "ID", "u-"+name+"/"+rv+"/r/s", 1) +
				fmt.Sprintf(
					`"type":"dev.kubecdc.object.read","time":"2026-11-20T14:00:01Z","kind":"Thing","namespace":"a","name":%q,"uid":"u-%s","op":"r",`+
						`"resourceversion":%q,"sequence":"000000000000000000%s","data":{"op":"r","resourceVersion":%q,"after":%s,"snapshot":"s"}}`,
					name, name, rv, rv, rv, item(apiVersion, name, rest)))
	}
	add(
		head +
			`"type":"dev.kubecdc.snapshot.completed","time":"2026-11-20T14:00:02Z","scope":"RES","data":{"snapshot":"s","resourceVersion":"50"}}`)
	for minute := range 6 {
		add(
			fmt.Sprintf(
				`{"specversion":"1.0","source":"/kubernetes/prod","id":"progress/w/0-1/ID","subject":"/progress/w","cluster":"prod","clusteruid":"c1",`+
					`"type":"dev.kubecdc.progress","time":"2026-11-20T14:0%[1]d:00Z","data":{"writer":"w","run":"0-1","number":%[1]d,"since":"2026-11-20T13:50:00Z",`+
					`"to":"2026-11-20T14:0%[1]d:00Z","scopes":[{"resource":%[2]q,"resourceVersion":"%[3]d"}]}}`,
				minute+1,
				groupResource(resource, apiVersion), 60+minute))
	}
	return s
}

func groupResource(resource, apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return resource + "." + group
	}
	return resource
}

// cluster is an API server that serves one core resource.
func cluster(t *testing.T, uid, resource string, all objects) *live.Cluster {
	t.Helper()
	mux := http.NewServeMux()
	say := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	say("/api/v1/namespaces/kube-system",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":%q}}`, uid))
	say("/api", `{"kind":"APIVersions","versions":["v1"]}`)
	say("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	say("/api/v1",
		fmt.Sprintf(
			`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":%q,"kind":"Thing","namespaced":true}]}`,
			resource))
	var items []string
	for name, rest := range all {
		items = append(items, item("", name, rest))
	}
	say("/api/v1/"+resource,
		fmt.Sprintf(`{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"90"},"items":[%s]}`,
			strings.Join(items, ",")))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	client, err := apiserver.New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &live.Cluster{Client: client}
}

func compare(t *testing.T, c *live.Cluster, s *timeline.State, paths ...string) (*live.Answer, error) {
	t.Helper()
	return c.Compare(t.Context(), &live.Question{
		State: s, Time: s.Moment().Time(), Takes: func(_, _, _ string) bool { return true },
		Withheld: func(string) []string { return paths }, Known: true,
	})
}

// An object that did not change shows what the record strips and redacts. That is not a difference
// in one that did.
func TestWhatTheRecordDoesNotHaveIsNotCompared(t *testing.T) {
	const mac = `"hmac-sha256:01234567:abcdefghijklmnopqrstuv"`
	recorded := objects{
		"same":    `10 "spec":{"list":[{"a":1}],"keys":{"x":` + mac + `}}`,
		"changed": `11 "spec":{"list":[{"a":1}],"keys":{"x":` + mac + `},"n":1}`,
		"gone":    `12 "spec":{}`,
	}
	now := objects{
		"same":    `10 "spec":{"list":[{"a":1,"b":"hide"}],"keys":{"x":"hide"},"stripped":"hide"},"status":{"s":"hide"}`,
		"changed": `13 "spec":{"list":[{"a":1,"b":"hide"}],"keys":{"x":"hide","y":"hide"},"stripped":"hide","n":2},"status":{"s":"hide"},"given":"hide"`,
		"new":     `14 "spec":{"list":[{"a":1,"b":"hide"}],"stripped":"hide"},"status":{}`,
	}
	answer, err := compare(t, cluster(t, "c1", "things", now), stateOf(t, "things", recorded, "v1"), "given")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range answer.Differences {
		text := ""
		for _, v := range []*timeline.Version{d.Before, d.After} {
			if v == nil {
				text += " -"
				continue
			}
			text += " " + string(v.Op) + v.Name + " " + string(v.After)
		}
		got = append(got, text)
	}
	all := strings.Join(got, "\n")
	if strings.Contains(all, "hide") || strings.Contains(all, "hmac") {
		t.Errorf("has what the record withholds:\n%s", all)
	}
	for _, want := range []string{`rchanged {`, `uchanged {`, `"n":1`, `"n":2`, ` rgone {`, ` - cnew {`} {
		if strings.Count(all, want) != 1 {
			t.Errorf("want %s once, got\n%s", want, all)
		}
	}
	if want := []string{
		"given", "spec.keys[*]", "spec.list[*].b", "spec.stripped", "status",
	}; !slices.Equal(answer.Withheld["things"], want) {
		t.Errorf("withheld: got %q, want %q", answer.Withheld["things"], want)
	}
}

// Copies of Secrets in the cluster are not compared, unless the agent records them.
func TestCopiesOfSecretsAreNotCompared(t *testing.T) {
	embedding := func(n int, value string) string {
		return fmt.Sprintf(`"spec":{"n":%d,"m":{"apiVersion":"v1","kind":"Secret"%s}}`, n, value)
	}
	for name, tc := range map[string]struct {
		recorded, now, withheld string
		shown                   bool
	}{
		"removed from the record": {
			"11 " + embedding(1, ""), "13 " + embedding(2, `,"data":{"k":"hide"}`), "copies of Secrets", false,
		},
		"in the record": {
			"11 " + embedding(1, `,"data":{"k":"x"}`), "13 " + embedding(2, `,"data":{"k":"hide"}`), "", true,
		},
		"a new object": {"", "13 " + embedding(2, `,"data":{"k":"hide"}`), "copies of Secrets", false},
	} {
		recorded := objects{}
		if tc.recorded != "" {
			recorded["changed"] = tc.recorded
		}
		answer, err := compare(t, cluster(t, "c1", "things", objects{"changed": tc.now}),
			stateOf(t, "things", recorded, "v1"))
		if err != nil || len(answer.Differences) != 1 {
			t.Fatalf("%s: %+v, %v", name, answer, err)
		}
		if after := string(answer.Differences[0].After.After); strings.Contains(after, "hide") != tc.shown ||
			!strings.Contains(after, `"n":2`) {
			t.Errorf("%s: %s", name, after)
		}
		if got := strings.Join(answer.Withheld["things"], ", "); got != tc.withheld {
			t.Errorf("%s: withheld %q", name, got)
		}
	}
}

// Without the agent's configuration, no live value is returned that a rule may hide.
func TestValuesThatARuleMayHideAreNotReturned(t *testing.T) {
	recorded := objects{
		"changed": `11 "copied":1,"spec":{"n":1,"list":[{"a":1}],"empty":[],"o":{},"mac":"hmac-sha256:01234567:abcdefghijklmnopqrstuv"}`,
		"same":    `12 "spec":{"n":1}`,
	}
	now := objects{
		"changed": `13 "copied":1,"spec":{"n":2,"new":{"x":"hide"},"list":[{"a":2,"b":"hide"},{"a":3}],"empty":["hide",{"x":"hide"}],"o":"hide","mac":"hide"},"given":"hide"`,
		"same":    `12 "spec":{"n":1},"status":{"s":"hide"}`,
		"new":     `14 "copied":"hide","spec":{"n":"hide"},"status":["hide"]`,
	}
	state := stateOf(t, "things", recorded, "v1")
	labelled := 0
	answer, err := cluster(t, "c1", "things", now).Compare(t.Context(), &live.Question{
		State: state, Time: state.Moment().Time(), Takes: func(_, _, _ string) bool { return true },
		Labelled: func(object json.RawMessage) bool {
			if strings.Contains(string(object), "hide") {
				labelled++ // it gets all that the cluster has
			}
			return true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range answer.Differences {
		got[d.After.Name] = string(d.After.After)
	}
	for name, want := range map[string]string{
		"changed": `"spec":{"empty":[],"list":[{"a":2},{"a":3}],"n":2}`,
		"new":     `"name":"new"`,
	} {
		if !strings.Contains(got[name], want) || strings.Contains(got[name], "hide") {
			t.Errorf("%s: got %s, want %s", name, got[name], want)
		}
	}
	want := []string{
		"copied", "given", "metadata.creationTimestamp", "spec", "spec.empty[*]", "spec.list[*].b", "spec.new",
		"spec.o",
	}
	if !slices.Equal(answer.Unproven["things"], want) || len(got) != 2 || labelled == 0 {
		t.Errorf("got %v without %q, want two objects without %q; %d had labels to judge", got,
			answer.Unproven["things"], want, labelled)
	}
}

// The same uid and resourceVersion with another value: etcd was restored, and the numbers come
// again.
func TestOneVersionWithTwoValuesDiffers(t *testing.T) {
	answer, err := compare(t, cluster(t, "c1", "things", objects{"a": `10 "spec":{"n":2}`}),
		stateOf(t, "things", objects{"a": `10 "spec":{"n":1}`}, "v1"))
	if err != nil || len(answer.Differences) != 1 {
		t.Errorf("got %+v, %v", answer, err)
	}
}

// Objects of a resource that the cluster does not serve any more are gone.
func TestResourceThatIsNotServedAnyMore(t *testing.T) {
	answer, err := compare(t, cluster(t, "c1", "others", nil),
		stateOf(t, "things", objects{"a": `10 "spec":{"n":1}`}, "v1"))
	if err != nil || len(answer.Differences) != 1 || answer.Differences[0].After != nil {
		t.Errorf("got %+v, %v", answer, err)
	}
}

func TestWhatCannotBeCompared(t *testing.T) {
	recorded := objects{"a": `10 "spec":{}`}
	for _, c := range []struct {
		name, uid, apiVersion, want string
	}{
		{
			"another cluster", "c2", "v1",
			"the record is of the cluster with uid c1, the kubeconfig leads to the cluster with uid c2",
		},
		{
			"another version", "c1", "v1beta1",
			"the record has objects in v1beta1, which the cluster does not serve any more",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, err := compare(t, cluster(t, c.uid, "things", recorded),
				stateOf(t, "things", recorded, c.apiVersion))
			if err == nil || answer != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v", answer, err)
			}
		})
	}
}
