package http

import (
	"net/url"
	"slices"
	"strings"
)

const (
	errorBytes = 200 // limit of a response's text in an error
	redacted   = "REDACTED"
	sharedRun  = 16 // this many bytes of a response that occur in the event are an echo
	shownEvent = "…"
	wordBytes  = 8 // minimum length of a part of a secret that is hidden on its own
)

// excerpt returns the part of a response's body that an error may quote: the first printable bytes. It removes the credentials that were
// sent, and longer pieces of the event, which a receiver may quote. sent reports whether the request contained a text.
func excerpt(text []byte, hidden []string, sent func([]byte) bool) string {
	s := clean(string(text), hidden)
	var b strings.Builder
	for i := 0; i < len(s); {
		n := 0
		for i+max(n+1, sharedRun) <= len(s) && sent([]byte(s[i:i+max(n+1, sharedRun)])) {
			n = max(n+1, sharedRun)
		}
		if n > 0 {
			b.WriteString(shownEvent)
			i += n
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// secretsOf returns the parts of a URL that must not appear in a log: path, query, each value of the query, and longer parts of the path.
// It returns each as it is sent, and decoded, as a receiver may read it.
func secretsOf(u *url.URL) []string {
	var all []string
	if path := u.EscapedPath(); path != "/" {
		all = append(all, path, strings.TrimRight(path, "/"))
		for part := range strings.SplitSeq(path, "/") {
			if len(part) >= wordBytes {
				all = append(all, part)
			}
		}
	}
	all = append(all, u.RawQuery)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		all = append(all, value)
	}
	for _, s := range all[:len(all):len(all)] {
		// A plus sign is a space in queries, and itself in paths.
		for _, read := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
			if plain, err := read(s); err == nil {
				all = append(all, plain)
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// clean replaces credentials in text, and replaces characters other than printable ASCII with spaces. It truncates the text last, because a
// truncated secret would not be found.
func clean(text string, hidden []string) string {
	for _, secret := range hidden {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return ' '
		}
		return r
	}, text[:min(len(text), 2*errorBytes)])
	printable = strings.Join(strings.Fields(printable), " ")
	return printable[:min(len(printable), errorBytes)]
}
