package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kubecdc/kubecdc/test/bench/past"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/process"
)

// natsServer is a server of the files of a directory, as a process.
type natsServer struct {
	self, dir, log string

	child *process.Child
	at    sinkAddress
}

func (s *natsServer) url() string { return s.at.URL }

func (s *natsServer) pid() int { return s.child.PID() }

func (s *natsServer) start(ctx context.Context) error {
	argv := []string{s.self, "sink", "--dir", s.dir}
	child, err := process.Start(process.Spec{
		Name:      "sink",
		Argv:      argv,
		Log:       s.log,
		Announces: true,
	})
	if err != nil {
		return err
	}
	s.child = child
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := child.Ready(ready)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &s.at)
}

func (s *natsServer) stop() error {
	if s.child == nil {
		return nil
	}
	child := s.child
	s.child = nil
	return child.Stop(time.Minute)
}

func (s *natsServer) restart(ctx context.Context) error {
	if err := errors.Join(s.stop(), past.DropPages(s.dir)); err != nil {
		return err
	}
	return s.start(ctx)
}

// kafkaTopic is a topic of a broker.
type kafkaTopic struct {
	cluster *kafka.Cluster
	name    string
}

func (t *kafkaTopic) url() string { return "kafka://" + t.cluster.Brokers()[0] + "/" + t.name }

func (t *kafkaTopic) pid() int { return t.cluster.Node(0).PID() }

func (t *kafkaTopic) restart(ctx context.Context) error {
	t.cluster.Node(0).Stop()
	if err := past.DropPages(t.cluster.Dir()); err != nil {
		return err
	}
	return t.cluster.Node(0).Start(ctx)
}
