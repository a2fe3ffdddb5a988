package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish/subject"
)

// deadLetterSuffix follows the Nats-Msg-Id of an event that is published as a dead letter: JetStream tells copies by the
// id alone, whatever the subject, and the event itself may come later, when the bus takes it.
const deadLetterSuffix = ".dead"

// DeadLetterSubject is the subject that a template of one makes, in which {cluster} is the only placeholder.
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

// deadLetters publishes to the dead-letter subject of the stream that the events go to.
type deadLetters struct{ n *NATS }

// DeadLetters is a publisher onto the dead-letter subject, over the same connection; nil: none is configured. Its records
// carry the Nats-Msg-Id of the event and a suffix. Where the subject is optional and the stream does not take it, its
// Publish says so in an error that wraps ErrRefused.
func (n *NATS) DeadLetters() Publisher {
	if n.dead == "" {
		return nil
	}
	return deadLetters{n}
}

// Publish implements Publisher.
func (d deadLetters) Publish(ctx context.Context, ev *encode.Event) error {
	if err := d.n.gate.wait(ctx); err != nil {
		return err
	}
	if d.n.deadOff.Load() {
		return fmt.Errorf("%w: stream %s does not take the dead-letter subject %s: add it to the stream's subjects (nats stream edit %s --subjects=…), or name another one in deadLetter.subject",
			ErrRefused, d.n.cfg.Stream.Name, d.n.dead, d.n.cfg.Stream.Name)
	}
	return d.n.publish(ctx, ev, true)
}

// patterns lists the wildcards that the stream must take.
func (n *NATS) patterns() []string {
	p := n.subjects.Patterns()
	if n.dead != "" && !n.cfg.DeadLetterOptional {
		p = append(p, n.dead)
	}
	return p
}

// capture lists the subjects that the stream is created with.
func (n *NATS) capture() []string {
	c := n.subjects.Capture()
	if n.dead != "" && !anyCovers(c, n.dead) {
		c = append(c, n.dead)
	}
	return c
}

// noteDeadLetters says, once, that a stream which was found does not take the dead letters that nobody has asked for.
func (n *NATS) noteDeadLetters(subjects []string) {
	if n.dead == "" || !n.cfg.DeadLetterOptional {
		return
	}
	off := !anyCovers(subjects, n.dead)
	if n.deadOff.Swap(off) == off || !off {
		return
	}
	n.log.Warn("the stream does not take dead letters: an event that the bus refuses for good will end the agent",
		"stream", n.cfg.Stream.Name, "subject", n.dead,
		"advice", "nats stream edit "+n.cfg.Stream.Name+" --subjects="+strings.Join(append(subjects[:len(subjects):len(subjects)], n.dead), ","))
}

func anyCovers(subjects []string, inner string) bool {
	for _, s := range subjects {
		if subject.Covers(s, inner) {
			return true
		}
	}
	return false
}
