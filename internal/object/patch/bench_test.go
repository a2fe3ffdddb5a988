package patch_test

import (
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/kubecdc/kubecdc/internal/object/patch"
)

func BenchmarkAppend(b *testing.B) {
	for _, name := range []string{"pod-unready", "pod-started", "deployment-scaled", "deployment-edited", "configmap"} {
		p := pairs(b)[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(p[1])))
			var dst []byte
			var err error
			for b.Loop() {
				dst, err = patch.Append(dst[:0], p[0], p[1])
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// A merge patch from two decoded trees, which says less (arrays are replaced whole).
	b.Run("baseline-json-merge-patch-pod-unready", func(b *testing.B) {
		p := pairs(b)["pod-unready"]
		b.ReportAllocs()
		for b.Loop() {
			if _, err := jsonpatch.CreateMergePatch(p[0], p[1]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
