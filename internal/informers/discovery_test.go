package informers

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

func servedAs(group, name, kind string, namespaced bool, versions ...string) selection.APIResource {
	a := selection.APIResource{Group: group, Name: name}
	for _, v := range versions {
		a.Versions = append(a.Versions, object.Resource{
			Group:      group,
			Version:    v,
			Name:       name,
			Kind:       kind,
			Namespaced: namespaced,
		})
	}
	return a
}

// An informer whose version is no longer served starts over in another one. It continues if
// discovery cannot determine the version.
func TestOutdated(t *testing.T) {
	old := &object.Resource{Group: "example.com", Version: "v1beta1", Name: "widgets", Kind: "Widget"}
	for _, test := range []struct {
		name     string
		served   []selection.APIResource
		unknown  []string
		outdated bool
	}{
		{"still served", []selection.APIResource{
			servedAs("example.com", "widgets", "Widget", false, "v1", "v1beta1"),
		}, nil, false},
		{"another version", []selection.APIResource{
			servedAs("example.com", "widgets", "Widget", false, "v1"),
		}, nil, true},
		{"another scope", []selection.APIResource{
			servedAs("example.com", "widgets", "Widget", true, "v1beta1"),
		}, nil, true},
		{"gone altogether", nil, nil, false},
		{"its version cannot be told", []selection.APIResource{
			servedAs("example.com", "widgets", "Widget", false, "v1"),
		}, []string{"example.com/v1beta1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := &served{all: test.served, index: selection.NewIndex(test.served), unknown: test.unknown}
			if got := now.isOutdated(old); got != test.outdated {
				t.Errorf("outdated: %v, want %v", got, test.outdated)
			}
		})
	}
}
