package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

func TestFindResource(t *testing.T) {
	for text, want := range map[string]config.Resource{
		"pods":                         {Name: "pods"},
		"po":                           {Name: "pods"},
		"Pod":                          {Name: "pods"},
		"pods.v1.":                     {Name: "pods", Version: "v1"},
		"pods.metrics.k8s.io":          {Name: "pods", Group: "metrics.k8s.io"},
		"deploy":                       {Name: "deployments", Group: "apps"},
		"deployments.apps":             {Name: "deployments", Group: "apps"},
		"deployments.v1.apps":          {Name: "deployments", Version: "v1", Group: "apps"},
		"NetworkPolicy":                {Name: "networkpolicies", Group: "networking.k8s.io"},
		"ingress":                      {Name: "ingresses", Group: "networking.k8s.io"},
		"storageclass":                 {Name: "storageclasses", Group: "storage.k8s.io", ClusterScoped: true},
		"no":                           {Name: "nodes", ClusterScoped: true},
		"events.events.k8s.io":         {Name: "events", Group: "events.k8s.io"},
		"componentstatuses":            {Name: "componentstatuses"},
		"tokenreviews":                 {Name: "tokenreviews", Group: "authentication.k8s.io"},
		"widgets.example.com":          {Name: "widgets", Group: "example.com"},
		"widgets.v1alpha1.example.com": {Name: "widgets", Version: "v1alpha1", Group: "example.com"},
	} {
		got, err := config.FindResource(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"widgets":     "add its group, such as widgets.example.com",
		"deploymnets": "did you mean deployments.apps?",
		"pods.apps":   "did you mean pods?",
		"*":           "must be one resource",
		"*.apps":      "must be one resource",
		"":            "it is empty",
		"pods/web":    "did you mean pods?",
	} {
		if _, err := config.FindResource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	c, err := config.Parse([]byte(`
apiVersion: kubecdc.dev/v1
watch:
  - resources: [services]
    namespaces: [shop]
  - resources: ["*.apps", horizontalpodautoscalers.v2.autoscaling]
    except: [replicasets, controllerrevisions.v1beta1.apps]
  - resources: ["*.networking.k8s.io"]
    namespaces: ["team-*"]
  - resources: [nodes, services]
    namespaces: ["*"]
  - resources: [widgets.example.com, replicasets, "*.batch"]
    except: [jobs]
    labelSelector: team=payments
  - resources: ["*.example.com", replicasets]
    namespaces: ["*", "!shop"]
`), "f")
	if err != nil {
		t.Fatal(err)
	}
	none := func(excluding, except int) config.Verdict {
		return config.Verdict{Excluding: excluding, Except: except}
	}
	by := func(rules ...config.Taking) config.Verdict {
		return config.Verdict{Taking: rules, Excluding: -1, Except: -1}
	}
	for text, want := range map[string]config.Verdict{
		"services":    by(config.Taking{Rule: 0}, config.Taking{Rule: 3, Pattern: 1}),
		"deployments": by(config.Taking{Rule: 1}),
		"hpa":         by(config.Taking{Rule: 1, Pattern: 1}),
		"horizontalpodautoscalers.v1.autoscaling": none(-1, -1),
		"replicasets":         by(config.Taking{Rule: 4, Pattern: 1}, config.Taking{Rule: 5, Pattern: 1}),
		"controllerrevisions": by(config.Taking{Rule: 1}), // only one of its versions is excepted
		"ingresses":           by(config.Taking{Rule: 2}),
		"ingressclasses":      none(2, -1), // has no namespace
		"nodes":               by(config.Taking{Rule: 3}),
		"pods":                none(-1, -1),
		"cronjobs":            by(config.Taking{Rule: 4, Pattern: 2}),
		"jobs":                none(4, 0),
		"widgets.example.com": by(config.Taking{Rule: 4}, config.Taking{Rule: 5}),
		"gadgets.example.com": by(config.Taking{Rule: 5}),
	} {
		r, err := config.FindResource(text)
		if err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(want, c.Explain(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestDoubts: what is valid and probably not meant is said, with its place.
func TestDoubts(t *testing.T) {
	f, err := config.ParseFile([]byte(`apiVersion: kubecdc.dev/v1
watch:
  - resources: [pods, deploymnets, widgets, widgets.example.com, "*.app", "*.apps"]
    except: [replicsets]
  - resources: [secrets]
    redact: [data.tls.key, 'data["tls.key"]', "data[*]", "spec.containers.env[*].value", "spec.containers[*].env[*].value"]
  - resources: [nodes, "*.example.com"]
    fieldSelector: metadata.name=a,status.phase=Running
  - resources: ["*.example.org"]
    fieldSelector: metadata.namespace!=b,metadata.name=a
  - resources: [jobs]
    fieldSelector: status.successful=1
  - resources: [componentstatuses, pods.metrics.k8s.io]
    except: [tokenreviews]
noise: [node-heartbeats, status-only]
redaction: {secrets: false}
`), "f")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range f.Doubts() {
		got = append(got, d.Error())
	}
	want := []string{
		"f:3:23: watch[0].resources[1]: Kubernetes has no resource deploymnets, did you mean deployments.apps?",
		"f:3:36: watch[0].resources[2]: Kubernetes has no resource widgets: it is captured from every group that has one; " +
			"to name only one, add its group (widgets.example.com)",
		`f:3:66: watch[0].resources[4]: Kubernetes has no group app, and those of custom resources have a dot in their names`,
		"f:4:14: watch[0].except[0]: Kubernetes has no resource replicsets, did you mean replicasets.apps?",
		`f:6:14: watch[1].redact[0]: matches nothing in ConfigMaps and Secrets, whose values are strings; a key with dots in it is written data["tls.key"]`,
		"f:6:58: watch[1].redact[3]: matches nothing if containers is a list, as it is in Pods; write containers[*]",
		"f:8:20: watch[2].fieldSelector: most resources cannot be selected by status.phase: the API server rejects such lists, and " +
			"none of their objects is sent; name the resources that can",
		"f:13:17: watch[5].resources[0]: componentstatuses is served without watch (its verbs: get, list), so it cannot be captured",
		"f:13:36: watch[5].resources[1]: pods.metrics.k8s.io is served without watch (its verbs: get, list), so it cannot be captured",
		"f:15:26: noise[1]: status-only withholds changes of the status alone, of every resource: that a Pod has failed, that a Deployment is ready, that a Job is done",
		"f:16:22: redaction.secrets: the values of Secrets are sent as they are, to everyone who can read the bus; write true to redact them",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if line := f.Line("watch[0]"); line != 3 {
		t.Errorf("watch[0] is in line %d", line)
	}
	if line := f.Line("bus"); line != 0 {
		t.Errorf("bus, which the file does not have, is in line %d", line)
	}
}

// TestChecks: what other packages know is reported like the rest, and only about what is valid.
func TestChecks(t *testing.T) {
	check := func(c *config.Config) []*yamldoc.Error {
		return []*yamldoc.Error{{Path: "bus.nats.subject", Message: "got " + c.Bus["nats"].(*nats.Config).Subject}}
	}
	_, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nbus: {nats: {subject: a}}\n"), "f", check)
	if err == nil || !strings.HasPrefix(err.Error(), "f:2:23: bus.nats.subject: got a\n") {
		t.Errorf("got %v", err)
	}
	_, err = config.Parse([]byte("apiVersion: kubecdc.dev/v1\nbus: {}\n"), "f", check)
	if err == nil || !strings.Contains(err.Error(), "must name one bus") {
		t.Errorf("got %v", err)
	}
}

// TestChecksInsideText: what is wrong in the middle of a text is shown there, however the text is
// written; where that cannot be followed, it is the place of the text.
func TestChecksInsideText(t *testing.T) {
	const column = 4 // of "X", which is in every text below
	for _, tt := range []struct {
		name, where  string
		line, column int // in the text
		want         string
	}{
		{"plain", `op X "u"`, 1, column, "f:4:15"},
		{"quoted", `'op X "u"'`, 1, column, "f:4:16"},
		{"at the end", `op X`, 1, 5, "f:4:16"},
		{"beyond the end", `op X`, 1, 9, "f:4:12"},
		{"no such line", `op X`, 2, 1, "f:4:12"},
		{"wide characters", `name == "ö" X`, 1, 13, "f:4:24"},
		{"escaped before", `"\x6fp X \"u\""`, 1, column, "f:4:12"},
		{"escaped behind", `"op X \"u\""`, 1, column, "f:4:16"},
		{"literal", "|\n      op X\n", 1, column, "f:5:10"},
		{"literal, second line", "|-\n      op ||\n        is X\n", 2, 6, "f:6:12"},
		{"folded", ">-\n      op ||\n      is X\n", 1, 10, "f:6:10"},
		{"folded plain", "op ||\n      is X", 1, 10, "f:5:10"},
		{"variable", `op ${KUBECDC_TEST_PATCH} X`, 1, column, "f:4:12"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setVariables(t)
			check := func(*config.Config) []*yamldoc.Error {
				return []*yamldoc.Error{{
					Path:       "watch[0].where",
					Message:    "here",
					TextLine:   tt.line,
					TextColumn: tt.column,
				}}
			}
			_, err := config.Parse(
				[]byte("apiVersion: kubecdc.dev/v1\nwatch:\n  - resources: [pods]\n    where: "+tt.where+"\n"), "f",
				check)
			var wrong *yamldoc.Error
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v", err)
			}
			if got := fmt.Sprintf("%s:%d:%d", wrong.File, wrong.Line, wrong.Column); got != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
