package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// statusTimeout is the time limit of GET /status.
	statusTimeout = 10 * time.Second
	// commandTimeout is the time limit of a command. A snapshot waits for a live event, which may
	// wait for space in the queue.
	commandTimeout = time.Minute
)

// Client sends requests to an agent.
type Client struct {
	agent  string // URL or path, for errors
	base   string
	socket bool
	http   *http.Client
}

// NewClient returns a client for the HTTP server at a URL, http://host:port. It ignores proxies of
// the environment: a proxy is not on this machine.
func NewClient(agent string) *Client {
	return &Client{agent: agent, base: agent, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// NewSocketClient returns a client for the socket at a path.
func NewSocketClient(path string) *Client {
	return &Client{
		agent:  path,
		base:   "http://kubecdc",
		socket: true,
		http: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", path)
			},
		}},
	}
}

// Status requests the status with at most this many scopes.
func (c *Client) Status(ctx context.Context, scopes int) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	response, err := c.do(ctx, http.MethodGet, "/status?scopes="+strconv.Itoa(scopes), nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the agent at %s has not responded within %v", c.agent, statusTimeout)
	case err != nil && c.socket:
		return nil, withoutRequest(err)
	case err != nil:
		return nil,
			fmt.Errorf(
				"no agent answers at %s: start one (kubecdc run), or give its address (--agent http://host:port, its server.address): %w",
				c.agent, withoutRequest(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !isJSON(response) {
		return nil, c.notAnAgentError(response, "status")
	}
	s := new(Status)
	if err := json.NewDecoder(io.LimitReader(response.Body, 256<<20)).Decode(s); err != nil {
		return nil, fmt.Errorf("the response of the agent at %s is incomplete: %w", c.agent, err)
	}
	return s, nil
}

// Snapshot starts snapshots. The answer may contain errors of scopes that could not start.
func (c *Client) Snapshot(ctx context.Context, request SnapshotRequest) (*SnapshotAnswer, error) {
	a := new(SnapshotAnswer)
	err := c.sendCommand(ctx, http.MethodPost, "/snapshot", "snapshots on demand", &request, a)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil,
			fmt.Errorf(
				"the agent at %s has not responded within %v: snapshots that have begun continue; 'kubecdc tail --op snapshot' shows them",
				c.agent, commandTimeout)
	}
	return a, err
}

// Stuck lists the events that the bus has not accepted and that are retried.
func (c *Client) Stuck(ctx context.Context) ([]StuckEvent, error) {
	var list []StuckEvent
	return list, c.sendCommand(ctx, http.MethodGet, "/stuck", "stuck events", nil, &list)
}

// DeadLetter moves one of these events to the dead letters.
func (c *Client) DeadLetter(ctx context.Context, id string) error {
	var a deadLetterAnswer
	if err := c.sendCommand(ctx, http.MethodPost, "/dead-letter", "stuck events", &deadLetterRequest{ID: id},
		&a); err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("the agent at %s: %s: 'kubecdc dead-letter' lists what is being retried", c.agent, a.Error)
	}
	return nil
}

// Profile copies a profile to w. query may have the parameters seconds and debug.
func (c *Client) Profile(ctx context.Context, name string, query url.Values, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, MaxProfile+time.Minute)
	defer cancel()
	response, err := c.do(ctx, http.MethodGet, "/debug/pprof/"+url.PathEscape(name)+"?"+query.Encode(), nil)
	if err != nil {
		return c.noSocketError(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // as much as has arrived
		if response.StatusCode == http.StatusNotFound && !strings.Contains(string(text), "no such profile") {
			return fmt.Errorf("the agent at %s serves no profiles: start it with server.pprof: true", c.agent)
		}
		return fmt.Errorf("the agent at %s: %s", c.agent, strings.TrimSpace(string(text)))
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("profile of the agent at %s: %w", c.agent, err)
	}
	return nil
}

// sendCommand sends a request to the socket and decodes the JSON of the response, whatever its
// code. If the response is something else, the agent lacks feature.
func (c *Client) sendCommand(ctx context.Context, method, path, feature string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	response, err := c.do(ctx, method, path, request)
	if err != nil {
		return c.noSocketError(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(answer); err != nil || !isJSON(response) {
		return c.notAnAgentError(response, feature)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, request any) (*http.Response, error) {
	body := io.Reader(http.NoBody)
	if request != nil {
		b, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return c.http.Do(r)
}

// noSocketError returns the error of a socket at which no agent listens.
func (c *Client) noSocketError(err error) error {
	return fmt.Errorf("no agent accepts commands at %s: start one (kubecdc run), or name another with --agent: %w",
		c.agent, withoutRequest(err))
}

// notAnAgentError returns the error of another server, or of an agent without the feature.
func (c *Client) notAnAgentError(r *http.Response, feature string) error {
	return fmt.Errorf("the server at %s responds with %s: it is not an agent, or its release has no %s: set --agent",
		c.agent, r.Status, feature)
}

func isJSON(r *http.Response) bool { return r.Header.Get("Content-Type") == "application/json" }

// withoutRequest returns the cause of an error, without the URL of the request.
func withoutRequest(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
