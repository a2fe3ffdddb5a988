// Package kafkaid asks a Kafka cluster for its id and those of topics. A topic that is deleted and created again has another id
// (KIP-516, brokers from 2.8). kafka-go knows versions of Metadata without topic ids, so this is one request of its own.
//
// It starts no goroutines and remembers nothing.
package kafkaid
