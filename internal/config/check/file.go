package check

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AbsolutePath matches paths that begin with the root.
var AbsolutePath = regexp.MustCompile(`^(/|[A-Za-z]:[/\\])`)

// SecretFile finds values that are not the path of a file. It does not repeat the value, which may be the secret itself.
func SecretFile(path *field.Path, file string) field.ErrorList {
	if file == "" || AbsolutePath.MatchString(file) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "must be the absolute path of a file that holds it, such as /etc/kubecdc/"+
		fileNames()[strings.ToLower(path.String()[strings.LastIndexByte(path.String(), '.')+1:])]+"; the secret itself does not belong here")}
}

// fileNames returns examples, by key in lower case.
func fileNames() map[string]string {
	return map[string]string{
		"credsfile": "nats.creds", "nkeyseedfile": "nats.nk", "urlfile": "webhook", "headersfile": "headers",
		"clientsecretfile": "client-secret", "keyfile": "redaction.key", "passwordfile": "password", "tokenfile": "token",
	}
}

// PlainFile finds values that are not the path of a file.
func PlainFile(path *field.Path, file, example string) field.ErrorList {
	if file == "" || AbsolutePath.MatchString(file) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, file, "must be an absolute path, such as "+example)}
}
