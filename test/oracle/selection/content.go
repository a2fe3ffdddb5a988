package selection

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// defaultStrip has the default paths of strip.
var defaultStrip = []string{"metadata.managedFields", `metadata.annotations["` + oracle.LastApplied + `"]`}

// hiding has the paths that may contain a copy of a redacted value. They are stripped with every
// redaction.
var hiding = defaultStrip

// step is one step of a path: a member of an object or, if All is set, each member or each element.
type step struct {
	Member string
	All    bool
}

var pathStep = regexp.MustCompile(`^(?:\.?([^.\[\]"]+)|\["((?:[^"\\]|\\.)*)"\]|\[(\*)\])`)

// steps parses a path of the configuration.
func steps(path string) []step {
	var list []step
	for rest := path; rest != ""; {
		m := pathStep.FindStringSubmatch(rest)
		if m == nil {
			panic("no path: " + path) // Only the tests write paths.
		}
		rest = rest[len(m[0]):]
		switch {
		case m[3] != "":
			list = append(list, step{All: true})
		case m[1] != "":
			list = append(list, step{Member: m[1]})
		default:
			member, err := strconv.Unquote(`"` + m[2] + `"`)
			if err != nil {
				panic(err)
			}
			list = append(list, step{Member: member})
		}
	}
	return list
}

// gone is the result with which edit's function removes a value.
type gone struct{}

// edit returns a copy of a value in which the results of with replace the values at the path. so is
// the path so far, as written in the configuration, but with the names of members in place of [*].
func edit(value any, path []step, so string, with func(path string, value any) any) any {
	if len(path) == 0 {
		return with(so, value)
	}
	switch v := value.(type) {
	case Tree:
		c := maps.Clone(v)
		for member, inner := range v {
			if !path[0].All && path[0].Member != member {
				continue
			}
			if changed := edit(inner, path[1:], so+written(so, member), with); changed == (gone{}) {
				delete(c, member)
			} else {
				c[member] = changed
			}
		}
		return c
	case []any:
		if !path[0].All {
			return v
		}
		c := make([]any, 0, len(v))
		for _, inner := range v {
			if changed := edit(inner, path[1:], so+"[*]", with); changed != (gone{}) {
				c = append(c, changed)
			}
		}
		return c
	default:
		return value
	}
}

// written returns the text that appends a member to the path so.
func written(so, member string) string {
	if strings.ContainsAny(member, `.[]*"' `) || member == "" {
		quoted, err := json.Marshal(member)
		if err != nil {
			panic(err) // A string.
		}
		return "[" + string(quoted) + "]"
	}
	if so == "" {
		return member
	}
	return "." + member
}

// remove returns a copy of the object without the values at a path.
func remove(object Tree, path string) Tree {
	return edit(object, steps(path), "", func(string, any) any { return gone{} }).(Tree)
}

// treat returns a version as a rule would send it, stripped and redacted.
func (c *Config) treat(v *Version, rule int) Tree {
	object, _ := c.treatWith(v, rule)
	return object
}

// treatWith also returns whether a value was redacted: one that is more than null, or an object or
// array without members.
func (c *Config) treatWith(v *Version, rule int) (_ Tree, redacted bool) {
	if v == nil || v.Object == nil {
		return nil, false
	}
	object := v.Object
	strip := c.Strip
	if strip == nil {
		strip = defaultStrip
	}
	var redact []string
	if rule >= 0 {
		redact = slices.Clone(c.Rules[rule].Redact)
	}
	if v.Key.Resource == "secrets" && !c.Redaction.Off {
		if c.Redaction.Key != nil {
			redact = append(redact, "data[*]", "stringData[*]")
		} else {
			redact = append(redact, "data", "stringData")
		}
		// An agent keeps the annotations of a list. The list has none of those that the tests
		// write.
		strip = append(slices.Clone(strip), "metadata.annotations[*]")
	}
	if len(redact) > 0 {
		strip = append(slices.Clone(strip), hiding...)
	}
	for _, path := range strip {
		object = remove(object, path)
	}
	for _, path := range redact {
		edit(object, steps(path), "", func(_ string, value any) any {
			switch v := value.(type) {
			case nil:
			case Tree:
				redacted = redacted || len(v) > 0
			case []any:
				redacted = redacted || len(v) > 0
			default:
				redacted = true
			}
			return value
		})
		if c.Redaction.Key == nil {
			object = remove(object, path)
			continue
		}
		object = edit(object, steps(path), "", func(path string, value any) any {
			return c.Redaction.mac(v.Key.Namespace, v.UID, path, value)
		}).(Tree)
	}
	return object, redacted
}

// mac returns the replacement of a value, as documented for the mode hash.
func (r *Redaction) mac(namespace, uid, path string, value any) any {
	var raw string
	switch v := value.(type) {
	case nil:
		return nil // No value.
	case string:
		if strings.HasPrefix(v, "hmac-sha256:"+r.keyID()) {
			return v // Two paths match the value: it is already hashed.
		}
		raw = v
	case json.Number:
		raw = v.String()
	case bool:
		raw = strconv.FormatBool(v)
	default:
		panic(fmt.Sprintf("hash of a %T: its bytes are not known here", value))
	}
	h := hmac.New(sha256.New, r.Key)
	part := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	if r.AcrossObjects {
		part(namespace)
	} else {
		part(uid)
		part(path)
	}
	part(raw)
	return "hmac-sha256:" + r.keyID() + ":" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// keyID returns an id that distinguishes keys without revealing them.
func (r *Redaction) keyID() string {
	h := hmac.New(sha256.New, r.Key)
	h.Write([]byte("kubecdc key id"))
	return fmt.Sprintf("%x", h.Sum(nil))[:8]
}

// Exact digests an object as it is, but ignores empty annotations, which an agent may or may not
// keep.
func Exact(object Tree) oracle.Digest {
	if m, ok := object["metadata"].(Tree); ok {
		if a, ok := m["annotations"].(Tree); ok && len(a) == 0 {
			object = remove(object, "metadata.annotations")
		}
	}
	canonical, err := json.Marshal(object)
	if err != nil {
		panic(err) // It was decoded from JSON.
	}
	return sha256.Sum256(canonical)
}
