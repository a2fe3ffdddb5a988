package console

// Known returns the plural and the API groups of a name that Kubernetes itself knows in one of its forms: plural, singular, kind or short
// name, in lower case. The plural is "" if it knows none.
func Known(name string) (plural string, groups []string) { return expand(name) }

// Printable returns text with everything escaped that a terminal might act upon.
func Printable(text string) string { return clean(text) }

// AppendHarmless appends JSON with everything in its strings as escapes that is not printable. It means the same.
func AppendHarmless(dst, raw []byte) []byte { return appendHarmless(dst, raw) }
