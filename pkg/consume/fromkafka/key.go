package fromkafka

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// longestKey limits the keys that are read. A key of an object has fewer than 1,000 bytes.
const longestKey = 4 << 10

var (
	keyGroup    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	keyResource = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// aboutKey reads the key of a record in Kafka:
//
//	prod/apps/deployments/shop/web     of an object; the group is core if it has none
//	prod/deployments.apps/shop,bank/3  of an event about a scope, in partition 3
//	prod/progress/5f2c98d1a4b0e367/3   of the progress of an agent
//
// Neither clusters nor groups, resources and names have a slash.
func aboutKey(key []byte) consume.About {
	if len(key) > longestKey {
		return consume.About{}
	}
	parts := strings.Split(string(key), "/")
	last := len(parts) - 1
	if parts[0] == "" || last < 2 {
		return consume.About{}
	}
	if last == 4 && keyGroup.MatchString(parts[1]) && keyResource.MatchString(parts[2]) && parts[3] != "" &&
		parts[4] != "" {
		a := consume.About{
			Cluster:   parts[0],
			Resource:  parts[2],
			Namespace: parts[3],
			Name:      parts[4],
		}
		if parts[1] != "core" {
			a.Resource += "." + parts[1]
		}
		if strings.Contains(a.Name, "~") { // shortened, or a name with this character
			a.Name = ""
		}
		return a
	}
	if _, err := strconv.ParseUint(parts[last], 10, 31); err != nil {
		return consume.About{}
	}
	if last == 3 && parts[1] == "progress" {
		return consume.About{Cluster: parts[0], Progress: true}
	}
	resource := strings.Join(parts[1:last], "/")
	if i := strings.IndexAny(resource, "/?"); i >= 0 {
		resource = resource[:i]
	}
	if !keyGroup.MatchString(resource) {
		return consume.About{}
	}
	return consume.About{Cluster: parts[0], Resource: resource}
}
