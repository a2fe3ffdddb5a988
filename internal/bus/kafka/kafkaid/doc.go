// Package kafkaid requests the ids of a Kafka cluster and its topics. A topic that is deleted and
// created again has another id (KIP-516, brokers from 2.8). kafka-go supports only Metadata
// versions without topic ids, so this package encodes its own request.
//
// It starts no goroutines and has no state.
package kafkaid
