package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// SetAccess implements driver.Readable.
func (c *Config) SetAccess(a *driver.Access) error {
	for flag, value := range map[string]string{"--stream": a.Stream, "--creds": a.Creds, "--domain": a.Domain, "--inbox-prefix": a.InboxPrefix} {
		if value != "" {
			return fmt.Errorf("%s is for NATS: give the topic as in kafka://host:port/topic, and credentials in the file (--config)", flag)
		}
	}
	for _, broker := range c.Brokers {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return errors.New("--bus: want kafka://host:port/topic, several brokers of one cluster separated by commas")
		}
	}
	c.TLS = c.TLS.WithCA(a.CAFile)
	return nil
}

// Source implements driver.Readable.
func (c *Config) Source(r *driver.Reading) (consume.Source, func(error) error, error) {
	dialer, err := NewDialer(c)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.kafka: %w", err)
	}
	match, err := topicsOf(c.Topic, r.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("bus.kafka.topic: %w", err)
	}
	dead, err := topicsOf(cmp.Or(r.DeadLetter, DefaultDeadTopic), r.Cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("deadLetter.topic: %w", err)
	}
	if topic := c.Topic; !strings.Contains(topic, "{") {
		match, dead = func(name string) bool { return name == topic }, func(string) bool { return false }
	}
	return &consume.Kafka{
		Brokers: c.Brokers, Dialer: dialer, Cluster: r.Cluster, Match: func(topic string) bool { return match(topic) && !dead(topic) },
	}, func(err error) error { return err }, nil
}

// topicsOf returns a function that reports whether a template may have produced a topic. An empty cluster matches any name.
func topicsOf(template, cluster string) (func(topic string) bool, error) {
	if cluster != "" || !strings.Contains(template, "{cluster}") {
		topics, err := NewTopics(template, cmp.Or(cluster, "-"))
		if err != nil {
			return nil, err
		}
		return func(topic string) bool { return topics.Match(topic, nil) }, nil
	}
	var pattern strings.Builder
	for rest := template; rest != ""; {
		literal, after, _ := strings.Cut(rest, "{")
		pattern.WriteString(regexp.QuoteMeta(literal))
		if len(literal) < len(rest) {
			pattern.WriteString("[a-zA-Z0-9._-]+")
		}
		_, rest, _ = strings.Cut(after, "}")
	}
	matching, err := regexp.Compile("^" + pattern.String() + "$")
	if err != nil {
		return nil, err
	}
	return matching.MatchString, nil
}

// Logs implements driver.Readable.
func (c *Config) Logs(ctx context.Context, r *driver.Reading) ([]consume.Log, error) {
	source, _, err := c.Source(r)
	if err != nil {
		return nil, err
	}
	reader, err := source.Read(ctx, consume.Query{})
	if err != nil {
		return nil, nil //nolint:nilerr // see driver.Readable
	}
	defer func() { _ = reader.Close() }() // no data to lose
	var logs []consume.Log
	for _, p := range reader.Positions() {
		logs = append(logs, p.Log)
	}
	return logs, nil
}

// CopiesOf implements driver.Partitioned: all partitions of every topic for objects of the event's resource have a copy. With {namespace}
// in the template, most progress events are only in some of them: there each copy counts as complete.
func (c *Config) CopiesOf(logs []consume.Position, e *consume.Event) int {
	topics, err := NewTopics(c.Topic, e.Cluster)
	if err != nil || topics.Varies() && e.Type == consume.TypeProgress {
		return 1
	}
	resource := &object.Resource{Group: e.Group(), Name: e.Resource}
	n := 0
	for _, p := range logs {
		if p.Name == e.Position.Name || topics.Match(p.Name, resource) {
			n++
		}
	}
	return n
}
