package config

// NotYetPaths are the keys that are refused as not yet supported.
func NotYetPaths() []string {
	var paths []string
	for _, k := range notYetKeys() {
		paths = append(paths, k.path)
	}
	return paths
}
