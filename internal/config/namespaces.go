package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// NamespacePattern is a glob over names of namespaces (`*` and `?`), with `!` before it one that excludes.
type NamespacePattern string

var namespacePattern = regexp.MustCompile(`^!?[a-z0-9*?-]{1,63}$`)

// UnmarshalText refuses what can be no part of a namespace's name.
func (p *NamespacePattern) UnmarshalText(text []byte) error {
	if !namespacePattern.Match(text) {
		return fmt.Errorf("must be a namespace or a glob over their names (shop, team-*), with ! before it to exclude (!kube-system), got %s", yamldoc.Quote(string(text)))
	}
	*p = NamespacePattern(text)
	return nil
}

// Namespaces says which namespaces are meant: those that one of its globs matches and none that begins with `!`,
// whatever their order. None at all means every namespace.
//
// An object without a namespace counts as one in the namespace "": `*` matches it, a name does not.
type Namespaces []NamespacePattern

// Match reports whether the namespace is meant; "" stands for cluster-scoped objects.
func (n Namespaces) Match(namespace string) bool {
	included := len(n) == 0
	for _, p := range n {
		glob, excludes := strings.CutPrefix(string(p), "!")
		if ok, err := path.Match(glob, namespace); err != nil || !ok {
			continue // a pattern that path.Match does not read matches nothing; UnmarshalText lets none pass
		}
		if excludes {
			return false
		}
		included = true
	}
	return included
}

// All reports whether every namespace is meant, and cluster-scoped objects too.
func (n Namespaces) All() bool {
	if len(n) == 0 {
		return true
	}
	excludes := slices.ContainsFunc(n, func(p NamespacePattern) bool { return strings.HasPrefix(string(p), "!") })
	return !excludes && slices.Contains(n, "*")
}

// Literal returns the names where all patterns are plain names: then one informer for each of them will do. Otherwise,
// and where there are no patterns, it returns false.
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

// excludes reports whether p is a pattern with `!` that leaves nothing of what another one, without, matches; false where that cannot
// be told.
//
// A glob that matches another one as if that were a name matches its names, too: each of its wildcards falls to a `*`. But a `?` is
// one character, and the other's `*` any number of them.
func (p NamespacePattern) excludes(other NamespacePattern) bool {
	glob, excludes := strings.CutPrefix(string(p), "!")
	if !excludes || strings.Contains(glob, "?") && strings.Contains(string(other), "*") {
		return false
	}
	ok, err := path.Match(glob, string(other))
	return ok && err == nil
}

// covers reports whether every namespace that m means is meant by n, too; false where that cannot be told.
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
