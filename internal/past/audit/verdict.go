package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// Summary returns the verdict in one sentence.
func (r *Report) Summary() string {
	span := fmt.Sprintf("%s from %s to %s", r.Subject(), local(r.Since), local(r.Until))
	if r.IsProven() {
		return "proven: the record has every change of " + span
	}
	if r.Certainty == certainty.Late {
		return "not proven: no change is missing, but the record does not have the time of each change of " + span
	}
	return "not proven: the record may lack changes of " + span
}

// Subject says in words which objects were asked for.
func (r *Report) Subject() string {
	text := strings.Join(r.Question.Objects, " ")
	if text == "all" {
		text = "all objects"
	}
	if r.Question.Selector != "" {
		text += " with " + r.Question.Selector
	}
	if r.Question.Namespace != "" {
		text += " in " + r.Question.Namespace
	}
	return text
}

// ChangeCounts returns how many changes and objects there were.
func (r *Report) ChangeCounts() string {
	var versions, objects int
	for _, of := range r.Resources {
		versions, objects = versions+of.Changes, objects+of.Objects
	}
	return fmt.Sprintf("%s of %s", counted(versions, "change"), counted(objects, "object"))
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return wording.Count(n) + " " + what
}

func local(t time.Time) string { return t.Local().Format(time.RFC3339) }

// Place returns the scope of a finding, or its resource.
func (f *Finding) Place() string {
	switch {
	case f.Scope != "":
		return f.Scope
	case f.Resource != "":
		return f.Resource
	}
	return "any"
}

// Words says what a finding means, and names its objects.
func (f *Finding) Words() string {
	text := f.Certainty.String() + ": " + f.What
	if len(f.Objects) == 0 {
		return text
	}
	names := slices.Clone(f.Objects)
	if more := len(names) - 3; more > 0 {
		names = append(names[:3], fmt.Sprintf("%d more", more))
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

// Words returns the remark in one line.
func (r *Remark) Words() string {
	text := r.What
	if r.Count > 0 {
		text += ": " + wording.Count(r.Count)
	}
	if r.Scope != "" {
		return r.Scope + ": " + text
	}
	if r.Resource != "" {
		return r.Resource + ": " + text
	}
	return text
}
