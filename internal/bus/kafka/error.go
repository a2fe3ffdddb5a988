package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"

	"github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkanet"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/producer"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// diagnose returns the reason of a failed attempt, for the metric and the log, and the fix for the
// operator; "": none.
func diagnose(r producer.Result) (reason, advice string) {
	if advice := adviceOnConnection(r.Err); advice != "" {
		return publish.ReasonAuthorization, advice
	}
	code := kafka.Error(0)
	if !errors.As(r.Err, &code) {
		if errors.Is(r.Err, context.DeadlineExceeded) {
			return publish.ReasonTimeout, ""
		}
		return publish.ReasonConnection, ""
	}
	switch code {
	case kafka.OutOfOrderSequenceNumber, kafka.UnknownProducerId, kafka.InvalidProducerEpoch, kafka.ProducerFenced,
		kafka.InvalidProducerIDMapping,
		kafka.InvalidTransactionState:
		return publish.ReasonSequence, ""
	case kafka.InvalidTimestamp:
		if r.Verdict == producer.Restamp {
			return publish.ReasonTimestamp, ""
		}
		return publish.ReasonTimestamp,
			"the topic rejects records with the agent's current time: compare the clocks of agent and broker, and check the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms"
	case kafka.UnsupportedCompressionType:
		return publish.ReasonBroker,
			"the broker does not support the compression: set bus.kafka.compression to gzip or none"
	case kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.UnknownTopicOrPartition, kafka.FencedLeaderEpoch,
		kafka.UnknownLeaderEpoch, kafka.ReplicaNotAvailable, kafka.BrokerNotAvailable, kafka.UnknownTopicID:
		return publish.ReasonLeader, ""
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return publish.ReasonReplicas,
			"fewer replicas are in sync than the topic's min.insync.replicas: check which brokers are down"
	case kafka.KafkaStorageError, kafka.LogDirNotFound:
		return publish.ReasonStorage, "the broker cannot write to its disk: check its log"
	case kafka.RequestTimedOut:
		return publish.ReasonTimeout, ""
	case kafka.NetworkException, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable,
		kafka.NotCoordinatorForGroup,
		kafka.ConcurrentTransactions, kafka.ThrottlingQuotaExceeded:
		return publish.ReasonBroker, "" // the broker has just started, or is busy
	}
	return publish.ReasonBroker, "check the broker's log; the agent retries until the broker has the events"
}

const adviceOnSASL = "the broker rejects the credentials: check bus.kafka.sasl (mechanism, user and the content of passwordFile, tokenFile or clientSecretFile), and that the broker has the user"

// adviceOnConnection returns the fix for an error of authentication, authorization or TLS; "":
// none.
func adviceOnConnection(err error) string {
	var (
		code   kafka.Error
		verify *tls.CertificateVerificationError
		// with this Op it is an alert of the broker, which rejects our certificate or requires one
		remote     *net.OpError
		plaintext  tls.RecordHeaderError
		pathErr    *fs.PathError
		certainTLS = errors.As(err, &verify) || errors.As(err, &remote) && remote.Op == "remote error"
	)
	switch errors.As(err, &code); code {
	case kafka.TopicAuthorizationFailed:
		return "the user may not write to the topic: grant it Write and Describe on the topic, and Create if bus.kafka.create is set"
	case kafka.ClusterAuthorizationFailed:
		return "the user may not do this on the cluster: grant it Write on the topic, or IdempotentWrite on the cluster with brokers before 2.8, and Create if bus.kafka.create is set"
	case kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState:
		return adviceOnSASL
	case kafka.TransactionalIDAuthorizationFailed, kafka.BrokerAuthorizationFailed, kafka.SecurityDisabled:
		return "the user is not authorized: check the broker's authorization log"
	}
	switch {
	case errors.Is(err, kafkanet.ErrAuthentication):
		return adviceOnSASL
	case certainTLS:
		return "the TLS handshake fails: check caFile, certFile and keyFile of bus.kafka.tls, the broker's certificate and the authorities that it trusts"
	case errors.As(err, &plaintext):
		return "the listener does not support TLS: remove bus.kafka.tls, or use another port in bus.kafka.brokers"
	case errors.As(err, &pathErr):
		return "a file that bus.kafka names cannot be read"
	}
	return ""
}

// levelOf returns the level of a log line: with advice an operator must act.
func levelOf(advice string) slog.Level {
	if advice != "" {
		return slog.LevelError
	}
	return slog.LevelWarn
}
