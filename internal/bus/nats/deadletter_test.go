package nats_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestDeadLetter(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.DeadLetter = "dead.{cluster}"
	r := bustest.RunNATS(t, cfg)
	ev := bustest.Event("web-1", 7, `{"op":"u"}`)
	letters := r.DeadLetters
	for range 2 { // the second is a copy
		if err := letters.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	// The bus may take the event later: it is no copy of its dead letter.
	if err := r.Publish(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range bustest.Records(t, bustest.Admin(t, s.ClientURL()), "KUBECDC") {
		got = append(got, m.Subject+" "+m.Header.Get("Nats-Msg-Id")+" "+string(m.Data))
	}
	id := publishedID(ev)
	want := []string{
		"dead.prod-eu-1 " + id + `.dead {"op":"u"}`,
		"kubecdc.prod-eu-1.object.core.pods.shop.web-1 " + id + ` {"op":"u"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	err := letters.Publish(t.Context(), bustest.Event("web-1", 8, strings.Repeat("x", 2<<20)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("a letter that is too large: got %v", err)
	}
}

func TestDeadLetterSubjectThatIsWrong(t *testing.T) {
	for template, want := range map[string]string{
		"kubecdc.{cluster}.{name}":                    `dead-letter subject "kubecdc.{cluster}.{name}": {cluster} is the only placeholder in it`,
		"kubecdc.>":                                   `dead-letter subject "kubecdc.>": at byte 8: wildcard '>'`,
		"kubecdc.{cluster}.stream.core.pods":          `dead-letter subject "kubecdc.{cluster}.stream.core.pods": is a subject of events`,
		"kubecdc.{cluster}.progress.dead":             `dead-letter subject "kubecdc.{cluster}.progress.dead": is a subject of events`,
		"kubecdc.{cluster}.object.core.pods.shop.web": `dead-letter subject "kubecdc.{cluster}.object.core.pods.shop.web": is a subject of events`,
	} {
		cfg := bustest.NATSConfig("nats://127.0.0.1:1")
		cfg.DeadLetter = template
		if _, err := natsbus.New(cfg, bustest.Discard, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", template, err, want)
		}
	}
}

// The stream is not ours: whoever made it has not thought of dead letters.
func TestStreamThatDoesNotTakeDeadLetters(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	js := bustest.Admin(t, s.ClientURL())
	subjects := []string{
		"kubecdc.prod-eu-1.object.>", "kubecdc.prod-eu-1.stream.>", "kubecdc.prod-eu-1.scope.>",
		"kubecdc.prod-eu-1.progress.>",
	}
	config := jetstream.StreamConfig{Name: "KUBECDC", Subjects: subjects, Discard: jetstream.DiscardNew}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.DeadLetter = "kubecdc.{cluster}.dead"
	advice := "nats stream edit KUBECDC --subjects=" + strings.Join(append(subjects, "kubecdc.prod-eu-1.dead"), ",")

	written := bustest.RunNATS(t, cfg)
	<-written.Ended
	want := fmt.Sprintf(
		"stream refused: KUBECDC:\n  - its subjects (%s) do not include all of kubecdc.prod-eu-1.dead: %s",
		strings.Join(subjects, ", "), advice)
	if !errors.Is(written.Err, publish.ErrStream) || written.Err.Error() != want {
		t.Errorf("got  %v\nwant %s", written.Err, want)
	}

	cfg.DeadLetterOptional = true
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if bustest.Lines(r.Log.String(), "the stream does not include the dead-letter subject") != 1 ||
		!strings.Contains(r.Log.String(), advice) {
		t.Errorf("the log does not say so:\n%s", r.Log)
	}
	err := r.DeadLetters.Publish(t.Context(), bustest.Event("web-1", 2, `{}`))
	if !errors.Is(err, publish.ErrRefused) ||
		!strings.Contains(err.Error(), "does not include the dead-letter subject kubecdc.prod-eu-1.dead") {
		t.Errorf("got %v", err)
	}
}
