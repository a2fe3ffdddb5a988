package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	secretPath  = "/services/T000/B000/s3cr3t"
	secretToken = "xoxb-s3cr3t"
)

// standIn is a fake Slack: a webhook, and chat.postMessage.
type standIn struct {
	url string

	mu       sync.Mutex
	answer   func(n int, m message) (status int, header http.Header, body string) // nil: it accepts all
	requests int
	messages []message // accepted
	changed  chan struct{}
}

// message is a posted message.
type message struct {
	Channel string  `json:"channel"`
	Text    string  `json:"text"`
	Blocks  []block `json:"blocks"`
	auth    string
}

type block struct {
	Type string `json:"type"`
	Text struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Verbatim bool   `json:"verbatim"`
	} `json:"text"`
}

// all returns the whole text of the message.
func (m *message) all() string {
	var b strings.Builder
	for _, block := range m.Blocks {
		b.WriteString(block.Text.Text + "\n")
	}
	return b.String()
}

func newStandIn(tb testing.TB) *standIn {
	tb.Helper()
	s := &standIn{changed: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+secretPath, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m message
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			http.Error(w, "invalid_payload", http.StatusBadRequest)
			return
		}
		s.take(w, m, "ok")
	})
	mux.HandleFunc("POST /api/chat.postMessage", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "read", http.StatusBadRequest)
			return
		}
		form, err := url.ParseQuery(string(body))
		m := message{
			Channel: form.Get("channel"),
			Text:    form.Get("text"),
			auth:    r.Header.Get("Authorization") + form.Get("token"),
		}
		if err == nil {
			err = json.Unmarshal([]byte(form.Get("blocks")), &m.Blocks)
		}
		if err != nil {
			fmt.Fprint(w, `{"ok":false,"error":"invalid_blocks"}`)
			return
		}
		s.take(w, m, `{"ok":true,"channel":"C1","ts":"1.1"}`)
	})
	server := httptest.NewServer(mux)
	tb.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *standIn) take(w http.ResponseWriter, m message, ok string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.answer != nil {
		if status, header, body := s.answer(s.requests, m); status != 0 {
			for name, values := range header {
				w.Header()[name] = values
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return
		}
	}
	s.messages = append(s.messages, m)
	fmt.Fprint(w, ok)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *standIn) taken() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]message(nil), s.messages...)
}

// file writes a secret.
func file(tb testing.TB, text string) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

func (s *standIn) webhook(tb testing.TB) relay.SlackConfig {
	tb.Helper()
	return relay.SlackConfig{URLFile: file(tb, s.url+secretPath), Every: time.Millisecond}
}

func (s *standIn) token(tb testing.TB) relay.SlackConfig {
	tb.Helper()
	return relay.SlackConfig{
		TokenFile: file(tb, secretToken),
		Channel:   "#deploys",
		APIURL:    s.url + "/api/",
		Every:     time.Millisecond,
	}
}

func newSlack(tb testing.TB, c relay.SlackConfig, log *slog.Logger) *relay.Slack {
	tb.Helper()
	return relay.NewSlack(c, log)
}

// relayTo relays records to Slack until its messages contain n events.
func (s *standIn) relayTo(
	tb testing.TB, c relay.SlackConfig, o relay.Options, events int, records ...string,
) *logBuffer {
	tb.Helper()
	log := &logBuffer{}
	m := &memory{}
	for i, raw := range records {
		m.records = append(m.records, copyOf(tb, 0, 1, uint64(i), raw))
	}
	o.Name = "r"
	o.Subscription = m
	o.Target = newSlack(tb, c, log.logger())
	r := startLogging(tb, o, log.logger())
	waitFor(tb, func() bool {
		n := 0
		for _, m := range s.taken() {
			n += strings.Count(m.all(), "*ConfigMap*")
		}
		return n >= events
	})
	if err := r.stop(); err != nil {
		tb.Fatal(err)
	}
	for _, hidden := range []string{"s3cr3t"} {
		if strings.Contains(log.String(), hidden) {
			tb.Errorf("a secret is in the log:\n%s", log)
		}
	}
	return log
}

func TestSlackByWebhookAndByToken(t *testing.T) {
	for name, config := range map[string]func(*standIn, testing.TB) relay.SlackConfig{
		"webhook": (*standIn).webhook,
		"token":   (*standIn).token,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.relayTo(t, config(s, t), relay.Options{}, 1, progressEvent(1), event("shop", "web", 7))
			got := s.taken()
			if len(got) != 1 {
				t.Fatalf("messages: %d, want 1: events about the stream are not for people", len(got))
			}
			want := "*ConfigMap* `shop/web` was updated by `kubectl-edit` in `prod`\n```\n  data:\n- n: \"6\"\n+ n: \"7\"\n```\n"
			if diff := cmp.Diff("ConfigMap shop/web was updated by kubectl-edit", got[0].Text); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if text := got[0].all(); !strings.HasPrefix(text,
				"*ConfigMap* `shop/web` was updated by `kubectl-edit` in `prod`\n```\n") ||
				!strings.Contains(text, "7") {
				t.Errorf("message (-want +got):\n%s", cmp.Diff(want, text))
			}
			if name == "token" && (got[0].Channel != "#deploys" || !strings.Contains(got[0].auth, secretToken)) {
				t.Errorf("channel %q, token there: %t", got[0].Channel, strings.Contains(got[0].auth, secretToken))
			}
		})
	}
}

func TestSlackMessagesLookLikeThis(t *testing.T) {
	s := newStandIn(t)
	files, err := filepath.Glob("testdata/slack/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			before := len(s.taken())
			to := newSlack(t, s.webhook(t), slog.New(slog.DiscardHandler))
			deliver(t, to, string(raw))
			m := s.taken()[before]
			got := m.Text + "\n---\n" + m.all()
			for _, b := range m.Blocks {
				if n := utf8.RuneCountInString(b.Text.Text); n > 3000 || b.Type != "section" ||
					b.Text.Type != "mrkdwn" || !b.Text.Verbatim {
					t.Errorf("block of type %s with %d characters of %s, verbatim %t", b.Type, n, b.Text.Type,
						b.Text.Verbatim)
				}
			}
			golden := strings.TrimSuffix(name, ".json") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// deliver relays one record.
func deliver(tb testing.TB, to relay.Target, raw string) {
	tb.Helper()
	m := &memory{records: []*driver.Record{copyOf(tb, 0, 1, 0, raw)}}
	r := start(tb, relay.Options{Name: "r", Subscription: m, Target: to})
	waitFor(tb, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.saved) > 0
	})
	if err := r.stop(); err != nil {
		tb.Fatal(err)
	}
}

func TestSlackLongDifferenceIsCutWithANote(t *testing.T) {
	s := newStandIn(t)
	var before, after []string
	for i := range 200 {
		before = append(before, fmt.Sprintf(`"key-%03d":"<%d & before>"`, i, i))
		after = append(after, fmt.Sprintf(`"key-%03d":"<%d & after>"`, i, i))
	}
	raw := event("shop", "web", 7)
	raw = strings.Replace(raw, `"data":{"n":"6"}`, `"data":{`+strings.Join(before, ",")+`}`, 1)
	raw = strings.Replace(raw, `"data":{"n":"7"}`, `"data":{`+strings.Join(after, ",")+`}`, 1)
	to := newSlack(t, s.webhook(t), slog.New(slog.DiscardHandler))
	deliver(t, to, raw)
	m := s.taken()[0]
	diff := m.Blocks[1].Text.Text
	if n := utf8.RuneCountInString(diff); n > 3000 || n < 2000 {
		t.Errorf("the difference has %d characters, allowed are 3000", n)
	}
	if !strings.Contains(diff,
		"more lines: see `kubecdc tail configmaps/web -n shop --since 2026-11-20T15:00:00Z --diff`") {
		t.Errorf("no note says what is left out, and how to see it:\n%s", diff)
	}
	if strings.ContainsAny(diff, "<>") || strings.Count(diff, "```") != 2 {
		t.Errorf("not escaped:\n%s", diff)
	}
}

func TestSlackRateLimitIsHeeded(t *testing.T) {
	for name, config := range map[string]func(*standIn, testing.TB) relay.SlackConfig{
		"webhook": (*standIn).webhook,
		"token":   (*standIn).token,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandIn(t)
			s.answer = func(n int, _ message) (int, http.Header, string) {
				if n <= 2 {
					return http.StatusTooManyRequests, http.Header{"Retry-After": {"0"}}, ""
				}
				return 0, nil, ""
			}
			log := s.relayTo(t, config(s, t), relay.Options{}, 1, event("shop", "web", 7))
			if !strings.Contains(log.String(), "slack limits the rate, waiting") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// If Slack asks for a pause of a day by mistake, the relay does not stay silent for a day.
func TestSlackIsNotWaitedForForLong(t *testing.T) {
	s := newStandIn(t)
	s.answer = func(int, message) (int, http.Header, string) {
		return http.StatusTooManyRequests, http.Header{"Retry-After": {"86400"}}, ""
	}
	log := &logBuffer{}
	m := &memory{records: []*driver.Record{copyOf(t, 0, 1, 0, event("shop", "web", 7))}}
	to := newSlack(t, s.webhook(t), log.logger())
	r := startLogging(t, relay.Options{Name: "r", Subscription: m, Target: to, Grace: time.Millisecond}, log.logger())
	waitFor(t, func() bool { return strings.Contains(log.String(), "slack limits the rate, waiting") })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "retry_after=24h0m0s wait=5m0s") {
		t.Errorf("log:\n%s", log)
	}
}

func TestSlackGathersWhatWaits(t *testing.T) {
	s := newStandIn(t)
	var records []string
	for i := range 60 {
		records = append(records, event("shop", fmt.Sprintf("web-%d", i), i+1))
	}
	config := s.webhook(t)
	config.Every = 50 * time.Millisecond
	s.relayTo(t, config, relay.Options{}, 60, records...)
	all := ""
	for _, m := range s.taken() {
		all += m.all()
	}
	if n := len(s.taken()); n > 30 {
		t.Errorf("60 events came in %d messages", n)
	}
	for i := range 60 {
		if strings.Count(all, fmt.Sprintf("`shop/web-%d`", i)) != 1 {
			t.Errorf("web-%d is there %d times", i, strings.Count(all, fmt.Sprintf("`shop/web-%d`", i)))
		}
	}
}

func TestSlackRefusesOnlyWhatItCannotTake(t *testing.T) {
	s := newStandIn(t)
	s.answer = func(_ int, m message) (int, http.Header, string) {
		if strings.Contains(m.all(), "poisoned") {
			return http.StatusOK, nil, `{"ok":false,"error":"invalid_blocks"}`
		}
		return 0, nil, ""
	}
	log := s.relayTo(t, s.token(t), relay.Options{Refused: relay.Skip}, 3,
		event("shop", "a", 1), event("shop", "poisoned", 2), event("shop", "b", 3), event("shop", "c", 4))
	if n := strings.Count(log.String(), "the target rejects a record, which is skipped"); n != 1 {
		t.Errorf("skipped: %d, want 1:\n%s", n, log)
	}
}

func TestSlackErrorsThatCanBeMendedAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, answer, advice string }{
		{"token", `{"ok":false,"error":"invalid_auth"}`, "tokenFile contains a bot token"},
		{"channel", `{"ok":false,"error":"channel_not_found"}`, "the bot has been invited"},
		{"unknown", `{"ok":false,"error":"something_new"}`, "look the error up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStandIn(t)
			s.answer = func(n int, _ message) (int, http.Header, string) {
				if n == 1 {
					return http.StatusOK, nil, c.answer
				}
				return 0, nil, ""
			}
			log := s.relayTo(t, s.token(t), relay.Options{}, 1, event("shop", "web", 7))
			if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), c.advice) {
				t.Errorf("log does not advise:\n%s", log)
			}
		})
	}
	t.Run("webhook", func(t *testing.T) {
		s := newStandIn(t)
		s.answer = func(n int, _ message) (int, http.Header, string) {
			switch n {
			case 1:
				return http.StatusNotFound, nil, "no_service"
			case 2:
				return http.StatusServiceUnavailable, nil, ""
			}
			return 0, nil, ""
		}
		log := s.relayTo(t, s.webhook(t), relay.Options{}, 1, event("shop", "web", 7))
		if !strings.Contains(log.String(), "urlFile contains the URL of a webhook") {
			t.Errorf("log does not advise:\n%s", log)
		}
	})
	t.Run("away", func(t *testing.T) {
		s := newStandIn(t)
		config := relay.SlackConfig{URLFile: file(t, "http://127.0.0.1:1"+secretPath), Every: time.Millisecond}
		log := &logBuffer{}
		to := newSlack(t, config, log.logger())
		m := &memory{records: []*driver.Record{copyOf(t, 0, 1, 0, event("shop", "web", 7))}}
		o := relay.Options{Name: "r", Subscription: m, Target: to, Grace: time.Millisecond}
		r := startLogging(t, o, log.logger())
		waitFor(t, func() bool { return strings.Contains(log.String(), "retrying") })
		if err := to.Ready(); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("ready: %v", err)
		}
		if err := os.WriteFile(config.URLFile, []byte(s.url+secretPath), 0o600); err != nil {
			// it is fixed while the relay runs
			t.Fatal(err)
		}
		waitFor(t, func() bool { return len(s.taken()) == 1 })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "s3cr3t") {
			t.Errorf("a secret is in the log:\n%s", log)
		}
	})
	t.Run("without TLS", func(t *testing.T) { // the URL is the secret
		log := &logBuffer{}
		to := newSlack(t,
			relay.SlackConfig{URLFile: file(t, "http://hooks.invalid"+secretPath), Every: time.Millisecond},
			log.logger())
		m := &memory{records: []*driver.Record{copyOf(t, 0, 1, 0, event("shop", "web", 7))}}
		startLogging(t, relay.Options{Name: "r", Subscription: m, Target: to, Grace: time.Millisecond}, log.logger())
		waitFor(t, func() bool { return strings.Contains(log.String(), "would be sent unencrypted: write https://") })
	})
}

type shutFence struct{}

var errOther = errors.New("another agent leads")

func (shutFence) Pass(context.Context) error { return errOther }

// A relay that may no longer write sends no message, and ends.
func TestSlackBehindAFence(t *testing.T) {
	s := newStandIn(t)
	c := s.webhook(t)
	c.Fence = shutFence{}
	m := &memory{records: []*driver.Record{copyOf(t, 0, 1, 0, event("shop", "web", 7))}}
	to := newSlack(t, c, slog.New(slog.DiscardHandler))
	err := start(t, relay.Options{Name: "r", Subscription: m, Target: to}).wait(t)
	if !errors.Is(err, publish.ErrFenced) || len(s.taken()) != 0 || len(m.saved) != 0 {
		t.Errorf("ended with %v, %d messages, cursor %v", err, len(s.taken()), m.saved)
	}
}
