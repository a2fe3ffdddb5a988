package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
)

func TestPart(t *testing.T) {
	for _, tc := range []struct {
		mode            config.Mode
		group, resource string
		want            config.Part
	}{
		{config.ModeCluster, "", "pods", config.Part{}},
		{config.ModeCluster, "", "nodes", config.Part{}},
		{config.ModeNode, "", "pods", config.Part{FieldSelector: "spec.nodeName=n1"}},
		{config.ModeNode, "", "nodes", config.Part{FieldSelector: "metadata.name=n1"}},
		{config.ModeNode, "storage.k8s.io", "csinodes", config.Part{FieldSelector: "metadata.name=n1"}},
		{config.ModeNode, "resource.k8s.io", "resourceslices", config.Part{FieldSelector: "spec.nodeName=n1"}},
		{config.ModeNode, "example.com", "widgets", config.Part{FieldSelector: "spec.nodeName=n1"}},
		{config.ModeNode, "metrics.example.com", "nodes", config.Part{FieldSelector: "spec.nodeName=n1"}},
		{
			config.ModeNode, "coordination.k8s.io", "leases",
			config.Part{FieldSelector: "metadata.name=n1", Namespace: "kube-node-lease"},
		},
		{config.ModeCentral, "", "pods", config.Part{FieldSelector: "spec.nodeName="}},
		{config.ModeCentral, "", "nodes", config.Part{None: true}},
		{config.ModeCentral, "metrics.example.com", "pods", config.Part{}},
		{config.ModeCentral, "apps", "deployments", config.Part{}},
		{config.ModeCentral, "storage.k8s.io", "csinodes", config.Part{}},
	} {
		c := &config.Config{Mode: tc.mode}
		if diff := cmp.Diff(tc.want, c.Part(tc.group, tc.resource, "n1")); diff != "" {
			t.Errorf("%s %s.%s: -want +got\n%s", tc.mode, tc.resource, tc.group, diff)
		}
	}
}
