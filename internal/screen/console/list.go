package console

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
	"github.com/kubecdc/kubecdc/internal/object/kinds"
	"github.com/kubecdc/kubecdc/internal/sequence"
)

// mergeLabels returns the values of the first merge key that distinguishes the elements of both
// lists, nil if there is none.
func mergeLabels(as, bs []member) (la, lb [][]byte) {
	for _, key := range kinds.MergeKeys() {
		la = labelsBy(key, as)
		if la == nil {
			continue
		}
		lb = labelsBy(key, bs)
		if lb != nil {
			return la, lb
		}
	}
	return nil, nil
}

func labelsBy(key string, ms []member) [][]byte {
	out := make([][]byte, len(ms))
	for k := range ms {
		v := lookup(ms[k].value, key)
		if v == nil || isContainer(v) {
			return nil
		}
		out[k] = unquote(v)
	}
	if len(out) > few {
		seen := make(map[string]bool, len(out))
		for _, l := range out {
			seen[string(l)] = true
		}
		if len(seen) < len(out) {
			return nil
		}
		return out
	}
	for k := range out {
		for _, other := range out[:k] {
			if bytes.Equal(other, out[k]) {
				return nil
			}
		}
	}
	return out
}

// diffArrays adds the changes between two lists. It pairs elements by their merge key, or else so
// that the changes are fewest. Elements that stayed come first, then the removed ones, the added
// ones and a change of the order.
func (d *differ) diffArrays(as, bs []member, depth int) error {
	if la, lb := mergeLabels(as, bs); la != nil && len(as)+len(bs) > 0 {
		return d.diffKeyed(as, bs, la, lb, depth)
	}
	return d.diffPositional(as, bs, depth)
}

func (d *differ) diffKeyed(as, bs []member, la, lb [][]byte, depth int) error {
	partner := func(hint int, label []byte, labels [][]byte) int {
		if hint < len(labels) && bytes.Equal(labels[hint], label) {
			return hint
		}
		return slices.IndexFunc(labels, func(l []byte) bool { return bytes.Equal(l, label) })
	}
	if len(lb) > few {
		byLabel := make(map[string]int, len(lb))
		for k, l := range lb {
			byLabel[string(l)] = k
		}
		partner = func(_ int, label []byte, _ [][]byte) int {
			if k, ok := byLabel[string(label)]; ok {
				return k
			}
			return -1
		}
	}
	moved, last := false, -1
	to := make([]int, len(as))
	kept := make([]int, len(bs)) // 1 + the partner's index
	for k := range as {
		to[k] = partner(k, la[k], lb)
		if to[k] < 0 {
			continue
		}
		kept[to[k]] = k + 1
		moved, last = moved || to[k] < last, to[k]
		n := node{
			elem:   true,
			depth:  depth,
			label:  la[k],
			from:   k,
			to:     to[k],
			before: as[k].value,
			after:  bs[to[k]].value,
		}
		if err := d.diffValues(n); err != nil {
			return err
		}
	}
	for k := range as {
		if to[k] < 0 {
			d.addElement(removed, depth, la[k], k, -1, as[k].value, nil)
		}
	}
	for k := range bs {
		if kept[k] == 0 {
			d.addElement(added, depth, lb[k], -1, k, nil, bs[k].value)
		}
	}
	if moved {
		n := node{
			kind:  ordered,
			elem:  true,
			depth: depth,
			from:  -1,
			to:    -1,
		}
		for _, k := range kept {
			if k > 0 {
				n.order = append(n.order, k-1)
				n.label = append(appendClean(n.label, la[k-1]), ", "...)
			}
		}
		n.label = bytes.TrimSuffix(n.label, []byte(", "))
		d.nodes = append(d.nodes, n)
	}
	return nil
}

func (d *differ) addElement(k kind, depth int, label []byte, from, to int, before, after []byte) {
	d.nodes = append(d.nodes, node{
		kind:   k,
		elem:   true,
		depth:  depth,
		label:  label,
		from:   from,
		to:     to,
		before: before,
		after:  after,
	})
}

// canonical returns the text of an object or a list with sorted keys and without spaces, "" if it
// is not known. It keeps the text in of.
func canonical(value []byte, of *string) string {
	// Half a surrogate pair has no meaning: two of them are not known to be equal.
	if *of != "" || bytes.Contains(bytes.ToLower(value), []byte(`\ud`)) {
		return *of
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	*of = string(text)
	return *of
}

// diffPositional pairs the elements of lists that have no merge key.
func (d *differ) diffPositional(as, bs []member, depth int) error {
	type pair struct{ a, b int }
	var pairs []pair // compared after the script is complete: the elements that stayed come first
	var gone, come []int
	i, j := 0, 0
	flush := func(enda, endb int) { // as[i:enda] has been replaced by bs[j:endb]
		for i < enda && j < endb && isContainer(as[i].value) && isContainer(bs[j].value) &&
			as[i].value[0] == bs[j].value[0] {
			pairs = append(pairs, pair{i, j})
			i++
			j++
		}
		for ; i < enda; i++ {
			gone = append(gone, i)
		}
		for ; j < endb; j++ {
			come = append(come, j)
		}
	}
	ca, cb := make([]string, len(as)), make([]string, len(bs))
	isSame := func(x, y int) bool {
		a, b := as[x].value, bs[y].value
		if jsonscan.SameScalar(a, b) {
			return true
		}
		if !isContainer(a) || !isContainer(b) || a[0] != b[0] {
			return false
		}
		text := canonical(a, &ca[x])
		return text != "" && text == canonical(b, &cb[y])
	}
	sequence.Common(len(as), len(bs), isSame, func(x, y int) {
		flush(x, y)
		i, j = x+1, y+1
	})
	flush(len(as), len(bs))
	for _, p := range pairs {
		n := node{
			elem:   true,
			depth:  depth,
			from:   p.a,
			to:     p.b,
			before: as[p.a].value,
			after:  bs[p.b].value,
		}
		if err := d.diffValues(n); err != nil {
			return err
		}
	}
	for _, k := range gone {
		d.addElement(removed, depth, nil, k, -1, as[k].value, nil)
	}
	for _, k := range come {
		d.addElement(added, depth, nil, -1, k, nil, bs[k].value)
	}
	return nil
}
