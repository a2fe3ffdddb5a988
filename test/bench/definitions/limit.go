package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Seats that our users share after Limit.
const Seats = 10

// Limit has the API server work on few requests of our users at a time, and refuse the others with 429, as a cluster does that is
// busy or that keeps its agents short (API Priority and Fairness: a priority level that rejects). It holds within a second.
func (w *World) Limit(ctx context.Context) error {
	// Of the 245 shares that there are; rounded up to seats.
	const shares = 4
	var subjects []string
	for _, name := range w.o.Users {
		subjects = append(subjects, fmt.Sprintf(`{"kind":"User","user":{"name":%q}}`, User(name)))
	}
	const apf = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	return errors.Join(
		w.make(ctx, apf+"prioritylevelconfigurations", fmt.Sprintf(`{"metadata":{"name":"bench"},"spec":{"type":"Limited","limited":`+
			`{"nominalConcurrencyShares":%d,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`, shares)),
		w.make(ctx, apf+"flowschemas", fmt.Sprintf(`{"metadata":{"name":"bench"},"spec":{"matchingPrecedence":500,`+
			`"priorityLevelConfiguration":{"name":"bench"},"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[%s],`+
			`"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}],`+
			`"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, strings.Join(subjects, ","))))
}
