package fromfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// A file of events, read in two parts: the second reader continues at the position at which the
// first one stopped.
func ExampleFile() {
	ctx := context.Background()
	file := &fromfile.File{Path: exampleFile(
		consumetest.PodEvent("c", "web", "uid-1", 100, ""),
		consumetest.PodEvent("u", "web", "uid-1", 101, ""),
		consumetest.PodEvent("d", "web", "uid-1", 102, ""),
	)}
	defer func() { _ = os.Remove(file.Path) }()

	start := consume.Beginning()
	for _, part := range []int{1, 10} { // at most this number of events
		r, err := file.Read(ctx, consume.Query{Start: start})
		if err != nil {
			panic(err)
		}
		for range part {
			e, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				panic(err)
			}
			fmt.Println(e.Op, e.Name, e.ResourceVersion)
		}
		start = consume.After(r.Positions()...)
		fmt.Println("the next line is", r.Positions()[0].Next)
		r.Close()
	}
	// Output:
	// c web 100
	// the next line is 2
	// u web 101
	// d web 102
	// the next line is 4
}

// The pods that have been deleted, from a file of JSON lines.
func ExampleNewLines() {
	file := strings.NewReader(
		consumetest.PodEvent("c", "web", "uid-1", 100, "") + "\n" + consumetest.PodEvent("d", "web", "uid-1", 102, "") +
			"\n")
	lines := fromfile.NewLines("", file, consume.Query{})
	for {
		e, err := lines.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(err)
		}
		if e.GroupResource() == "pods" && e.Op == consume.Deleted {
			fmt.Println("deleted:", e.Subject)
		}
	}
	// Output:
	// deleted: /api/v1/namespaces/shop/pods/web
}

// exampleFile is a file that has the records, one on each line.
func exampleFile(records ...string) (path string) {
	f, err := os.CreateTemp("", "kubecdc-example-*.jsonl")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(records, "\n") + "\n"); err != nil {
		panic(err)
	}
	return f.Name()
}
