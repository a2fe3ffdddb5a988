package yamldoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Errors are all errors of a document, in the order of the file.
type Errors []*Error

// Error returns a line for each error, followed by its excerpt if there is one.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each error visible to errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}

// Covers reports whether an error is about path, one of its parents or one of its children.
func (e Errors) Covers(path string) bool {
	for _, err := range e {
		if err.Path == "" || within(path, err.Path) || within(err.Path, path) {
			return true
		}
	}
	return false
}

// within reports whether path is outer or one of its children.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Sort orders errors by their positions.
func (e Errors) Sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Error is one error of a document.
type Error struct {
	File    string `json:"file,omitempty"`   // the name given to Decode; "" if there is none
	Line    int    `json:"line,omitempty"`   // from 1; 0 if the position is not known
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Path    string `json:"path,omitempty"`   // "watch[0].namespaces[1]"; "" for a syntax error
	Message string `json:"message"`          // "must be between 1 and 5, got 7"

	// TextLine and TextColumn, both from 1, are the position of the error in the text at Path. 0: the error is about all of
	// the text.
	TextLine   int `json:"-"`
	TextColumn int `json:"-"`

	excerpt string
}

// Error returns "file:line:column: path: message", without the parts that are not known, and an excerpt of the file.
func (e *Error) Error() string {
	plain := func(text string) string { return text }
	return e.Styled(plain, plain)
}

// Styled returns Error for a terminal: path styles the path and mark the ^ below the position.
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

// excerptWidth limits the characters of a line on either side of the position.
const excerptWidth = 100

// excerpt returns a line of the file, and below it the space before the mark of the column; "" if the file has no such
// line.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) || column < 1 {
		return ""
	}
	text := []rune(Mask(strings.TrimRight(lines[line-1], "\r")))
	for i, r := range text {
		if r < ' ' || r == 0x7f {
			text[i] = ' ' // a tab would shift the mark; a control character could change the terminal
		}
	}
	column = min(column, len(text)+1)
	from, to := max(0, column-1-excerptWidth), min(len(text), column-1+excerptWidth)
	return fmt.Sprintf("\n%6d | %s\n       | %s", line, string(text[from:to]), strings.Repeat(" ", column-1-from))
}
