package main

import (
	"path/filepath"
	"regexp"
	"strings"
)

// chart returns the texts of a file of the chart or of a configuration: documents, notes after an
// installation, comments, and alerts.
func chart(name string, text []byte) ([]block, error) {
	switch filepath.Ext(name) {
	case ".md", ".gotmpl":
		return markdown(text), nil
	case ".txt":
		return notes(string(text)), nil
	}
	return append(yamlComments(string(text)), alertTexts(string(text))...), nil
}

var (
	control = regexp.MustCompile(`\{\{-? *(?:if|else|end|range|with|define|\$|/\*)[^}]*\}\}`)
	action  = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// notes returns the paragraphs of a template of text. Indented lines are commands.
func notes(text string) []block {
	var lines []line
	for i, l := range strings.Split(text, "\n") {
		lines = append(lines, line{i + 1, action.ReplaceAllString(control.ReplaceAllString(l, ""), "CODE")})
	}
	return paragraphs(lines, "  ")
}

var (
	yamlComment     = regexp.MustCompile(`^\s*#+ ?(?:-- )?(.*)$`)
	trailingComment = regexp.MustCompile(`^[^#]*[^#\s]\s+# (.*)$`)
	beginTemplate   = regexp.MustCompile(`\{\{-? ?/\*`)
	endTemplate     = regexp.MustCompile(`\*/ ?-?\}\}`)
	commentedKey    = regexp.MustCompile(`^(?:- )?[\w."/-]+:(?: \S|$)|^yaml-language-server|^@`)
)

// yamlComments returns the comments of YAML and of templates. Directives and keys that are
// commented out are left out.
func yamlComments(text string) []block {
	var lines []line
	inTemplate := false
	for i, l := range strings.Split(text, "\n") {
		comment := ""
		switch begins := beginTemplate.FindStringIndex(l); {
		case inTemplate, begins != nil:
			comment = l
			if begins != nil {
				comment = l[begins[1]:]
				lines = append(lines, line{i + 1, ""})
			}
			end := endTemplate.FindStringIndex(comment)
			inTemplate = end == nil
			if end != nil {
				comment = comment[:end[0]]
			}
			comment = strings.TrimSpace(comment)
		case yamlComment.MatchString(l):
			comment = yamlComment.FindStringSubmatch(l)[1]
			if commentedKey.MatchString(comment) {
				comment = ""
			}
		case trailingComment.MatchString(l):
			// It stands alone, unless the next line has one too.
			lines = append(lines, line{i + 1, ""})
			comment = trailingComment.FindStringSubmatch(l)[1]
		}
		lines = append(lines, line{i + 1, comment})
	}
	return paragraphs(lines, "  ")
}

var alertText = regexp.MustCompile(`^( *)(?:summary|description): (.*)$`)

// alertTexts returns the summaries and descriptions of alerts.
func alertTexts(text string) []block {
	var lines []line
	indent := -1 // of the key whose folded text is read
	for i, l := range strings.Split(text, "\n") {
		plain := action.ReplaceAllString(strings.TrimSpace(l), "CODE")
		m := alertText.FindStringSubmatch(l)
		switch {
		case m != nil:
			lines = append(lines, line{i + 1, ""})
			indent = len(m[1])
			if !strings.HasPrefix(m[2], ">") {
				lines = append(lines, line{i + 1, action.ReplaceAllString(m[2], "CODE")})
			}
		case indent >= 0 && len(l)-len(strings.TrimLeft(l, " ")) > indent:
			lines = append(lines, line{i + 1, plain})
		default:
			indent = -1
		}
	}
	return paragraphs(lines)
}
