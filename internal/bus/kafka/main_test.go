package kafka_test

import (
	"context"
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

type logBuffer = bustest.LogBuffer

var (
	wait    = bustest.Wait
	event   = bustest.Event
	pods    = bustest.Pods
	discard = bustest.Discard
)

// Publish returns when the event has ended. It publishes again what is handed back.
func (k *kafkaRun) Publish(ctx context.Context, ev *encode.Event) error {
	return bustest.Await(k.Bus, false).Publish(ctx, ev)
}

// once returns what becomes of the event the first time.
func (k *kafkaRun) once(ev *encode.Event, with ...func(*publish.Event)) error {
	done := make(chan error, 1)
	e := publish.NewEvent(ev, func(err error) { done <- err }, nil)
	for _, f := range with {
		f(e)
	}
	k.Bus.Publish(e)
	return <-done
}

func deadLetter(e *publish.Event) { e.DeadLetter = true }
