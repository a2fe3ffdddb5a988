// Command kafka runs a Kafka cluster in the foreground until its standard input ends, or Ctrl-C,
// for people:
//
//	go run ./kafka/cmd/kafka --nodes 3
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kubecdc/kubecdc/test/kafka"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("kafka", flag.ContinueOnError)
	flags.SetOutput(stderr)
	nodes := flags.Int("nodes", 1, "number of nodes")
	dir := flags.String("dir", "", "directory for data and logs, kept; empty: a temporary one")
	secure := flags.Bool("secure", false, "also listen with TLS and SASL, and print what a client needs")
	installOnly := flags.Bool("install-only", false,
		"install what a broker needs, say whether tests can have one, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *installOnly {
		return install(ctx, stderr)
	}
	o := kafka.Options{
		Nodes:  *nodes,
		Dir:    *dir,
		Secure: *secure,
		Output: stderr,
	}
	if err := serve(ctx, o, stdin, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "kafka:", err)
		return 1
	}
	return 0
}

// install does not fail if tests are skipped rather than failed.
func install(ctx context.Context, stderr io.Writer) int {
	wanted := os.Getenv(kafka.Env)
	if wanted == "skip" {
		fmt.Fprintf(stderr, "kafka: %s=skip: tests against a Kafka broker are skipped\n", kafka.Env)
		return 0
	}
	err := kafka.Available()
	switch {
	case err != nil && wanted == "require":
		fmt.Fprintf(stderr, "kafka: no broker can be had here, and %s=require: %v\n", kafka.Env, err)
		return 1
	case err != nil:
		fmt.Fprintf(stderr, "kafka: no broker can be had here, tests that need one are skipped: %v\n", err)
		return 0
	}
	if err := kafka.Install(ctx, stderr); err != nil {
		fmt.Fprintln(stderr, "kafka:", err)
		return 1
	}
	return 0
}

// serve prints the brokers on stdout, so that a script can read them, and everything else on
// stderr.
func serve(ctx context.Context, o kafka.Options, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := kafka.Available(); err != nil {
		return err
	}
	begin := time.Now()
	cluster, err := kafka.New(ctx, o)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	fmt.Fprintf(stderr, "kafka: ready after %s, logs in %s, end of input or Ctrl-C ends it\n",
		time.Since(begin).Round(100*time.Millisecond), cluster.Dir())
	if s := cluster.Security(); s != nil {
		for _, l := range []kafka.Listener{kafka.TLS, kafka.MutualTLS, kafka.SASL, kafka.SASLTLS} {
			fmt.Fprintf(stderr, "kafka: %s: %s\n", l, strings.Join(cluster.BrokersAt(l), ","))
		}
		fmt.Fprintf(stderr, "kafka: CA %s, client %s, %s, user %s, password %s\n", s.CAFile, s.CertFile, s.KeyFile,
			s.User, s.Password)
	}
	fmt.Fprintln(stdout, strings.Join(cluster.Brokers(), ","))
	ended := make(chan struct{})
	// A read from a terminal cannot be interrupted: at Ctrl-C this goroutine ends with the process.
	go func() {
		defer close(ended)
		_, _ = bufio.NewReader(stdin).WriteTo(io.Discard)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}
