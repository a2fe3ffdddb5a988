package yamldoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// mostErrors limits the errors that are shown of a document. An error shows its line, which may be
// the whole document.
const mostErrors = 100

// First returns the first errors. If there are more, the last one says how many.
func (e Errors) First() Errors {
	if len(e) <= mostErrors {
		return e
	}
	more := &Error{
		File:    e[0].File,
		Message: fmt.Sprintf("and %d more errors; correct the first ones, and check again", len(e)-mostErrors),
	}
	return append(slices.Clone(e[:mostErrors]), more)
}

// Error is one error of a document.
type Error struct {
	File    string `json:"file,omitempty"`   // the name given to Decode; "" if there is none
	Line    int    `json:"line,omitempty"`   // from 1; 0 if the position is not known
	Column  int    `json:"column,omitempty"` // from 1, in characters
	Path    string `json:"path,omitempty"`   // "watch[0].namespaces[1]"; "" for a syntax error
	Message string `json:"message"`          // "must be between 1 and 5, got 7"

	// TextLine and TextColumn, both from 1, are the position of the error in the text at Path. 0:
	// the error is about all of the text.
	TextLine   int `json:"-"`
	TextColumn int `json:"-"`

	lines *lines // of the file
}

// Error returns "file:line:column: path: message", without the parts that are not known, and an
// excerpt of the file.
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
	if text := e.lines.excerpt(e.Line, e.Column); text != "" {
		b.WriteString(text + mark("^"))
	}
	return b.String()
}

// excerptWidth limits the characters of a line on either side of the position.
const excerptWidth = 100

// lines are those of a document, for excerpts. Many errors may be in one line, which is masked
// once.
type lines struct {
	all []string

	mu     sync.Mutex
	masked map[int][]rune
}

func newLines(all []string) *lines { return &lines{all: all, masked: map[int][]rune{}} }

// excerpt returns a line of the file, and below it the space before the mark of the column; "" if
// the file has no such line.
func (l *lines) excerpt(line, column int) string {
	if l == nil || line < 1 || line > len(l.all) || column < 1 {
		return ""
	}
	text := l.mask(line)
	column = min(column, len(text)+1)
	from, to := max(0, column-1-excerptWidth), min(len(text), column-1+excerptWidth)
	return fmt.Sprintf("\n%6d | %s\n       | %s", line, string(text[from:to]), strings.Repeat(" ", column-1-from))
}

// mask returns a line without secrets and control characters.
func (l *lines) mask(line int) []rune {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, ok := l.masked[line]
	if ok {
		return text
	}
	text = []rune(Mask(strings.TrimRight(l.all[line-1], "\r")))
	for i, r := range text {
		if r < ' ' || r == 0x7f {
			text[i] = ' ' // a tab would shift the mark; a control character could change the terminal
		}
	}
	l.masked[line] = text
	return text
}
