package cloudevents_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/cloudevents"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// A receiver built on the CloudEvents SDK, here over HTTP, that applies the rules of the contract.
func ExampleFrom() {
	var rules consume.Tracker
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ce, err := binding.ToEvent(r.Context(), cehttp.NewMessageFromHttpRequest(r))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := cloudevents.From(ce)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println(e.ID, "news:", rules.Apply(e).News)
	}))
	defer receiver.Close()

	for range 2 { // a duplicate, as after a lost answer
		body := strings.NewReader(consumetest.PodEvent("c", "web", "uid-1", 100, ""))
		res, err := http.Post(receiver.URL, "application/cloudevents+json", body)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
	}
	// Output:
	// pods/uid-1/100 news: true
	// pods/uid-1/100 news: false
}

// An event for a sender or a router built on the CloudEvents SDK. It has the same id, attributes
// and data.
func ExampleTo() {
	e, err := consume.Parse([]byte(consumetest.PodEvent("c", "web", "uid-1", 100, "")))
	if err != nil {
		panic(err)
	}
	ce, err := cloudevents.To(e)
	if err != nil {
		panic(err)
	}
	fmt.Println(ce.Type(), ce.ID())
	fmt.Println(ce.Extensions()["kind"], ce.Extensions()["namespace"], ce.Extensions()["name"])
	// Output:
	// dev.kubecdc.object.created pods/uid-1/100
	// Pod shop web
}
