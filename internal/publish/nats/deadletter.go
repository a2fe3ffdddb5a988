package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// deadLetterSuffix is appended to the Nats-Msg-Id of a dead letter. JetStream identifies duplicates by the id alone, whatever the subject,
// and the event itself may still be published when the bus accepts it.
const deadLetterSuffix = ".dead"

// DeadLetterSubject expands a template, in which {cluster} is the only placeholder.
func DeadLetterSubject(template, cluster string) (string, error) {
	if cluster == "" {
		return "", errors.New("dead-letter subject: the cluster has no name")
	}
	parts, err := subject.Compile(template, cluster)
	switch {
	case err != nil:
		return "", fmt.Errorf("dead-letter subject %q: %w", template, err)
	case len(parts) != 1 || parts[0].Field != subject.FieldLiteral:
		return "", fmt.Errorf("dead-letter subject %q: {cluster} is the only placeholder in it", template)
	}
	return parts[0].Text, nil
}

// takesDeadLetters reports whether the stream, which must have been checked, accepts dead letters.
func (b *Bus) takesDeadLetters() bool { return b.dead != "" && !b.deadOff.Load() }

// deadLetterAdvice returns the fix if it does not.
func (b *Bus) deadLetterAdvice() string {
	if b.dead == "" {
		return "no subject of dead letters is configured: set deadLetter.subject"
	}
	return fmt.Sprintf("stream %[1]s does not include the dead-letter subject %[2]s: add it to the stream's subjects (nats stream edit %[1]s --subjects=…), or set another one in deadLetter.subject",
		b.cfg.Stream.Name, b.dead)
}

// patterns returns the wildcards that the stream must accept.
func (b *Bus) patterns() []string {
	p := b.subjects.Patterns()
	if b.dead != "" && !b.cfg.DeadLetterOptional {
		p = append(p, b.dead)
	}
	return p
}

// capture returns the subjects for the creation of the stream.
func (b *Bus) capture() []string {
	c := b.subjects.Capture()
	if b.dead != "" && !anyCovers(c, b.dead) {
		c = append(c, b.dead)
	}
	return c
}

// noteDeadLetters logs, once, that an existing stream does not accept the dead letters of the default configuration.
func (b *Bus) noteDeadLetters(subjects []string) {
	if b.dead == "" || !b.cfg.DeadLetterOptional {
		return
	}
	off := !anyCovers(subjects, b.dead)
	if b.deadOff.Swap(off) == off || !off {
		return
	}
	b.log.Warn("the stream does not include the dead-letter subject: an event that the bus rejects permanently will stop the agent",
		"stream", b.cfg.Stream.Name, "subject", b.dead,
		"advice", "nats stream edit "+b.cfg.Stream.Name+" --subjects="+strings.Join(append(slices.Clip(subjects), b.dead), ","))
}

func anyCovers(subjects []string, inner string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return subject.Covers(s, inner) })
}
