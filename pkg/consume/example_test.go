package consume_test

import (
	"encoding/json"
	"fmt"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// A Tracker is saved together with the position in the stream, and resumes from there.
func ExampleTracker_saved() {
	var rules consume.Tracker
	first, err := consume.Parse([]byte(consumetest.PodEvent("c", "web", "uid-1", 100, "")))
	if err != nil {
		panic(err)
	}
	rules.Apply(first)
	saved, err := json.Marshal(&rules)
	if err != nil {
		panic(err)
	}

	var restored consume.Tracker
	if err := json.Unmarshal(saved, &restored); err != nil {
		panic(err)
	}
	fmt.Println("objects:", restored.Len())
	fmt.Println("news:", restored.Apply(first).News)
	// Output:
	// objects: 1
	// news: false
}
