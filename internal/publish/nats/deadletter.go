package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// deadLetterSuffix follows the Nats-Msg-Id of an event that is published as a dead letter: JetStream tells copies by the
// id alone, whatever the subject, and the event itself may come later, when the bus takes it.
const deadLetterSuffix = ".dead"

// DeadLetterSubject returns the subject that a template makes, in which {cluster} is the only placeholder.
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

// takesDeadLetters reports whether the stream, which has been checked, takes dead letters.
func (b *Bus) takesDeadLetters() bool { return b.dead != "" && !b.deadOff.Load() }

// deadLetterAdvice says what to do if it does not.
func (b *Bus) deadLetterAdvice() string {
	if b.dead == "" {
		return "no subject of dead letters is configured: set deadLetter.subject"
	}
	return fmt.Sprintf("stream %[1]s does not take the dead-letter subject %[2]s: add it to the stream's subjects (nats stream edit %[1]s --subjects=…), or name another one in deadLetter.subject",
		b.cfg.Stream.Name, b.dead)
}

// patterns lists the wildcards that the stream must take.
func (b *Bus) patterns() []string {
	p := b.subjects.Patterns()
	if b.dead != "" && !b.cfg.DeadLetterOptional {
		p = append(p, b.dead)
	}
	return p
}

// capture lists the subjects that the stream is created with.
func (b *Bus) capture() []string {
	c := b.subjects.Capture()
	if b.dead != "" && !anyCovers(c, b.dead) {
		c = append(c, b.dead)
	}
	return c
}

// noteDeadLetters logs, once, that a stream which was found does not take the dead letters of the default configuration.
func (b *Bus) noteDeadLetters(subjects []string) {
	if b.dead == "" || !b.cfg.DeadLetterOptional {
		return
	}
	off := !anyCovers(subjects, b.dead)
	if b.deadOff.Swap(off) == off || !off {
		return
	}
	b.log.Warn("the stream does not take dead letters: an event that the bus refuses for good will end the agent",
		"stream", b.cfg.Stream.Name, "subject", b.dead,
		"advice", "nats stream edit "+b.cfg.Stream.Name+" --subjects="+strings.Join(append(slices.Clip(subjects), b.dead), ","))
}

func anyCovers(subjects []string, inner string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return subject.Covers(s, inner) })
}
