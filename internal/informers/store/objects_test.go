package store

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
	"github.com/kubecdc/kubecdc/internal/object"
)

// formed is at with a form.
func formed(name, uid string, rv, form uint64) *object.Object {
	o := at(name, uid, rv)
	o.Form = form
	return o
}

// sized is an object whose JSON has n more bytes.
func sized(name string, rv uint64, n int) *object.Object {
	ref := object.NewRef(configMaps, "shop", name, name)
	return object.New(ref, rv, 0, nil, []byte(`"`+strings.Repeat("x", n)+`"`))
}

// Number, bytes and fingerprint are those of the objects, whatever has replaced or removed them.
func TestAccountOfKnownObjects(t *testing.T) {
	x := newScript(t, nil)
	check := func(when string, objects ...*object.Object) {
		t.Helper()
		var state Fingerprint
		bytes := 0
		for _, o := range objects {
			bytes += o.HeldBytes()
			state = state.xor(fingerprintOf(o))
		}
		if v := x.s.View(); v.Objects != len(objects) || v.Bytes != bytes || x.s.known.state != state {
			t.Errorf("%s: %d objects, %d bytes, state %x, want %d, %d, %x", when, v.Objects, v.Bytes, x.s.known.state,
				len(objects), bytes, state)
		}
	}
	x.s.BeginList(Fresh)
	check("before the first object")
	small, big := sized("a", 5, 10), sized("a", 7, 1000)
	b := sized("b", 6, 50)
	x.s.Load(small, nil)
	x.s.Load(b, nil)
	check("after two objects", small, b)
	x.s.Load(big, nil)
	check("after a later version", big, b)
	x.s.Load(small, nil)
	check("after an earlier version", big, b)
	x.s.Remove(b, nil)
	check("after a deletion", big)
	if n := testutil.ToFloat64(x.s.o.Metrics.Objects); n != 1 {
		t.Errorf("the gauge has %g objects, want 1", n)
	}
	x.s.Load(b, nil)
	x.s.EndList(20)
	if n := testutil.ToFloat64(x.s.o.Metrics.Objects); n != 2 {
		t.Errorf("the gauge has %g objects, want 2", n)
	}
	x.s.Clear()
	check("after all")
	if n := testutil.ToFloat64(x.s.o.Metrics.Objects); n != 0 {
		t.Errorf("the gauge has %g objects, want none", n)
	}
}

func TestLookups(t *testing.T) {
	x := newScript(t, nil)
	if newest := x.s.Newest(); newest != nil {
		t.Errorf("the newest object is %v, and there is none", newest)
	}
	a, b := at("a", "1", 5), at("b", "2", 9)
	x.load(Fresh, 10, nil, a, b, at("c", "3", 7))
	if newest := x.s.Newest(); newest != b {
		t.Errorf("the newest object is at %d, want 9", newest.ResourceVersion)
	}
	for _, c := range []struct {
		o    *object.Object
		want bool
	}{
		{at("a", "1", 4), true},
		{at("a", "1", 5), true},
		{at("a", "1", 6), false},
		{at("a", "2", 4), false},
		{at("d", "1", 4), false},
	} {
		if got := x.s.Knows(c.o); got != c.want {
			t.Errorf("knows %s of %s at %d: %t", c.o.Ref.Key, c.o.Ref.UID, c.o.ResourceVersion, got)
		}
	}
	var scratch []byte
	for _, c := range []struct {
		name, uid string
		want      bool
	}{{"a", "1", true}, {"a", "2", false}, {"d", "1", false}} {
		if got := x.s.HasObject([]byte("shop"), []byte(c.name), []byte(c.uid), &scratch); got != c.want {
			t.Errorf("has %s of %s: %t", c.name, c.uid, got)
		}
	}
}

// A cluster-scoped object is found by its name alone.
func TestLookupsOfClusterScopedObjects(t *testing.T) {
	nodes := &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}
	x := newScript(t, func(o *Options) { o.Resource = nodes })
	ref := object.NewRef(nodes, "", "n1", "1")
	x.load(Fresh, 10, nil, object.New(ref, 5, 0, nil, []byte("{}")))
	var scratch []byte
	if !x.s.HasObject(nil, []byte("n1"), []byte("1"), &scratch) || !x.s.Has("n1") || x.s.Has("n2") {
		t.Error("n1 is not known, or n2 is")
	}
}

// Versions of an object share its Ref, so that each takes less memory. One that another rule takes
// has its own.
func TestRefs(t *testing.T) {
	x := newScript(t, nil)
	ref := object.NewRef(configMaps, "shop", "a", "1")
	ref.Clause = 3
	x.load(Fresh, 10, nil, object.New(ref, 5, 77, nil, []byte("{}")))
	for _, c := range []struct {
		name, uid string
		clause    uint16
		shared    bool
		managed   object.Stamp
	}{
		{"a", "1", 3, true, 77},
		{"a", "1", 4, false, 77},
		{"a", "2", 3, false, 0},
		{"b", "1", 3, false, 0},
	} {
		var scratch []byte
		got, managed := x.s.Ref([]byte("shop"), []byte(c.name), []byte(c.uid), c.clause, &scratch)
		if (got == ref) != c.shared || managed != c.managed || got.Clause != c.clause || got.UID != c.uid ||
			got.Key != "configmaps/shop/"+c.name {
			t.Errorf("%+v: %+v, managed %d", c, got, managed)
		}
	}
}

// Checkpoints have fingerprints: those of the next release must be the same.
func TestFingerprintsOfCheckpoints(t *testing.T) {
	for _, c := range []struct {
		uid      string
		rv, form uint64
		want     Fingerprint
	}{
		{"6b0d1c4e", 1234, 99, Fingerprint{0x5ff7323e6503356e, 0x1104bcb4317924c8}},
		{"1", 5, 0, Fingerprint{0x2e1d8855dde0f7e9, 0xa7cd96c8598f14f}},
	} {
		ref := object.NewRef(configMaps, "shop", "a", c.uid)
		if got := NewFingerprint(ref, c.rv, c.form); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestMatches compares a checkpoint with a store that has the objects a and b. The agent's own
// object is x.
func TestMatches(t *testing.T) {
	a, b := formed("a", "1", 5, 50), formed("b", "2", 6, 60)
	fa, fb := fingerprintOf(a), fingerprintOf(b)
	both := fa.xor(fb)
	fx, other := fingerprintOf(at("x", "9", 8)), fingerprintOf(at("o", "8", 7))
	own := map[string]Fingerprint{"shop/x": fx}
	for name, c := range map[string]struct {
		state   Fingerprint // of the checkpoint
		ignored []string
		own     map[string]Fingerprint
		want    Match
	}{
		"the same":                      {state: both, want: MatchesForms},
		"from a release without forms":  {state: Fingerprint{Versions: both.Versions}, want: MatchesForms},
		"in another form":               {state: Fingerprint{both.Versions, both.Forms + 1}, want: OtherForms},
		"another object":                {state: both.xor(other), want: MatchesNot},
		"one object less":               {state: fa, want: MatchesNot},
		"own objects are still ignored": {state: both, ignored: []string{"shop/x"}, own: own, want: MatchesForms},
		"an own object was captured":    {state: both.xor(fx), ignored: []string{}, own: own, want: MatchesForms},
		"an own object was not captured": {
			state: both, ignored: []string{}, own: own, want: MatchesNot,
		},
		"an object was ignored": {state: fb, ignored: []string{"shop/a", "shop/x"}, own: own, want: MatchesForms},
		"it was ignored in other forms": {
			state: Fingerprint{fb.Versions, fb.Forms + 1}, ignored: []string{"shop/a", "shop/x"}, own: own,
			want: OtherForms,
		},
		"nobody knows what was ignored: own objects":    {state: both.xor(fx), own: own, want: MatchesForms},
		"nobody knows what was ignored: another object": {state: fb, own: own, want: MatchesForms},
		"nobody knows what was ignored: both":           {state: fb.xor(fx), own: own, want: MatchesForms},
		"nobody knows what was ignored: something else": {state: both.xor(other), own: own, want: MatchesNot},
		"nothing can be ignored":                        {state: fb, want: MatchesNot},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScript(t, nil)
			x.load(Fresh, 10, nil, a, b)
			from := &checkpoint.Scope{State: c.state.Versions, Forms: c.state.Forms, Ignored: c.ignored}
			if got := x.s.Matches(from, c.own); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
