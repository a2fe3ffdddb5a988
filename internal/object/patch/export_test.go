package patch

// AppendCounted is Append. It also returns the number of bytes that the comparison
// visited.
func AppendCounted(dst, before, after []byte) (patch []byte, visited int, err error) {
	var d Differ
	patch, err = d.Append(dst, before, after)
	return patch, d.visited, err
}

// AppendByIndex is Append without the lockstep.
func AppendByIndex(dst, before, after []byte) ([]byte, error) {
	d := Differ{indexes: true}
	return d.Append(dst, before, after)
}

// Limits of a patch.
const (
	MaxDepth   = maxDepth
	Slack      = slack
	MaxVisited = maxVisited
)
