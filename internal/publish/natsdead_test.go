package publish_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestDeadLetter(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	cfg := testConfig(s.ClientURL())
	cfg.DeadLetter = "dead.{cluster}"
	r := run(t, cfg)
	ev := event("web-1", 7, `{"op":"u"}`)
	letters := r.DeadLetters()
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
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
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
	err := letters.Publish(t.Context(), event("web-1", 8, strings.Repeat("x", 2<<20)))
	if !errors.Is(err, publish.ErrTooLarge) {
		t.Errorf("a letter that is too large: got %v", err)
	}
}

func TestDeadLetterSubjectThatIsWrong(t *testing.T) {
	for template, want := range map[string]string{
		"kubecdc.{cluster}.{name}":                    `dead-letter subject "kubecdc.{cluster}.{name}": {cluster} is the only placeholder in it`,
		"kubecdc.>":                                   `dead-letter subject "kubecdc.>": at byte 8: wildcard '>'`,
		"kubecdc.{cluster}.stream.core.pods":          `dead-letter subject "kubecdc.{cluster}.stream.core.pods": is one of the events' own`,
		"kubecdc.{cluster}.object.core.pods.shop.web": `dead-letter subject "kubecdc.{cluster}.object.core.pods.shop.web": is one of the events' own`,
	} {
		cfg := testConfig("nats://127.0.0.1:1")
		cfg.DeadLetter = template
		if _, err := publish.NewNATS(cfg, discard, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", template, err, want)
		}
	}
	n, err := publish.NewNATS(testConfig("nats://127.0.0.1:1"), discard, nil)
	if err != nil || n.DeadLetters() != nil {
		t.Errorf("none configured: got %v, %v", n.DeadLetters(), err)
	}
}

// The stream is not ours: whoever made it has not thought of dead letters.
func TestStreamThatDoesNotTakeDeadLetters(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	js := admin(t, s.ClientURL())
	subjects := []string{"kubecdc.prod-eu-1.object.>", "kubecdc.prod-eu-1.stream.>"}
	config := jetstream.StreamConfig{Name: "KUBECDC", Subjects: subjects, Discard: jetstream.DiscardNew}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(s.ClientURL())
	cfg.DeadLetter = "kubecdc.{cluster}.dead"
	advice := "nats stream edit KUBECDC --subjects=" + strings.Join(append(subjects, "kubecdc.prod-eu-1.dead"), ",")

	written := run(t, cfg)
	<-written.done
	want := fmt.Sprintf("stream refused: KUBECDC:\n  - its subjects (%s) do not take all of kubecdc.prod-eu-1.dead: %s", strings.Join(subjects, ", "), advice)
	if !errors.Is(written.err, publish.ErrStream) || written.err.Error() != want {
		t.Errorf("got  %v\nwant %s", written.err, want)
	}

	cfg.DeadLetterOptional = true
	r := run(t, cfg)
	if err := r.Publish(t.Context(), event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if lines(r.log.String(), "the stream does not take dead letters") != 1 || !strings.Contains(r.log.String(), advice) {
		t.Errorf("the log does not say so:\n%s", r.log)
	}
	err := r.DeadLetters().Publish(t.Context(), event("web-1", 2, `{}`))
	if !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "does not take the dead-letter subject kubecdc.prod-eu-1.dead") {
		t.Errorf("got %v", err)
	}
}

// What makes the server cut the connection may lie in the object: then it would cut it for the dead letter as well, and the
// letter goes without.
func TestDeadLetterOfWhatCutsTheConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	p := startProxy(t, s.Addr().String())
	cfg := testConfig(p.URL())
	cfg.DeadLetter = "kubecdc.{cluster}.dead"
	r, j := run(t, cfg), newJournal()
	p.Poison("hemlock")
	d := change(j, "web-1", 7, 10)
	d.After = object.New(d.Ref, 7, 0, nil, []byte(`{"kind":"Pod","drink":"hemlock"}`))
	o := publish.Options{Oversize: allOversize, DeadLetters: publish.Blocking(r.DeadLetters(), nil, nil)}
	if err := dispatchAll(t, r.bus(), o, encode.Structured, nil, r.log, d, change(j, "web-1", 8, 10)); err != nil {
		t.Fatal(err)
	}
	p.Poison("")
	var got []string
	for _, m := range records(t, admin(t, s.ClientURL()), "KUBECDC") {
		e, err := consume.FromMessage(m.Header, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, describe(e))
	}
	if diff := cmp.Diff([]string{"web-1/7 without before,after,patch", "gap " + letterID, "web-1/8"}, got); diff != "" {
		t.Error(diff)
	}
}
