package consume_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// TestContract demands each member of the closed sets of the schemas, and of the reference.
func TestContract(t *testing.T) {
	stream := readFile(t, streamSchema)
	progress := readFile(t, progressSchema)
	events := readFile(t, "../../docs/reference/events.md")
	for _, op := range object.Ops() {
		if op, word := string(op),
			op.Word(); !strings.Contains(readFile(t, objectSchema), `"`+object.ObjectTypePrefix+word+`"`) ||
			!slices.Contains(valuesOf(t, objectSchema, "op"), op) || !strings.Contains(events, "| `"+word+"`") {
			t.Errorf("op %q: the schema or events.md does not have it", op)
		}
	}
	for _, typ := range object.EventTypes() {
		in := stream
		if typ == consume.TypeProgress {
			in = progress
		}
		if !strings.Contains(in, `"`+string(typ)+`"`) || !strings.Contains(events, "`"+typ.Name()+"`") {
			t.Errorf("type %q: its schema or events.md does not have it", typ)
		}
	}
	for _, reason := range object.GapReasons() {
		demand(t, "reason of a gap", string(reason), description(t, streamSchema, "reason"),
			section(events, "### Gaps"))
	}
	for _, reason := range object.EndReasons() {
		demand(t, "reason of an end", string(reason), description(t, streamSchema, "end"),
			section(events, "### Scopes"))
	}
	for _, reason := range object.InterruptionReasons() {
		demand(t, "reason of an interruption", string(reason), progress, section(events, "## Progress"))
	}
}

// TestContractIsParsed parses an event of each type.
func TestContractIsParsed(t *testing.T) {
	record := `{"specversion":"1.0","id":"a","source":"/kubernetes/x","type":%q,"apiversion":"v1","resource":"pods",` +
		`"name":"a","uid":"1","op":"c","data":{"writer":"w","run":"0-1"}%s}`
	for _, op := range object.Ops() {
		if e := parse(t, fmt.Sprintf(record, object.ObjectTypePrefix+op.Word(), "")); e.Data == nil {
			t.Errorf("%s has no Data", e.Type)
		}
	}
	for _, typ := range object.EventTypes() {
		scope := `,"scope":"pods"`
		if typ == consume.TypeProgress {
			scope = ""
		}
		e := parse(t, fmt.Sprintf(record, typ, scope))
		if (e.Progress != nil) != (typ == consume.TypeProgress) || (e.Stream == nil) != (typ == consume.TypeProgress) {
			t.Errorf("%s has Stream %v and Progress %v", e.Type, e.Stream, e.Progress)
		}
	}
}

// TestContractIsPublic shows that consumers have a constant for each member.
func TestContractIsPublic(t *testing.T) {
	defined, given := map[string]bool{}, map[string]bool{}
	for _, spec := range constants(t, "../../internal/object/contract.go") {
		for _, name := range spec.Names {
			defined[name.Name] = true
		}
	}
	for _, spec := range constants(t, "contract.go") {
		for _, value := range spec.Values {
			given[value.(*ast.SelectorExpr).Sel.Name] = true
		}
	}
	for _, name := range []string{ // parts of the types
		"ObjectTypePrefix", "SnapshotStarted", "SnapshotCompleted", "Gap", "ScopeStarted", "ScopeEnded",
	} {
		delete(defined, name)
	}
	if diff := cmp.Diff(defined, given); diff != "" {
		t.Errorf("object and consume differ (-object +consume):\n%s", diff)
	}
}

// demand reports a member that one of the texts does not name as a word of its own.
func demand(t *testing.T, what, member string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		words := strings.FieldsFunc(text, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
		if !slices.Contains(words, member) {
			t.Errorf("%s %q is missing in %.80q…", what, member, text)
		}
	}
}

// section returns the part of a page from a heading to the next one of its level.
func section(page, heading string) string {
	_, rest, _ := strings.Cut(page, "\n"+heading+"\n")
	level, _, _ := strings.Cut(heading, " ")
	for _, next := range []string{"\n## ", "\n" + level + " "} {
		rest, _, _ = strings.Cut(rest, next)
	}
	return rest
}

// description returns what a schema says of the member of data that has a description and this
// name.
func description(t *testing.T, path, member string) string {
	t.Helper()
	var text string
	find(t, path, member, func(m map[string]any) {
		if d, ok := m["description"].(string); ok {
			text += d + "\n"
		}
	})
	return text
}

// valuesOf returns the values that a schema allows for a member.
func valuesOf(t *testing.T, path, member string) (values []string) {
	t.Helper()
	find(t, path, member, func(m map[string]any) {
		all, _ := m["enum"].([]any)
		for _, v := range all {
			values = append(values, fmt.Sprint(v))
		}
	})
	return values
}

// find calls found for each schema of a member, at any depth.
func find(t *testing.T, path, member string, found func(map[string]any)) {
	t.Helper()
	var root any
	err := json.Unmarshal([]byte(readFile(t, path)), &root)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				if m, ok := e.(map[string]any); ok && name == member {
					found(m)
				}
				walk(e)
			}
		}
	}
	walk(root)
}

func constants(t *testing.T, path string) (specs []*ast.ValueSpec) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			specs = append(specs, spec.(*ast.ValueSpec))
		}
	}
	return specs
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
