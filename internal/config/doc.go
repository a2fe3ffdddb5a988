// Package config has the agent's configuration: its types, their defaults, and their validation.
//
// A configuration is always made in the same way: [Default], then the keys of the file (package
// yamldoc decodes them), then [Config.Validate]. All errors of a file are reported at once, each
// with its path, line and column.
//
// Invariants:
//   - No key is ignored: an unknown one is an error.
//   - What Load and Parse return without an error has passed Validate.
//   - It holds no secret: secrets are in files that the configuration names.
//
// Each fact about a key has one source. The comments of configs/kubecdc.yaml say what it means. Its
// type, default, choices and range are here ([Default], [yamldoc.Enum], [Limits]). Tests generate
// configs/kubecdc.schema.json and docs/reference/configuration.md from both; "go test
// ./internal/config -update" writes them.
//
// It starts no goroutine, opens no connection and knows nothing of what a cluster serves.
package config
