package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
)

func TestResourcePattern(t *testing.T) {
	type gvr struct{ group, version, resource string }
	for _, tt := range []struct {
		text      string
		want      config.ResourcePattern
		written   string // where it differs from text
		matches   []gvr
		differsIn []gvr
	}{
		{
			text:      "pods",
			want:      config.ResourcePattern{Resource: "pods"},
			matches:   []gvr{{"", "v1", "pods"}, {"", "v2", "pods"}},
			differsIn: []gvr{{"metrics.k8s.io", "v1beta1", "pods"}, {"", "v1", "pod"}, {"", "v1", "podtemplates"}},
		},
		{
			text:      "deployments",
			want:      config.ResourcePattern{Resource: "deployments"},
			matches:   []gvr{{"apps", "v1", "deployments"}},
			differsIn: []gvr{{"example.com", "v1", "deployments"}},
		},
		{
			text:      "widgets", // not one of Kubernetes's own: in every group
			want:      config.ResourcePattern{Resource: "widgets"},
			matches:   []gvr{{"example.com", "v1", "widgets"}, {"example.org", "v1alpha1", "widgets"}},
			differsIn: []gvr{{"example.com", "v1", "gadgets"}},
		},
		{
			text:      "events", // the same objects under two names
			want:      config.ResourcePattern{Resource: "events"},
			matches:   []gvr{{"", "v1", "events"}, {"events.k8s.io", "v1", "events"}},
			differsIn: []gvr{{"example.com", "v1", "events"}},
		},
		{
			text:      "deployments.apps",
			want:      config.ResourcePattern{Resource: "deployments", Group: "apps"},
			matches:   []gvr{{"apps", "v1", "deployments"}, {"apps", "v1beta1", "deployments"}},
			differsIn: []gvr{{"", "v1", "deployments"}, {"apps", "v1", "daemonsets"}},
		},
		{
			text:      "deployments.v1.apps",
			want:      config.ResourcePattern{Resource: "deployments", Version: "v1", Group: "apps"},
			matches:   []gvr{{"apps", "v1", "deployments"}},
			differsIn: []gvr{{"apps", "v1beta1", "deployments"}, {"v1.apps", "v1", "deployments"}},
		},
		{
			text: "flowschemas.v1beta3.flowcontrol.apiserver.k8s.io",
			want: config.ResourcePattern{
				Resource: "flowschemas",
				Version:  "v1beta3",
				Group:    "flowcontrol.apiserver.k8s.io",
			},
			matches:   []gvr{{"flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas"}},
			differsIn: []gvr{{"flowcontrol.apiserver.k8s.io", "v1", "flowschemas"}},
		},
		{
			text:      "machines.v1x.example.com", // looks almost like a version
			want:      config.ResourcePattern{Resource: "machines", Group: "v1x.example.com"},
			matches:   []gvr{{"v1x.example.com", "v1", "machines"}},
			differsIn: []gvr{{"example.com", "v1", "machines"}},
		},
		{
			text:      "pods.v1.",
			want:      config.ResourcePattern{Resource: "pods", Version: "v1", Core: true},
			matches:   []gvr{{"", "v1", "pods"}},
			differsIn: []gvr{{"", "v2", "pods"}, {"metrics.k8s.io", "v1", "pods"}},
		},
		{
			text:    "pods.v1",
			written: "pods.v1.",
			want:    config.ResourcePattern{Resource: "pods", Version: "v1", Core: true},
			matches: []gvr{{"", "v1", "pods"}},
		},
		{
			text:      "events.",
			want:      config.ResourcePattern{Resource: "events", Core: true},
			matches:   []gvr{{"", "v1", "events"}},
			differsIn: []gvr{{"events.k8s.io", "v1", "events"}},
		},
		{
			text:      "*.networking.k8s.io",
			want:      config.ResourcePattern{Resource: "*", Group: "networking.k8s.io"},
			matches:   []gvr{{"networking.k8s.io", "v1", "ingresses"}, {"networking.k8s.io", "v1beta1", "ipaddresses"}},
			differsIn: []gvr{{"", "v1", "services"}, {"policy.networking.k8s.io", "v1", "adminnetworkpolicies"}},
		},
		{
			text:      "*.",
			want:      config.ResourcePattern{Resource: "*", Core: true},
			matches:   []gvr{{"", "v1", "pods"}},
			differsIn: []gvr{{"apps", "v1", "deployments"}},
		},
		{
			text:    "*",
			want:    config.ResourcePattern{Resource: "*"},
			matches: []gvr{{"", "v1", "pods"}, {"example.com", "v1", "widgets"}},
		},
	} {
		t.Run(tt.text, func(t *testing.T) {
			var p config.ResourcePattern
			if err := p.UnmarshalText([]byte(tt.text)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, p); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			written := tt.written
			if written == "" {
				written = tt.text
			}
			if p.String() != written {
				t.Errorf("written as %q, want %q", p, written)
			}
			for _, r := range tt.matches {
				if !p.Match(r.group, r.version, r.resource) {
					t.Errorf("does not match %v", r)
				}
			}
			for _, r := range tt.differsIn {
				if p.Match(r.group, r.version, r.resource) {
					t.Errorf("matches %v", r)
				}
			}
		})
	}
	for _, text := range []string{
		"", ".", ".apps", "Pods", "po*", "**", "pods.*", "pods..apps", "pods.apps.", "pods/log", "pods.Apps", "-a",
		"a b",
	} {
		var p config.ResourcePattern
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: no error, got %+v", text, p)
		}
	}
}

func TestNamespaces(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns config.Namespaces
		matches  []string
		differs  []string
		literal  []string
		all      bool
	}{
		{name: "none", matches: []string{"", "shop"}, all: true},
		{name: "star", patterns: config.Namespaces{"*"}, matches: []string{"", "shop"}, all: true},
		{
			name: "all but", patterns: config.Namespaces{"!kube-*", "*"},
			matches: []string{"", "shop", "kube"}, differs: []string{"kube-system", "kube-"},
		},
		{
			name: "names", patterns: config.Namespaces{"shop", "web"},
			matches: []string{"shop", "web"}, differs: []string{"", "shop-2", "sho"}, literal: []string{"shop", "web"},
		},
		{
			name: "globs", patterns: config.Namespaces{"team-?", "shop*", "!shop-test"},
			matches: []string{"team-a", "shop", "shop-2"}, differs: []string{"team-", "team-ab", "shop-test", ""},
		},
		{name: "only excludes", patterns: config.Namespaces{"!a"}, differs: []string{"a", "b", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, ns := range tt.matches {
				if !tt.patterns.Match(ns) {
					t.Errorf("does not match %q", ns)
				}
			}
			for _, ns := range tt.differs {
				if tt.patterns.Match(ns) {
					t.Errorf("matches %q", ns)
				}
			}
			if tt.patterns.All() != tt.all {
				t.Errorf("All is %v", !tt.all)
			}
			names, ok := tt.patterns.Literal()
			if ok != (tt.literal != nil) {
				t.Errorf("Literal says %v", ok)
			}
			if diff := cmp.Diff(tt.literal, names); ok && diff != "" {
				t.Errorf("Literal (-want +got):\n%s", diff)
			}
		})
	}
}
