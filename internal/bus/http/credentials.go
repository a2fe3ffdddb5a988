package http

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// settled is the minimum age of a file's last change at which a later change surely gets another
// time: clocks of file systems tick every few milliseconds, or every second.
const settled = 2 * time.Second

// stamp identifies the content of a file that was read.
type stamp struct {
	info os.FileInfo // nil before the first reading
	sure bool        // another change would have another time
}

// stampOf returns the stamp of a file. It follows symbolic links: a mounted Secret is a link whose
// target is replaced.
func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info: info, sure: time.Since(info.ModTime()) > settled}, nil
}

func (s stamp) isSame(now stamp) bool {
	return s.info != nil && s.sure && os.SameFile(s.info, now.info) && s.info.ModTime().Equal(now.info.ModTime()) &&
		s.info.Size() == now.info.Size()
}

// credentials holds the headers of headersFile and tokenFile. It reads the files again after a
// change. While a file cannot be read there are no credentials, so that a withdrawn secret is not
// sent any more.
type credentials struct {
	headersFile, tokenFile string
	endpoint               []string // secretsOf the endpoint's URL

	mu     sync.Mutex
	stamps [2]stamp
	header http.Header // of the last reading; never modified
	hidden []string    // texts that must not appear in a log
}

// read returns the headers, which the caller must not modify, and the texts that must not appear in
// a log.
func (c *credentials) read() (header http.Header, hidden []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]stamp
	same := c.header != nil
	for i, path := range []string{c.headersFile, c.tokenFile} {
		if path == "" {
			continue
		}
		now[i], err = stampOf(path)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", [...]string{"headersFile", "tokenFile"}[i], err)
		}
		same = same && c.stamps[i].isSame(now[i])
	}
	if same {
		return c.header, c.hidden, nil
	}
	c.header = nil
	header, err = c.load()
	if err != nil {
		return nil, nil, err
	}
	c.header = header
	c.stamps = now
	c.hidden = slices.Clone(c.endpoint)
	for _, values := range header {
		for _, v := range values {
			// For Authorization: Basic abc, also hide abc alone.
			c.hidden = append(c.hidden, v)
			for _, word := range strings.Fields(v) {
				if len(word) >= wordBytes {
					c.hidden = append(c.hidden, word)
				}
			}
		}
	}
	// a short one first would hide only a part of a long one
	slices.SortFunc(c.hidden, func(a, b string) int { return len(b) - len(a) })
	header["User-Agent"] = append(header["User-Agent"], "kubecdc")[:1]
	return c.header, c.hidden, nil
}

func (c *credentials) load() (http.Header, error) {
	header := http.Header{}
	if c.headersFile != "" {
		b, err := publish.ReadFile(c.headersFile)
		if err != nil {
			return nil, fmt.Errorf("headersFile: %w", err)
		}
		if err := parseHeaders(header, b); err != nil {
			return nil, fmt.Errorf("headersFile %s: %w", c.headersFile, err)
		}
	}
	if c.tokenFile == "" {
		return header, nil
	}
	b, err := publish.ReadFile(c.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("tokenFile: %w", err)
	}
	token := strings.TrimSpace(string(b))
	switch {
	case token == "":
		return nil, fmt.Errorf("tokenFile %s: is empty", c.tokenFile)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, fmt.Errorf("tokenFile %s: must hold one token without spaces, on one line", c.tokenFile)
	case header.Get("Authorization") != "":
		return nil,
			fmt.Errorf("headersFile %s and tokenFile %s both set Authorization: keep one", c.headersFile, c.tokenFile)
	}
	header.Set("Authorization", "Bearer "+token)
	return header, nil
}

// parseHeaders parses lines "Name: value". It skips empty lines and lines that begin with #. Errors
// name the line but do not quote it.
func parseHeaders(header http.Header, b []byte) error {
	number := 0
	for line := range bytes.Lines(b) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		err := checkHeader(name, value)
		if !ok {
			err = errors.New(`must be "Name: value"`)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		header.Add(name, value)
	}
	return nil
}

func checkHeader(name, value string) error {
	// RFC 9110, section 5.6.2
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch {
	case name == "" || strings.Trim(name, token) != "" || strings.ContainsAny(name, " \t"):
		return errors.New("the name before the colon must consist of letters, digits and dashes")
	case value == "":
		return errors.New("no value after the colon")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return errors.New("the value must not contain control characters")
	}
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case strings.HasPrefix(canonical, "Ce-"):
		return fmt.Errorf("%s: headers ce-… are reserved for the event's attributes", canonical)
	case isReserved(canonical):
		return fmt.Errorf("%s: is set by the agent, and cannot be configured", canonical)
	}
	return nil
}

func isReserved(canonical string) bool {
	switch canonical {
	case "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Host", "Connection", "Keep-Alive",
		"Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect", "Idempotency-Key", "X-Idempotency-Key":
		// With the last two, net/http would resend a request by itself.
		return true
	}
	return false
}

// isInPlaintext reports whether the headers are sent to an endpoint without TLS and without
// permission.
func (c *credentials) isInPlaintext(endpoint *url.URL, insecure bool) bool {
	return !insecure && endpoint.Scheme == "http" && (c.headersFile != "" || c.tokenFile != "")
}

const (
	errorBytes = 200 // limit of a response's text in an error
	redacted   = "REDACTED"
	sharedRun  = 16 // this many bytes of a response that occur in the event are an echo
	shownEvent = "…"
	wordBytes  = 8 // minimum length of a part of a secret that is hidden on its own
)

// excerpt returns the part of a response's body that an error may quote: the first printable bytes.
// It removes the credentials that were sent, and longer pieces of the event, which a receiver may
// quote. sent reports whether the request contained a text.
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

// secretsOf returns the parts of a URL that must not appear in a log: path, query, each value of
// the query, and longer parts of the path. It returns each as it is sent, and decoded, as a
// receiver may read it.
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

// clean replaces credentials in text, and replaces characters other than printable ASCII with
// spaces. It truncates the text last, because a truncated secret would not be found.
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
