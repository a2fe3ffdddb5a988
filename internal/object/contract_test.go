package object_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
)

// TestClosedSets compares what the functions of the closed sets return with the constants in the
// source: a new member that its function lacks is found here.
func TestClosedSets(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "contract.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check("object", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		if of, ok := c.Type().(*types.Named); ok {
			declared[of.Obj().Name()] = append(declared[of.Obj().Name()], c.Val().ExactString())
		}
	}
	returned := map[string][]string{
		"Op":                 quoted(object.Ops()),
		"StreamKind":         quoted(object.StreamKinds()),
		"EventType":          quoted(object.EventTypes()),
		"GapReason":          quoted(object.GapReasons()),
		"EndReason":          quoted(object.EndReasons()),
		"InterruptionReason": quoted(object.InterruptionReasons()),
	}
	for _, all := range []map[string][]string{declared, returned} {
		for _, members := range all {
			slices.Sort(members)
		}
	}
	if diff := cmp.Diff(declared, returned); diff != "" {
		t.Errorf("constants and functions differ (-constants +functions):\n%s", diff)
	}
}

// TestEventTypes shows that each kind of stream event has a type, and each op a word of its own.
func TestEventTypes(t *testing.T) {
	for _, kind := range object.StreamKinds() {
		if !slices.Contains(object.EventTypes(), object.TypePrefix+object.EventType(kind)) {
			t.Errorf("the kind %q has no type", kind)
		}
	}
	words := map[string]object.Op{}
	for _, op := range object.Ops() {
		word := op.Word()
		if word == "" || !object.IsWord(word) || words[word] != "" {
			t.Errorf("op %q has the word %q", op, word)
		}
		words[word] = op
	}
	if object.IsWord("") || object.IsWord("c") || object.Op("x").Word() != "" {
		t.Error("a text that is no op has a word")
	}
}

func quoted[T ~string](all []T) []string {
	var out []string
	for _, member := range all {
		out = append(out, `"`+string(member)+`"`)
	}
	return out
}
