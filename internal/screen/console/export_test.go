package console

import "github.com/kubecdc/kubecdc/internal/object/jsonscan"

// Node is a node of a difference.
type Node struct {
	Kind          string
	List, Elem    bool
	Depth         int
	Key, Label    string
	From, To      int
	Before, After string
	Order         []int
}

// Difference returns what has changed, and the names of the fields that were left out.
func Difference(before, after []byte, all bool) ([]Node, []string, error) {
	d := differ{all: all}
	err := d.diff(before, after)
	return export(d.nodes), d.noise, err
}

// Patched returns what a patch has changed.
func Patched(patch, after []byte) ([]Node, error) {
	var d differ
	err := d.diffPatch(patch, after)
	return export(d.nodes), err
}

func export(nodes []node) []Node {
	names := []string{"inside", "added", "removed", "changed", "ordered", "unknown"}
	out := make([]Node, len(nodes))
	for k, n := range nodes {
		out[k] = Node{
			Kind:   names[n.kind],
			List:   n.list,
			Elem:   n.elem,
			Depth:  n.depth,
			Key:    string(jsonscan.Unescape(n.key)),
			Label:  string(n.label),
			From:   n.from,
			To:     n.to,
			Before: string(n.before),
			After:  string(n.after),
			Order:  n.order,
		}
	}
	return out
}

var (
	Cut         = cut
	EndReason   = endReason
	GapReason   = gapReason
	OpWord      = opWord
	AppendCount = appendCount
)

// ToYAML is JSON as YAML.
func ToYAML(value []byte) []byte { return appendBlock(nil, trim(value), 0, 0) }

// Clean is text as it is shown.
func Clean(text string) string { return clean(text) }
