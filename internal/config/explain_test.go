package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
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
		"widgets":     "write its group behind it, such as widgets.example.com",
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
  - resources: [nodes]
    namespaces: ["*"]
`), "f")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]config.Verdict{
		"services":    {Rule: 0, Pattern: 0, Excluding: -1, Except: -1},
		"deployments": {Rule: 1, Pattern: 0, Excluding: -1, Except: -1},
		"hpa":         {Rule: 1, Pattern: 1, Excluding: -1, Except: -1},
		"horizontalpodautoscalers.v1.autoscaling": {Rule: -1, Pattern: -1, Excluding: -1, Except: -1},
		"replicasets":         {Rule: -1, Pattern: -1, Excluding: 1, Except: 0},
		"controllerrevisions": {Rule: 1, Pattern: 0, Excluding: -1, Except: -1}, // only one of its versions is excepted
		"ingresses":           {Rule: 2, Pattern: 0, Excluding: -1, Except: -1},
		"ingressclasses":      {Rule: -1, Pattern: -1, Excluding: 2, Except: -1}, // has no namespace
		"nodes":               {Rule: 3, Pattern: 0, Excluding: -1, Except: -1},
		"pods":                {Rule: -1, Pattern: -1, Excluding: -1, Except: -1},
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
		"f:3:36: watch[0].resources[2]: Kubernetes has no resource widgets: it is taken in every group that has one; " +
			"write its group behind it (widgets.example.com) to mean one only",
		`f:3:66: watch[0].resources[4]: Kubernetes has no group app, and those of custom resources have a dot in their names`,
		"f:4:14: watch[0].except[0]: Kubernetes has no resource replicsets, did you mean replicasets.apps?",
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
	check := func(c *config.Config) []*config.Error {
		return []*config.Error{{Path: "bus.nats.subject", Message: "got " + c.Bus.NATS.Subject}}
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
