package past

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

// content returns the JSON of a version of an object: about 1.1 KB. Some values differ in each
// version. The same arguments return the same bytes.
func content(ref *object.Ref, rv uint64, born time.Time) []byte {
	rng := rand.New(rand.NewPCG(rv, 3)) //nolint:gosec // the same in each run
	name, res := ref.Name(), ref.Resource
	created, namespace := born.UTC().Format(time.RFC3339), ""
	if ref.Namespace() != "" {
		namespace = fmt.Sprintf(`"namespace":%q,`, ref.Namespace())
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,%s"uid":%q,"resourceVersion":"%d",`+
		`"generation":%d,`+
		`"creationTimestamp":%q,"labels":{"app.kubernetes.io/name":%q,"app.kubernetes.io/managed-by":"Helm",`+
		`"team":"payments","tier":"backend"},`+
		`"annotations":{"meta.helm.sh/release-name":"web","meta.helm.sh/release-namespace":"shop"}},"spec":{"replicas":%d,`+
		`"selector":{"matchLabels":{"app.kubernetes.io/name":%q}},`+
		`"template":{"spec":{"serviceAccountName":"web","containers":[{"name":"web",`+
		`"image":"registry.example.com/shop/web@sha256:%016x%016x%016x%016x",`+
		`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],`+
		`"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}}}]}}},`+
		`"status":{"observedGeneration":%d,"replicas":%d,"readyReplicas":%d,`+
		`"conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}`,
		res.APIVersion(), res.Kind, name, namespace, ref.UID, rv, rv%97,
		created, name, rv%9, name, rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64(), rv%97, rv%9, rv%7)
}
