package apiview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// eventJSON returns an Event of core v1.
func eventJSON(name, reason string) string {
	return objectJSON("Event", "shop", name,
		fmt.Sprintf(
			`"involvedObject":{"kind":"Pod","name":"web-0"},"reason":%q,"message":"m","count":2,"source":{"component":"kubelet"},
		"firstTimestamp":"2026-11-20T13:00:00Z","lastTimestamp":"2026-11-20T13:30:00Z","eventTime":null,"reportingComponent":"","reportingInstance":""`,
			reason))
}

// A replay shows the changes of Events in both groups. Both watches have the same
// resourceVersions.
func TestReplayOfEventsInBothGroups(t *testing.T) {
	t.Parallel()
	r := &record{}
	r.resource("v1", "events", eventJSON("a", "Pulled"))
	r.object(consume.Updated, "v1", "events", eventJSON("a", "Failed"))
	r.object(consume.Created, "v1", "events", eventJSON("b", "Failed"))
	r.object(consume.Deleted, "v1", "events", eventJSON("a", "Failed"))
	r.progress("events")
	v := following(t, r, 3)
	s := &apiview.Server{Root: v, Token: token}
	watched := make(chan []string, 2)
	for path, field := range map[string]string{"/api/v1/events": "message", "/apis/events.k8s.io/v1/events": "note"} {
		go func() {
			w := ask(t.Context(), s, "GET",
				path+"?watch=1&timeoutSeconds=4&resourceVersion=3&fieldSelector=reason%3DFailed", "", "")
			var got []string
			for line := range strings.Lines(w.Body.String()) {
				var e struct {
					Type   string
					Object struct {
						APIVersion string
						Metadata   struct{ Name, ResourceVersion string }
						Message    string
						Note       string
					}
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					got = append(got, err.Error())
				}
				o := &e.Object
				got = append(got,
					fmt.Sprint(e.Type, " ", o.Metadata.Name, " ", o.Metadata.ResourceVersion, " ",
						map[string]string{"message": o.Message, "note": o.Note}[field]))
			}
			watched <- got
		}()
	}
	if n, err := v.Play(t.Context(), 0, func() {}); n != 3 || err != nil {
		t.Fatalf("%d changes, %v", n, err)
	}
	for range 2 {
		if diff := cmp.Diff([]string{"ADDED a 4 m", "ADDED b 5 m", "DELETED a 6 m"}, <-watched); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	for _, path := range []string{"/api/v1/events", "/apis/events.k8s.io/v1/events"} {
		if diff := cmp.Diff([]string{"shop/b"}, names(t, ask(t.Context(), s, "GET", path, "", ""))); diff != "" {
			t.Errorf("%s: -want +got\n%s", path, diff)
		}
	}
}

// If the record has both groups, each is served from its own objects.
func TestRecordedGroupIsServedAsItIs(t *testing.T) {
	t.Parallel()
	group := func(name string) string {
		return objectJSON("Event", "shop", name, `"note":"n","regarding":{"name":"x"}`)
	}
	r := &record{}
	r.resource("v1", "events", eventJSON("core", "Pulled"))
	r.resource("events.k8s.io/v1", "events", group("group"))
	later := &record{}
	later.resource("v1", "events", eventJSON("core", "Pulled"))
	later.object(consume.Created, "events.k8s.io/v1", "events", group("group"))
	later.progress("events")
	replayed := following(t, later, 3)
	for name, v := range map[string]*apiview.View{"moment": r.view(), "replay": replayed} {
		s := &apiview.Server{Root: v, Token: token}
		want := []string{"shop/group"}
		if name == "replay" {
			want = []string{} // not yet
		}
		if diff := cmp.Diff(want,
			names(t, ask(t.Context(), s, "GET", "/apis/events.k8s.io/v1/events", "", ""))); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"shop/core"},
			names(t, ask(t.Context(), s, "GET", "/api/v1/events", "", ""))); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// An object whose redacted value has another type than the field is not left out of a list: the
// answer is an error that names the recorded version. Without its status, an autoscaler has none.
func TestAutoscalerThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	scaler := func(name, spec string) string {
		return objectJSON("HorizontalPodAutoscaler", "shop", name, `"spec":`+spec)
	}
	r := &record{}
	r.resource("autoscaling/v2", "horizontalpodautoscalers",
		scaler("good", `{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":3}`),
		scaler("hashed",
			`{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":"hmac-sha256:0a1b2c3d:abc"}`))
	s := &apiview.Server{Root: r.view(), Token: token}
	for path, want := range map[string]string{
		"/apis/autoscaling/v1/horizontalpodautoscalers":                          "ask for autoscaling/v2",
		"/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers/hashed":   "ask for autoscaling/v2",
		"/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers/good":     `"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":3}}`,
		"/apis/autoscaling/v1/horizontalpodautoscalers?watch=1&timeoutSeconds=1": `"message":"an object of horizontalpodautoscalers.autoscaling cannot`,
		"/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/hashed":   `"maxReplicas":"hmac-sha256:`,
	} {
		if w := ask(t.Context(), s, "GET", path, "", ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	want := []string{
		"Name | Reference | Targets | MinPods | MaxPods | Replicas | Age",
		"good | Deployment/web | <none> | <unset> | 3 | 0 | 120m",
		"hashed | <unknown> | <unknown> | <unknown> | <unknown> | <unknown> | 120m",
	}
	for _, version := range []string{"v1", "v2"} {
		w := ask(t.Context(), s, "GET", "/apis/autoscaling/"+version+"/horizontalpodautoscalers", asTable, "")
		if diff := cmp.Diff(want, lines(t, w.Body.Bytes())); diff != "" {
			t.Errorf("%s: -want +got\n%s", version, diff)
		}
	}
}
