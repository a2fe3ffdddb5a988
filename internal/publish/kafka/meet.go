package kafka

import "strings"

// topicsMeet reports whether two templates can produce the same topic, in the same cluster of Kubernetes. Values of placeholders begin
// with a letter or digit; only {group} can contain dots. For a cluster-scoped object, {namespace} is "_".
func topicsMeet(a, b string) bool {
	clusterScoped := func(template string) string { return strings.ReplaceAll(template, "{namespace}", "_") }
	for _, a := range []string{a, clusterScoped(a)} {
		for _, b := range []string{b, clusterScoped(b)} {
			if meet(symbols(a), symbols(b), map[[2]int]bool{}) {
				return true
			}
		}
	}
	return false
}

// inCluster replaces {cluster} in a template, if the name of the cluster is known.
func inCluster(template, cluster string) string {
	if cluster == "" {
		return template
	}
	return strings.ReplaceAll(template, "{cluster}", cluster)
}

// symbol matches one byte of a topic, any byte, or any number of bytes.
type symbol struct {
	literal byte // 0: any
	begins  bool // any letter or digit
	noDot   bool // any but a dot
	many    bool
}

func symbols(template string) []symbol {
	var s []symbol
	for len(template) > 0 {
		name, rest, ok := strings.Cut(strings.TrimPrefix(template, "{"), "}")
		switch {
		case !ok || template[0] != '{' || name == "cluster": // {cluster} is the same in both
			s = append(s, symbol{literal: template[0]})
			template = template[1:]
		default:
			s = append(s, symbol{begins: true, noDot: true}, symbol{noDot: name != "group", many: true})
			template = rest
		}
	}
	return s
}

// meet reports whether a and b match a common text. seen has the pairs of lengths already tried.
func meet(a, b []symbol, seen map[[2]int]bool) bool {
	at := [2]int{len(a), len(b)}
	if seen[at] {
		return false
	}
	seen[at] = true
	if len(a) == 0 && len(b) == 0 || len(a) > 0 && a[0].many && meet(a[1:], b, seen) || len(b) > 0 && b[0].many && meet(a, b[1:], seen) {
		return true
	}
	if len(a) == 0 || len(b) == 0 || !a[0].shares(b[0]) {
		return false
	}
	if !a[0].many {
		a = a[1:]
	}
	if !b[0].many {
		b = b[1:]
	}
	return meet(a, b, seen)
}

func (s symbol) shares(t symbol) bool {
	switch {
	case s.literal != 0 && t.literal != 0:
		return s.literal == t.literal
	case s.begins && t.literal != 0:
		return alphanumeric(t.literal)
	case t.begins && s.literal != 0:
		return alphanumeric(s.literal)
	case s.literal == '.':
		return !t.noDot
	case t.literal == '.':
		return !s.noDot
	}
	return true
}
