package agent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// CheckRules returns the errors in the paths and expressions of the rules.
func CheckRules(c *config.Config) []*yamldoc.Error {
	errs := checkPaths(c.Strip, "strip")
	for i := range c.Watch {
		errs = append(errs, checkPaths(c.Watch[i].Redact, fmt.Sprintf("watch[%d].redact", i))...)
	}
	return append(errs, checkExpressions(c)...)
}

// checkPaths returns the errors in paths. Package config does not know their whole grammar.
func checkPaths(paths []string, key string) []*yamldoc.Error {
	var errs []*yamldoc.Error
	for i, p := range paths {
		_, err := object.NewCutter([]string{p})
		for _, err := range each(err) {
			e := &yamldoc.Error{Path: fmt.Sprintf("%s[%d]", key, i), Message: "must be a path: " + err.Error()}
			var wrong *object.PathError
			if errors.As(err, &wrong) {
				before := p[:min(max(wrong.Column-1, 0), len(p))]
				e.Message = "must be a path: " + wrong.Msg
				e.TextLine = 1
				e.TextColumn = utf8.RuneCountInString(before) + 1
			}
			errs = append(errs, e)
		}
	}
	return errs
}

// checkExpressions returns the errors in CEL expressions.
func checkExpressions(c *config.Config) []*yamldoc.Error {
	var errs []*yamldoc.Error
	for i := range c.Watch {
		if c.Watch[i].Where == "" {
			continue
		}
		_, err := filter.New(filter.Options{Where: c.Watch[i].Where})
		for _, err := range each(err) {
			e := &yamldoc.Error{
				Path:    fmt.Sprintf("watch[%d].where", i),
				Message: "must be a CEL expression: " + err.Error(),
			}
			var wrong *filter.ExpressionError
			if errors.As(err, &wrong) {
				e.Message = "must be a CEL expression: " + wrong.Message
				e.TextLine = wrong.Line
				e.TextColumn = startOfCall(c.Watch[i].Where, wrong)
			}
			errs = append(errs, e)
		}
	}
	return errs
}

var undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)

// startOfCall returns the column of an error. For a call, CEL reports the column of the
// parenthesis, not of the function's name.
func startOfCall(where string, e *filter.ExpressionError) int {
	lines := strings.Split(where, "\n")
	m := undeclared.FindStringSubmatch(e.Message)
	if m == nil || e.Line > len(lines) {
		return e.Column
	}
	line, name := []rune(lines[e.Line-1]), []rune(m[1])
	if at := e.Column - 1; at >= len(name) && at <= len(line) && string(line[at-len(name):at]) == m[1] {
		return e.Column - len(name)
	}
	return e.Column
}

// each returns the single errors of joined ones.
func each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}
