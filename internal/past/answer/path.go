package answer

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// Path is the path of values in an object: spec.template.spec.containers[app].image.
type Path []step

// step leads from a value to those in it.
type step struct {
	form form
	// key is the key of a member, or what selects an element: its label or its index.
	key string
	// by is the member of an element that has to be key: [name=app]. "": any of
	// kinds.MergeKeys.
	by string
}

// form is the form in which a step is written.
type form uint8

const (
	member  form = iota // .key, ["key"]: a member of a mapping
	element             // [key], [by=key]: an element of a list; [key] may also be a member of a mapping
	every               // [*]: all elements of a list
	pointed             // /key of a JSON pointer: a member of a mapping, or the index of an element
)

const pathForms = `want a path such as spec.replicas, spec.template.spec.containers[app].image, ` +
	`spec.template.spec.containers[*].image, data["app.conf"] or /spec/replicas`

// ParsePath parses a path. It takes the forms of kubectl's templates, {.spec.replicas}, and JSON
// pointers (RFC 6901), too.
func ParsePath(text string) (Path, error) {
	wrong := errors.New(pathForms)
	if strings.HasPrefix(text, "/") {
		return parsePointer(text[1:]), nil
	}
	if inside, ok := strings.CutPrefix(text, "{"); ok {
		inside, ok = strings.CutSuffix(inside, "}")
		if !ok {
			return nil, wrong
		}
		text = inside
	}
	text = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(text), "$"), ".")
	pattern := regexp.MustCompile(`^(?:` +
		`\.?((?:[^.\[\]"'{}\\]|\\.)+)` + // key, with \. for a dot
		`|\["((?:[^"\\]|\\.)*)"\]` +
		`|\['([^'\\]*)'\]` +
		`|\[(\*)\]` +
		`|\[(?:\?\(@\.)?(\w+)\s*==?\s*["']?([^\[\]"'()]+)["']?\)?\]` + // [by=key], [?(@.by=="key")]
		`|\[([^\[\]"'*?()=]+)\]` + // [key]
		`)`)
	var p Path
	for rest := text; rest != ""; {
		m := pattern.FindStringSubmatch(rest)
		if m == nil {
			return nil, wrong
		}
		s, err := newStep(m)
		if err != nil {
			return nil, wrong
		}
		p = append(p, s)
		rest = rest[len(m[0]):]
	}
	if len(p) == 0 {
		return nil, wrong
	}
	return p, nil
}

// newStep returns the step of a match of ParsePath's pattern.
func newStep(m []string) (step, error) {
	switch {
	case m[1] != "":
		return step{key: regexp.MustCompile(`\\(.)`).ReplaceAllString(m[1], "$1")}, nil
	case m[4] != "":
		return step{form: every}, nil
	case m[5] != "":
		return step{form: element, by: m[5], key: m[6]}, nil
	case m[7] != "":
		return step{form: element, key: m[7]}, nil
	case strings.HasPrefix(m[0], "['"):
		return step{key: m[3]}, nil
	}
	key, err := strconv.Unquote(`"` + m[2] + `"`)
	return step{key: key}, err
}

func parsePointer(text string) Path {
	var p Path
	for _, key := range patch.Segments("/" + text) {
		p = append(p, step{form: pointed, key: key})
	}
	return p
}

// String returns the path in the form that people read.
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.form == every:
			b.WriteString("[*]")
		case s.form == element && s.by != "":
			b.WriteString("[" + s.by + "=" + s.key + "]")
		case s.form == element:
			b.WriteString("[" + s.key + "]")
		default:
			b.WriteString(memberText(s.key, b.Len() == 0))
		}
	}
	return b.String()
}

// memberText returns the text of a step to a member.
func memberText(key string, isFirst bool) string {
	if key == "" || strings.ContainsAny(key, ".[]\"'{}\\/") {
		quoted, err := json.Marshal(key)
		if err == nil { // always: it is a string
			return "[" + string(quoted) + "]"
		}
	}
	if isFirst {
		return key
	}
	return "." + key
}
