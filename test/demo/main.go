package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// fromEnvironment is a demo as the environment says (doc.go).
func fromEnvironment(getenv func(string) string) (*demo, error) {
	d := &demo{kubeconfig: getenv("KUBECONFIG_DEMO"), context: getenv("KUBECONFIG_DEMO_CONTEXT"), started: time.Now()}
	if d.kubeconfig == "" && d.context != "" {
		return nil, errors.New("KUBECONFIG_DEMO_CONTEXT: names a context of the file KUBECONFIG_DEMO, which is not set")
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
	if seconds, err := strconv.ParseFloat(getenv("DEMO_STARTED"), 64); err == nil {
		d.started = time.UnixMicro(int64(seconds * 1e6))
	}
	return d, nil
}
