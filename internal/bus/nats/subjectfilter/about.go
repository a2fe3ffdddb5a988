package subjectfilter

import (
	"net/url"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// About returns a function that reads the subject of a record. Template makes those of objects.
// Others are those of a resource's stream events, or of the progress of an agent. template is
// bus.nats.subject; "" is the default.
func About(template string) (func(of string) consume.About, error) {
	f, err := parse(template)
	if err != nil {
		return nil, err
	}
	forms := [][]string{f.template}
	for _, form := range []string{subject.Stream, subject.Scope, subject.Progress} {
		forms = append(forms, strings.Split(form, "."))
	}
	return func(of string) consume.About {
		tokens := strings.Split(of, ".")
		var about consume.About
		matches := 0
		for _, form := range forms {
			known, ok := valuesOf(form, tokens)
			if !ok {
				continue
			}
			matches++
			about = aboutValues(known)
			_, about.Progress = known["writer"]
		}
		if matches != 1 {
			return consume.About{}
		}
		return about
	}, nil
}

// valuesOf returns the placeholders that are a whole token, unescaped, of a subject with the form
// of a template. Without those that cannot be known.
func valuesOf(template, tokens []string) (known map[string]string, ok bool) {
	if len(template) != len(tokens) {
		return nil, false
	}
	known = map[string]string{}
	for i, part := range template {
		field, isWhole := strings.CutPrefix(part, "{")
		field, isClosed := strings.CutSuffix(field, "}")
		switch {
		case !strings.Contains(part, "{"):
			if part != tokens[i] {
				return nil, false
			}
		case !isWhole || !isClosed || strings.Contains(field, "{"):
		default:
			if value, ok := unescape(field, tokens[i]); ok {
				known[field] = value
			}
		}
	}
	return known, true
}

// unescape returns the value of a token. It is not known of a token that was shortened.
func unescape(field, token string) (string, bool) {
	value, err := url.PathUnescape(token)
	if err != nil {
		return "", false
	}
	switch {
	case field == "group" && value == "core", field == "namespace" && value == "_":
		value = ""
	case field == "group":
		value = strings.ReplaceAll(value, "_", ".")
	}
	return value, subject.Token(field, value) == token
}

func aboutValues(known map[string]string) consume.About {
	about := consume.About{Cluster: known["cluster"], Name: known["name"]}
	group, hasGroup := known["group"]
	if resource := known["resource"]; hasGroup && resource != "" {
		about.Resource = strings.TrimSuffix(resource+"."+group, ".")
	}
	namespace, hasNamespace := known["namespace"]
	about.Namespace = namespace
	if hasNamespace && namespace == "" {
		about.Namespace = consume.NoNamespace
	}
	return about
}
