package config

// What the reference and the JSON Schema share with Validate.
var (
	AllPaths      = allPaths
	ServerSchemes = serverSchemes
)

// Identity matches the paths that cannot be stripped.
func Identity() string { return identity.String() }

// Patterns are the regular expressions of texts that have one, by path.
func Patterns() map[string]string {
	return map[string]string{
		"cluster":                        clusterName.String(),
		"watch[].namespaces[]":           namespacePattern.String(),
		"strip[]":                        fieldPath.String(),
		"bus.nats.stream.name":           streamName.String(),
		"checkpoint.configMap.namespace": namespaceName.String(),
		"checkpoint.configMap.name":      configMapName.String(),
		"checkpoint.file.path":           absolutePath.String(),
	}
}
