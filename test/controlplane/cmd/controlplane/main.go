// Command controlplane runs a Kubernetes control plane in the foreground until Ctrl-C, for people:
//
//	go run ./controlplane/cmd/controlplane
//	KUBECONFIG=… kubectl get pods -A -w
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(stderr)
	buildOnly := flags.Bool("build-only", false, "build the binary, print its path and end")
	version := flags.String("version", "",
		"minor version of Kubernetes, of test/cluster/versions; empty: that of test/cluster/go.mod")
	dir := flags.String("dir", "", "data directory, kept; empty: a temporary one")
	servers := flags.Int("api-servers", 1, "number of API servers")
	user := flags.String("user", controlplane.Admin,
		"user in the kubeconfig: "+controlplane.Admin+" or "+controlplane.Restricted)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *user != controlplane.Admin && *user != controlplane.Restricted {
		fmt.Fprintf(stderr, "controlplane: unknown user %q\n", *user)
		return 2
	}
	if *buildOnly {
		path, err := controlplane.BuildVersion(ctx, *version, stderr)
		if err != nil {
			fmt.Fprintln(stderr, "controlplane:", err)
			return 1
		}
		fmt.Fprintln(stdout, path)
		return 0
	}
	if err := serve(ctx, controlplane.Options{
		Dir:        *dir,
		APIServers: *servers,
		Version:    *version,
		Output:     stderr,
	},
		*user, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "controlplane:", err)
		return 1
	}
	return 0
}

// serve prints nothing but the path on stdout, so that a script can read it.
func serve(ctx context.Context, opts controlplane.Options, user string, stdout, stderr io.Writer) error {
	start := time.Now()
	cluster, err := controlplane.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	kubeconfig := filepath.Join(cluster.Dir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, user); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "controlplane: ready after %s, logs in %s, etcd at %s, Ctrl-C ends it\n",
		time.Since(start).Round(100*time.Millisecond), cluster.Dir(), cluster.EtcdEndpoint())
	fmt.Fprintln(stdout, kubeconfig)
	<-ctx.Done()
	return nil
}
