// Command sbom writes what a binary of Go was made of as CycloneDX JSON: the modules that the
// linker has written into it, with their sums, and the standard library.
//
//	sbom BINARY VERSION > kubecdc.cdx.json
//
// SOURCE_DATE_EPOCH, seconds since 1970, is the time in it. The same binary gives the same bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, binary, version, epoch string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return errors.New("SOURCE_DATE_EPOCH must be seconds since 1970, such as $(git log -1 --format=%ct)")
	}
	sum := sha256.Sum256(content)
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid(sum[:])
	self := cyclonedx.Component{
		BOMRef:     "kubecdc",
		Type:       cyclonedx.ComponentTypeApplication,
		Name:       "kubecdc",
		Version:    version,
		PackageURL: purl(info.Main.Path, version),
		Hashes: &[]cyclonedx.Hash{{
			Algorithm: cyclonedx.HashAlgoSHA256,
			Value:     hex.EncodeToString(sum[:]),
		}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339), Component: &self}
	components := []cyclonedx.Component{{
		BOMRef:      "std",
		Type:        cyclonedx.ComponentTypeLibrary,
		Name:        "std",
		Version:     strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL:  purl("std", strings.TrimPrefix(info.GoVersion, "go")),
		Description: "the standard library of Go",
	}}
	for _, m := range info.Deps {
		c, err := component(m)
		if err != nil {
			return err
		}
		components = append(components, c)
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bom.Components, bom.Dependencies = &components, &[]cyclonedx.Dependency{{Ref: self.BOMRef, Dependencies: &refs}}
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).
		EncodeVersion(bom, cyclonedx.SpecVersion1_6)
}

func component(m *debug.Module) (cyclonedx.Component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cyclonedx.Component{
		BOMRef:     purl(m.Path, m.Version),
		Type:       cyclonedx.ComponentTypeLibrary,
		Name:       m.Path,
		Version:    m.Version,
		Scope:      cyclonedx.ScopeRequired,
		PackageURL: purl(m.Path, m.Version),
	}
	digest, ok := strings.CutPrefix(m.Sum, "h1:") // sha256 of the sums of all files, golang.org/x/mod/sumdb/dirhash
	raw, err := base64.StdEncoding.DecodeString(digest)
	if !ok || err != nil {
		return c, fmt.Errorf("%s %s: no sum h1:… in the binary", m.Path, m.Version)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	return c, nil
}

// purl is a package URL, https://github.com/package-url/purl-spec.
func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// uuid is a UUID of version 8 (RFC 9562): of bytes of one's own.
func uuid(b []byte) string {
	u := append([]byte(nil), b[:16]...)
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
