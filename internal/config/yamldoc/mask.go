package yamldoc

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quote returns a text in quotes for an error: masked and shortened.
func Quote(s string) string { return strconv.Quote(Shorten(Mask(s))) }

// Shorten returns at most 80 characters of a text.
func Shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// secret matches text that may be a password or a token. The first group of each pair is shown, the
// second one is masked:
//   - the value of a key with such a name
//   - the value of a key for a file, if it is not a path
//   - a query
//   - the user part of a URL, with or without scheme and slashes
//   - a port that is not a number, as in a URL without its host
var secret = regexp.MustCompile(`(?i)((?:password|passwd|token|seed|secret|authorization|api-?key)["']? *: *)(\S.*)` +
	`|((?:password|token|secret|seed|creds|url|headers|key)file["']? *: *\[? *["']?)([^\s/"'$\[].*)` +
	`|([?&#][a-z_-]+=)([^\s"']+)` +
	`|((?:\burl["']? *: *["']?)?(?:[a-z]+:)?//|\burl["']? *: *["']?)(.*@)` +
	`|()([^\s"']+@)` +
	`|(//[^\s"'/:,\[]*:)([0-9]*[^\s"'/:,?#0-9$}\]][^\s"',]*)`)

// Mask replaces text that may be a secret by stars, of the same width. Secrets in a file are an
// error, and an error must not carry them into a log.
func Mask(s string) string {
	return secret.ReplaceAllStringFunc(s, func(m string) string {
		groups := secret.FindStringSubmatch(m)
		for i := 1; i < len(groups); i += 2 {
			if hidden := groups[i+1]; hidden != "" {
				end := ""
				if strings.HasSuffix(hidden, "@") {
					end = "@"
				}
				return groups[i] + strings.Repeat("*", utf8.RuneCountInString(hidden)-len(end)) + end
			}
		}
		return m
	})
}
