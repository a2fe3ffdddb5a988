// The command helm builds the helm for the chart's tests, if it is not there yet, and prints its
// path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kubecdc/kubecdc/test/chart"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := chart.Helm(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}
