{{/* All URLs and addresses that a configuration names. */}}
{{- define "kubecdc.addresses" -}}
{{- $c := include "kubecdc.config" (dict "root" . "component" "agent") | fromYaml -}}
{{- $found := list -}}
{{- $targets := list $c.bus -}}
{{- range $c.relays -}}{{- $targets = append $targets (.to | default dict) -}}{{- end -}}
{{- range $bus := $targets -}}
{{- range include "kubecdc.ofBus" (dict "key" "addresses" "bus" $bus "at" "bus") | default "[]" | fromJsonArray -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- with (($c.claimCheck).http).url -}}{{- $found = append $found . -}}{{- end -}}
{{- with ($c.deadLetter).url -}}{{- $found = append $found . -}}{{- end -}}
{{- if ($c.tracing).enabled -}}{{- $found = append $found (default "http://127.0.0.1:4318" $c.tracing.endpoint) -}}{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
The part of a URL that may be shown: scheme, host and port. A path or a query may be a secret, as a webhook's is, and so may be the value of
a variable.
*/}}
{{- define "kubecdc.place" -}}
{{- regexFind "^([a-z]+://)?(\\[[^]]*\\]|[^/?#:@]+)(:[0-9]+)?" . -}}
{{- end -}}

{{/* Their ports, as text; that of the scheme where none is written, and ${NAME} where a variable has it. */}}
{{- define "kubecdc.ports" -}}
{{- $ports := list -}}
{{- $known := include "kubecdc.schemes" . | fromYaml -}}
{{- range include "kubecdc.addresses" . | fromJsonArray -}}
{{- $scheme := regexFind "^[a-z]+" . -}}
{{- $host := regexReplaceAll "^[a-z]+://([^/?#]*).*$" . "${1}" -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- $ports = append $ports ($port | default (regexFind "[$][{][^}]*[}]" $host) | default (get $known $scheme)) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}
