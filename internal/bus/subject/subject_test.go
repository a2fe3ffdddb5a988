package subject_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/object"
)

func delta(group, resource, namespace, name string) *object.Delta {
	return &object.Delta{
		Ref: object.NewRef(&object.Resource{Group: group, Version: "v1", Name: resource}, namespace, name, ""),
	}
}

func TestSubject(t *testing.T) {
	long := strings.Repeat("a", 257)
	cut := strings.Repeat("b", 127) + "/" + strings.Repeat("c", 200)
	cut2 := strings.Repeat("b", 126) + "/" + strings.Repeat("c", 200)
	for _, c := range []struct {
		template string
		delta    *object.Delta
		want     string
	}{
		{"", delta("", "pods", "shop", "web-1"), "kubecdc.prod.object.core.pods.shop.web-1"},
		{
			"", delta("networking.k8s.io", "ingresses", "shop", "web.example"),
			"kubecdc.prod.object.networking_k8s_io.ingresses.shop.web%2Eexample",
		},
		{"", delta("", "nodes", "", "node-1"), "kubecdc.prod.object.core.nodes._.node-1"},
		{"", delta("core", "nodes", "_", "_"), "kubecdc.prod.object.%63ore.nodes.%5F._"},
		{"", delta("a_b", "nodes", "", "x"), "kubecdc.prod.object.a%5Fb.nodes._.x"},
		{
			"", delta("rbac.authorization.k8s.io", "roles", "shop", "a:b=c_d *>~%ü"),
			"kubecdc.prod.object.rbac_authorization_k8s_io.roles.shop.a:b=c_d%20%2A%3E%7E%25%C3%BC",
		},
		{"", delta("", "pods", "shop", long[:256]), "kubecdc.prod.object.core.pods.shop." + long[:256]},
		{
			"", delta("", "pods", "shop", long),
			fmt.Sprintf("kubecdc.prod.object.core.pods.shop.%s~%x", long[:128], sha256.Sum256([]byte(long))),
		},
		// The 128th byte, or the 127th, begins an escape: it is left out whole.
		{
			"", delta("", "pods", "shop", cut),
			fmt.Sprintf("kubecdc.prod.object.core.pods.shop.%s~%x", cut[:127], sha256.Sum256([]byte(cut))),
		},
		{
			"", delta("", "pods", "shop", cut2),
			fmt.Sprintf("kubecdc.prod.object.core.pods.shop.%s~%x", cut2[:126], sha256.Sum256([]byte(cut2))),
		},
		{"cdc.v1-{namespace}-{cluster}.{resource}", delta("", "pods", "shop", "web-1"), "cdc.v1-shop-prod.pods"},
		{"cdc", delta("", "pods", "shop", "web-1"), "cdc"},
		{"", &object.Delta{Stream: &object.StreamEvent{
			Kind: object.SnapshotStarted, Resource: &object.Resource{
				Group: "apps",
				Name:  "deployments",
			}, Scope: "deployments.apps",
		}}, "kubecdc.prod.stream.apps.deployments"},
		{"", &object.Delta{Stream: &object.StreamEvent{
			Kind: object.SnapshotCompleted, Resource: &object.Resource{Name: "pods"}, Scope: "pods/shop",
		}}, "kubecdc.prod.stream.core.pods"},
		{"", &object.Delta{Stream: &object.StreamEvent{
			Kind: object.ScopeStarted, Resource: &object.Resource{Name: "pods"}, Scope: "pods/shop?labelSelector=a=b",
		}}, "kubecdc.prod.scope.core.pods.pods%2Fshop%3FlabelSelector=a=b"},
		{"cdc", &object.Delta{Stream: &object.StreamEvent{
			Kind: object.ScopeEnded, Resource: &object.Resource{
				Group: "apps",
				Name:  "deployments",
			}, Scope: "deployments.apps",
		}}, "kubecdc.prod.scope.apps.deployments.deployments%2Eapps"},
		{
			"", &object.Delta{
				Stream: &object.StreamEvent{
					Kind: object.Gap, Resource: &object.Resource{Name: "pods"}, Scope: "pods/" + long,
				},
			},
			fmt.Sprintf("kubecdc.prod.scope.core.pods.pods%%2F%s~%x", long[:128-len("pods%2F")],
				sha256.Sum256([]byte("pods/"+long))),
		},
	} {
		s, err := subject.New(c.template, "prod")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, string(s.Append(nil, c.delta))); d != "" {
			t.Error(d)
		}
	}
}

func TestSubjectTemplateErrors(t *testing.T) {
	for template, want := range map[string]string{
		"kubecdc.{nmae}":                  "at byte 8: unknown placeholder {nmae}, known are {cluster}, {group}, {resource}, {namespace} and {name}",
		"kubecdc.{name":                   "at byte 8: unclosed {",
		"kubecdc.name}":                   "at byte 12: character '}'",
		"kubecdc..{name}":                 "at byte 8: empty token",
		".kubecdc":                        "at byte 0: empty token",
		"kubecdc.{name}.":                 "at byte 15: empty token",
		"kubecdc.*":                       "at byte 8: wildcard '*'",
		"kubecdc.>":                       "at byte 8: wildcard '>'",
		"kube cdc":                        "at byte 4: character ' '",
		"$JS.{name}":                      "at byte 0: subjects that begin with $ belong to the server",
		"{name}":                          "at byte 0: the first token must be fixed: otherwise the stream would have to include every subject",
		"a{name}.b":                       "at byte 0: the first token must be fixed: otherwise the stream would have to include every subject",
		"a." + strings.Repeat(".x", 2048): "at byte 2: empty token",
		"a" + strings.Repeat(".x", 2048):  "yields subjects of up to 4097 bytes, allowed are 2048",
	} {
		_, err := subject.New(template, "prod")
		if want := fmt.Sprintf("subject template %q: %s", template, want); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestSubjectsOfTheStream(t *testing.T) {
	for _, c := range []struct {
		template, cluster string
		patterns, capture []string
	}{
		{"", "prod.eu", []string{
			"kubecdc.prod%2Eeu.object.*.*.*.*", "kubecdc.prod%2Eeu.stream.*.*", "kubecdc.prod%2Eeu.scope.*.*.*",
			"kubecdc.prod%2Eeu.progress.*",
		}, []string{"kubecdc.prod%2Eeu.>"}},
		{"kubecdc.{cluster}.o.{resource}", "prod", []string{
			"kubecdc.prod.o.*", "kubecdc.prod.stream.*.*", "kubecdc.prod.scope.*.*.*", "kubecdc.prod.progress.*",
		}, []string{"kubecdc.prod.>"}},
		{"kubecdc.{group}.{cluster}", "prod", []string{
			"kubecdc.*.prod", "kubecdc.prod.stream.*.*", "kubecdc.prod.scope.*.*.*", "kubecdc.prod.progress.*",
		}, []string{"kubecdc.>"}},
		{"cdc.x-{group}.{name}", "prod", []string{
			"cdc.*.*", "kubecdc.prod.stream.*.*", "kubecdc.prod.scope.*.*.*", "kubecdc.prod.progress.*",
		}, []string{"cdc.>", "kubecdc.prod.stream.>", "kubecdc.prod.scope.>", "kubecdc.prod.progress.>"}},
		{"cdc", "prod", []string{
			"cdc", "kubecdc.prod.stream.*.*", "kubecdc.prod.scope.*.*.*", "kubecdc.prod.progress.*",
		}, []string{"cdc", "kubecdc.prod.stream.>", "kubecdc.prod.scope.>", "kubecdc.prod.progress.>"}},
	} {
		s, err := subject.New(c.template, c.cluster)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([][]string{c.patterns, c.capture}, [][]string{s.Patterns(), s.Capture()}); d != "" {
			t.Errorf("%s: %s", c.template, d)
		}
	}
}

// The subject of progress has the writer as a token. A template cannot change it.
func TestSubjectOfProgress(t *testing.T) {
	for _, template := range []string{"", "cdc.{name}"} {
		s, err := subject.New(template, "prod.eu")
		if err != nil {
			t.Fatal(err)
		}
		for writer, want := range map[string]string{
			"3f0a5c1e9b7d2846": "kubecdc.prod%2Eeu.progress.3f0a5c1e9b7d2846",
			"a.b > *":          "kubecdc.prod%2Eeu.progress.a%2Eb%20%3E%20%2A",
		} {
			if got := string(s.AppendProgress([]byte("x "), writer)); got != "x "+want {
				t.Errorf("template %q, writer %q: got %q", template, writer, got)
			}
			if p := s.Patterns()[3]; !subject.Covers(p, want) {
				t.Errorf("%s does not match %s", p, want)
			}
			covers := func(outer string) bool { return subject.Covers(outer, want) }
			if !slices.ContainsFunc(s.Capture(), covers) {
				t.Errorf("template %q: the stream's subjects %v do not include %s", template, s.Capture(), want)
			}
		}
	}
	if _, err := subject.New("kubecdc.{cluster}.{writer}", "prod"); err == nil {
		t.Error("{writer} is a placeholder of the template of objects")
	}
}

// plain are the bytes that stand for themselves in a token.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:="

// unescape takes a {resource} or {name} token back. whole is false where it was shortened: then s
// is how it begins.
func unescape(token string) (s string, whole bool, err error) {
	token, _, cut := strings.Cut(token, "~")
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case strings.IndexByte(plain, c) >= 0:
			b.WriteByte(c)
		case c == '%' && i+2 < len(token):
			v, err := hex.DecodeString(token[i+1 : i+3])
			if err != nil {
				return "", false, fmt.Errorf("subject token %q: at byte %d: %w", token, i, err)
			}
			b.WriteByte(v[0])
			i += 2
		default:
			return "", false, fmt.Errorf("subject token %q: at byte %d: character %q", token, i, c)
		}
	}
	return b.String(), !cut, nil
}

// unescapeGroup takes a {group} token back.
func unescapeGroup(token string) (group string, whole bool, err error) {
	if token == "core" {
		return "", true, nil
	}
	// An escape holds no '_', so those that stand in the token are dots; a dot in the value came
	// from an escape: none.
	return unescape(strings.ReplaceAll(token, "_", "%2E"))
}

// unescapeNamespace takes a {namespace} token back; "" is no namespace.
func unescapeNamespace(token string) (namespace string, whole bool, err error) {
	if token == "_" {
		return "", true, nil
	}
	return unescape(token)
}

// checkRoundTrip makes a subject of four values and takes them back.
func checkRoundTrip(t interface{ Fatalf(string, ...any) }, group, resource, namespace, name string) {
	s, err := subject.New("x.{group}.{resource}.{namespace}.{name}", "prod")
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := string(s.Append(nil, delta(group, resource, namespace, name)))
	tokens := strings.Split(got, ".")
	if len(tokens) != 5 {
		t.Fatalf("%q: got %d tokens, want 5", got, len(tokens))
	}
	for i, take := range []func(string) (string, bool, error){unescapeGroup, unescape, unescapeNamespace, unescape} {
		token, want := tokens[i+1], []string{group, resource, namespace, name}[i]
		if len(token) == 0 || len(token) > 256 || strings.ContainsAny(token, "*> \t\r\n\x00") {
			t.Fatalf("%q: no token for NATS", token)
		}
		got, whole, err := take(token)
		if err != nil {
			t.Fatalf("%q: %v", token, err)
		}
		if whole && got != want || !strings.HasPrefix(want, got) ||
			!whole && !strings.HasSuffix(token, fmt.Sprintf("~%x", sha256.Sum256([]byte(want)))) {
			t.Fatalf("%q: got %q, whole %v, want %q", token, got, whole, want)
		}
		if short := len(want) <= 256/3 && want != ""; short && !whole {
			t.Fatalf("%q was shortened", want)
		}
	}
}

func FuzzSubjectIsReversible(f *testing.F) {
	f.Add("apps", "deployments", "shop", "web-1")
	f.Add("", "nodes", "", "node.1")
	f.Add("core", "", "_", "~")
	f.Add("a_b.c", "x/y", "%5F", strings.Repeat("ü", 2000))
	f.Fuzz(func(t *testing.T, group, resource, namespace, name string) {
		checkRoundTrip(t, group, resource, namespace, name)
	})
}

func FuzzUnescape(f *testing.F) {
	f.Add("web%2Eexample")
	f.Add("a~b")
	f.Add("%")
	f.Fuzz(func(t *testing.T, token string) {
		s, whole, err := unescape(token)
		if err != nil || !whole || s == "" || strings.Contains(token, "%") || len(token) > 256 {
			return
		}
		subjects, err := subject.New("x.{name}", "prod")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(subjects.Append(nil, delta("", "pods", "", s))); got != "x."+token {
			t.Errorf("got %q, want %q", got, "x."+token)
		}
	})
}

func TestSubjectsDiffer(t *testing.T) {
	s, err := subject.New("", "prod")
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.OneOf(rapid.StringMatching(`[a-z_.:~%-]{0,6}`), rapid.StringMatching(`a{250,260}[/.]?b{0,3}`),
		rapid.SampledFrom([]string{"", "core", "_"}))
	rapid.Check(t, func(t *rapid.T) {
		var v [2][4]string
		for i := range v {
			for j := range v[i] {
				v[i][j] = text.Draw(t, fmt.Sprintf("value %d %d", i, j))
			}
			checkRoundTrip(t, v[i][0], v[i][1], v[i][2], v[i][3])
		}
		a := string(s.Append(nil, delta(v[0][0], v[0][1], v[0][2], v[0][3])))
		b := string(s.Append(nil, delta(v[1][0], v[1][1], v[1][2], v[1][3])))
		if (a == b) != (v[0] == v[1]) {
			t.Fatalf("%q and %q give %q and %q", v[0], v[1], a, b)
		}
	})
}

func TestSubjectDoesNotAllocate(t *testing.T) {
	s, err := subject.New("", "prod")
	if err != nil {
		t.Fatal(err)
	}
	d := delta("networking.k8s.io", "ingresses", "shop", "web.example")
	buf := make([]byte, 0, 256)
	if got := testing.AllocsPerRun(100, func() { buf = s.Append(buf[:0], d) }); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}

func BenchmarkSubject(b *testing.B) {
	s, err := subject.New("", "prod-eu-1")
	if err != nil {
		b.Fatal(err)
	}
	d := delta("apps", "deployments", "shop", "web-5d8f9c7b6-x2k4p")
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = s.Append(buf[:0], d)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.c", true},
		{"a.*", "*.c", true},
		{"a.*.c", "a.b", false},
		{"a.*", "a", false},
		{"a.>", "a", false},
		{"a.>", "a.b.c", true},
		{"a.>", "*.b", true},
		{"a.>", "b.>", false},
		{"a.b.>", "a.>", true},
		{">", "a", true},
	} {
		if got := subject.Overlap(c.a, c.b); got != c.want || subject.Overlap(c.b, c.a) != got {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}
