package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

func main() {
	// A closed terminal and a pipe without a reader (make demo | head) end the demo like Ctrl-C.
	// SIGPIPE is ignored until the end, because the shutdown writes output, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGPIPE)
	// A second Ctrl-C ends the demo at once; the kernel ends its children.
	context.AfterFunc(ctx, stop)
	binary := flag.String("kubecdc", "bin/kubecdc", "the binary (make build)")
	flag.Parse()
	d, err := fromEnvironment(os.Getenv)
	if err == nil {
		d.binary, d.screen = *binary, newScreen(os.Stdout, os.Getenv)
		err = d.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// fromEnvironment configures a demo from the environment (doc.go).
func fromEnvironment(getenv func(string) string) (*demo, error) {
	d := &demo{
		kubeconfig: getenv("KUBECONFIG_DEMO"),
		context:    getenv("KUBECONFIG_DEMO_CONTEXT"),
		started:    time.Now(),
		built:      controlplane.IsBuilt,
		download:   controlplane.Download,
		build:      controlplane.Build,
	}
	if d.kubeconfig == "" && d.context != "" {
		return nil, errors.New("KUBECONFIG_DEMO_CONTEXT: names a context of the file KUBECONFIG_DEMO, which is not set")
	}
	if rest, ok := strings.CutPrefix(d.kubeconfig, "~/"); ok {
		// make demo KUBECONFIG_DEMO=~/…, which the shell does not expand
		d.kubeconfig = filepath.Join(getenv("HOME"), rest)
	}
	if d.kubeconfig != "" {
		if _, err := os.Stat(d.kubeconfig); err != nil {
			return nil, fmt.Errorf("KUBECONFIG_DEMO: %w", err)
		}
	}
	if v := getenv("DEMO_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("DEMO_SECONDS: must be a whole number of seconds, got %q", v)
		}
		d.limit = time.Duration(n) * time.Second
	}
	if v := getenv("DEMO_STARTED"); v != "" {
		var err error
		d.started, err = seconds(v)
		if err != nil {
			return nil, fmt.Errorf("DEMO_STARTED: must be seconds since 1970, got %q", v)
		}
	}
	d.stages.last = d.started
	return d, d.stages.parse(getenv("DEMO_STAGES"))
}
