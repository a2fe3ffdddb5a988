package encode_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestEncodeNames(t *testing.T) {
	for _, tc := range []struct{ name, attribute, subject string }{
		{"system:node", "system:node", "system:node"},
		{"a b", "a b", "a%20b"},
		{"50%", "50%", "50%25"},
		{`"q"\`, `"q"\`, "%22q%22%5C"},
		{"ä🎈", "ä🎈", "%C3%A4%F0%9F%8E%88"},
		{"a\nb\x00\x7f\u0085", "a%0Ab%00%7F%C2%85", "a%0Ab%00%7F%C2%85"},
		{"\u009f\u00a0", "%C2%9F\u00a0", "%C2%9F%C2%A0"},
		{"\ufdcf\ufdd0", "\ufdcf%EF%B7%90", "%EF%B7%8F%EF%B7%90"},
		{"\ufdef\ufdf0", "%EF%B7%AF\ufdf0", "%EF%B7%AF%EF%B7%B0"},
		{"\ufffe", "%EF%BF%BE", "%EF%BF%BE"},
		{"\xff", "\ufffd", "%FF"},
		{"a?b#c", "a?b#c", "a%3Fb%23c"},
	} {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			o := full
			o.Mode = mode
			ref := refOf(roles, "", tc.name)
			var ev encode.Event
			if err := encode.New(o).Encode(&ev, &object.Delta{
				Op:              object.Created,
				Ref:             ref,
				After:           object.New(ref, 1, 0, nil, []byte(`{}`)),
				ResourceVersion: 1,
			}); err != nil {
				t.Fatal(err)
			}
			got := checkBySDK(t, &ev)
			if name := got.Extensions()["name"]; name != tc.attribute {
				t.Errorf("%q: name %q, want %q", tc.name, name, tc.attribute)
			}
			if want := "/apis/rbac.authorization.k8s.io/v1/clusterroles/" + tc.subject; got.Subject() != want {
				t.Errorf("%q: subject %q, want %q", tc.name, got.Subject(), want)
			}
			wantKey := "prod-eu-1/rbac.authorization.k8s.io/clusterroles/_/" + tc.attribute
			if string(ev.PartitionKey) != wantKey {
				t.Errorf("%q: key %q, want %q", tc.name, ev.PartitionKey, wantKey)
			}
		}
	}
}

// FuzzEncode: whatever the strings are, the event is one that the SDK reads, or Encode says no.
func FuzzEncode(f *testing.F) {
	f.Add("prod", "uid", "apps", "v1", "deployments", "Deployment", "shop", "web", "7c0e", "s1", "deployments.apps",
		"expired", uint64(48211), int64(0), byte('r'), false)
	f.Add("a/b?%", "", "", "v1", "pods", "Pod", "", "system:\x00\"\\\n", "\xff", "\u2028", "pods?labels=a%3Db", "\x1f",
		uint64(1)<<63, int64(-1)<<63, byte('g'), true)
	f.Fuzz(
		func(
			t *testing.T,
			cluster, clusterUID, group, version, resource, kind, namespace, name, uid, snapshot, scope, reason string,
			rv uint64, observed int64, op byte, binary bool,
		) {
			o := encode.Options{
				Cluster:    cluster,
				ClusterUID: clusterUID,
				Mode:       encode.Structured,
				Before:     true,
				Patch:      true,
			}
			if binary {
				o.Mode = encode.Binary
			}
			res := &object.Resource{
				Group:      group,
				Version:    version,
				Name:       resource,
				Kind:       kind,
				Namespaced: namespace != "",
			}
			ref := object.NewRef(res, namespace, name, uid)
			d := &object.Delta{
				Op:              object.Op(string(rune(op))),
				Ref:             ref,
				ResourceVersion: rv,
				Observed:        observed,
				Snapshot:        snapshot,
				Inferred:        true,
			}
			d.Before = object.New(ref, 1, 0, nil, []byte(`{"a":1}`))
			d.After = object.New(ref, 2, 0, nil, []byte(`{"a":2}`))
			kinds := map[byte]object.StreamKind{
				's': object.SnapshotStarted,
				't': object.SnapshotCompleted,
				'g': object.Gap,
				'p': object.ScopeStarted,
			}
			if k, ok := kinds[op]; ok {
				d.Stream = &object.StreamEvent{
					Kind:            k,
					Resource:        res,
					Scope:           scope,
					Snapshot:        snapshot,
					ResourceVersion: rv,
					From:            rv,
					To:              rv / 2,
					Reason:          object.GapReason(reason),
				}
			}
			var ev encode.Event
			if err := encode.New(o).Encode(&ev, d); err != nil {
				if strings.Contains(err.Error(), "JSON") { // no string may break the data
					t.Fatal(err)
				}
				return
			}
			checkBySDK(t, &ev)
			for _, a := range ev.Attributes {
				if !utf8.Valid(a.Value) ||
					strings.ContainsFunc(string(a.Value),
						func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }) {
					t.Fatalf("%s: %q", a.Name, a.Value)
				}
			}
		})
}
