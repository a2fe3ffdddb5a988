// Package oracle decides, from etcd's own history, whether the records on a bus are correct. It
// uses no code of the agent and starts no process, so its own tests run in seconds.
//
// # From history to verdict
//
// [History] reads each version of each object from a watch on etcd that starts at the first
// revision. [Expect] derives the expected records from that history and from a [View], which
// describes what the agent was configured to observe. [Reader] parses the messages of a bus into
// [Record] values and checks each against the contract. [Judge] compares the records with the
// expectations and returns a [Verdict], which lists each [Fault].
//
// A gap event excuses missing records in the range that it covers. [JudgeLives] therefore reports
// each gap, and each snapshot, without a cause that the test has recorded as a [Loss].
// [JudgeEpochs] checks that only one leader writes at a time. [Fail] marks the failure of a test as
// a verdict: CI then runs no test again.
//
// [JudgeProgress] compares each report of a writer ([Report]) with the records before it and with
// etcd's history. [Observers] reads from the records which scopes a writer observes, and at which
// times they are known to have its state.
//
// A bus like Kafka keeps order only within a partition. [Lanes] judges each partition as a separate
// stream, and requires that each stream event is in all of them. A dead letter ([Letter]) is
// missing on the bus, which a gap event must report.
//
// [Haystack] finds planted secrets in any text, whole or in parts, in plain or encoded form.
//
// # Falsification
//
// The tests of this package build a small correct history with correct records, make one change to
// the records, and require that the verdict names it. A check that no test here falsifies may pass
// on wrong records.
//
// # Goroutines
//
// None. The caller of [History.Run] provides a goroutine.
package oracle
