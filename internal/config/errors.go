package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Errors is everything that is wrong with a configuration, in the order of the file.
type Errors []*Error

// Error is one line for each error, each followed by its excerpt where there is one.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each of them visible to errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// covers reports whether one of the errors is about path, or about something that path is part of or consists of.
func (e Errors) covers(path string) bool {
	for _, err := range e {
		if err.Path == "" || within(path, err.Path) || within(err.Path, path) {
			return true
		}
	}
	return false
}

// within reports whether path is outer or a part of it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Error is one thing that is wrong.
type Error struct {
	File    string `json:"file,omitempty"`   // as given to Load or Parse; "" where there was none
	Line    int    `json:"line,omitempty"`   // from 1; 0 where the error has no place in a file
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Path    string `json:"path,omitempty"`   // "watch[0].namespaces[1]"; "" for a syntax error
	Message string `json:"message"`          // "must be between 1 and 5, got 7"

	// TextLine and TextColumn, both from 1, are where in the text that Path holds the error is, for a [Check] that knows
	// it. 0: it is about all of the text.
	TextLine   int `json:"-"`
	TextColumn int `json:"-"`

	excerpt string
}

// Error is "file:line:column: path: message" with what is known of it, and the excerpt below.
func (e *Error) Error() string {
	plain := func(text string) string { return text }
	return e.Styled(plain, plain)
}

// Styled is Error for a terminal: path shows the path and mark the ^ below the place.
func (e *Error) Styled(path, mark func(string) string) string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(path(e.Path) + ": ")
	}
	b.WriteString(e.Message)
	if e.excerpt != "" {
		b.WriteString(e.excerpt + mark("^"))
	}
	return b.String()
}

// excerptWidth bounds what of a line is shown to either side of the place.
const excerptWidth = 100

// excerpt shows a line of the file, and below it what is before the mark of the column; "" where the file has no such
// line.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) || column < 1 {
		return ""
	}
	text := []rune(mask(strings.TrimRight(lines[line-1], "\r")))
	for i, r := range text {
		if r < ' ' || r == 0x7f {
			text[i] = ' ' // a tab would shift the mark, a control character could do worse to a terminal
		}
	}
	column = min(column, len(text)+1)
	from, to := max(0, column-1-excerptWidth), min(len(text), column-1+excerptWidth)
	return fmt.Sprintf("\n%6d | %s\n       | %s", line, string(text[from:to]), strings.Repeat(" ", column-1-from))
}

// secret is what may be a password or a token: its first group is shown, the second is not. In turn: what a key of that
// name holds; what a key for a file holds that is no path; a query; the user part of a URL, also of one whose scheme or slashes were forgotten; and a port that is no
// number, for that is what is left where the host was forgotten.
var secret = regexp.MustCompile(`(?i)((?:password|passwd|token|seed|secret|authorization|api-?key)["']? *: *)(\S.*)` +
	`|((?:password|token|secret|seed|creds|url|headers|key)file["']? *: *\[? *["']?)([^\s/"'$\[].*)` +
	`|([?&#][a-z_-]+=)([^\s"']+)` +
	`|((?:\burl["']? *: *["']?)?(?:[a-z]+:)?//|\burl["']? *: *["']?)(.*@)` +
	`|()([^\s"']+@)` +
	`|(//[^\s"'/:,\[]*:)([0-9]*[^\s"'/:,?#0-9$}\]][^\s"',]*)`)

// mask hides secrets, keeping the width: they are refused, and must not reach a log by way of that error.
func mask(s string) string {
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
