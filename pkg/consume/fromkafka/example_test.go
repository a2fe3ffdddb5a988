package fromkafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
)

// The history of one object, from Kafka. If the name of the cluster is given, only the object's
// partition is read.
func ExampleKafka() {
	ctx := context.Background()
	bus := &fromkafka.Kafka{Brokers: []string{"127.0.0.1:9092"}, Topics: []string{"kubecdc.prod"}, Cluster: "prod"}
	web := consume.Objects{Groups: []string{"apps"}, Resource: "deployments", Namespace: "shop", Name: "web"}
	r, err := bus.Read(ctx, consume.Query{
		Objects:   []consume.Objects{web},
		Events:    consume.ObjectEvents,
		Start:     consume.Since(time.Now().Add(-time.Hour)),
		StopAtEnd: true,
	})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(err)
		}
		if e.Data != nil && e.Name == "web" { // the partition has other objects too
			fmt.Println(e.Time, e.Op, e.ResourceVersion)
		}
	}
}
