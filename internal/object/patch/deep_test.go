package patch_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

// maxVisits is how often a comparison may visit each byte of both versions, whatever their nesting.
const maxVisits = 10

// deepShapes are objects that diverge on each level. Each function returns one level around inner,
// in the version before or after.
func deepShapes() map[string]func(inner string, level int, after bool) string {
	pick := func(after bool, a, b string) string {
		if after {
			return b
		}
		return a
	}
	long := strings.Repeat("k", 400)
	return map[string]func(inner string, level int, after bool) string{
		"key after": func(inner string, _ int, after bool) string {
			return `{"a":` + inner + pick(after, `,"y":1}`, `,"z":1}`)
		},
		"key before": func(inner string, _ int, after bool) string {
			return pick(after, `{"a":1,"x":`, `{"b":1,"x":`) + inner + `}`
		},
		"order": func(inner string, _ int, after bool) string {
			return pick(after, `{"a":1,"x":`+inner+`}`, `{"x":`+inner+`,"a":1}`)
		},
		"repeated key": func(inner string, _ int, after bool) string {
			return `{"a":` + inner + pick(after, `,"b":1,"b":2}`, `,"b":1,"b":3}`)
		},
		"repeated deep key": func(inner string, level int, after bool) string {
			if level > 6 {
				return `{"a":` + inner + `}`
			}
			return `{"a":` + inner + `,"a":` + inner + pick(after, `}`, `,"b":1}`)
		},
		"element after": func(inner string, _ int, after bool) string {
			return `[` + inner + pick(after, `]`, `,1]`)
		},
		"element before": func(inner string, _ int, after bool) string {
			return pick(after, `[`, `[0,`) + inner + `]`
		},
		"elements at both ends": func(inner string, _ int, after bool) string {
			return pick(after, `[{"n":1},`, `[{"n":2},{"n":1},`) + inner + pick(after, `,{"n":3}]`, `,{"n":3,"m":0}]`)
		},
		"alike elements": func(inner string, _ int, after bool) string {
			return `[{"n":` + inner + pick(after, `}]`, `,"m":1},{"n":1}]`)
		},
		"long path": func(inner string, level int, after bool) string {
			return fmt.Sprintf(`{"%s%d":%s,"m%d":%s}`, long, level, inner, level, pick(after, `1`, `2`))
		},
		"space": func(inner string, _ int, after bool) string {
			return pick(after, `{"a": `, `{ "a":`) + inner + pick(after, `,"y":1}`, `,"z":1}`)
		},
	}
}

// deepPair returns two versions of an object with the shape on each level and size bytes at the
// bottom.
func deepPair(shape func(inner string, level int, after bool) string, depth, size int) (before, after []byte) {
	const leaf = `"abcdefghijklmnopqrstuvwxyz"`
	bottom := `["b"` + strings.Repeat(`,`+leaf, size/2/len(leaf)) + strings.Repeat(`,12345678`, size/2/9)
	return nest(shape, depth, false, bottom+`,1]`), nest(shape, depth, true, bottom+`,2]`)
}

// nest returns an object that contains bottom inside depth levels of the shape.
func nest(shape func(inner string, level int, after bool) string, depth int, after bool, bottom string) []byte {
	const inner = "\x00"
	doc := []byte(`{"o":` + inner + `}`)
	for level := depth - 1; level >= 0; level-- {
		doc = bytes.ReplaceAll(doc, []byte(inner), []byte(shape(inner, level, after)))
	}
	return bytes.ReplaceAll(doc, []byte(inner), []byte(bottom))
}

// The work for a patch grows with the size of the object, not with its nesting: each byte is
// visited a constant number of times.
func TestDeepObjectVisitsEachByteOnlySoOften(t *testing.T) {
	shapes := deepShapes()
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, depth := range []int{3, 98, 450} {
			for _, size := range []int{10 << 10, 300 << 10} {
				if name == "repeated deep key" && size > 10<<10 {
					continue // its size is a multiple of that
				}
				before, after := deepPair(shapes[name], depth, size)
				_, visited, err := patch.AppendCounted(nil, before, after)
				if err != nil {
					t.Fatal(err)
				}
				total := len(before) + len(after)
				if visited > maxVisits*total {
					t.Errorf("%s, %d levels, %d bytes: visited each byte %.1f times", name, depth, total,
						float64(visited)/float64(total))
				}
			}
		}
	}
}

// The same holds for many values beside each other.
func TestWideObjectVisitsEachByteOnlySoOften(t *testing.T) {
	const count = 10_000
	objects := make([]string, count)
	members := make([]string, count)
	numbers := make([]string, count)
	for k := range count {
		objects[k] = `{"name":"x","in":{"b":[1,{}]}}`
		members[k] = fmt.Sprintf(`"k%06d":{"b":[1]}`, k)
		numbers[k] = "1"
	}
	list := func(elements []string) string { return `{"l":[` + strings.Join(elements, ",") + `]}` }
	object := func(members []string) string { return `{"m":{` + strings.Join(members, ",") + `}}` }
	change := func(all []string, at ...int) []string {
		all = slices.Clone(all)
		for _, k := range at {
			all[k] = strings.ReplaceAll(all[k], "1", "2")
		}
		return all
	}
	all, backwards := make([]int, count), slices.Clone(members)
	for k := range all {
		all[k] = k
	}
	slices.Reverse(backwards)
	for name, pair := range map[string][2]string{
		"equal":                {list(objects), list(objects)},
		"two elements changed": {list(objects), list(change(objects, count/2, count-1))},
		"all elements changed": {list(objects), list(change(objects, all...))},
		"all numbers changed":  {list(numbers), list(change(numbers, all...))},
		"an element inserted":  {list(objects), list(slices.Insert(slices.Clone(objects), count/2, "1"))},
		"two members changed":  {object(members), object(change(members, count/2, count-1))},
		"a member inserted":    {object(members), object(slices.Insert(slices.Clone(members), count/2, `"a":1`))},
		"members backwards":    {object(members), object(backwards)},
	} {
		_, visited, err := patch.AppendCounted(nil, []byte(pair[0]), []byte(pair[1]))
		if err != nil {
			t.Fatal(err)
		}
		if total := len(pair[0]) + len(pair[1]); visited > maxVisits*total {
			t.Errorf("%s: visited each byte %.1f times", name, float64(visited)/float64(total))
		}
	}
}

// Two versions of an object that etcd can store always have a patch.
func TestMaxVisitedAllowsObjectsOfEtcd(t *testing.T) {
	const object = 3 << 20 // an API server accepts no larger request
	if least := 2 * object * maxVisits; patch.MaxVisited < least {
		t.Errorf("the limit is %d bytes, and such an object may need %d", patch.MaxVisited, least)
	}
}
