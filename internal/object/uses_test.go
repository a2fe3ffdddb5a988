package object_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

func TestUsesOfPaths(t *testing.T) {
	paths := []string{
		"spec.token", "spec.tokens", "spec.list[*].value", "spec.list[*]", "data[*]", "spec.list[*].value.deep",
	}
	for name, tc := range map[string]struct {
		in   []string
		want []string
	}{
		"no object":             {nil, nil},
		"nothing matches":       {[]string{`{"a":1}`, `{"spec":{"list":[]},"data":{}}`}, paths},
		"a member":              {[]string{`{"spec":{"token":"x"}}`}, paths[1:]},
		"in another object":     {[]string{`{"a":1}`, `{"spec":{"token":"x"}}`, `{"a":1}`}, paths[1:]},
		"each member":           {[]string{`{"data":{"k":1}}`}, slices.Concat(paths[:4], paths[5:])},
		"below a path that has": {[]string{`{"spec":{"list":[{"value":1}]}}`}, []string{paths[0], paths[1], paths[4]}},
		"an object that embeds a Secret": {
			[]string{`{"data":{"k":{"apiVersion":"v1","kind":"Secret","data":{}}},"spec":{"tokens":[]}}`},
			[]string{paths[0], paths[2], paths[3], paths[5]},
		},
	} {
		for _, mac := range []*object.MAC{nil, newMAC(t, testKey, false)} {
			uses := object.NewUses(paths, time.Time{})
			c := redacting(t, nil, mac, paths...)
			c = must(must(c.WithUses(uses)).RedactCopies("example.com", "works"))
			if plain := must(redacting(t, nil, mac, paths...).
				RedactCopies("example.com", "works")); plain.Fingerprint() != c.Fingerprint() {
				t.Error("recording changes the fingerprint")
			}
			for _, in := range tc.in {
				scan(t, c, in)
			}
			var got []string
			for _, u := range uses.Unmatched(time.Time{}, 0) {
				got = append(got, u.Path)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: %q, want %q", name, got, tc.want)
			}
		}
	}
}
