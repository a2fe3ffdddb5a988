{{/* All URLs and addresses that a configuration names: {nats: […], …}. */}}
{{- define "kubecdc.addresses" -}}
{{- $c := include "kubecdc.config" (dict "root" . "component" "agent") | fromYaml -}}
{{- $found := list -}}
{{- $targets := list $c.bus -}}
{{- range $c.relays -}}{{- $targets = append $targets (.to | default dict) -}}{{- end -}}
{{- range $bus := $targets -}}
{{- if hasKey $bus "nats" -}}
{{- range splitList "," (($bus.nats | default dict).url | default "nats://127.0.0.1:4222") -}}{{- $found = append $found (trim .) -}}{{- end -}}
{{- end -}}
{{- with $bus.kafka -}}
{{- range .brokers -}}{{- $found = append $found (printf "kafka://%s" .) -}}{{- end -}}
{{- with ((.sasl).oauth).tokenURL -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- with $bus.http -}}{{- $found = append $found .url -}}{{- end -}}
{{- if $bus.slack -}}{{- $found = append $found "https://slack.com" -}}{{- end -}}
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
{{- $known := dict "nats" "4222" "tls" "4222" "ws" "80" "wss" "443" "kafka" "9092" "http" "80" "https" "443" -}}
{{- range include "kubecdc.addresses" . | fromJsonArray -}}
{{- $scheme := regexFind "^[a-z]+" . -}}
{{- $host := regexReplaceAll "^[a-z]+://([^/?#]*).*$" . "${1}" -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- $ports = append $ports ($port | default (regexFind "[$][{][^}]*[}]" $host) | default (get $known $scheme)) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}
