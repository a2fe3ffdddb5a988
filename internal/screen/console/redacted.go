package console

import (
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	keyIDLength = 8  // hexadecimal digits
	leastMAC    = 22 // characters of base64url: 16 bytes
	shownMAC    = 6  // of these: enough to distinguish two by eye
)

// redacted parses the replacement of a redacted value: "hmac-sha256:<key id>:<mac>". rest is the
// text after it.
func redacted(text string) (keyID, mac, rest string, ok bool) {
	body, ok := strings.CutPrefix(text, object.RedactedPrefix)
	if !ok || len(body) < keyIDLength+1+leastMAC || body[keyIDLength] != ':' ||
		strings.Trim(body[:keyIDLength], "0123456789abcdef") != "" {
		return "", "", "", false
	}
	keyID, mac = body[:keyIDLength], body[keyIDLength+1:]
	end := 0
	for end < len(mac) && inBase64URL(mac[end]) {
		end++
	}
	return keyID, mac[:end], mac[end:], end >= leastMAC
}

func inBase64URL(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// isRedacted reports whether a JSON value is the replacement of a redacted one, and returns its key
// id.
func isRedacted(value []byte) (keyID string, ok bool) {
	if !isString(value) {
		return "", false
	}
	keyID, _, rest, ok := redacted(string(unquote(value)))
	return keyID, ok && rest == ""
}

// shortenMACs cuts the MACs in text to a length that people can compare.
func (p *Printer) shortenMACs(text string) string {
	if p.opts.Wide || !strings.Contains(text, object.RedactedPrefix) {
		return text
	}
	var out strings.Builder
	for {
		at := strings.Index(text, object.RedactedPrefix)
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		keyID, mac, rest, ok := redacted(text[at:])
		if !ok {
			end := at + len(object.RedactedPrefix)
			out.WriteString(text[:end])
			text = text[end:]
			continue
		}
		out.WriteString(text[:at])
		out.WriteString(object.RedactedPrefix + keyID + ":" + mac[:shownMAC] + ellipsis)
		text = rest
	}
}

// redactedChange describes the change of a redacted value: changed, or not comparable because
// another key was used. It returns "" if one of the values is not redacted, or if Wide is set.
func (p *Printer) redactedChange(before, after []byte) string {
	if p.opts.Wide {
		return ""
	}
	was, ok := isRedacted(before)
	is, also := isRedacted(after)
	switch {
	case !ok || !also:
		return ""
	case was != is:
		return "redacted with another key (" + object.RedactedPrefix + was + ":" + ellipsis + "→" + is + ":" +
			ellipsis + ")"
	}
	return "changed (" + object.RedactedPrefix + is + ":" + ellipsis + ")"
}
