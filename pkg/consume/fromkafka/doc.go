// Package fromkafka reads the events of kubecdc from Kafka topics: Kafka is a consume.Source. The
// members of a consumer group share the partitions, and the brokers store the group's positions:
// see Kafka.Group and Committer.
//
// A Reader runs a goroutine for each partition, until Close. It fetches some megabytes ahead. The
// package logs nothing.
package fromkafka
