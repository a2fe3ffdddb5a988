package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Objects are equal by the rules of CEL on each level, and the cost of their comparison does not
// grow with the number of levels.
func TestWhereComparesDeepObjects(t *testing.T) {
	x := resourced(t, filter.Options{Where: "before.spec == after.spec", OnError: "drop"}, deployments)
	text := `"` + strings.Repeat("x", 32<<10) + `"`
	for _, levels := range []int{1, 31, 32, 33, 9_990} {
		for name, tc := range map[string]struct {
			before, after string
			same          bool
		}{
			"same":                  {`{"n":1,"t":"a"}`, `{"n":1,"t":"a"}`, true},
			"order":                 {`{"n":1,"t":"a"}`, `{"t":"a","n":1}`, true},
			"notation":              {`{"n":1,"t":"\u0061"}`, `{"n":1.0,"t":"a"}`, true},
			"last of repeated":      {`{"n":2,"n":1}`, `{"n":1}`, true},
			"another number":        {`{"n":1}`, `{"n":2}`, false},
			"large numbers":         {`{"n":9007199254740993}`, `{"n":9007199254740992}`, false},
			"null and nothing":      {`{"n":null}`, `{}`, false},
			"another name":          {`{"n":1}`, `{"m":1}`, false},
			"another kind":          {`{"n":[]}`, `{"n":{}}`, false},
			"list":                  {`[1,[2,null],true]`, `[1.0,[2,null],true]`, true},
			"list of another order": {`[1,2]`, `[2,1]`, false},
			"longer list":           {`[1]`, `[1,1]`, false},
			"at the end":            {`[` + text + `,1]`, `[` + text + `,2]`, false},
			"notation at the end":   {`[` + text + `,1]`, `[` + text + `,1.0]`, true},
		} {
			for _, open := range []string{`[`, `{"a":`} {
				closing := map[string]string{`[`: `]`, `{"a":`: `}`}[open]
				d := &object.Delta{
					Op:              object.Updated,
					Ref:             object.NewRef(deployments, "shop", "web", "u1"),
					ResourceVersion: 8,
					Previous:        7,
				}
				for at, inner := range map[**object.Object]string{&d.Before: tc.before, &d.After: tc.after} {
					raw := fmt.Sprintf(`{"spec":%s%s%s}`, strings.Repeat(open, levels), inner,
						strings.Repeat(closing, levels))
					*at = object.New(d.Ref, 7, 0, nil, []byte(raw))
				}
				if got := x.Withholds(d); (got == "") != tc.same {
					t.Errorf("%s inside %d levels of %s: withheld because of %q", name, levels, open, got)
				}
			}
		}
	}
}
