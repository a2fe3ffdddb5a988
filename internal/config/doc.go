// Package config is the file that an agent is started with: its types, its defaults, the strict load and the
// validation.
//
// The way of a file is always the same: [Default], then the file's keys laid over it, strictly, then
// [Config.Validate]. Everything that is wrong with a file is reported at once, each error with its path and, where it
// comes from a file, with line, column and excerpt.
//
// Invariants:
//   - No key is ignored: one that is not here is an "unknown field".
//   - What Load and Parse return without an error has passed Validate.
//   - ${NAME} is expanded inside scalar values only, after parsing: what a variable holds never changes the structure.
//   - No secret is held: secrets come from files that the configuration names.
//
// What is said about a key to people has one source each: what it means stands in the comments of configs/kubecdc.yaml;
// its type, default, choice and range here ([Default], [Enum], [Limits]). Tests make configs/kubecdc.schema.json
// and docs/reference/configuration.md of both; "go test ./internal/config -update" writes them.
//
// It starts no goroutine, opens no connection and knows nothing of what is served by a cluster.
package config
