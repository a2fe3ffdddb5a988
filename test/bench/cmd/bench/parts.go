package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/bench/baseline"
	"github.com/kubecdc/kubecdc/test/bench/buses"
	"github.com/kubecdc/kubecdc/test/bench/feed"
	"github.com/kubecdc/kubecdc/test/bench/sink"
	"github.com/kubecdc/kubecdc/test/bench/splice"
)

// parts are sub-commands that the command starts itself, so that each part is a separate process.
// Feed and sink announce their addresses in a line of JSON.
var parts = map[string]func(context.Context, []string, io.Writer) error{
	"feed": runFeed, "sink": runSink, "baseline": runBaseline, "splice": runSplice, "receive": runReceive,
}

type feedAddress struct {
	URL     string `json:"url"`
	Control string `json:"control"`
	Token   string `json:"token"`
}

type sinkAddress struct {
	URL string `json:"url"`
}

func announce(w io.Writer, address any) error {
	return json.NewEncoder(w).Encode(address)
}

func runFeed(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench feed", flag.ContinueOnError)
	var o feed.Options
	flags.IntVar(&o.Pods, "pods", 1000, "number of pods")
	flags.BoolVar(&o.TLS, "tls", false, "HTTPS with HTTP/2")
	kubeconfig := flags.String("kubeconfig", "", "file to write how to connect to")
	ca := flags.String("ca", "", "file to write the certificate to trust to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := feed.New(o)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error {
		if *kubeconfig != "" {
			text, err := s.Kubeconfig()
			if err != nil {
				return err
			}
			if err := os.WriteFile(*kubeconfig, text, 0o600); err != nil {
				return err
			}
		}
		if *ca != "" {
			if err := os.WriteFile(*ca, s.CA(), 0o600); err != nil {
				return err
			}
		}
		return announce(stdout, feedAddress{URL: s.URL(), Control: s.ControlURL(), Token: s.Token()})
	})
	return g.Wait()
}

func runSink(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench sink", flag.ContinueOnError)
	dir := flags.String("dir", "", "where to keep the streams")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return sink.Run(ctx, *dir, func(url string) error { return announce(stdout, sinkAddress{URL: url}) })
}

func runReceive(ctx context.Context, _ []string, stdout io.Writer) error {
	return buses.Receive(ctx, func(url string) error { return announce(stdout, sinkAddress{URL: url}) })
}

func runBaseline(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench baseline", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to connect to the API server")
	bus := flags.String("bus", "", "URL of the bus")
	groups := flags.String("groups", "",
		"instead of pods, all resources in groups with this suffix; it announces when they are known")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	if *groups == "" {
		return baseline.Run(ctx, config, *bus)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return collectOnOrder(ctx) })
	g.Go(func() error {
		return baseline.RunGroups(ctx, config, *bus, *groups, func() error { return announce(stdout, struct{}{}) })
	})
	return g.Wait()
}

func runSplice(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("bench splice", flag.ContinueOnError)
	var s splice.Server
	flags.StringVar(&s.URL, "server", "", "URL of the API server")
	flags.StringVar(&s.Token, "token", "", "bearer token")
	ca := flags.String("ca", "", "file of the certificate to trust")
	bus := flags.String("bus", "", "URL of the bus")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	s.CA, err = os.ReadFile(*ca)
	if err != nil {
		return fmt.Errorf("certificate to trust: %w", err)
	}
	return splice.Run(ctx, s, *bus)
}
