package object

import "strings"

// CredentialAnnotations returns the names of annotations in which controllers copy credentials, in
// objects of any kind. A name that ends in * is a prefix.
func CredentialAnnotations() []string {
	return []string{
		"openshift.io/token-secret.value", // OpenShift: the token of a ServiceAccount
		"vcluster.loft.sh/token-*",        // vcluster: the projected tokens of a Pod
	}
}

// SecretAnnotations returns the names of the annotations that a redacted Secret keeps. Any other
// may have a copy of a value, or a hash by which guesses can be tested.
func SecretAnnotations() []string {
	return []string{
		"argocd.argoproj.io/sync-wave",
		"argocd.argoproj.io/tracking-id",
		"cert-manager.io/alt-names",
		"cert-manager.io/certificate-name",
		"cert-manager.io/common-name",
		"cert-manager.io/ip-sans",
		"cert-manager.io/issuer-group",
		"cert-manager.io/issuer-kind",
		"cert-manager.io/issuer-name",
		"cert-manager.io/uri-sans",
		"helm.sh/hook",
		"helm.sh/hook-delete-policy",
		"helm.sh/hook-weight",
		"helm.sh/resource-policy",
		"kubernetes.io/service-account.name",
		"kubernetes.io/service-account.uid",
		"meta.helm.sh/release-name",
		"meta.helm.sh/release-namespace",
		"openshift.io/token-secret.name",
	}
}

// annotations is the policy for the members of metadata.annotations. A higher value removes more.
type annotations uint8

const (
	allAnnotations annotations = iota
	withoutCredentials
	listedOnly // those of SecretAnnotations
)

// removes reports whether the policy removes the annotation with that name.
func (a annotations) removes(name []byte) bool {
	switch a {
	case withoutCredentials:
		for _, prefix := range credentialPrefixes {
			if len(name) >= len(prefix) && string(name[:len(prefix)]) == prefix {
				return true
			}
		}
		return credentialAnnotations[string(name)]
	case listedOnly:
		return !secretAnnotations[string(name)]
	}
	return false
}

//nolint:gochecknoglobals // constants; Go has none of maps
var (
	credentialAnnotations, credentialPrefixes = splitPrefixes(CredentialAnnotations())

	secretAnnotations, _    = splitPrefixes(SecretAnnotations())
	repeatingAnnotations, _ = splitPrefixes(annotationNames(Copies()))
)

// splitPrefixes separates the names of annotations from the prefixes, which end in *.
func splitPrefixes(all []string) (names map[string]bool, prefixes []string) {
	names = map[string]bool{}
	for _, name := range all {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			prefixes = append(prefixes, prefix)
		} else {
			names[name] = true
		}
	}
	return names, prefixes
}

// annotationNames returns the names of the annotations among paths.
func annotationNames(paths []string) (names []string) {
	for _, path := range paths {
		if segments, err := parsePath(path); err == nil && len(segments) == 3 && segments[1].name == "annotations" {
			names = append(names, segments[2].name)
		}
	}
	return names
}
