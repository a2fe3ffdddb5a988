package yamldoc

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// MaxBytes limits the size of a document. It is far above the size of any configuration.
const MaxBytes = 256 << 10

// Options of Decode.
type Options struct {
	Name string // of the file, for errors

	// Lookup returns the value of the variable in ${NAME}.
	Lookup func(name string) (string, bool)

	// Alias maps the path of a key to that of a key with the same fields. Only the latter is
	// suggested in place of an unknown key. Other paths are returned unchanged. Indexes are written
	// [].
	Alias func(path string) string

	// Renamed has the paths of keys that have another name now, each with its present path. Indexes
	// are written [].
	Renamed map[string]string

	// Set has the keys that override those of the document.
	Set []Override
}

// Document knows the positions of the values that were decoded.
type Document struct {
	name      string
	lines     []string
	excerpts  *lines
	positions map[string]position // of the value at a path; of the key, if the value is empty
	texts     map[string]string   // by path, scalars without variables
	variables map[string][]string // by path, the ${NAME} in the scalar
	concealed []concealed
}

// Decode sets the fields of into, a pointer to a struct, from a document. Keys that neither the
// document nor an override has keep their values. All errors are returned at once. A value that
// could not be decoded keeps its previous value, or is empty.
func Decode(data []byte, into any, o *Options) (*Document, Errors) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // the byte order mark that some Windows editors write
	doc := &Document{
		name:      o.Name,
		lines:     splitLines(data),
		positions: map[string]position{},
		texts:     map[string]string{},
		variables: map[string][]string{},
	}
	doc.excerpts = newLines(doc.lines)
	v := reflect.ValueOf(into).Elem()
	d := &decoder{
		Document: doc,
		options:  o,
		root:     v.Type(),
		data:     data,
		anchors:  map[string]ast.Node{},
	}
	d.prepareOverrides()
	body := d.parse()
	if body == nil && len(d.overrides) > 0 {
		body = ast.Null(nil)
	}
	if body != nil && len(d.errs) == 0 {
		d.value(body, v, "")
		d.reportUnused()
	}
	return doc, d.errs
}

// splitLines returns the lines of a document. Three sequences end a line in YAML.
func splitLines(data []byte) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
}

// Has reports whether the document or an override has a value at a path such as
// "watch[0].namespaces".
func (d *Document) Has(path string) bool {
	_, ok := d.positions[path]
	return ok
}

// Position returns the line and the column of the value at a path, both from 1; 0 if the document
// does not have it, or an override sets it.
func (d *Document) Position(path string) (line, column int) {
	at := d.positions[path]
	return at.line, at.column
}

// line returns line n of the file, from 1; "" if there is none.
func (d *Document) line(n int) string {
	if n < 1 || n > len(d.lines) {
		return ""
	}
	return d.lines[n-1]
}
