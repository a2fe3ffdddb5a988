package identity_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

const (
	page     = "../../docs/guides/install.md"
	workflow = "../../.github/workflows/release.yaml"
	issuer   = "https://token.actions.githubusercontent.com"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// policy is what one command of cosign demands of a certificate.
type policy struct{ command, identity, issuer string }

// policies returns those of all commands of cosign in text. Each names one identity and one issuer,
// without patterns.
func policies(t *testing.T, text string) []policy {
	t.Helper()
	value := func(command, flag string) string {
		m := regexp.MustCompile(`--`+flag+`[ =]["']?([^ "']+)["']?`).FindAllStringSubmatch(command, -1)
		if len(m) != 1 {
			t.Fatalf("%d values of --%s in: %s", len(m), flag, command)
		}
		return m[0][1]
	}
	var all []policy
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		command := strings.TrimSpace(line)
		if !strings.HasPrefix(command, "cosign verify") {
			continue
		}
		if strings.Contains(command, "-regexp") {
			t.Errorf("a pattern can match what nobody thought of: %s", command)
		}
		all = append(all, policy{
			command, value(command, "certificate-identity"), value(command, "certificate-oidc-issuer"),
		})
	}
	return all
}

// TestPolicyOfThePage signs as workflows of several identities do, with certificates of a virtual
// Fulcio, and verifies with the policy of each command of the page.
func TestPolicyOfThePage(t *testing.T) {
	shown := policies(t, read(t, page))
	if len(shown) != 3 {
		t.Fatalf("%s has %d commands of cosign, want those for archives, image and chart", page, len(shown))
	}
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := verify.NewVerifier(sigstore, verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1))
	if err != nil {
		t.Fatal(err)
	}
	artifact := []byte("0123  kubecdc_1.2.3_linux_amd64.tar.gz\n")
	const right = "https://github.com/kubecdc/kubecdc/.github/workflows/release.yaml@refs/tags/v1.2.3"
	for name, signer := range map[string]struct {
		identity, issuer string
		passes           bool
	}{
		"the workflow at the tag":   {right, issuer, true},
		"another tag":               {strings.Replace(right, "v1.2.3", "v1.2.4", 1), issuer, false},
		"a tag that begins like it": {right + "0", issuer, false},
		"another workflow": {
			strings.Replace(right, "release.yaml", "pull-request.yaml", 1), issuer, false,
		},
		"a workflow whose name ends like it": {
			strings.Replace(right, "release.yaml", "x-release.yaml", 1), issuer, false,
		},
		"a branch": {
			strings.Replace(right, "refs/tags/v1.2.3", "refs/heads/main", 1), issuer, false,
		},
		"a branch with the name of the tag": {strings.Replace(right, "refs/tags", "refs/heads", 1), issuer, false},
		"a pull request": {
			strings.Replace(right, "refs/tags/v1.2.3", "refs/pull/7/merge", 1), issuer, false,
		},
		"a fork": {
			strings.Replace(right, "kubecdc/kubecdc", "mallory/kubecdc", 1), issuer, false,
		},
		"another repository of the owner": {
			strings.Replace(right, "kubecdc/kubecdc/", "kubecdc/site/", 1), issuer, false,
		},
		"a repository whose name begins alike": {
			strings.Replace(right, "kubecdc/kubecdc/", "kubecdc/kubecdc-x/", 1), issuer, false,
		},
		"a host whose name ends like it": {
			strings.Replace(right, "github.com", "evilgithub.com", 1), issuer, false,
		},
		"another issuer": {right, "https://gitlab.com", false},
	} {
		t.Run(name, func(t *testing.T) {
			entity, err := sigstore.Sign(signer.identity, signer.issuer, artifact)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range shown {
				identity, err := verify.NewShortCertificateIdentity(p.issuer, "", p.identity, "")
				if err != nil {
					t.Fatal(err)
				}
				policy := verify.NewPolicy(verify.WithArtifact(bytes.NewReader(artifact)),
					verify.WithCertificateIdentity(identity))
				switch _, err = verifier.Verify(entity, policy); {
				case signer.passes && err != nil:
					t.Errorf("%s\nrefuses %s: %v", p.command, signer.identity, err)
				case !signer.passes && err == nil:
					t.Errorf("%s\naccepts %s", p.command, signer.identity)
				case !signer.passes && !strings.Contains(err.Error(), "certificate identity"):
					t.Errorf("refused for another reason: %v", err)
				}
			}
			// The right signer vouches for nothing else.
			identity, err := verify.NewShortCertificateIdentity(signer.issuer, "", signer.identity, "")
			if err != nil {
				t.Fatal(err)
			}
			other := verify.NewPolicy(verify.WithArtifact(strings.NewReader("other")),
				verify.WithCertificateIdentity(identity))
			if _, err := verifier.Verify(entity, other); err == nil {
				t.Error("a signature of another file passes")
			}
		})
	}
}

// TestWorkflowVerifiesWithThePolicy compares the page with what the workflow checks before it
// pushes image and chart.
func TestWorkflowVerifiesWithThePolicy(t *testing.T) {
	checked := policies(t, strings.ReplaceAll(read(t, workflow), "${GITHUB_REF_NAME}", "v1.2.3"))
	if len(checked) != 1 {
		t.Fatalf("%s has %d commands of cosign, want one", workflow, len(checked))
	}
	for _, p := range policies(t, read(t, page)) {
		if p.identity != checked[0].identity || p.issuer != checked[0].issuer {
			t.Errorf("the page demands %s of %s, the workflow %s of %s", p.identity, p.issuer, checked[0].identity,
				checked[0].issuer)
		}
	}
	if _, err := os.Stat("../../.github/workflows/release.yaml"); err != nil ||
		!strings.Contains(checked[0].identity, "/.github/workflows/release.yaml@") {
		t.Errorf("the identity is not that of the workflow: %s", checked[0].identity)
	}
}
