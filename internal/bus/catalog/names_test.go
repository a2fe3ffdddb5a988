package catalog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bus finds the name of a bus.
var bus = regexp.MustCompile(`(?i)nats|kafka|jetstream`)

// ofBuses are the packages of the buses, of their clients, and this list.
func ofBuses() []string {
	return []string{
		"internal/bus/nats", "internal/bus/kafka", "internal/bus/catalog", "internal/bus/buses", "internal/bus/bustest", "internal/bus/localbus",
		"internal/versions", "pkg/consume/fromnats", "pkg/consume/fromkafka",
	}
}

// texts are what people read elsewhere: help, and the name of the bus that the agent runs itself.
func texts() map[string]*regexp.Regexp {
	anything := regexp.MustCompile(`.*`)
	return map[string]*regexp.Regexp{
		"cmd/agent":             anything,
		"internal/agent":        regexp.MustCompile(`embedded JetStream|^"nats://127\.0\.0\.1:4222"$`),
		"internal/config/check": regexp.MustCompile(`^"nats\.(creds|nk)"$`),     // names of files
		"internal/config":       regexp.MustCompile(`servers of bus\.nats`),     // of the one bus with an object store
		"internal/publish":      regexp.MustCompile(`brokers of Kafka`),         // of a metric
		"pkg/consume":           regexp.MustCompile(`JetStream's object store`), // of a public error
	}
}

// A new bus needs its packages and a line in the list: no other code names buses.
func TestOnlyTheirPackagesNameBuses(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	files := 0
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			of, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil ||
				slices.ContainsFunc(ofBuses(), func(p string) bool { return of == p || strings.HasPrefix(of, p+"/") }) {
				return err
			}
			files++
			for _, found := range namesOfBuses(t, path) {
				if allowed := texts()[of]; allowed == nil || !found.isText || !allowed.MatchString(found.text) {
					t.Errorf("%s names a bus: %s", found.at, found.text)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 300 {
		t.Errorf("only %d files were read", files)
	}
}

type found struct {
	at     token.Position
	text   string
	isText bool // not an identifier or an import
}

func namesOfBuses(t *testing.T, path string) (all []found) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			if bus.MatchString(n.Path.Value) {
				all = append(all, found{set.Position(n.Pos()), n.Path.Value, false})
			}
			return false
		case *ast.Ident:
			if bus.MatchString(n.Name) {
				all = append(all, found{set.Position(n.Pos()), n.Name, false})
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && bus.MatchString(n.Value) {
				all = append(all, found{set.Position(n.Pos()), n.Value, true})
			}
		}
		return true
	})
	return all
}
