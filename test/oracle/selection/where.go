package selection

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// moment is the input of an expression. Before and After are as they would be sent; nil if the
// event's member is not an object.
type moment struct {
	Op            string
	Before, After Tree
	Key           oracle.ObjectKey
}

// label returns a label of After or, if that is nil, of Before.
func (m *moment) label(name string) (value string, ok bool) {
	newest := m.After
	if newest == nil {
		newest = m.Before
	}
	value, ok = At(newest, "metadata", "labels", name).(string)
	return value, ok
}

// errEvaluation is the error of an expression that fails.
var errEvaluation = errors.New("the expression fails")

// condition is an expression for where, as text and as a function.
type condition struct {
	Text  string
	Holds func(m *moment) (bool, error)
}

// bookkeeping has the paths that changedOnly ignores.
var bookkeeping = [][]string{{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"}}

// changed is the function changed of expressions. It reports whether the values at the path differ,
// or only one side has a value.
func (m *moment) changed(path ...string) bool {
	return !reflect.DeepEqual(At(m.before(), path...), At(m.after(), path...))
}

// before returns Before, or an untyped nil, in which At can look up a path.
func (m *moment) before() any {
	if m.Before == nil {
		return nil
	}
	return m.Before
}

func (m *moment) after() any {
	if m.After == nil {
		return nil
	}
	return m.After
}

// changedOnly reports whether the objects differ only below the paths.
func (m *moment) changedOnly(paths ...[]string) bool {
	return m.Before != nil && m.After != nil && sameBut(m.Before, m.After, slices.Concat(paths, bookkeeping))
}

// sameBut reports whether two objects are equal without the values at the paths. "*" in a path is
// each element of a list.
func sameBut(a, b Tree, paths [][]string) bool {
	for _, p := range paths {
		a, b = without(a, p).(Tree), without(b, p).(Tree)
	}
	return reflect.DeepEqual(a, b)
}

// without returns a copy of a value without the value at the path.
func without(value any, path []string) any {
	switch v := value.(type) {
	case Tree:
		if len(path) == 0 {
			return v
		}
		if _, ok := v[path[0]]; !ok {
			return v
		}
		c := maps.Clone(v)
		inner := any(Tree{})
		if len(path) > 1 {
			inner = without(v[path[0]], path[1:])
		}
		// An object that becomes empty is removed, too: metadata.annotations with the last
		// annotation.
		if reflect.DeepEqual(inner, Tree{}) {
			delete(c, path[0])
		} else {
			c[path[0]] = inner
		}
		return c
	case []any:
		if len(path) < 2 || path[0] != "*" {
			return v
		}
		c := slices.Clone(v)
		for i := range c {
			c[i] = without(c[i], path[1:])
		}
		return c
	default:
		return value
	}
}

// conditions returns the expressions that can be drawn for a rule. None depends on the version
// before entered, which the agent does not always know.
func conditions() []condition {
	sure := func(holds func(m *moment) bool) func(*moment) (bool, error) {
		return func(m *moment) (bool, error) { return holds(m), nil }
	}
	return []condition{
		{`op != "u" || changed("data") || changed("spec")`, sure(func(m *moment) bool {
			return m.Op != oracle.Updated || m.changed("data") || m.changed("spec")
		})},
		{`op == "e" || !changedOnly("metadata.labels", "metadata.annotations")`, sure(func(m *moment) bool {
			return m.Op == oracle.Entered ||
				!m.changedOnly([]string{"metadata", "labels"}, []string{"metadata", "annotations"})
		})},
		{
			`changed('metadata.annotations["e2e.kubecdc.dev/note"]') || op in ["c", "d", "r", "e"]`,
			sure(func(m *moment) bool {
				return m.changed("metadata", "annotations", "e2e.kubecdc.dev/note") ||
					slices.Contains([]string{oracle.Created, oracle.Deleted, oracle.Read, oracle.Entered}, m.Op)
			}),
		},
		{`op != "d"`, sure(func(m *moment) bool { return m.Op != oracle.Deleted })},
		{`op != "c" && op != "r"`, sure(func(m *moment) bool { return m.Op != oracle.Created && m.Op != oracle.Read })},
		{`!name.endsWith("2")`, sure(func(m *moment) bool { return !strings.HasSuffix(m.Key.Name, "2") })},
		{`namespace.contains("-b") || resource != "configmaps"`, sure(func(m *moment) bool {
			return strings.Contains(m.Key.Namespace, "-b") || m.Key.Resource != "configmaps"
		})},
		// A missing label fails.
		{`labels["team"] == "payments" || op == "d"`, func(m *moment) (bool, error) {
			if m.Op == oracle.Deleted {
				return true, nil // CEL's || ignores an error if the other side is true.
			}
			team, ok := m.label("team")
			if !ok {
				return false, errEvaluation
			}
			return team == "payments", nil
		}},
		{`"tier" in labels && labels["tier"] == "gold"`, sure(func(m *moment) bool {
			tier, _ := m.label("tier")
			return tier == "gold"
		})},
		// A deletion has no after, and a missing annotation fails.
		{`int(after.metadata.annotations["e2e.kubecdc.dev/step"]) % 2 == 0`, func(m *moment) (bool, error) {
			n, err := strconv.Atoi(Text(m.After, "metadata", "annotations", "e2e.kubecdc.dev/step"))
			if m.After == nil || err != nil {
				return false, errEvaluation
			}
			return n%2 == 0, nil
		}},
		// An update to an object without annotations fails.
		{`op == "u" ? size(after.metadata.annotations) > 1 : true`, func(m *moment) (bool, error) {
			if m.Op != oracle.Updated {
				return true, nil
			}
			list, ok := At(m.after(), "metadata", "annotations").(Tree)
			if !ok {
				return false, errEvaluation
			}
			return len(list) > 1, nil
		}},
		{`op == "e" || before == null || !has(before.metadata.annotations)`, sure(func(m *moment) bool {
			return m.Op == oracle.Entered || m.Before == nil || At(m.Before, "metadata", "annotations") == nil
		})},
	}
}
