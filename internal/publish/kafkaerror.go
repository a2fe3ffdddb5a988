package publish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"net"

	"github.com/segmentio/kafka-go"
)

// verdict is what becomes of a batch after an attempt.
type verdict byte

const (
	verdictRetry     verdict = iota // the very same bytes again
	verdictStored                   // acknowledged
	verdictTimestamp                // again, with the same sequence and the present time as timestamp
	verdictEpoch                    // again, in the next epoch of the producer id
	verdictProducer                 // again, with another producer id
	verdictTooLarge                 // refused; a smaller batch may be taken
	verdictRefused                  // refused; something in the batch is what the broker does not take
)

// judgeKafka tells what an error of a broker, or of the way to it, means for a batch. Advice is "" where nobody need act.
func judgeKafka(err error) (v verdict, reason, advice string) {
	code := kafka.Error(0)
	if !errors.As(err, &code) {
		if advice := adviceOnConnection(err); advice != "" {
			return verdictRetry, ReasonAuthorization, advice
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return verdictRetry, ReasonTimeout, ""
		}
		return verdictRetry, ReasonConnection, ""
	}
	switch code {
	case kafka.DuplicateSequenceNumber:
		return verdictStored, "", ""
	case kafka.OutOfOrderSequenceNumber, kafka.UnknownProducerId:
		return verdictEpoch, ReasonSequence, ""
	case kafka.InvalidProducerEpoch, kafka.ProducerFenced, kafka.InvalidProducerIDMapping, kafka.InvalidTransactionState:
		return verdictProducer, ReasonSequence, ""
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return verdictTooLarge, "", ""
	case kafka.InvalidTimestamp:
		return verdictTimestamp, ReasonTimestamp, ""
	case kafka.InvalidRecord, kafka.InvalidTopic, kafka.UnsupportedForMessageFormat, kafka.PolicyViolation:
		return verdictRefused, "", ""
	case kafka.UnsupportedCompressionType:
		return verdictRetry, ReasonBroker, "the broker does not know the compression: set bus.kafka.compression to gzip or none"
	case kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.UnknownTopicOrPartition, kafka.FencedLeaderEpoch,
		kafka.UnknownLeaderEpoch, kafka.ReplicaNotAvailable, kafka.BrokerNotAvailable, kafka.UnknownTopicID:
		return verdictRetry, ReasonLeader, ""
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return verdictRetry, ReasonReplicas, "fewer replicas are in sync than the topic's min.insync.replicas: see which brokers are down"
	case kafka.KafkaStorageError, kafka.LogDirNotFound:
		return verdictRetry, ReasonStorage, "the broker cannot write to its disk: see its log"
	case kafka.RequestTimedOut:
		return verdictRetry, ReasonTimeout, ""
	case kafka.NetworkException, kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup,
		kafka.ConcurrentTransactions, kafka.ThrottlingQuotaExceeded:
		return verdictRetry, ReasonBroker, "" // it has just started, or is busy
	}
	if advice := adviceOnConnection(err); advice != "" {
		return verdictRetry, ReasonAuthorization, advice
	}
	return verdictRetry, ReasonBroker, "the broker's log may say more: it is retried until the bus has it"
}

const adviceOnClocks = "the topic refuses records with the agent's present time: compare the clocks of agent and broker, and see the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms"

const adviceOnSASL = "the broker does not accept who we are: check bus.kafka.sasl (mechanism, user and what is in passwordFile, tokenFile or clientSecretFile), and that the broker knows the user"

// adviceOnConnection says what a person is to do about an error of authentication, authorization or TLS; "": none.
func adviceOnConnection(err error) string {
	var (
		code       kafka.Error
		unknownCA  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		invalid    x509.CertificateInvalidError
		verify     *tls.CertificateVerificationError
		remote     *net.OpError // with this Op an alert of the broker: it does not take our certificate, or wants one
		plaintext  tls.RecordHeaderError
		pathErr    *fs.PathError
		certainTLS = errors.As(err, &unknownCA) || errors.As(err, &hostname) || errors.As(err, &invalid) || errors.As(err, &verify) ||
			errors.As(err, &remote) && remote.Op == "remote error"
	)
	switch errors.As(err, &code); code {
	case kafka.TopicAuthorizationFailed:
		return "the user may not write to the topic: grant it Write and Describe on the topic, and Create where bus.kafka.create is set"
	case kafka.ClusterAuthorizationFailed:
		return "the user may not do this on the cluster: grant it Write on the topic, or IdempotentWrite on the cluster with brokers before 2.8, and Create where bus.kafka.create is set"
	case kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState:
		return adviceOnSASL
	case kafka.TransactionalIDAuthorizationFailed, kafka.BrokerAuthorizationFailed, kafka.SecurityDisabled:
		return "the user may not do this: see the broker's log of authorization"
	}
	switch {
	case errors.Is(err, errAuthentication):
		return adviceOnSASL
	case certainTLS:
		return "the TLS handshake fails: check caFile, certFile and keyFile of bus.kafka.tls, the broker's certificate and whom it trusts"
	case errors.As(err, &plaintext):
		return "the listener does not speak TLS: leave bus.kafka.tls out, or name another port in bus.kafka.brokers"
	case errors.As(err, &pathErr):
		return "a file that bus.kafka names cannot be read"
	}
	return ""
}

// levelOf is that of a log line: with advice a person must act.
func levelOf(advice string) slog.Level {
	if advice != "" {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// brokerError is the error of a code in an answer, nil where there is none.
func brokerError(code int16, message string) error {
	if code == 0 {
		return nil
	}
	return &brokerAnswer{code: kafka.Error(code), message: message}
}

type brokerAnswer struct {
	code    kafka.Error
	message string
}

func (e *brokerAnswer) Unwrap() error { return e.code }

func (e *brokerAnswer) Error() string {
	if e.message == "" {
		return e.code.Error()
	}
	return e.code.Title() + ": " + e.message
}
