package encode

// AppendPatchCounted is AppendPatch. It also returns the number of bytes that the comparison
// visited.
func AppendPatchCounted(dst, before, after []byte) (patch []byte, visited int, err error) {
	var d differ
	patch, err = d.append(dst, before, after)
	return patch, d.visited, err
}

// AppendPatchByIndex is AppendPatch without the lockstep.
func AppendPatchByIndex(dst, before, after []byte) ([]byte, error) {
	d := differ{indexes: true}
	return d.append(dst, before, after)
}

// Limits of a patch.
const (
	MaxDepth   = maxDepth
	PatchSlack = patchSlack
	MaxVisited = maxVisited
)
