package http

import (
	"net/url"
	"slices"
	"strings"
)

const (
	errorBytes = 200 // of an answer that an error quotes
	redacted   = "REDACTED"
	sharedRun  = 16 // bytes of an answer that are in the event too: an echo
	shownEvent = "…"
	wordBytes  = 8 // at least: a part of a secret that is hidden where it stands alone
)

// excerpt returns what an error may quote of an answer's body: its first printable bytes, without the credentials that were
// sent, and without longer pieces of the event, which a receiver may quote. sent reports whether the request held a text.
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

// secretsOf returns the parts of a URL that must not appear in a log: path and query, as they are sent and as a receiver may read them; each
// value of the query, and longer parts of the path.
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
		// A plus sign means a space in queries, and itself in paths.
		for _, read := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
			if plain, err := read(s); err == nil {
				all = append(all, plain)
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// clean takes credentials out of text, and puts a space for what is not printable ASCII. Credentials go first, and only
// then is it cut: a cut one would not be found any more.
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
