package main

import (
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/kafka"
)

func (b *bus) openKafka(cfg *config.Config, cluster string, log *slog.Logger, m *publish.Metrics) error {
	c := kafkaConfig(cfg.Bus.Kafka, cluster, int(cfg.Event.MaxBytes))
	c.DeadLetter, c.Fence = cfg.DeadLetter.Topic, b.fence
	c.Retiring = func(scope string) bool { return b.retiring != nil && b.retiring(scope) }
	k, err := kafka.New(c, log, m)
	if err != nil {
		return fmt.Errorf("bus.kafka: %w", err)
	}
	if showsPassword(cfg.Bus.Kafka) {
		log.Warn("the secret goes to the brokers unencrypted, whoever listens to the network has it: name bus.kafka.tls, or a SCRAM mechanism",
			"mechanism", string(cfg.Bus.Kafka.SASL.Mechanism))
	}
	b.Bus, b.check, b.logs = k, k.Check, k.Logs()
	if c.DeadLetter != "" {
		b.deadLetters = k
	}
	return nil
}

// kafkaConfig is what package kafka wants to know of a Kafka cluster, also of one that a relay sends to.
func kafkaConfig(k *config.Kafka, cluster string, maxEventBytes int) kafka.Config {
	c := kafka.Config{
		Brokers: k.Brokers, Cluster: cluster, Topic: k.Topic, Compression: string(k.Compression), Tombstones: k.Tombstones,
		MaxEventBytes: maxEventBytes, TLS: tlsConfig(k.TLS),
	}
	if k.Create != nil {
		c.Create = &kafka.Topic{Partitions: k.Create.Partitions, ReplicationFactor: k.Create.ReplicationFactor, Config: k.Create.Config}
	}
	if s := k.SASL; s != nil {
		c.SASL = &kafka.SASL{Mechanism: string(s.Mechanism), User: s.User, PasswordFile: s.PasswordFile, TokenFile: s.TokenFile, Insecure: s.Insecure}
		if o := s.OAuth; o != nil {
			c.SASL.OAuth = &kafka.OAuth{
				TokenURL: o.TokenURL, ClientID: o.ClientID, ClientSecretFile: o.ClientSecretFile, Scopes: o.Scopes, CAFile: o.CAFile, Insecure: o.Insecure,
			}
		}
	}
	return c
}

// showsPassword tells that a secret leaves this machine as it is: SCRAM proves that it is known without showing it.
func showsPassword(k *config.Kafka) bool {
	if k.SASL == nil || k.TLS != nil || k.SASL.Mechanism != config.SASLPlain && k.SASL.Mechanism != config.SASLOAuthBearer {
		return false
	}
	return slices.ContainsFunc(k.Brokers, func(broker string) bool {
		host, _, _ := net.SplitHostPort(broker)
		return host != "localhost" && !net.ParseIP(host).IsLoopback()
	})
}
