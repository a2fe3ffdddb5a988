package answer

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Path is the path of a value in an object: spec.template.spec.containers[app].image.
type Path []step

// step is a key of an object, or an element of a list by its name or index.
type step struct {
	key  string
	elem bool
}

// ParsePath parses a path.
func ParsePath(text string) (Path, error) {
	wrong := errors.New(`want a path such as spec.replicas, spec.template.spec.containers[app].image or data["app.conf"]`)
	pattern := regexp.MustCompile(`^(?:\.?([^.\[\]"]+)|\["((?:[^"\\]|\\.)*)"\]|\[([^\[\]"]+)\])`)
	var p Path
	rest := strings.TrimPrefix(text, ".")
	for rest != "" {
		m := pattern.FindStringSubmatch(rest)
		switch {
		case m == nil:
			return nil, wrong
		case m[1] != "":
			p = append(p, step{key: m[1]})
		case m[3] != "":
			p = append(p, step{m[3], true})
		default:
			key, err := strconv.Unquote(`"` + m[2] + `"`)
			if err != nil {
				return nil, wrong
			}
			p = append(p, step{key: key})
		}
		rest = rest[len(m[0]):]
	}
	if len(p) == 0 {
		return nil, wrong
	}
	return p, nil
}

// of returns an object that contains only the value of the path, nil if there is none.
func (p Path) of(object json.RawMessage) json.RawMessage {
	var value any
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.UseNumber()
	if len(object) == 0 || d.Decode(&value) != nil {
		return nil
	}
	only, ok := p.only(value)
	if !ok {
		return nil
	}
	raw, err := json.Marshal(only)
	if err != nil {
		return nil // impossible: the value came from JSON
	}
	return raw
}

func (p Path) only(value any) (any, bool) {
	if len(p) == 0 {
		return value, true
	}
	switch value := value.(type) {
	case map[string]any:
		below, ok := p[1:].only(value[p[0].key])
		if _, has := value[p[0].key]; !has || p[0].elem {
			return nil, false
		}
		return map[string]any{p[0].key: below}, ok
	case []any:
		for k, element := range value {
			named, _ := element.(map[string]any)
			if name, ok := named["name"].(string); p[0].elem && (strconv.Itoa(k) == p[0].key || ok && name == p[0].key) {
				return p[1:].element(element, named["name"])
			}
		}
	}
	return nil, false
}

// element returns a list with one element, which contains only the value of the path, and its name.
func (p Path) element(element, name any) (any, bool) {
	only, ok := p.only(element)
	if m, isObject := only.(map[string]any); isObject && name != nil {
		m["name"] = name
	}
	return []any{only}, ok
}
