package kinds

import (
	"slices"
	"strings"
)

// Kind is a kind of objects that Kubernetes itself serves.
type Kind struct {
	Group      string // "": core
	Version    string // the preferred one: "v1"
	Plural     string // "deployments"
	Name       string // "Deployment"
	Namespaced bool
	ShortNames []string // of kubectl
	Categories []string // of kubectl: "all"
}

// Singular returns the singular, which is the kind in lower case.
func (k *Kind) Singular() string { return strings.ToLower(k.Name) }

// String returns the resource as kubectl writes it: "deployments.apps".
func (k *Kind) String() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// Of returns the kinds that have a plural: one for each group that serves it.
func Of(plural string) []Kind {
	return those(func(k *Kind) bool { return k.Plural == plural })
}

// Named returns the kinds that kubectl finds by a word: the plural, the singular (which is the
// kind) or a short name, in any case. They have one plural, and several groups may serve them.
func Named(word string) []Kind {
	word = strings.ToLower(word)
	return those(func(k *Kind) bool {
		return word == k.Plural || word == k.Singular() || slices.Contains(k.ShortNames, word)
	})
}

func those(is func(k *Kind) bool) (found []Kind) {
	for i := range all {
		if is(&all[i]) {
			found = append(found, all[i])
		}
	}
	return found
}

// Plurals returns all plurals, each once.
func Plurals() []string {
	var plurals []string
	for i := range all {
		if plural := all[i].Plural; !slices.Contains(plurals, plural) {
			plurals = append(plurals, plural)
		}
	}
	return plurals
}

// IsGroup reports whether Kubernetes itself serves a group.
func IsGroup(group string) bool {
	return slices.ContainsFunc(all, func(k Kind) bool { return k.Group == group })
}
