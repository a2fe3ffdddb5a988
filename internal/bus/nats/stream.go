package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// headRoom is the space for a record's headers, in addition to the event's body.
const headRoom = 16 << 10

// streamConfig returns the configuration of a new stream.
func streamConfig(s *natsconfig.Stream, subjects []string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "Changes of Kubernetes objects, published by kubecdc",
		Subjects:    subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    max(s.Replicas, 1),
		MaxAge:      s.MaxAge.Duration,
		MaxBytes:    cmp.Or(int64(s.MaxBytes), -1),
		MaxMsgs:     -1,
		Duplicates:  cmp.Or(s.DuplicateWindow.Duration, natsconfig.DefaultDuplicateWindow),
		AllowDirect: true, // replicas can serve reads of an object's records
	}
	if s.Discard == natsconfig.DiscardOld {
		c.Discard = jetstream.DiscardOld
	}
	if c.MaxAge > 0 { // required by the server
		c.Duplicates = min(c.Duplicates, c.MaxAge)
	}
	return c
}

// tooSmall returns the fix if a stream does not accept the largest event, and "" if it does.
func tooSmall(c *jetstream.StreamConfig, maxEvent int) string {
	need := maxEvent + headRoom
	if c.MaxMsgSize <= 0 || int(c.MaxMsgSize) >= need {
		return ""
	}
	return fmt.Sprintf(
		"its max_msg_size is %d bytes, and an event may need %d: nats stream edit %s --max-msg-size=-1, or lower event.maxBytes",
		c.MaxMsgSize, need, c.Name)
}

// refusals lists the reasons why a stream would lose events silently or could not accept them, each
// with the fix. A maxAge alone is not a reason: it is a deliberate choice of retention.
func refusals(c *jetstream.StreamConfig, patterns []string, key string) []string {
	var why []string
	refuse := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	edit := "nats stream edit " + c.Name + " "

	switch {
	case c.Sealed:
		refuse("it is sealed and accepts no more messages: set another stream in %s.stream.name", key)
	case c.Mirror != nil:
		refuse(
			"it is a mirror of stream %s, which accepts no messages itself: publish to that one, or set another stream in %s.stream.name",
			c.Mirror.Name, key)
	}
	if c.Retention != jetstream.LimitsPolicy {
		refuse(
			"its retention is %s, so records are removed once consumers have acknowledged them, or at once without consumers: create it with --retention=limits",
			strings.ToLower(c.Retention.String()))
	}
	if c.NoAck {
		refuse("it has no_ack set, so the agent cannot learn whether a record was stored: %s--ack", edit)
	}
	if c.AllowMsgCounter {
		refuse(
			"it is a counter (allow_msg_counter), which accepts only increments: set another stream in %s.stream.name",
			key)
	}
	if c.Discard == jetstream.DiscardOld {
		var bounds []string
		if c.MaxBytes > 0 {
			bounds = append(bounds, fmt.Sprintf("max_bytes %d", c.MaxBytes))
		}
		if c.MaxMsgs > 0 {
			bounds = append(bounds, fmt.Sprintf("max_msgs %d", c.MaxMsgs))
		}
		if len(bounds) > 0 {
			refuse("it discards old records when it is full (%s), even if they have not been read: %s--discard=new",
				strings.Join(bounds, ", "), edit)
		}
	}
	// The server enforces this bound by dropping the oldest record of a subject, unless both kinds
	// of discard new are set.
	if c.MaxMsgsPerSubject > 0 && (c.Discard == jetstream.DiscardOld || !c.DiscardNewPerSubject) {
		refuse(
			"it keeps no more than %d records of a subject and drops older ones (max_msgs_per_subject): %s--max-msgs-per-subject=-1",
			c.MaxMsgsPerSubject, edit)
	}
	missing := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return anyCovers(c.Subjects, p) })
	if len(missing) > 0 {
		refuse("its subjects (%s) do not include all of %s: %s--subjects=%s", strings.Join(c.Subjects, ", "),
			strings.Join(missing, ", "), edit,
			strings.Join(append(slices.Clone(c.Subjects), missing...), ","))
	}
	return why
}

// differences lists the deviations of an existing stream from the configuration, and other
// properties worth knowing.
func differences(got, want *jetstream.StreamConfig) []string {
	var d []string
	differ := func(what string, got, want any) {
		if got != want {
			d = append(d, fmt.Sprintf("%s is %v, configured %v", what, got, want))
		}
	}
	differ("replicas", got.Replicas, want.Replicas)
	differ("max_age", got.MaxAge, want.MaxAge)
	differ("max_bytes", max(got.MaxBytes, -1), want.MaxBytes)
	if got.Duplicates == 0 { // the server's default for a stream with sources
		d = append(d, "duplicate_window is 0: an event that is retried may be stored twice, with the same id")
	} else {
		differ("duplicate_window", got.Duplicates, want.Duplicates)
	}
	differ("storage", got.Storage, want.Storage)
	if got.MaxMsgs > 0 {
		d = append(d, fmt.Sprintf("max_msgs is %d: when it is reached, events wait", got.MaxMsgs))
	}
	if got.MaxMsgsPerSubject > 0 {
		d = append(d,
			fmt.Sprintf("max_msgs_per_subject is %d: when an object reaches it, its events wait",
				got.MaxMsgsPerSubject))
	}
	if got.SubjectTransform != nil {
		d = append(d, "records are stored under another subject (subject_transform)")
	}
	if got.PersistMode == jetstream.AsyncPersistMode {
		d = append(d, "records are acknowledged before they are written (persist_mode async)")
	}
	return d
}

// ensureStream ensures that the configured stream exists and loses nothing. An error that wraps
// publish.ErrStream is permanent.
func (b *Bus) ensureStream(ctx context.Context, js jetstream.JetStream, server string) error {
	want := streamConfig(&b.cfg.Stream, b.capturedSubjects())
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	seen := b.logs.Look(want.Name)
	s, err := js.Stream(ctx, want.Name)
	created := false
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !b.cfg.Stream.Create {
			return fmt.Errorf("stream %s does not exist, and %s.stream.create is not set", want.Name, b.cfg.Key)
		}
		s, err = js.CreateStream(ctx, want)
		created = err == nil
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another agent was faster
			s, err = js.Stream(ctx, want.Name)
		}
		if err != nil {
			return b.creationError(want.Name, err)
		}
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf(
			"look up stream %s: JetStream is not enabled on the server, or not ready: enable it (nats-server -js), or use another server: %w",
			want.Name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf(
			"look up stream %s: no response within %s: check that its leader is up, and that the user may publish to %s and subscribe to %s.>: %w",
			want.Name, publish.RequestTimeout, b.apiSubject("STREAM.INFO."), b.cfg.InboxPrefix, err)
	case err != nil:
		return fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	b.lookAgain = b.noteLog(seen, s.CachedInfo())
	got := s.CachedInfo().Config
	b.maxMsgSize.Store(int64(got.MaxMsgSize))
	why, small := refusals(&got, b.patterns(), b.cfg.Key), tooSmall(&got, b.cfg.MaxEventBytes)
	switch {
	case small == "":
	case b.accepted:
		b.warnOfLimit(small)
	default:
		why = append(why, small)
	}
	if len(why) > 0 {
		return fmt.Errorf("%w: %s:\n  - %s", publish.ErrStream, want.Name, strings.Join(why, "\n  - "))
	}
	b.noteDeadLetters(got.Subjects)
	b.transformed.Store(got.SubjectTransform != nil)
	b.warnOfVersion(server, &got)
	switch d := differences(&got, &want); {
	case created:
		b.log.Info("stream created", "stream", want.Name, "subjects", want.Subjects, "replicas", want.Replicas,
			"max_age", want.MaxAge, "max_bytes", want.MaxBytes)
	case len(d) > 0:
		if _, ok := b.window.First("differences"); ok {
			b.log.Info("using the existing stream", "stream", want.Name, "differences", d)
		}
	}
	return nil
}

// creationError marks permanent errors.
func (b *Bus) creationError(name string, err error) error {
	if api := new(jetstream.APIError); errors.As(err, &api) {
		advice, final := map[jetstream.ErrorCode]string{
			codeReplicas: ": set " + b.cfg.Key + ".stream.replicas to 1, or use a cluster",
			codeOverlap: ": another stream has these subjects; set it in " + b.cfg.Key +
				".stream.name, or change " + b.cfg.Key + ".subject",
			codeInvalidConfig: "",
		}[api.ErrorCode]
		if final {
			return fmt.Errorf("%w: create %s: %w%s", publish.ErrStream, name, err, advice)
		}
	}
	return fmt.Errorf("create stream %s: %w", name, err)
}

// noteAck notes the sequence of a record. The stream assigns ascending sequences. If an
// acknowledgement is no duplicate and is below those acknowledged when the record was first sent,
// the stream is a different one, or has lost records.
func (b *Bus) noteAck(m publish.Mark, o *outcome) {
	if o.duplicate { // the sequence belongs to the first copy
		b.metrics.Duplicates.Inc()
		return
	}
	if o.sequence > 0 && !b.tail.NoteAcked(m, o.sequence-1, o.sequence) {
		b.logs.NoteRepeatedPosition(b.cfg.Stream.Name, 0, m)
		b.wake.Raise()
	}
}

// noteLog notes the state of the stream. It reports whether another look is needed soon. The
// leader of the stream answers, and all replicas have the same creation time.
func (b *Bus) noteLog(seen publish.Look, info *jetstream.StreamInfo) (again bool) {
	b.logs.SetTrouble(nil)
	return b.logs.NoteFound(seen, "", created(info), []uint64{info.State.LastSeq})
}

// lookAtLog reads the identity of the stream, in addition to the checks after a loss of the
// connection or the stream. It reports whether another look is needed soon.
func (b *Bus) lookAtLog(ctx context.Context, js jetstream.JetStream) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, publish.RequestTimeout)
	defer cancel()
	seen := b.logs.Look(b.cfg.Stream.Name)
	info, err := lookUp(ctx, js, b.cfg.Stream.Name)
	switch {
	case err == nil:
		return b.noteLog(seen, info)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		b.wake.Raise()
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		b.logs.SetTrouble(err)
	}
	return false
}

// lookUp returns the configuration and the state of a stream.
func lookUp(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// created returns the id of a stream, as in package consume.
func created(info *jetstream.StreamInfo) string { return info.Created.UTC().Format(time.RFC3339Nano) }

// deadLetterSuffix is appended to the Nats-Msg-Id of a dead letter. JetStream identifies duplicates
// by the id alone, whatever the subject, and the event itself may still be published when the bus
// accepts it.
const deadLetterSuffix = ".dead"

// takesDeadLetters reports whether the stream, which must have been checked, accepts dead letters.
func (b *Bus) takesDeadLetters() bool { return b.dead != "" && !b.deadOff.Load() }

// deadLetterAdvice returns the fix if it does not.
func (b *Bus) deadLetterAdvice() string {
	if b.dead == "" {
		return "no subject of dead letters is configured: set deadLetter.subject"
	}
	return fmt.Sprintf(
		"stream %[1]s does not include the dead-letter subject %[2]s: add it to the stream's subjects (nats stream edit %[1]s --subjects=…), or set another one in deadLetter.subject",
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

// capturedSubjects returns the subjects for the creation of the stream.
func (b *Bus) capturedSubjects() []string {
	c := b.subjects.Capture()
	if b.dead != "" && !anyCovers(c, b.dead) {
		c = append(c, b.dead)
	}
	return c
}

// noteDeadLetters logs, once, that an existing stream does not accept the dead letters of the
// default configuration.
func (b *Bus) noteDeadLetters(subjects []string) {
	if b.dead == "" || !b.cfg.DeadLetterOptional {
		return
	}
	off := !anyCovers(subjects, b.dead)
	if b.deadOff.Swap(off) == off || !off {
		return
	}
	b.log.Warn(
		"the stream does not include the dead-letter subject: an event that the bus rejects permanently will stop the agent",
		"stream", b.cfg.Stream.Name, "subject", b.dead,
		"advice",
		"nats stream edit "+b.cfg.Stream.Name+" --subjects="+strings.Join(append(slices.Clip(subjects), b.dead), ","))
}

func anyCovers(subjects []string, inner string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return subject.Covers(s, inner) })
}
