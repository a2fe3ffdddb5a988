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
	"sync/atomic"
	"time"

	"github.com/slack-go/slack"
	"golang.org/x/time/rate"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/relay/slackconfig"
)

// SlackConfig is a channel of Slack.
type SlackConfig = slackconfig.Config

// SlackOpener makes a Slack of its settings.
type SlackOpener struct{ *SlackConfig }

// Open implements driver.Opener.
func (o SlackOpener) Open(e *driver.Env) (publish.Bus, error) {
	cfg := *o.SlackConfig
	cfg.Fence = e.Fence
	return NewSlack(cfg, e.Log), nil
}

const (
	slackTimeout = 10 * time.Second // delivery resumes within 20 s after a path has died silently
	slackPing    = 5 * time.Second  // without a frame, and without a response to the ping that follows
	// maxRetryAfter bounds the wait that Slack may request: a wrong number must not silence the
	// relay.
	maxRetryAfter = 5 * time.Minute
)

// Slack writes events to a channel of Slack, one message at a time. Waiting events form the next
// message. It reads the files for each message. Slack has no message ids: if an answer is lost, a
// message may appear twice.
type Slack struct {
	cfg    SlackConfig
	log    *slog.Logger
	window publish.Window
	client *http.Client
	limit  *rate.Limiter
	fence  *publish.Fencing

	problem atomic.Pointer[error]

	inbox   *publish.Inbox[*letter]
	waiting []*letter // from the inbox, bounded by InFlight; belongs to Run
}

type letter struct {
	event   *publish.Event
	number  uint64 // of the record
	section *section
}

// NewSlack returns a target. The files and the channel of cfg must be valid.
func NewSlack(cfg SlackConfig, log *slog.Logger) *Slack {
	cfg.APIURL = cmp.Or(cfg.APIURL, slack.APIURL)
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		t = t.Clone()
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: slackPing, PingTimeout: slackPing}
		transport = t
	}
	return &Slack{
		cfg: cfg,
		log: log,
		client: &http.Client{
			Timeout:   slackTimeout,
			Transport: transport,
			// The address is a secret, or is sent with one.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		limit: rate.NewLimiter(rate.Every(cfg.Every), 1),
		fence: publish.NewFencing(cfg.Fence),
		inbox: publish.NewInbox[*letter](),
	}
}

// Stream implements Limited: people need no stream events.
func (s *Slack) Stream() bool { return false }

// InFlight implements Limited: events for one message gather while another is sent.
func (s *Slack) InFlight() int { return 4 * maxGathered }

// Ready implements publish.Bus. It returns Slack's last error, if Slack did not accept the last
// message.
func (s *Slack) Ready() error {
	if p := s.problem.Load(); p != nil {
		return fmt.Errorf("slack: %w", *p)
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
	if !s.inbox.Put(&letter{e, r.Number, text}) {
		e.Done(publish.ErrClosed)
	}
}

// Run implements publish.Bus.
func (s *Slack) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	defer func() {
		for _, l := range append(s.waiting, s.inbox.Close()...) {
			l.event.Done(publish.ErrClosed)
		}
	}()
	for {
		select {
		case <-s.inbox.Ready:
		case <-ctx.Done():
			return nil
		}
		for s.collect() > 0 {
			// The limit comes first, so that events that arrive meanwhile are in the message.
			if s.limit.Wait(ctx) != nil {
				return nil
			}
			s.collect()
			s.write(ctx, s.gather())
		}
	}
}

// collect takes the events of the inbox, and returns the number of waiting ones.
func (s *Slack) collect() int {
	s.waiting = append(s.waiting, s.inbox.Take(nil)...)
	return len(s.waiting)
}

// gather takes the waiting events that fit into one message, in the order of the bus.
func (s *Slack) gather() []*letter {
	slices.SortFunc(s.waiting, func(a, b *letter) int { return cmp.Compare(a.number, b.number) })
	n, size := 0, 0
	for n < min(len(s.waiting), maxGathered) {
		size += s.waiting[n].section.size()
		if size > maxMessage && n > 0 {
			break
		}
		n++
	}
	letters := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	return letters
}

// write sends a message and ends its events. If Slack refuses the message, it sends each event
// alone, to find the cause.
func (s *Slack) write(ctx context.Context, letters []*letter) {
	sections := make([]*section, len(letters))
	for i, l := range letters {
		sections[i] = l.section
	}
	err := s.send(ctx, sections)
	if len(letters) > 1 && errors.Is(err, publish.ErrRefused) {
		for _, l := range letters {
			_ = s.limit.Wait(ctx) // after the end of ctx, the attempt fails too
			s.write(ctx, []*letter{l})
		}
		return
	}
	if err != nil && ctx.Err() != nil {
		err = publish.ErrClosed
	}
	for _, l := range letters {
		l.event.Done(err)
	}
}

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
			if suppressed, ok := s.window.First("rate limit"); ok {
				s.log.Warn("slack limits the rate, waiting", "retry_after", limited.RetryAfter, "wait", wait,
					"suppressed", suppressed)
			}
			if err := pause.For(ctx, wait); err != nil {
				return err
			}
			continue
		}
		advice, refused := adviceOf(err)
		if refused {
			s.problem.Store(nil)
			return fmt.Errorf("slack: %w: %w", publish.ErrRefused, err)
		}
		s.problem.Store(&err)
		if suppressed, ok := s.window.First(advice); ok {
			level := slog.LevelWarn
			if advice != "" {
				level = slog.LevelError
			} else {
				advice = "none: the relay retries"
			}
			s.log.Log(ctx, level, "slack rejects a message, retrying", "err", err, "advice", advice, "attempt",
				failures, "suppressed", suppressed)
		}
		backoff := openBackoff()
		if !isResponse(err) {
			s.client.CloseIdleConnections() // their path may be dead too
			backoff = publish.BusyBackoff()
		}
		if err := pause.For(ctx, backoff.Delay(failures)); err != nil {
			return err
		}
	}
}

// isResponse reports whether err is a response of Slack.
func isResponse(err error) bool {
	var answer slack.SlackErrorResponse
	var status slack.StatusCodeError
	return errors.As(err, &answer) || errors.As(err, &status)
}

// post sends a message once. Its error contains no secret.
func (s *Slack) post(ctx context.Context, blocks []slack.Block, text string) error {
	if s.cfg.URLFile != "" {
		address, err := publish.ReadSecret("urlFile", s.cfg.URLFile)
		if err != nil {
			return err
		}
		address = strings.TrimSpace(address)
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("%s does not contain a URL", s.cfg.URLFile)
		} else if u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			return fmt.Errorf(
				"the URL in %s begins with http://: it is a secret, and would be sent unencrypted: write https://",
				s.cfg.URLFile)
		}
		no := false
		err = slack.PostWebhookCustomHTTPContext(ctx, address, s.client, &slack.WebhookMessage{
			Text:        text,
			Blocks:      &slack.Blocks{BlockSet: blocks},
			UnfurlLinks: &no,
			UnfurlMedia: &no,
		})
		return publish.WithoutURL(err)
	}
	token, err := publish.ReadSecret("tokenFile", s.cfg.TokenFile)
	if err != nil {
		return err
	}
	client := slack.New(strings.TrimSpace(token), slack.OptionHTTPClient(s.client), slack.OptionAPIURL(s.cfg.APIURL))
	_, _, _, err = client.SendMessageContext(ctx, s.cfg.Channel,
		slack.MsgOptionText(text, false), slack.MsgOptionBlocks(blocks...),
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())
	return publish.WithoutURL(err)
}

// adviceOf returns the fix for an error, "" if none is necessary, and whether Slack will never
// accept the message. Unknown errors are retried, which loses nothing.
func adviceOf(err error) (advice string, refused bool) {
	var answer slack.SlackErrorResponse
	if errors.As(err, &answer) {
		switch answer.Err {
		case "internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited", "rate_limited",
			"message_limit_exceeded", "team_added_to_org":
			return "", false
		case "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "no_text",
			"markdown_text_conflict",
			"invalid_arguments", "invalid_json", "invalid_post_type", "too_many_attachments", "invalid_attachments",
			"slack_connect_blocked_file_type":
			return "", true
		case "invalid_auth", "not_authed", "token_expired", "token_revoked", "account_inactive", "no_permission",
			"missing_scope", "not_allowed_token_type", "access_denied":
			return "check that tokenFile contains a bot token of the workspace with the scope chat:write", false
		case "channel_not_found", "not_in_channel", "is_archived", "restricted_action",
			"restricted_action_read_only_channel", "cannot_reply_to_message":
			return "check that the channel exists and that the bot has been invited to it", false
		}
		return "look the error up at https://docs.slack.dev/reference/methods/chat.postMessage", false
	}
	var status slack.StatusCodeError
	if errors.As(err, &status) {
		switch code := status.Code; {
		case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge:
			return "", true
		case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusGone,
			code == http.StatusUnauthorized,
			code >= 300 && code < 400:
			return "check that urlFile contains the URL of a webhook that has not been removed, and that its channel is not archived",
				false
		}
		return "", false
	}
	if pathErr := new(os.PathError); errors.As(err, &pathErr) {
		return "check that the file exists and can be read", false
	}
	return "", false
}
