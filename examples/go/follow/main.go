// Command follow follows the stream of kubecdc and prints changes. With -once, it prints the
// objects that exist, and ends.
//
//	go run ./examples/go/follow [-server nats://127.0.0.1:4222] [-stream KUBECDC] [-once] [SUBJECT...]
//
// Subjects select the events, by default all: "kubecdc.*.*.core.pods.>" are the Pods of all
// clusters, stream events included.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

func main() {
	server := flag.String("server", "nats://127.0.0.1:4222", "the URL of NATS")
	stream := flag.String("stream", fromnats.DefaultStream, "the stream")
	once := flag.Bool("once", false, "print the objects that exist, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bus := &fromnats.JetStream{URL: *server, Stream: *stream, Subjects: flag.Args()}
	if err := follow(ctx, bus, *once, os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// key identifies an object.
type key struct {
	cluster       consume.ClusterKey
	resource, uid string
}

// follow prints changes to w, or, once, the objects that exist at the end of the stream.
func follow(ctx context.Context, bus consume.Source, once bool, w io.Writer) error {
	events, err := bus.Read(ctx, consume.Query{Start: consume.Beginning(), StopAtEnd: once})
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }() // only read

	var tracker consume.Tracker
	objects := map[key]json.RawMessage{}
	for {
		e, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		verdict := tracker.Apply(e)
		if verdict.News && e.Data != nil {
			if k := (key{e.ClusterKey(), e.GroupResource(), e.UID}); e.Op == consume.Deleted || e.Op == consume.Left {
				delete(objects, k)
			} else {
				objects[k] = e.Data.After
			}
			if !once {
				what := strings.TrimPrefix(e.Type.Name(), "object.")
				fmt.Fprintln(w, what, e.GroupResource(), name(e.Namespace, e.Name))
			}
		}
		for _, o := range verdict.Gone {
			delete(objects, key{o.ClusterKey(), o.Resource, o.UID})
			if !once {
				fmt.Fprintln(w, "swept", o.Resource, name(o.Namespace, o.Name))
			}
		}
	}

	out := json.NewEncoder(w)
	for o := range tracker.All() {
		err := out.Encode(map[string]any{
			"source": o.Source, "clusteruid": o.ClusterUID, "resource": o.Resource, "uid": o.UID,
			"object": objects[key{o.ClusterKey(), o.Resource, o.UID}],
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func name(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }
