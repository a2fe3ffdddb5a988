// Package release has the checks of the release recipe: .goreleaser.yaml and
// .github/workflows/release.yaml. It is a module of its own, so that goreleaser's dependencies stay
// out of the others.
package release
