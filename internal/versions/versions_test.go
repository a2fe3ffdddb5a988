package versions_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/versions"
)

func TestIsBefore(t *testing.T) {
	for _, tc := range []struct {
		version, minor string
		want           bool
	}{
		{"v1.28.15", "1.29", true},
		{"v1.28.15-eks-7f9249a", "1.29", true},
		{"v1.9.11", "1.29", true},
		{"1.29", "1.29", false},
		{"v1.29.0-alpha.1", "1.29", false},
		{"v1.30.4-gke.1348000", "1.29", false},
		{"v1.29+", "1.29", false},
		{"v2.0.0", "1.29", false},
		{"2.9.25", "2.10", true},
		{"3.0.0", "2.10", false},
		{"", "1.29", false},
		{"dev", "1.29", false},
		{"v0.0.0-master+$Format:%H$", "1.29", false},
		{"2.x", "2.10", false},
		{"99999999999999999999.1", "2.10", false},
	} {
		if got := versions.IsBefore(tc.version, tc.minor); got != tc.want {
			t.Errorf("%q is before %q: %t, want %t", tc.version, tc.minor, got, tc.want)
		}
	}
}

func TestServer(t *testing.T) {
	for _, s := range []versions.Server{versions.Kubernetes(), versions.NATS(), versions.Kafka()} {
		if versions.IsBefore(s.Tested[0], s.Required) {
			t.Errorf("%s: %s is tested, and below the required %s", s.Name, s.Tested[0], s.Required)
		}
		for i := range s.Tested[1:] {
			if !versions.IsBefore(s.Tested[i], s.Tested[i+1]) {
				t.Errorf("%s: %s is not before %s", s.Name, s.Tested[i], s.Tested[i+1])
			}
		}
		if s.IsUntested(s.Tested[0]+".0") || s.IsUntested("") {
			t.Errorf("%s: %s.0, or an unknown version, counts as untested", s.Name, s.Tested[0])
		}
	}
	if k := versions.Kubernetes(); !k.IsUntested("v1.32.9") || k.Unsupported("v1.32.9") != nil ||
		k.Unsupported("v1.28.0") == nil {
		t.Error("Kubernetes 1.32 is untested and meant to work, 1.28 is too old")
	}
}
