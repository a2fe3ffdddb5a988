package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// defaultAgent is where an agent listens unless it is told otherwise.
const defaultAgent = "http://127.0.0.1:8080"

// agentVariable names the agent where --agent does not. The chart sets it in its pods, to the port that it has the agent listen on.
const agentVariable = "KUBECDC_AGENT"

// findAgent is the URL of the HTTP server of the agent that is named, else of the one of this machine.
func findAgent(named string) (string, error) {
	option := "--agent"
	if named == "" {
		named, option = os.Getenv(agentVariable), agentVariable
	}
	if named != "" {
		agent := named
		if !strings.Contains(agent, "://") {
			agent = "http://" + agent
		}
		if u, err := url.Parse(agent); err != nil || u.Scheme != "http" || u.Host == "" {
			return "", fmt.Errorf("%s: must be http://host:port, got %q", option, named)
		}
		return strings.TrimSuffix(agent, "/"), nil
	}
	up := running()
	if len(up) > 1 {
		lines := make([]string, len(up))
		for i, a := range up {
			lines[i] = fmt.Sprintf("  %s of %s", a.Agent, a.APIServer)
		}
		return "", fmt.Errorf("%d agents run here; name one with --agent:\n%s", len(up), strings.Join(lines, "\n"))
	}
	if len(up) == 1 {
		return cmp.Or(up[0].Agent, defaultAgent), nil
	}
	return defaultAgent, nil
}

// agentClient asks an agent. A proxy of the environment is not on this machine.
func agentClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// noAgent says that nobody listens.
func noAgent(agent string, err error) error {
	return fmt.Errorf("no agent answers at %s: start one (kubecdc run), or say where it is (--agent http://host:port, its server.address): %w",
		agent, withoutRequest(err))
}

// notThat says that somebody else listens.
func notThat(agent, status, without string) error {
	return fmt.Errorf("what listens at %s answers %s: it is no agent, or one of a release without %s: say where it is with --agent", agent, status, without)
}
