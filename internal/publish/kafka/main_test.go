package kafka_test

import (
	"context"
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/publishtest"
)

func TestMain(m *testing.M) { os.Exit(publishtest.Main(m)) }

type logBuffer = publishtest.LogBuffer

var (
	wait    = publishtest.Wait
	event   = publishtest.Event
	pods    = publishtest.Pods
	discard = publishtest.Discard
)

// Publish returns when the event has ended. It publishes again what is handed back.
func (k *kafkaRun) Publish(ctx context.Context, ev *encode.Event) error {
	return publishtest.Await(k.Bus, false).Publish(ctx, ev)
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
