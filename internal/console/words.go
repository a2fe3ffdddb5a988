package console

// Known returns the plural and the API groups of a Kubernetes resource. name is its plural, singular, kind or short name,
// in lower case. The plural is "" if there is none.
func Known(name string) (plural string, groups []string) { return expand(name) }

// Printable escapes everything in text that a terminal might interpret.
func Printable(text string) string { return clean(text) }
