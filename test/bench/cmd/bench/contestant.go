package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/test/bench/record"
)

// contestant is a program that carries changes of pods to the bus.
type contestant struct {
	name string
	argv func(r *rig) ([]string, error)
}

const everyone = "baseline,kubecdc,splice"

func (b *bench) choose(names string) ([]contestant, error) {
	all := []contestant{
		{"baseline", func(r *rig) ([]string, error) {
			return []string{b.self, "baseline", "--kubeconfig", r.kubeconfig, "--bus", r.sinkURL}, nil
		}},
		{"kubecdc", b.agentCommand},
		{"splice", func(r *rig) ([]string, error) {
			return []string{
				b.self, "splice", "--server", r.feed.URL, "--ca", r.ca, "--token", r.feed.Token, "--bus", r.sinkURL,
			}, nil
		}},
	}
	wanted := strings.Split(names, ",")
	var chosen []contestant
	for _, c := range all {
		if i := slices.Index(wanted, c.name); i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
			chosen = append(chosen, c)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("--contestants: there is no %q", wanted[0])
	}
	if slices.ContainsFunc(chosen, func(c contestant) bool { return c.name == agent }) {
		path, err := filepath.Abs(b.agent)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return nil,
				fmt.Errorf(
					"--agent: %s is no program; make build makes one, --contestants baseline,splice goes without",
					b.agent)
		}
		b.agent = path
	}
	return chosen, nil
}

// agentCommand runs the agent with its defaults. The stream exists already, the same for every
// contestant.
func (b *bench) agentCommand(r *rig) ([]string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return b.agentArguments(r.dir, r.kubeconfig, r.sinkURL, address, []string{"pods"}, "")
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// agentArguments returns the agent's command line, and writes a minimal configuration to dir. extra
// is added below the rule.
func (b *bench) agentArguments(
	dir, kubeconfig, sinkURL, address string, resources []string, extra string,
) ([]string, error) {
	config := filepath.Join(dir, "kubecdc.yaml")
	text := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
cluster: %s
watch:
  - resources: ["%s"]
%sbus:
  nats:
    url: %s
    stream: {name: %s, create: false}
checkpoint: {file: {path: %q}}
server: {address: "%s"}
`, record.Cluster, strings.Join(resources, `", "`), extra, sinkURL, record.Stream,
		filepath.Join(dir, "checkpoint.json"), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return []string{b.agent, "run", "--config", config, "--kubeconfig", kubeconfig}, nil
}
