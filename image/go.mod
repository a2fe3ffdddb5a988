module github.com/kubecdc/kubecdc/image

go 1.26.0

toolchain go1.26.11

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d
)
