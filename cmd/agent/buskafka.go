package main

import (
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func (b *bus) openKafka(cfg *config.Config, cluster string, log *slog.Logger, m *publish.Metrics) error {
	c := kafkaConfig(cfg.Bus.Kafka, cluster, int(cfg.Event.MaxBytes))
	c.DeadLetter, c.Fence = cfg.DeadLetter.Topic, b.fence
	c.Retiring = func(scope string) bool { return b.retiring != nil && b.retiring(scope) }
	k, err := publish.NewKafka(c, log, m)
	if err != nil {
		return fmt.Errorf("bus.kafka: %w", err)
	}
	if showsPassword(cfg.Bus.Kafka) {
		log.Warn("the secret goes to the brokers unencrypted, whoever listens to the network has it: name bus.kafka.tls, or a SCRAM mechanism",
			"mechanism", string(cfg.Bus.Kafka.SASL.Mechanism))
	}
	b.Publisher, b.check, b.run, b.ready, b.deadLetters = k, k.Check, k.Run, k.Ready, k.DeadLetters()
	b.logs = k.Logs()
	return nil
}

// kafkaConfig is what package publish wants to know of a Kafka cluster, also of one that a relay sends to.
func kafkaConfig(k *config.Kafka, cluster string, maxEventBytes int) publish.KafkaConfig {
	c := publish.KafkaConfig{
		Brokers: k.Brokers, Cluster: cluster, Topic: k.Topic, Compression: string(k.Compression), Tombstones: k.Tombstones,
		MaxEventBytes: maxEventBytes, TLS: tlsConfig(k.TLS),
	}
	if k.Create != nil {
		c.Create = &publish.KafkaTopic{Partitions: k.Create.Partitions, ReplicationFactor: k.Create.ReplicationFactor, Config: k.Create.Config}
	}
	if s := k.SASL; s != nil {
		c.SASL = &publish.SASL{Mechanism: string(s.Mechanism), User: s.User, PasswordFile: s.PasswordFile, TokenFile: s.TokenFile, Insecure: s.Insecure}
		if o := s.OAuth; o != nil {
			c.SASL.OAuth = &publish.OAuth{
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
