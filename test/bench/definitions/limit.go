package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Seats that our users share after Limit.
const Seats = 10

// Limit makes the API server execute few requests of our users at a time and reject the others with
// 429. A busy cluster does the same, as does one that limits its agents (API Priority and Fairness:
// a priority level that rejects). Limit takes effect within a second.
func (w *World) Limit(ctx context.Context) error {
	// A part of the 245 shares in total; rounded up to seats.
	const shares = 4
	var subjects []string
	for _, name := range w.o.Users {
		subjects = append(subjects, fmt.Sprintf(`{"kind":"User","user":{"name":%q}}`, User(name)))
	}
	const apf = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	return errors.Join(
		w.make(ctx, apf+"prioritylevelconfigurations",
			fmt.Sprintf(`{"metadata":{"name":"bench"},"spec":{"type":"Limited","limited":`+
				`{"nominalConcurrencyShares":%d,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`,
				shares)),
		w.make(ctx, apf+"flowschemas", fmt.Sprintf(`{"metadata":{"name":"bench"},"spec":{"matchingPrecedence":500,`+
			`"priorityLevelConfiguration":{"name":"bench"},"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[%s],`+
			`"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}],`+
			`"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, strings.Join(subjects, ","))))
}
