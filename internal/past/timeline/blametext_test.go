package timeline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// failing has the methods that testing.T and rapid.T have in common.
type failing interface {
	Helper()
	Fatal(args ...any)
}

// blamedText returns the lines of a text that a ConfigMap has in its last version, each with the
// number of the version that set it. The line of the key is the first.
func blamedText(t failing, texts ...any) []string {
	t.Helper()
	var b timeline.Blame
	for n, text := range texts {
		document := map[string]any{"data": map[string]any{"app.conf": text, "other": n}}
		v := &timeline.Version{
			Op:                      consume.Updated,
			Time:                    noon,
			ResourceVersion:         fmt.Sprint(100 + n),
			PreviousResourceVersion: fmt.Sprint(100 + n - 1),
		}
		if n == 0 {
			v.Op, v.PreviousResourceVersion = consume.Created, ""
		}
		raw, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		v.After = raw
		if err := b.Add(v); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := b.Lines()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range lines[1 : len(lines)-1] { // without data: and other:
		out = append(out, strings.TrimPrefix(l.Origin.Version.ResourceVersion, "10")+" "+strings.TrimSpace(l.Text))
	}
	return out
}

func TestBlameOfTheLinesOfAText(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts []any
		want  string
	}{
		{"a line is changed", []any{"a\nb\nc\n", "a\nB\nc\n"}, "0 app.conf: |;0 a;1 B;0 c"},
		{"lines come and go", []any{"a\nb\nc\n", "x\na\nb\nc\n", "x\na\nc\nd\n"}, "0 app.conf: |;1 x;0 a;0 c;2 d"},
		{"a line comes back", []any{"a\nb\nc\n", "a\nc\n", "a\nb\nc\n"}, "0 app.conf: |;0 a;2 b;0 c"},
		{"only the end of the last line", []any{"a\nb\n", "a\nb"}, "1 app.conf: |-;0 a;0 b"},
		{"further line ends", []any{"a\nb\n", "a\nb\n\n"}, "1 app.conf: |+;0 a;0 b;1 "},
		{"an indented first line", []any{"a\nb\n", " a\nb\n"}, "1 app.conf: |2;1 a;0 b"},
		{"another text", []any{"a\nb\n", "c\nd\n"}, "0 app.conf: |;1 c;1 d"},
		{"it was of one line", []any{"a", "a\nb\n"}, "1 app.conf: |;1 a;1 b"},
		{"it is of one line", []any{"a\nb\n", "a"}, "1 app.conf: a"},
		{"it was a number", []any{5, "a\nb\n"}, "1 app.conf: |;1 a;1 b"},
		{"it was removed", []any{"a\nb\n", nil, "a\nb\n"}, "2 app.conf: |;2 a;2 b"},
		{"it is not written line by line", []any{"a\x01\nb\n", "a\x01\nc\n"}, `1 app.conf: "a\x01\nc\n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := gocmp.Diff(strings.Split(c.want, ";"), blamedText(t, c.texts...)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A text may be the last value of an object. Its lines still have origins of their own. A value
// that YAML folds has one origin for all of its lines.
func TestBlameOfTheEndOfAnObject(t *testing.T) {
	long := strings.Repeat("word ", 20) + "\x01"
	for name, c := range map[string]struct {
		versions []any
		want     []string
	}{
		"a text": {
			[]any{map[string]any{"z": "a\nb\n"}, map[string]any{"z": "a\nB\n"}}, []string{"0 z: |", "0 a", "1 B"},
		},
		"a text with further line ends": {
			[]any{map[string]any{"z": "a\n\n\n"}, map[string]any{"z": "b\n\n\n"}},
			[]string{"0 z: |+", "1 b", "0 ", "0 "},
		},
		"a folded value": {
			[]any{map[string]any{"a": 1}, map[string]any{"a": 1, "z": long}},
			[]string{
				"0 a: 1",
				`1 z: "` + strings.TrimSpace(strings.Repeat("word ", 16)), `1 word word word word \x01"`,
			},
		},
		"an element of a list": {
			[]any{
				map[string]any{"z": []any{map[string]any{"a": 1, "b": 1}, map[string]any{"a": 2, "b": 2}}},
				map[string]any{"z": []any{map[string]any{"a": 1, "b": 3}, map[string]any{"a": 2, "b": 2}}},
				map[string]any{"z": []any{map[string]any{"a": 1, "b": 3}, map[string]any{"a": 2, "b": 4}}},
			},
			[]string{"0 z:", "0 - a: 1", "1 b: 3", "0 - a: 2", "2 b: 4"},
		},
	} {
		var b timeline.Blame
		for n, object := range c.versions {
			v := version(n, consume.Updated, object)
			if n == 0 {
				v.Op = consume.Created
			}
			if err := b.Add(v); err != nil {
				t.Fatal(err)
			}
		}
		lines, err := b.Lines()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range lines {
			got = append(got, strings.TrimPrefix(l.Origin.Version.ResourceVersion, "10")+" "+strings.TrimSpace(l.Text))
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// If all lines of the texts differ and keep their order, the origin of a line is the version that
// inserted it last.
func TestBlameOfTheLinesOfAHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text []string
		came := map[string]int{}
		var texts []any
		next := 0
		for n := range rapid.IntRange(1, 8).Draw(t, "versions") {
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				at := rapid.IntRange(0, len(text)).Draw(t, "at")
				if at < len(text) && rapid.Bool().Draw(t, "is removed") {
					text = slices.Delete(text, at, at+1)
					continue
				}
				line := fmt.Sprint("line ", next)
				next++
				came[line] = n
				text = slices.Insert(slices.Clone(text), at, line)
			}
			for len(text) < 2 { // a text of several lines
				line := fmt.Sprint("line ", next)
				next++
				came[line] = n
				text = append(text, line)
			}
			texts = append(texts, strings.Join(text, "\n")+"\n")
		}
		want := []string{"0 app.conf: |"}
		for _, line := range text {
			want = append(want, fmt.Sprint(came[line], " ", line))
		}
		if diff := gocmp.Diff(want, blamedText(t, texts...)); diff != "" {
			t.Fatalf("%q: -want +got\n%s", texts, diff)
		}
	})
}
