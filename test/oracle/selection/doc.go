// Package selection decides which records an agent must write under rules: resources, namespaces,
// selectors, operations, expressions, redaction and stripped fields.
//
// A [Drawer] draws a [Config] from a seed. Each part of a Config exists twice: as text for the
// agent's configuration, and as a Go function over etcd's values as encoding/json decodes them. No
// code of the agent takes part. [ReadArchive] reads whole objects from etcd, [Config.Choose]
// derives the records, and [Judge] compares them with those on the bus, contents included.
//
// [Config.Mutations] returns configurations that differ in one rule: records that are correct for
// one must be wrong for the others.
//
// The package starts no goroutines.
package selection
