package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slack-go/slack"
	"golang.org/x/time/rate"

	"github.com/kubecdc/kubecdc/internal/publish"
)

// SlackConfig says where in Slack messages go: to the channel of an incoming webhook, or to one by a token.
type SlackConfig struct {
	URLFile string // holds the webhook's URL, which is a secret

	TokenFile string // holds a bot's token, which may chat:write
	Channel   string // "#deploys" or its id

	APIURL string        // "": slack.APIURL; for tests
	Every  time.Duration // between two messages; 0: a second, which is what Slack takes
	Fence  publish.Fence // asked before each message; nil: everything passes
}

const (
	slackTimeout = 30 * time.Second
	// maxRetryAfter bounds what Slack may ask for: a wrong number must not silence the relay.
	maxRetryAfter = 5 * time.Minute
)

// Slack writes events into a channel of Slack, for people. One message at a time goes out; events that wait for it
// are gathered into the next. Each file is read again for each message.
//
// Slack knows no ids: where an answer is lost, a message may come twice.
type Slack struct {
	cfg    SlackConfig
	log    *slog.Logger
	notes  notes
	client *http.Client
	limit  *rate.Limiter
	fence  *publish.Fencing

	problem atomic.Pointer[string]

	mu      sync.Mutex
	waiting []*letter     // bounded by InFlight
	over    bool          // Run has ended
	came    chan struct{} // room for one: letters wait. Never closed.
}

// letter is an event that waits to be written.
type letter struct {
	event   *publish.Event
	number  uint64 // of the record
	section *section
}

// NewSlack checks the configuration and returns a target.
func NewSlack(cfg SlackConfig, log *slog.Logger) (*Slack, error) {
	switch {
	case (cfg.URLFile == "") == (cfg.TokenFile == ""):
		return nil, errors.New("slack: want urlFile, or tokenFile and channel")
	case cfg.TokenFile != "" && cfg.Channel == "":
		return nil, errors.New("slack: tokenFile needs a channel: its id, or its name with #")
	case cfg.URLFile != "" && cfg.Channel != "":
		return nil, errors.New("slack: a webhook has its own channel: leave channel out, or use tokenFile")
	}
	if cfg.APIURL == "" {
		cfg.APIURL = slack.APIURL
	}
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		transport = t.Clone()
	}
	return &Slack{
		cfg: cfg, log: log,
		client: &http.Client{
			Timeout:   slackTimeout,
			Transport: transport,
			// The address is a secret, or goes with one.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		limit: rate.NewLimiter(rate.Every(cfg.Every), 1),
		fence: publish.NewFencing(cfg.Fence),
		came:  make(chan struct{}, 1),
	}, nil
}

// Stream implements Target: events about the stream are not for people.
func (s *Slack) Stream() bool { return false }

// InFlight implements Target: one message is gathered while another is sent.
func (s *Slack) InFlight() int { return 4 * maxGathered }

// Ready implements Target. It says what Slack's last answer was about, where it did not take a message.
func (s *Slack) Ready() error {
	if p := s.problem.Load(); p != nil {
		return errors.New("slack: " + *p)
	}
	return nil
}

// Publish implements publish.Bus.
func (s *Slack) Publish(e *publish.Event) {
	r := RecordOf(e)
	text, err := describe(r.Event)
	if err != nil {
		e.Done(fmt.Errorf("slack: describe %s: %w: %w", r.Event.ID, publish.ErrRefused, err))
		return
	}
	s.mu.Lock()
	over := s.over
	if !over {
		s.waiting = append(s.waiting, &letter{e, r.Number, text})
	}
	s.mu.Unlock()
	if over {
		e.Done(publish.ErrClosed)
		return
	}
	select {
	case s.came <- struct{}{}:
	default: // Run has not looked yet
	}
}

// Run implements publish.Bus.
func (s *Slack) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	defer func() {
		s.mu.Lock()
		rest := s.waiting
		s.waiting, s.over = nil, true
		s.mu.Unlock()
		for _, l := range rest {
			l.event.Done(publish.ErrClosed)
		}
	}()
	for {
		select {
		case <-s.came:
		case <-ctx.Done():
			return nil
		}
		for s.some() {
			// First the right to send, then what is to be sent: what comes meanwhile goes with it.
			if s.limit.Wait(ctx) != nil {
				return nil
			}
			s.write(ctx, s.gather())
		}
	}
}

// some reports whether letters wait.
func (s *Slack) some() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// gather takes what waits, as far as it goes into one message, in the order of the bus.
func (s *Slack) gather() []*letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.waiting, func(a, b *letter) int { return cmp.Compare(a.number, b.number) })
	n, size := 0, 0
	for n < min(len(s.waiting), maxGathered) {
		if size += s.waiting[n].section.size(); size > maxMessage && n > 0 {
			break
		}
		n++
	}
	letters := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	return letters
}

// write sends a message and answers all whose events are in it. Where Slack refuses it, each event goes out alone, so that
// only one is refused which is the reason.
func (s *Slack) write(ctx context.Context, letters []*letter) {
	sections := make([]*section, len(letters))
	for i, l := range letters {
		sections[i] = l.section
	}
	err := s.send(ctx, sections)
	if len(letters) > 1 && errors.Is(err, publish.ErrRefused) {
		for _, l := range letters {
			err := s.limit.Wait(ctx)
			if err == nil {
				err = s.send(ctx, []*section{l.section})
			}
			l.end(ctx, err)
		}
		return
	}
	for _, l := range letters {
		l.end(ctx, err)
	}
}

func (l *letter) end(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		err = publish.ErrClosed
	}
	l.event.Done(err)
}

// send tries until Slack has taken or refused the message, or ctx ends.
func (s *Slack) send(ctx context.Context, sections []*section) error {
	blocks, text := blocksOf(sections)
	for failures := 1; ; failures++ {
		if err := s.fence.Pass(ctx); err != nil {
			return err
		}
		err := s.post(ctx, blocks, text)
		if err == nil {
			s.problem.Store(nil)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var limited *slack.RateLimitedError
		if errors.As(err, &limited) {
			wait := min(max(limited.RetryAfter, s.cfg.Every), maxRetryAfter)
			if suppressed, ok := s.notes.first("rate limit"); ok {
				s.log.Warn("slack asks to wait", "retry_after", limited.RetryAfter, "wait", wait, "suppressed", suppressed)
			}
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		}
		advice, refused := adviceOf(err)
		if refused {
			s.problem.Store(nil)
			return fmt.Errorf("slack: %w: %w", publish.ErrRefused, err)
		}
		problem := err.Error()
		s.problem.Store(&problem)
		if suppressed, ok := s.notes.first(advice); ok {
			level := slog.LevelWarn
			if advice != "" {
				level = slog.LevelError
			} else {
				advice = "none: it is tried again"
			}
			s.log.Log(ctx, level, "slack does not take a message, trying on", "err", err, "advice", advice, "attempt", failures, "suppressed", suppressed)
		}
		if err := backoff(ctx, failures); err != nil {
			return err
		}
	}
}

// post sends a message once. Its error holds no secret.
func (s *Slack) post(ctx context.Context, blocks []slack.Block, text string) error {
	if s.cfg.URLFile != "" {
		address, err := secret(s.cfg.URLFile)
		if err != nil {
			return err
		}
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("%s does not hold a URL", s.cfg.URLFile)
		} else if u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			return fmt.Errorf("the URL in %s begins with http://: it is a secret, and would be sent unencrypted: write https://", s.cfg.URLFile)
		}
		no := false
		err = slack.PostWebhookCustomHTTPContext(ctx, address, s.client, &slack.WebhookMessage{
			Text: text, Blocks: &slack.Blocks{BlockSet: blocks}, UnfurlLinks: &no, UnfurlMedia: &no,
		})
		return withoutURL(err)
	}
	token, err := secret(s.cfg.TokenFile)
	if err != nil {
		return err
	}
	client := slack.New(token, slack.OptionHTTPClient(s.client), slack.OptionAPIURL(s.cfg.APIURL))
	_, _, _, err = client.SendMessageContext(ctx, s.cfg.Channel,
		slack.MsgOptionText(text, false), slack.MsgOptionBlocks(blocks...),
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())
	return withoutURL(err)
}

// secret reads a file that holds one.
func secret(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return text, nil
}

// adviceOf says what somebody must do about an error, "" where it passes by itself, and whether Slack will never take the
// message. What is not known is taken for something that can be mended: nothing is lost by trying on.
func adviceOf(err error) (advice string, refused bool) {
	var answer slack.SlackErrorResponse
	if errors.As(err, &answer) {
		switch answer.Err {
		case "internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited", "rate_limited", "message_limit_exceeded", "team_added_to_org":
			return "", false
		case "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "no_text", "markdown_text_conflict",
			"invalid_arguments", "invalid_json", "invalid_post_type", "too_many_attachments", "invalid_attachments", "slack_connect_blocked_file_type":
			return "", true
		case "invalid_auth", "not_authed", "token_expired", "token_revoked", "account_inactive", "no_permission", "missing_scope", "not_allowed_token_type", "access_denied":
			return "see that tokenFile holds a bot token of the workspace with the scope chat:write", false
		case "channel_not_found", "not_in_channel", "is_archived", "restricted_action", "restricted_action_read_only_channel", "cannot_reply_to_message":
			return "see that the channel exists and the bot has been invited to it", false
		}
		return "look the error up at https://docs.slack.dev/reference/methods/chat.postMessage", false
	}
	var status slack.StatusCodeError
	if errors.As(err, &status) {
		switch code := status.Code; {
		case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge:
			return "", true
		case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone, code == http.StatusUnauthorized,
			code >= 300 && code < 400:
			return "see that urlFile holds the URL of a webhook that has not been removed, and that its channel is not archived", false
		}
		return "", false
	}
	if pathErr := new(os.PathError); errors.As(err, &pathErr) {
		return "see that the file exists and can be read", false
	}
	return "", false
}
