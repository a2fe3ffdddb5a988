package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// NamespacePattern is a glob over names of namespaces (`*` and `?`). `!` before it excludes them.
type NamespacePattern string

var namespacePattern = regexp.MustCompile(`^!?[a-z0-9*?-]{1,63}$`)

// UnmarshalText rejects characters that no namespace's name has.
func (p *NamespacePattern) UnmarshalText(text []byte) error {
	if !namespacePattern.Match(text) {
		return fmt.Errorf(
			"must be a namespace or a glob over their names (shop, team-*), with ! before it to exclude (!kube-system), got %s",
			yamldoc.Quote(string(text)))
	}
	*p = NamespacePattern(text)
	return nil
}

// Namespaces selects namespaces: those that a glob matches and no glob with `!` matches, in any
// order. Without globs it selects all.
//
// An object without a namespace counts as one in the namespace "": `*` matches it, a name does not.
type Namespaces []NamespacePattern

// Match reports whether the namespace is selected; "" stands for cluster-scoped objects.
func (n Namespaces) Match(namespace string) bool {
	included := len(n) == 0
	for _, p := range n {
		glob, excludes := strings.CutPrefix(string(p), "!")
		if ok, err := path.Match(glob, namespace); err != nil || !ok {
			continue // a malformed pattern matches nothing; UnmarshalText rejects it
		}
		if excludes {
			return false
		}
		included = true
	}
	return included
}

// All reports whether every namespace and all cluster-scoped objects are selected.
func (n Namespaces) All() bool {
	if len(n) == 0 {
		return true
	}
	excludes := slices.ContainsFunc(n, func(p NamespacePattern) bool { return strings.HasPrefix(string(p), "!") })
	return !excludes && slices.Contains(n, "*")
}

// Literal returns the names if all patterns are plain names: then one informer for each is enough.
// Otherwise, and if there are no patterns, it returns false.
func (n Namespaces) Literal() ([]string, bool) {
	names := make([]string, len(n))
	for i, p := range n {
		if strings.ContainsAny(string(p), "!*?") {
			return nil, false
		}
		names[i] = string(p)
	}
	return names, len(names) > 0
}

// excludes reports whether p is a pattern with `!` that excludes all names that other, without `!`,
// matches; false if that is not certain.
//
// A glob that matches another glob as if it were a name also matches the names of that glob: a `*`
// matches each of its wildcards. But a `?` matches one character, and the other's `*` any number.
func (p NamespacePattern) excludes(other NamespacePattern) bool {
	glob, excludes := strings.CutPrefix(string(p), "!")
	if !excludes || strings.Contains(glob, "?") && strings.Contains(string(other), "*") {
		return false
	}
	ok, err := path.Match(glob, string(other))
	return ok && err == nil
}

// covers reports whether n selects every namespace that m selects; false if that is not certain.
func (n Namespaces) covers(m Namespaces) bool {
	if n.All() {
		return true
	}
	if names, ok := m.Literal(); ok {
		return !slices.ContainsFunc(names, func(name string) bool { return !n.Match(name) })
	}
	if len(n) != len(m) {
		return false
	}
	return !slices.ContainsFunc(m, func(p NamespacePattern) bool { return !slices.Contains(n, p) })
}
